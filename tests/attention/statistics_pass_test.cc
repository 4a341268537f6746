// Statistics that attention takes along: outputs keep the bits of attend(), and the numbers are those of the second pass
// and of weights in f64.
#include <gtest/gtest.h>

#include "attention/packed.h"
#include "kernels/attention_statistics.h"
#include "kernels/registry.h"
#include "regard/attention_weights.h"
#include "regard/runtime.h"

namespace regard {
namespace {

using namespace testing_attention;

struct Taken {
  Result result;
  std::vector<float> total, entropy, distance, mass, largest;
  std::vector<int64_t> largest_key;
  Taken(const Problem& p) : result(p) {
    const size_t rows = result.lse.size();
    for (auto* x : {&total, &entropy, &distance, &mass, &largest}) x->assign(rows, -7.0f);
    largest_key.assign(rows, -7);
  }
  RowStatistics views(const Problem& p) {
    const auto view = [&](auto& x) { return TensorView(x.data(), {p.batch, p.num_q_heads, p.q_len}); };
    return {.total = view(total),
            .entropy = view(entropy),
            .distance = view(distance),
            .mass = view(mass),
            .largest = view(largest),
            .largest_key = view(largest_key)};
  }
};

Taken along(const Problem& p, const Mask& mask, const AttentionOptions& o, const KeySet& set) {
  Taken t(p);
  attend_with_statistics(q_view(p), k_view(p), v_view(p), mask, o, out_view(p, t.result), lse_view(p, t.result), set,
                         t.views(p));
  return t;
}
Taken afterwards(const Problem& p, const Mask& mask, const AttentionOptions& o, const KeySet& set, const Result& r) {
  Taken t(p);
  t.result = r;
  attention_statistics(q_view(p), k_view(p), lse_view(p, t.result), mask, o, {0, p.q_len}, set, t.views(p));
  return t;
}

// As close as two ways to sum can be, where lse is known to 6e-8 of itself in one of them.
void expect_same(const Taken& got, const Taken& want, int64_t kv_len, const std::string& what) {
  for (size_t i = 0; i < got.total.size(); ++i) {
    const std::string where = what + " row " + std::to_string(i);
    ASSERT_EQ(std::isnan(got.total[i]), std::isnan(want.total[i])) << where;
    if (std::isnan(want.total[i])) {
      for (const auto* x : {&got.total, &got.entropy, &got.distance, &got.mass, &got.largest})
        ASSERT_TRUE(std::isnan((*x)[i])) << where;
      ASSERT_EQ(got.largest_key[i], -1) << where;
      continue;
    }
    constexpr float kClose = 3e-6f;
    ASSERT_NEAR(got.total[i], want.total[i], kClose) << where;
    ASSERT_NEAR(got.entropy[i], want.entropy[i], kClose * (1 + want.entropy[i])) << where;
    ASSERT_NEAR(got.distance[i], want.distance[i], 2 * kClose * static_cast<float>(kv_len)) << where;
    ASSERT_NEAR(got.mass[i], want.mass[i], kClose) << where;
    ASSERT_NEAR(got.largest[i], want.largest[i], kClose) << where;
    ASSERT_EQ(got.largest_key[i] < 0, want.largest_key[i] < 0) << where;
    if (want.largest_key[i] < 0) {
      for (const auto* x : {&got.total, &got.entropy, &got.distance, &got.mass, &got.largest})
        ASSERT_EQ(bits((*x)[i]), 0u) << where;
    }
  }
}

TEST(StatisticsPass, OutputsKeepTheirBitsUnderEveryMaskAndNumbersAreThoseOfTheSecondPass) {
  for (const auto& [q_len, kv_len, cap] : {std::tuple{25, 30, 0.0}, std::tuple{130, 300, 1.5}, std::tuple{7, 1100, 0.0}}) {
    Problem p = with_lengths(q_len, kv_len, 24, 20);
    p.batch = 2, p.softcap = cap;
    p.fill(static_cast<uint64_t>(kv_len), 3);
    const Mask set = Mask::prefix(4) | Mask::window(0, 0);
    for (const Mask& mask : masks()) {
      const AttentionOptions o = options_of(p);
      Result r = run(p, mask, o);
      const Taken got = along(p, mask, o, {.mask = set});
      ASSERT_EQ(got.result, r) << mask.text();
      const Taken other = afterwards(p, mask, o, {.mask = set}, r);
      ASSERT_NO_FATAL_FAILURE(expect_same(got, other, kv_len, mask.text()));
      // Scores of gaussians are equal only where a soft-cap makes them so; then any of them may be called the largest.
      if (cap == 0) {
        EXPECT_EQ(got.largest_key, other.largest_key) << mask.text();
        continue;
      }
      std::vector<float> w(got.total.size() * static_cast<size_t>(kv_len));
      attention_weights(q_view(p), k_view(p), lse_view(p, r), mask, o, {0, q_len}, {0, kv_len},
                        {w.data(), {p.batch, p.num_q_heads, q_len, kv_len}});
      for (size_t i = 0; i < got.total.size(); ++i)
        if (got.largest_key[i] >= 0) {
          const float its = w[i * static_cast<size_t>(kv_len) + static_cast<size_t>(got.largest_key[i])];
          ASSERT_NEAR(its, other.largest[i], 1e-6f * other.largest[i]) << mask.text() << " row " << i;
        }
    }
  }
}

TEST(StatisticsPass, TakesEveryTerm) {
  for (const Wanted& wanted : wanted_terms()) {
    Problem p = with_lengths(40, 600, 16, 8);
    p.batch = 2, p.softcap = 4;
    p.fill(5);
    const TermProblem t(p, wanted);
    std::vector<uint8_t> set(static_cast<size_t>(p.batch * p.kv_len));
    for (size_t i = 0; i < set.size(); ++i) set[i] = i % 7 == 2;
    const KeySet some{.bits = TensorView<const uint8_t>(set.data(), {p.batch, p.kv_len})};
    const Result want = run(p, Mask::causal(), t.options());
    const Taken got = along(p, Mask::causal(), t.options(), some);
    ASSERT_EQ(got.result, want) << wanted.name;
    ASSERT_NO_FATAL_FAILURE(
        expect_same(got, afterwards(p, Mask::causal(), t.options(), some, want), p.kv_len, wanted.name));
    if (wanted.sink) {
      EXPECT_LT(*std::min_element(got.total.begin(), got.total.end()), 0.9995f);
    }
  }
}

// Rows whose numbers are known: n keys that share evenly, and a sink as the only other thing to look at.
TEST(StatisticsPass, UniformRows) {
  Problem p;
  p.num_q_heads = 2, p.q_len = p.kv_len = 300, p.d = p.dv = 4;
  p.fill(1);
  std::fill(p.q.begin(), p.q.end(), 0.0f);
  const float sinks[2] = {-INFINITY, 200};
  AttentionOptions o = options_of(p);
  o.sink = TensorView<const float>(sinks, {2});
  const Taken got = along(p, Mask::causal(), o, {.mask = Mask::prefix(1)});
  for (int64_t i = 0; i < 300; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto n = static_cast<double>(i + 1);
    EXPECT_NEAR(got.total[at], 1, 1e-6);
    EXPECT_NEAR(got.entropy[at], std::log(n), 1e-6 * (1 + std::log(n)));
    EXPECT_NEAR(got.distance[at], static_cast<double>(i) / 2, 1e-4);
    EXPECT_NEAR(got.mass[at], 1 / n, 1e-6);
    EXPECT_NEAR(got.largest[at], 1 / n, 1e-6);
    EXPECT_EQ(got.largest_key[at], 0);
    // e^-200 each: nothing that f32 can hold, and distances all the same.
    EXPECT_EQ(got.total[300 + at], 0.0f);
    EXPECT_NEAR(got.distance[300 + at], static_cast<double>(i) / 2, 1e-4);
  }
  EXPECT_EQ(bits(got.entropy[0]), 0u);
}

TEST(StatisticsPass, HasTheSameBitsForAnyThreadsAndInAnyCompany) {
  Problem p = with_lengths(200, 700, 16, 8);
  p.batch = 2;
  p.fill(8);
  const KeySet set{.mask = Mask::prefix(2)};
  const int threads = num_threads();
  std::vector<Taken> all;
  for (const int n : {1, 2, 3}) {
    set_num_threads(n);
    all.push_back(along(p, Mask::causal(), options_of(p), set));
    EXPECT_EQ(all.back().result, all[0].result);
    for (const auto x : {&Taken::total, &Taken::entropy, &Taken::distance, &Taken::mass, &Taken::largest})
      EXPECT_TRUE(same_bits(all.back().*x, all[0].*x));
    EXPECT_EQ(all.back().largest_key, all[0].largest_key);
  }
  set_num_threads(threads);
  // Row 117 of head 3 of the second batch row, alone.
  Problem one = with_lengths(1, 700, 16, 8);
  one.num_q_heads = one.num_kv_heads = 1, one.q_begin = p.q_begin + 117;
  one.fill(1);
  std::copy_n(p.query(1, 3, 117), 16, one.q.data());
  std::copy_n(p.key(1, 1, 0), 700 * 16, one.k.data());
  std::copy_n(p.value(1, 1, 0), 700 * 8, one.v.data());
  const Taken alone = along(one, Mask::causal(), options_of(one), set);
  const size_t row = (1 * 4 + 3) * 200 + 117;
  EXPECT_EQ(bits(alone.entropy[0]), bits(all[0].entropy[row]));
  EXPECT_EQ(bits(alone.distance[0]), bits(all[0].distance[row]));
  EXPECT_EQ(bits(alone.mass[0]), bits(all[0].mass[row]));
  EXPECT_EQ(bits(alone.largest[0]), bits(all[0].largest[row]));
  EXPECT_EQ(alone.largest_key[0], all[0].largest_key[row]);
}

TEST(StatisticsPass, FollowsSlotsAndSequences) {
  // Keys anywhere, in any order.
  Problem p;
  p.q_len = 3, p.kv_len = 5, p.d = p.dv = 8;
  p.fill(22);
  std::fill(p.q.begin(), p.q.end(), 0.0f);
  const std::vector<int64_t> k_position = {300, -1, 2, 700, 1}, q_position = {300, -1, 701};
  AttentionOptions o = options_of(p);
  o.q_begin.clear(), o.k_begin.clear();
  o.q_positions = TensorView<const int64_t>(q_position.data(), {3});
  o.k_positions = TensorView<const int64_t>(k_position.data(), {5});
  const uint8_t bytes[5] = {0, 1, 1, 1, 0};
  const Taken slots = along(p, Mask::causal(), o, {.bits = TensorView<const uint8_t>(bytes, {5})});
  EXPECT_NEAR(slots.distance[0], (0 + 298 + 299) / 3.0, 1e-4);
  EXPECT_NEAR(slots.distance[2], (401 + 699 + 1 + 700) / 4.0, 1e-4);
  EXPECT_NEAR(slots.mass[0], 1 / 3.0, 1e-6);
  EXPECT_NEAR(slots.mass[2], 2 / 4.0, 1e-6);
  EXPECT_EQ(slots.largest_key, (std::vector<int64_t>{4, -1, 4}));  // the first by position
  for (const auto* x : {&slots.total, &slots.entropy, &slots.distance, &slots.mass, &slots.largest})
    EXPECT_EQ(bits((*x)[1]), 0u);
  // Packed sequences, with rows behind the last one.
  for (const bool sink : {false, true}) {
    const Packed t = packed_example({.name = "alibi", .alibi = true, .sink = sink});
    const AttentionOptions packed = t.options();
    const Mask mask = Mask::causal(), set = Mask::lengths({3, 1, 200, 9, 5, 4});
    Problem shape = t.padded.p;
    shape.batch = 1, shape.q_len = t.q_total;
    Taken got(shape), want(shape);
    want.result = t.run(mask, packed);
    attend_with_statistics(t.q_view(), t.k_view(), t.v_view(), mask, packed, out_view(shape, got.result),
                           lse_view(shape, got.result), {.mask = set}, got.views(shape));
    attention_statistics(t.q_view(), t.k_view(), lse_view(shape, want.result), mask, packed, {0, t.q_total}, {.mask = set},
                         want.views(shape));
    ASSERT_EQ(got.result, want.result);
    ASSERT_NO_FATAL_FAILURE(expect_same(got, want, 300, "packed"));
    EXPECT_EQ(got.largest_key, want.largest_key);
  }
}

TEST(StatisticsPass, ANanThatIsSeenShowsAndAHiddenOneDoesNot) {
  Problem p = with_lengths(3, 3, 8, 8);
  p.fill(3);
  const Taken clean = along(p, Mask::causal(), options_of(p), {.mask = Mask::full()});
  for (int64_t g = 0; g < 2; ++g) p.key(0, g, 2)[1] = NAN;
  const Taken got = along(p, Mask::causal(), options_of(p), {.mask = Mask::full()});
  for (size_t h = 0; h < 4; ++h)
    for (size_t i = 0; i < 3; ++i) {
      for (const auto x : {&Taken::total, &Taken::entropy, &Taken::distance, &Taken::mass, &Taken::largest}) {
        if (i == 2)
          EXPECT_TRUE(std::isnan((got.*x)[h * 3 + i]));
        else
          EXPECT_EQ(bits((got.*x)[h * 3 + i]), bits((clean.*x)[h * 3 + i]));
      }
      EXPECT_EQ(got.largest_key[h * 3 + i], i == 2 ? -1 : clean.largest_key[h * 3 + i]);
    }
}

TEST(StatisticsPass, TheSumsOfATile) {
  const kernels::AttentionStatisticsKernels& kernel = *kernels::kernels().attention_statistics;
  std::vector<float> p(256);
  for (size_t j = 0; j < 256; ++j) p[j] = std::exp2(-gaussian(3, j) * gaussian(3, j) * (j % 5 == 0 ? 40 : 1));
  p[77] = p[200] = 1;
  p[33] = 0, p[34] = 1e-42f;
  uint64_t seen[4] = {~uint64_t{0}, 0xFFFF0000FFFFFFFFu, 0, ~uint64_t{0}}, set[4] = {5, 1, ~uint64_t{0}, 0xF0F};
  const auto sees = [&](size_t j) { return (seen[j / 64] >> (j % 64) & 1) != 0; };
  double logs = 0, places = 0, in = 0;
  for (size_t j = 0; j < 256; ++j) {
    if (!sees(j)) {
      p[j] = NAN;  // whole vectors: never written
      continue;
    }
    const double x = p[j];
    if (x > 0) logs += x * std::log2(x);
    places += x * static_cast<double>(j);
    if ((set[j / 64] >> (j % 64) & 1) != 0) in += x;
  }
  const kernels::TileSums sums = kernel.tile_sums(p.data(), seen, set);
  EXPECT_NEAR(sums.log_sum, logs, 1e-5 * std::fabs(logs));
  EXPECT_NEAR(sums.index_sum, places, 1e-5 * places);
  EXPECT_NEAR(sums.set_sum, in, 1e-5 * in);
  EXPECT_EQ(sums.first, 77);
  EXPECT_EQ(kernel.tile_sums(p.data(), seen, nullptr).set_sum, 0.0f);
}

TEST(Refusals, StatisticsThatCannotBeTakenAlong) {
  Problem p = with_lengths(3, 5, 8, 8);
  p.fill(1);
  AttentionOptions o = options_of(p);
  Taken t(p);
  const auto call = [&](const AttentionOptions& options, const KeySet& set, const RowStatistics& to) {
    attend_with_statistics(q_view(p), k_view(p), v_view(p), Mask::causal(), options, out_view(p, t.result),
                           lse_view(p, t.result), set, to);
  };
  expect_refused(Code::kInvalidArgument, {"[attend_with_statistics]", "mass is wanted"}, [&] { call(o, {}, t.views(p)); });
  RowStatistics to;
  to.total = {t.total.data(), {1, 4, 2}};
  expect_refused(Code::kInvalidArgument, {"total", "[1, 4, 2]", "[1, 4, 3]"}, [&] { call(o, {}, to); });
  to.total = {t.result.lse.data(), {1, 4, 3}};
  expect_refused(Code::kInvalidArgument, {"total", "overlaps"}, [&] { call(o, {}, to); });
  to.total = {t.total.data(), {1, 4, 3}};
  to.entropy = to.total;
  expect_refused(Code::kInvalidArgument, {"entropy", "overlaps"}, [&] { call(o, {}, to); });
  to.entropy = {};
  o.dropout = Dropout{.rate = 0.5, .weights = Dropout::Weights::kAfter};
  expect_refused(Code::kUnsupported, {"dropout", "attention_statistics()"}, [&] { call(o, {}, to); });
  o.dropout.reset();
  o.arithmetic = AttentionArithmetic::kBf16Dots;
  expect_refused(Code::kUnsupported, {"arithmetic"}, [&] { call(o, {}, to); });
}

}  // namespace
}  // namespace regard
