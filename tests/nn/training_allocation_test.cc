// A step of a shape that was seen before allocates nothing: neither with operator new nor the aligned memory of buffers.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "support/training_cases.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REGARD_TEST_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define REGARD_TEST_SANITIZED
#endif
#endif

#ifndef REGARD_TEST_SANITIZED
#include <malloc.h>

// The sanitizers bring their own functions. Not inlined: the compiler would otherwise see malloc meet operator delete and warn.
namespace {
std::atomic<int64_t> allocations{0};
}
[[gnu::noinline]] void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
extern "C" [[gnu::noinline]] void* aligned_alloc(size_t alignment, size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return ::memalign(alignment, size);
}

namespace regard::test {
namespace {

class TrainingAllocation : public testing::TestWithParam<TrainingCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, TrainingAllocation, testing::ValuesIn(training_cases()), [](const auto& one) { return one.param.name; });

TEST_P(TrainingAllocation, StepsAfterTheFirstAllocateNothing) {
  const TrainingCase& c = GetParam();
  if (c.config.position == nn::PositionKind::kXl) return;  // planned in every call: its distances are projected anew
  for (const nn::Recompute recompute : {nn::Recompute::kNone, nn::Recompute::kCheap, nn::Recompute::kFull}) {
    nn::TransformerConfig config = c.config;
    config.recompute = recompute;
    ThreadPool pool(2);
    nn::Transformer<float> model(config, 1);
    const auto steps = [&](int64_t first) {
      nn::TrainingStep step{.seed = 5, .step = first};
      model.forward_backward(pool, c.data.view(), step);
      step.step += 1;
      model.forward_backward(pool, c.data.view(), step);
      model.evaluate(pool, c.data.view());
    };
    const int64_t before = allocations.load();
    steps(0);
    const int64_t between = allocations.load();
    steps(2);
    EXPECT_GT(between, before) << "the counter does not count";
    EXPECT_EQ(allocations.load(), between);
  }
}

// Two shapes by turns, as batches to train on and to evaluate.
TEST(TrainingAllocation, ShapesThatTakeTurnsAllocateNothing) {
  ThreadPool pool(2);
  nn::TransformerConfig config = small_config();
  config.attention_dropout = 0.1;
  nn::Transformer<float> model(config, 1);
  const BatchData large = random_batch(config, 3, 16), small = random_batch(config, 1, 5);
  const auto steps = [&] {
    model.forward_backward(pool, large.view(), {});
    model.evaluate(pool, small.view());
    model.forward_backward(pool, small.view(), {});
  };
  steps();
  const int64_t before = allocations.load();
  steps();
  EXPECT_EQ(allocations.load(), before);
}

// Lists that change from step to step are planned once for all layers: more layers allocate no more.
TEST(TrainingAllocation, ListsArePlannedOnceForAllLayers) {
  ThreadPool pool(2);
  const auto of_a_step = [&](int64_t layers) {
    nn::TransformerConfig config = small_config();
    config.num_layers = layers;
    nn::Transformer<float> model(config, 1);
    int64_t least = INT64_MAX;
    for (int32_t step = 0; step < 6; ++step) {
      BatchData data = random_batch(config, 3, 9);
      for (int32_t i = 0; i < 27; ++i) data.documents.push_back(i % 9 > step ? 1 : 0);
      const int64_t before = allocations.load();
      model.forward_backward(pool, data.view(), {});
      if (step > 1) least = std::min(least, allocations.load() - before);
    }
    return least;
  };
  const int64_t one = of_a_step(1);
  EXPECT_GT(one, 0);
  EXPECT_EQ(of_a_step(5), one);
}

}  // namespace
}  // namespace regard::test
#endif
