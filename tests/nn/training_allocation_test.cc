// A step of a shape that was seen before allocates nothing: neither with operator new nor the aligned memory of buffers.
#include <gtest/gtest.h>

#include "support/count_allocations.h"
#include "support/training_cases.h"

#ifndef REGARD_TEST_SANITIZED
namespace regard::test {
namespace {

class TrainingAllocation : public testing::TestWithParam<TrainingCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, TrainingAllocation, testing::ValuesIn(training_cases()), [](const auto& one) { return one.param.name; });

void expect_later_steps_allocate_nothing(const TrainingCase& c) {
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
    EXPECT_EQ(allocations.load(), between) << c.name << ", policy " << static_cast<int>(recompute);
  }
}

TEST_P(TrainingAllocation, StepsAfterTheFirstAllocateNothing) { expect_later_steps_allocate_nothing(GetParam()); }

constexpr nn::PositionKind kPositions[] = {nn::PositionKind::kNone,  nn::PositionKind::kLearned, nn::PositionKind::kSinusoidal, nn::PositionKind::kRope,
                                           nn::PositionKind::kAlibi, nn::PositionKind::kT5,      nn::PositionKind::kXl};

nn::TransformerConfig config_with(nn::PositionKind position) {
  nn::TransformerConfig config = small_config();
  config.position = position;
  config.t5_buckets = 6;
  config.t5_max_distance = 8;
  return config;
}

// Every kind of position with every dropout, in a decoder and an encoder, its sequences side by side, padded, or packed with
// positions of their own.
TEST(TrainingAllocation, PositionsWithDropoutAllocateNothing) {
  for (const nn::PositionKind position : kPositions)
    for (const nn::Architecture architecture : {nn::Architecture::kDecoder, nn::Architecture::kEncoder}) {
      nn::TransformerConfig config = config_with(position);
      config.architecture = architecture;
      config.embedding_dropout = config.residual_dropout = config.attention_dropout = 0.1;
      const std::string name = "position " + std::to_string(static_cast<int>(position)) + ", architecture " + std::to_string(static_cast<int>(architecture));
      BatchData padded = random_batch(config, 3, 9), packed = padded;
      padded.lengths = {9, 0, 5};
      for (int i = 0; i < 27; ++i) {
        packed.documents.push_back(i % 9 / 3);
        packed.encoding_positions.push_back(i % 3);
      }
      expect_later_steps_allocate_nothing({name, config, random_batch(config, 3, 9)});
      expect_later_steps_allocate_nothing({name + ", padded", config, padded});
      expect_later_steps_allocate_nothing({name + ", packed", config, packed});
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
  const auto of_a_step = [&](nn::PositionKind position, int64_t layers) {
    nn::TransformerConfig config = config_with(position);
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
  for (const nn::PositionKind position : kPositions) {
    const int64_t one = of_a_step(position, 1);
    EXPECT_GT(one, 0);
    EXPECT_EQ(of_a_step(position, 5), one) << "position " << static_cast<int>(position);
  }
}

}  // namespace
}  // namespace regard::test
#endif
