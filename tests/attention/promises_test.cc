// The promises of the public call: empty rows, masked data, rows that do not know their company, memory; and what it
// refuses.
#include <gtest/gtest.h>

#include "attention/calls.h"
#include "attention/masked_data.h"
#include "regard/error.h"
#include "runtime/thread_pool.h"
#include "support/process_memory.h"

namespace regard {
namespace {

using namespace testing_attention;
using test::peak_kib;

TEST(Promise1, RowsThatSeeNothing) {
  Problem p = with_lengths(20, 600, 40, 40);
  p.fill(16);
  for (float& x : p.q) x = NAN;  // whatever the query holds
  for (const Mask& mask : {Mask::none(), Mask::causal() & ~Mask::causal(), Mask::window(0, 0) & ~Mask::prefix(1000)}) {
    const Result got = run(p, mask);
    for (float x : got.out) ASSERT_EQ(bits(x), 0u) << mask.text();
    for (float x : got.lse) ASSERT_EQ(x, -INFINITY) << mask.text();
  }
  // Visible scores that are all -inf make an empty row too; one +inf makes NaN.
  p.fill(17);
  std::fill_n(p.query(0, 0, 3), p.d, 1.0f);
  std::fill_n(p.query(0, 1, 3), p.d, -1.0f);
  for (int64_t j = 0; j < p.kv_len; ++j) p.key(0, 0, j)[0] = -INFINITY;
  const Result got = run(p, Mask::full());
  for (int64_t c = 0; c < p.dv; ++c) {
    EXPECT_EQ(bits(got.out[static_cast<size_t>((0 * 20 + 3) * p.dv + c)]), 0u);
    EXPECT_TRUE(std::isnan(got.out[static_cast<size_t>((1 * 20 + 3) * p.dv + c)]));
  }
  EXPECT_EQ(got.lse[3], -INFINITY);
  EXPECT_TRUE(std::isnan(got.lse[20 + 3]));
}

TEST(Promise2, MaskedDataCannotMatter) {
  expect_masked_data_cannot_matter([](const Problem& p, const Mask& mask) { return run(p, mask); });
}

TEST(Promise2, VisibleNanComesThrough) {
  Problem p = with_lengths(12, 300, 16, 16);
  p.fill(19);
  const Mask mask = Mask::window(50, 0);
  Problem dirty = p;
  dirty.key(0, 1, 270)[3] = NAN;
  dirty.value(0, 0, 270)[5] = NAN;
  const Result clean = run(p, mask), got = run(dirty, mask);
  for (int64_t h = 0; h < 4; ++h)
    for (int64_t i = 0; i < 12; ++i)
      for (int64_t c = 0; c < 16; ++c) {
        const auto at = static_cast<size_t>((h * 12 + i) * 16 + c);
        const bool hit = mask.allowed(0, h, p.q_begin + i, 270) && (h >= 2 || c == 5);
        ASSERT_EQ(std::isnan(got.out[at]), hit);
        if (!hit) {
          ASSERT_EQ(bits(got.out[at]), bits(clean.out[at]));
        }
      }
}

TEST(Promise4, ThreadsAndBatchDoNotMatterInPublicCalls) {
  Problem p;
  p.batch = 3, p.num_q_heads = 4, p.num_kv_heads = 2, p.q_len = p.kv_len = 600, p.d = 40, p.dv = 40;
  p.fill(20);
  for (const Mask& mask : {Mask::full(), Mask::causal(), masks()[3], masks()[4], masks()[5]}) {
    set_default_pool_size(1);
    const Result want = run(p, mask);
    for (int threads : {2, 3, 8}) {
      set_default_pool_size(threads);
      ASSERT_EQ(run(p, mask), want) << threads << " threads, " << mask.text();
      Problem alone = p;
      alone.batch = 1, alone.num_kv_heads = 2, alone.q_len = 1, alone.q_begin = 599;
      alone.q.clear();
      for (int64_t h = 0; h < 4; ++h) alone.q.insert(alone.q.end(), p.query(2, h, 599), p.query(2, h, 599) + p.d);
      alone.k.assign(p.key(2, 0, 0), p.key(2, 0, 0) + 2 * 600 * p.d);
      alone.v.assign(p.value(2, 0, 0), p.value(2, 0, 0) + 2 * 600 * p.dv);
      const Result got = run(alone, mask);
      for (int64_t h = 0; h < 4; ++h)
        ASSERT_TRUE(same_bits(got.out.data() + h * p.dv, want.out.data() + ((2 * 4 + h) * 600 + 599) * p.dv, p.dv))
            << "the last row alone";
    }
  }
  set_default_pool_size(2);
}

// The address sanitizer keeps a byte about every eight.
#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t kShadow = 8;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr int64_t kShadow = 8;
#else
constexpr int64_t kShadow = 0;
#endif
#else
constexpr int64_t kShadow = 0;
#endif

// 2,048 x 65,536 weights would take 512 MiB, and their bits 16 MiB.
TEST(Promise6, MemoryGrowsWithTheLengthAlone) {
  Problem p;
  p.q_len = 2048, p.kv_len = 65536, p.d = 4, p.dv = 4, p.q_begin = 65536 - 2048;
  p.fill(21);
  Result r(p);
  {
    std::ofstream reset("/proc/self/clear_refs");
    if (!(reset << "5" << std::flush)) GTEST_SKIP() << "the peak cannot be reset here";
  }
  for (const Mask& mask : {Mask::causal(), Mask::parse("causal & ~dilated(7)")}) {
    const int64_t before = peak_kib();
    attend(q_view(p), k_view(p), v_view(p), mask, options_of(p), out_view(p, r), lse_view(p, r));
    const int64_t grown = peak_kib() - before;
    // The packed copy is 65,536 x (4 + 16) floats = 5 MiB; scratch is below 1 MiB for each thread.
    const int64_t ours = 5 * 1024 + 1024 * (default_pool().size() + 2);
    EXPECT_LT(grown, ours + (kShadow > 0 ? ours / kShadow : 0)) << mask.text();
  }
}

// ---- refusals
// -----------------------------------------------------------------------------------------------------------

TEST(Refusals, ShapesNumbersAndMemory) {
  Problem p = with_lengths(3, 5, 8, 8);
  p.fill(1);
  Result r(p);
  const AttentionOptions o = options_of(p);
  const Mask mask = Mask::causal();
  const auto with = [&](auto&& change, std::initializer_list<const char*> words, Code code = Code::kInvalidArgument) {
    TensorView<const float> q = q_view(p), k = k_view(p), v = v_view(p);
    TensorView<float> out = out_view(p, r), lse = lse_view(p, r);
    AttentionOptions options = o;
    change(q, k, v, out, lse, options);
    expect_refused(code, words, [&] { attend(q, k, v, mask, options, out, lse); });
  };
#define CHANGE(...)                                                                                             \
  [&]([[maybe_unused]] auto& q, [[maybe_unused]] auto& k, [[maybe_unused]] auto& v, [[maybe_unused]] auto& out, \
      [[maybe_unused]] auto& lse, [[maybe_unused]] auto& options) { __VA_ARGS__; }
  with(CHANGE(q.shape[1] = 3; out.shape[1] = 3; lse.shape[1] = 3),
       {"[attend]", "3 query heads", "2 KV heads", "multiple"});  // M09
  with(CHANGE(k.shape[3] = 7), {"head_dim", "8", "7"});
  with(CHANGE(k.shape[0] = 2), {"batch", "1 and 2"});
  with(CHANGE(v.shape[2] = 4), {"[1, 2, 5, 8]", "[1, 2, 4, 8]"});
  with(CHANGE(out.shape[2] = 2), {"out", "[1, 4, 2, 8]", "[1, 4, 3, 8]"});
  with(CHANGE(lse.shape[2] = 4), {"lse", "[1, 4, 4]", "[1, 4, 3]"});
  with(CHANGE(q.rank = 3), {"q", "3 axes", "4"});
  with(CHANGE(q.data = nullptr), {"q", "no data"});
  with(CHANGE(q.shape[2] = -1), {"negative"});
  with(CHANGE(k.shape[3] = q.shape[3] = 0), {"head_dim is 0"});
  with(CHANGE(k.shape[3] = q.shape[3] = 513; q.strides = {0, 0, 0, 0}; k.strides = {0, 0, 0, 0}), {"513", "512"},
       Code::kUnsupported);
  with(CHANGE(out.strides[2] = 0), {"out", "overlaps itself"});  // M06
  with(CHANGE(out.strides[2] = 7), {"out", "overlaps itself", "7"});
  with(CHANGE(out.data = p.q.data()), {"out", "overlaps", "its own"});
  with(CHANGE(lse.data = r.out.data()), {"lse", "overlaps"});
  with(CHANGE(q.strides[0] = INT64_MAX; q.shape[0] = k.shape[0] = v.shape[0] = out.shape[0] = lse.shape[0] = 3),
       {"strides", "out of memory"});
  with(CHANGE(q.data = reinterpret_cast<const float*>(reinterpret_cast<const char*>(q.data) + 1)), {"address"});  // M15
  with(CHANGE(options.scale = NAN), {"scale", "nan"});                                                            // M08
  with(CHANGE(options.scale = INFINITY), {"scale", "inf"});
  with(CHANGE(options.softcap = -1), {"softcap", "-1"});
  with(CHANGE(options.softcap = NAN), {"softcap", "nan"});
  with(CHANGE(options.softcap = 1e-300), {"softcap", "1e-300"});
  with(CHANGE(options.q_begin = {}; options.k_begin = {}), {"3 queries", "5 keys", "causal", "not stated", "q_begin"});
  with(CHANGE(options.q_begin = (std::vector<int64_t>{1, 2})), {"q_begin", "2 numbers", "1 batch"});
  with(CHANGE(options.q_begin = {-2}), {"q_begin", "-2"});
  with(CHANGE(options.query_lengths = {4}), {"query_lengths", "4", "3"});
  const std::vector<int64_t> twice = {1, 2, 3, 2, 0}, negative = {0, 1, -2, 3, 4};
  with(CHANGE(options.k_begin = {}; options.k_positions = TensorView<const int64_t>(twice.data(), {5})),
       {"keys 1 and 3", "position 2", "unique"});
  with(CHANGE(options.k_begin = {}; options.k_positions = TensorView<const int64_t>(negative.data(), {5})),
       {"k_positions", "-2"});
  with(CHANGE(options.k_begin = {}; options.k_positions = TensorView<const int64_t>(twice.data(), {4})),
       {"k_positions", "[4]", "[5]"});
  with(CHANGE(options.k_positions = TensorView<const int64_t>(twice.data(), {5})), {"both k_begin and k_positions"});
#undef CHANGE
  for (float x : r.out) EXPECT_EQ(x, -7.0f) << "a refused call writes nothing";
}

TEST(Attend, StopTokenEndsTheCall) {
  Problem p = with_lengths(600, 600, 16, 16);
  p.fill(1);
  StopToken stop;
  stop.request_stop();
  AttentionOptions o = options_of(p);
  o.stop = &stop;
  expect_refused(Code::kCancelled, {}, [&] { run(p, Mask::causal(), o); });
}

}  // namespace
}  // namespace regard
