// Public bug reports about attention libraries, each as a named test with the case and the right value. They are numbered 1 to
// 51; the numbers that are missing here are about gradients, biases, sinks, positions and parsers and stand with those.
//
// Probe U: queries 0 and one-hot values (value_dim = kv_len), so that output row i is 1 / |set| on the keys it sees and 0
// elsewhere; a row that sees nothing is 0 with lse -inf.
#include <gtest/gtest.h>

#include <functional>

#include "attention/attention.h"
#include "attention/kv_cache.h"
#include "attention/merge.h"
#include "attention/testing.h"
#include "regard/attention.h"
#include "regard/error.h"
#include "runtime/thread_pool.h"

namespace regard {
namespace {

using namespace testing_attention;
using Sets = std::vector<std::vector<int64_t>>;

AttentionOptions at(int64_t q_begin, int64_t k_begin = 0) {
  AttentionOptions o;
  o.q_begin = {q_begin};
  o.k_begin = {k_begin};
  return o;
}

// The sets of keys (by index) that the rows of [batch][head] see, by probe U; checks output, lse and weights on the way.
std::vector<Sets> seen(const Mask& mask, int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len, const AttentionOptions& options) {
  Problem p;
  p.batch = batch, p.num_q_heads = heads, p.num_kv_heads = 1, p.q_len = q_len, p.kv_len = kv_len, p.d = 2, p.dv = kv_len;
  p.fill(3, 0);
  std::fill(p.v.begin(), p.v.end(), 0.0f);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t j = 0; j < kv_len; ++j) p.value(b, 0, j)[j] = 1.0f;
  Result r(p);
  std::vector<float> w(static_cast<size_t>(batch * heads * q_len * kv_len), -7.0f);
  const TensorView<const float> q(p.q.data(), {batch, heads, q_len, 2}), k(p.k.data(), {batch, 1, kv_len, 2}), v(p.v.data(), {batch, 1, kv_len, kv_len});
  attend(q, k, v, mask, options, {r.out.data(), {batch, heads, q_len, kv_len}}, {r.lse.data(), {batch, heads, q_len}});
  attention_weights(q, k, TensorView<const float>(r.lse.data(), {batch, heads, q_len}), mask, options, {0, q_len}, {0, kv_len},
                    {w.data(), {batch, heads, q_len, kv_len}});
  std::vector<Sets> all;
  for (int64_t bh = 0; bh < batch * heads; ++bh) {
    Sets sets;
    for (int64_t i = 0; i < q_len; ++i) {
      const size_t row = static_cast<size_t>(bh * q_len + i);
      std::vector<int64_t> set;
      for (int64_t j = 0; j < kv_len; ++j)
        if (r.out[row * static_cast<size_t>(kv_len) + static_cast<size_t>(j)] != 0) set.push_back(j);
      for (int64_t j = 0; j < kv_len; ++j) {
        const float x = r.out[row * static_cast<size_t>(kv_len) + static_cast<size_t>(j)];
        const bool in = std::find(set.begin(), set.end(), j) != set.end();
        EXPECT_EQ(x, in ? 1.0f / static_cast<float>(set.size()) : 0.0f);
        EXPECT_NEAR(w[row * static_cast<size_t>(kv_len) + static_cast<size_t>(j)], x, 1e-6) << "weights and output disagree";
      }
      if (set.empty())
        EXPECT_EQ(r.lse[row], -INFINITY);
      else
        EXPECT_NEAR(r.lse[row], std::log(static_cast<double>(set.size())), 1e-6);
      sets.push_back(set);
    }
    all.push_back(sets);
  }
  return all;
}
Sets seen(const Mask& mask, int64_t q_len, int64_t kv_len, const AttentionOptions& options) { return seen(mask, 1, 1, q_len, kv_len, options)[0]; }
Sets seen(const Mask& mask, int64_t n) { return seen(mask, n, n, at(0)); }

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> r;
  for (int64_t i = begin; i < end; ++i) r.push_back(i);
  return r;
}

// One query and keys whose scores are given numbers; returns the weights.
std::vector<float> weights_of(const std::vector<float>& scores, const Mask& mask, double softcap = 0, float* lse = nullptr) {
  const auto n = static_cast<int64_t>(scores.size());
  const float one = 1.0f;
  std::vector<float> v(static_cast<size_t>(n * n), 0.0f), out(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) v[static_cast<size_t>(j * n + j)] = 1.0f;
  AttentionOptions o = at(0);
  o.scale = 1.0;
  o.softcap = softcap;
  float unused = 0;
  attend(TensorView<const float>(&one, {1, 1, 1, 1}), TensorView<const float>(scores.data(), {1, 1, n, 1}), TensorView<const float>(v.data(), {1, 1, n, n}),
         mask, o, {out.data(), {1, 1, 1, n}}, {lse == nullptr ? &unused : lse, {1, 1, 1}});
  return out;
}

// What a sequence sees step by step through a cache: portions of `chunk` tokens, each row's set by probe U.
Sets seen_through_cache(const Mask& mask, int64_t n, int64_t chunk) {
  const int dim = static_cast<int>(n);
  KvCacheOptions options;
  options.geometry = {.num_kv_heads = 1, .head_dim = 2, .value_dim = dim};
  KvCache cache(options);
  ThreadPool pool(2);
  AttentionWorkspace workspace;
  const MaskPlan plan(mask, {}, 1, 1);
  const AttentionShape shape{1, 1, 2, dim, 1, 0};
  std::vector<float> q(static_cast<size_t>(2 * n), 0.0f), k(q), v(static_cast<size_t>(n * n), 0.0f), out(v);
  for (int64_t j = 0; j < n; ++j) v[static_cast<size_t>(j * n + j)] = 1.0f;
  for (int64_t first = 0; first < n; first += chunk) {
    const int64_t count = std::min(chunk, n - first);
    cache.append({.k = k.data() + 2 * first, .k_token_stride = 2, .k_head_stride = 0, .v = v.data() + n * first, .v_token_stride = n, .v_head_stride = 0}, count);
    SequenceQueries s;
    s.q = q.data() + 2 * first, s.q_token_stride = 2;
    s.out = out.data() + n * first, s.out_token_stride = n;
    s.tokens = count, s.first_position = first, s.keys = cache.view();
    attend_sequences({&s, 1}, shape, plan, workspace, pool);
  }
  Sets sets;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<int64_t> set;
    for (int64_t j = 0; j < n; ++j)
      if (out[static_cast<size_t>(i * n + j)] != 0) set.push_back(j);
    sets.push_back(set);
  }
  return sets;
}

Mask keys_below(int64_t n) { return Mask::lengths({n}); }

// A mask from rows of sets, as a table.
Mask table_of(int64_t kv_len, const Sets& sets) {
  std::vector<uint8_t> bytes(sets.size() * static_cast<size_t>(kv_len), 0);
  for (size_t i = 0; i < sets.size(); ++i)
    for (int64_t j : sets[i]) bytes[i * static_cast<size_t>(kv_len) + static_cast<size_t>(j)] = 1;
  return Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(bytes.data(), {static_cast<int64_t>(sets.size()), kv_len}));
}

TEST(BugCase01, EmptyRowForward) { EXPECT_EQ(seen(table_of(3, {{0}, {}}), 2, 3, at(0)), (Sets{{0}, {}})); }

TEST(BugCase02, EmptyRowStaysOutOfItsNeighbours) {  // the forward half
  EXPECT_EQ(seen(Mask::window(1, 0) & keys_below(2), 4), (Sets{{0}, {0, 1}, {1}, {}}));
}

TEST(BugCase03, MaskedScoreIsNotANumberToAdd) {
  const std::vector<float> w = weights_of({-20.0f, 1.0f}, ~Mask::prefix(1));
  EXPECT_EQ(w, (std::vector<float>{0.0f, 1.0f}));
  EXPECT_EQ(weights_of({-20.0f, -20.0f}, Mask::none()), (std::vector<float>{0.0f, 0.0f}));
}

TEST(BugCase04, ForbiddenTwiceIsForbiddenOnce) { EXPECT_EQ(seen(Mask::causal() & keys_below(2), 3), (Sets{{0}, {0, 1}, {0, 1}})); }

TEST(BugCase05, VeryNegativeScoresAreReal) {
  float lse = 0;
  const std::vector<float> w = weights_of({-60000.0f, -60010.0f}, Mask::full(), 0, &lse);
  EXPECT_NEAR(w[0], 0.999955, 0.02 * 0.0000454 + 1e-6);
  EXPECT_NEAR(w[1], 0.0000454, 0.02 * 0.0000454);  // scores of 6e4 are known to 2^-8 relative to 10
  EXPECT_NEAR(lse, -59999.999955, 0.01);
}

TEST(BugCase06, MergingEmptyPartialResults) {
  const float none = -INFINITY, v[3] = {1.5f, -2.0f, 0.25f};
  float out[3] = {0, 0, 0}, lse = none;
  const float zero[3] = {0, 0, 0};
  merge_partials(out, lse, zero, none, 3);
  EXPECT_TRUE(same_bits(out, zero, 3));
  EXPECT_EQ(lse, none);
  merge_partials(out, lse, v, 0.7f, 3);
  EXPECT_TRUE(same_bits(out, v, 3));
  EXPECT_EQ(lse, 0.7f);
  merge_partials(out, lse, zero, none, 3);
  EXPECT_TRUE(same_bits(out, v, 3));
  EXPECT_EQ(lse, 0.7f);
  // Associative to rounding.
  const float a[3] = {1, 2, 3}, b[3] = {-1, 0, 4}, c[3] = {5, 5, -5};
  float left[3] = {1, 2, 3}, left_lse = 1.0f, right[3] = {-1, 0, 4}, right_lse = 3.0f;
  merge_partials(left, left_lse, b, 3.0f, 3);
  merge_partials(left, left_lse, c, 2.0f, 3);
  merge_partials(right, right_lse, c, 2.0f, 3);
  float whole[3] = {a[0], a[1], a[2]}, whole_lse = 1.0f;
  merge_partials(whole, whole_lse, right, right_lse, 3);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(left[i], whole[i], 1e-6);
  EXPECT_NEAR(left_lse, whole_lse, 1e-6);
}

TEST(BugCase07, NanBehindTheMaskStaysThere) {
  for (float poison : {NAN, INFINITY}) {
    const float q[2] = {0.3f, -1.0f}, k[2] = {0.5f, poison}, v[2] = {4.0f, poison};
    float out[2];
    attend(TensorView<const float>(q, {1, 1, 2, 1}), TensorView<const float>(k, {1, 1, 2, 1}), TensorView<const float>(v, {1, 1, 2, 1}), Mask::prefix(1),
           at(0), {out, {1, 1, 2, 1}});
    EXPECT_EQ(out[0], 4.0f);
    EXPECT_EQ(out[1], 4.0f);
  }
}

TEST(BugCase08, TailOfTheLastTile) {  // the forward half: all scores -95, lengths of every remainder
  for (int64_t n : {128 + 64, 256 + 1, 256 + 17, 256 + 128, 512 + 255}) {
    const std::vector<float> scores(static_cast<size_t>(n), -95.0f);
    float lse = 0;
    std::vector<float> k(scores), v(static_cast<size_t>(n), 1.0f);
    const float one = 1.0f;
    float out = 0;
    AttentionOptions o = at(0);
    o.scale = 1.0;
    attend(TensorView<const float>(&one, {1, 1, 1, 1}), TensorView<const float>(k.data(), {1, 1, n, 1}), TensorView<const float>(v.data(), {1, 1, n, 1}),
           Mask::full(), o, {&out, {1, 1, 1, 1}}, {&lse, {1, 1, 1}});
    EXPECT_EQ(out, 1.0f);
    EXPECT_NEAR(lse, -95 + std::log(static_cast<double>(n)), 1e-4);
  }
}

TEST(BugCase09, ARowDoesNotKnowTheOtherRows) {
  Problem p;
  p.q_len = 17, p.kv_len = 57, p.q_begin = 40;
  p.fill(9);
  const TensorView<const float> k(p.k.data(), {1, 1, 57, 64}), v(p.v.data(), {1, 1, 57, 64});
  std::vector<float> alone(64), company(17 * 64);
  attend(TensorView<const float>(p.q.data(), {1, 1, 1, 64}), k, v, Mask::causal(), at(40), {alone.data(), {1, 1, 1, 64}});
  for (int64_t n = 2; n <= 17; ++n) {
    attend(TensorView<const float>(p.q.data(), {1, 1, n, 64}), k, v, Mask::causal(), at(40), {company.data(), {1, 1, n, 64}});
    ASSERT_TRUE(same_bits(alone.data(), company.data(), 64)) << n;
  }
}

TEST(BugCase10, WhichCornerIsStated) {
  EXPECT_EQ(seen(Mask::causal(), 2, 5, at(0)), (Sets{{0}, {0, 1}}));
  EXPECT_EQ(seen(Mask::causal(), 2, 5, at(3)), (Sets{{0, 1, 2, 3}, {0, 1, 2, 3, 4}}));
  EXPECT_EQ(seen(Mask::causal(), 5, 2, at(0, 3)), (Sets{{}, {}, {}, {0}, {0, 1}}));
  EXPECT_THROW(seen(Mask::causal(), 2, 5, {}), Error) << "neither is a default";
}

TEST(BugCase11, TheSameOffsetIsTheSameAnswer) {
  EXPECT_EQ(seen(Mask::causal(), 1, 16, at(15)), (Sets{range(0, 16)}));
  EXPECT_EQ(seen(Mask::causal(), 1, 16, at(0)), (Sets{{0}}));
}

TEST(BugCase12, ACacheDoesNotSwitchTheMaskOff) {
  const Sets want = {{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}};
  for (int64_t chunk : {1, 2, 4, 5}) EXPECT_EQ(seen_through_cache(Mask::causal(), 5, chunk), want);
  EXPECT_EQ(seen(Mask::causal(), 5), want);
}

TEST(BugCase13, CausalIsNeverADefault) { EXPECT_EQ(seen(Mask(), 2, 4, {}), (Sets{range(0, 4), range(0, 4)})); }

TEST(BugCase14, TheMaskHoldsWithAndWithoutWeightsAndLse) {
  EXPECT_EQ(seen(Mask::causal(), 3), (Sets{{0}, {0, 1}, {0, 1, 2}}));  // asks for weights, too
  Problem p;
  p.q_len = p.kv_len = 3;
  p.fill(14);
  std::vector<float> with(3 * 64), without(3 * 64), lse(3);
  const TensorView<const float> q(p.q.data(), {1, 1, 3, 64}), k(p.k.data(), {1, 1, 3, 64}), v(p.v.data(), {1, 1, 3, 64});
  attend(q, k, v, Mask::causal(), {}, {with.data(), {1, 1, 3, 64}}, {lse.data(), {1, 1, 3}});
  attend(q, k, v, Mask::causal(), {}, {without.data(), {1, 1, 3, 64}});
  EXPECT_TRUE(same_bits(with, without));
}

TEST(BugCase15, PolarityIsNamed) {
  const uint8_t above[9] = {0, 1, 1, 0, 0, 1, 0, 0, 0};
  const TensorView<const uint8_t> array(above, {3, 3});
  EXPECT_EQ(seen(Mask::from_array(Polarity::kKeep, array), 3), (Sets{{1, 2}, {2}, {}}));
  EXPECT_EQ(seen(Mask::from_array(Polarity::kDrop, array), 3), (Sets{{0}, {0, 1}, {0, 1, 2}}));
}

TEST(BugCase17, LeftPaddingCountsRealTokens) {
  const std::vector<int64_t> positions = {-1, -1, 0, 1, 0, 1, 2, 3};
  AttentionOptions o;
  o.q_positions = o.k_positions = TensorView<const int64_t>(positions.data(), {2, 4});
  const std::vector<Sets> got = seen(Mask::causal(), 2, 1, 4, 4, o);
  EXPECT_EQ(got[0], (Sets{{}, {}, {2}, {2, 3}}));
  EXPECT_EQ(got[1], (Sets{{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}}));
}

TEST(BugCase17, OutputOfRealTokensEqualsTheUnpaddedRun) {
  Problem p;
  p.q_len = p.kv_len = 300;
  p.fill(17);
  std::vector<float> want(300 * 64), got(310 * 64);
  attend(TensorView<const float>(p.q.data(), {1, 1, 300, 64}), TensorView<const float>(p.k.data(), {1, 1, 300, 64}),
         TensorView<const float>(p.v.data(), {1, 1, 300, 64}), Mask::causal(), {}, {want.data(), {1, 1, 300, 64}});
  for (float padding : {0.0f, 1e10f, NAN})
    for (int64_t left : {0, 3, 10}) {
      std::vector<int64_t> positions(310, -1);
      const auto padded = [&](const std::vector<float>& x) {
        std::vector<float> y(310 * 64, padding);
        std::copy(x.begin(), x.end(), y.begin() + left * 64);
        return y;
      };
      for (int64_t i = 0; i < 300; ++i) positions[static_cast<size_t>(left + i)] = i;
      const std::vector<float> q = padded(p.q), k = padded(p.k), v = padded(p.v);
      AttentionOptions o;
      o.q_positions = o.k_positions = TensorView<const int64_t>(positions.data(), {310});
      attend(TensorView<const float>(q.data(), {1, 1, 310, 64}), TensorView<const float>(k.data(), {1, 1, 310, 64}),
             TensorView<const float>(v.data(), {1, 1, 310, 64}), Mask::causal(), o, {got.data(), {1, 1, 310, 64}});
      ASSERT_TRUE(same_bits(got.data() + left * 64, want.data(), 300 * 64)) << left << " pads of " << padding;
      if (left > 0) {
        EXPECT_EQ(bits(got[0]), 0u);
      }
    }
}

TEST(BugCase18, PaddingBlocksKeysNotQueries) {
  AttentionOptions o = at(0);
  o.limits.key_lengths = {2};
  EXPECT_EQ(seen(Mask::full(), 3, 3, o), (Sets{{0, 1}, {0, 1}, {0, 1}}));
  o.query_lengths = {2};
  EXPECT_EQ(seen(Mask::full(), 3, 3, o), (Sets{{0, 1}, {0, 1}, {}}));
}

TEST(BugCase19, BatchAndHeadsDoNotMix) {
  const std::vector<Sets> got = seen(Mask::lengths({1, 2}), 2, 2, 2, 2, at(0));
  ASSERT_EQ(got.size(), 4u);
  for (int head : {0, 1}) {
    EXPECT_EQ(got[static_cast<size_t>(head)], (Sets{{0}, {0}}));
    EXPECT_EQ(got[static_cast<size_t>(2 + head)], (Sets{{0, 1}, {0, 1}}));
  }
}

TEST(BugCase20, LengthsOfEachBatchRow) {
  AttentionOptions o = at(0);
  o.limits.key_lengths = {1, 3};
  const std::vector<Sets> got = seen(Mask::full(), 2, 1, 1, 3, o);
  EXPECT_EQ(got[0], (Sets{{0}}));
  EXPECT_EQ(got[1], (Sets{{0, 1, 2}}));
}

TEST(BugCase21, EncoderPaddingHoldsAtEveryStep) {
  AttentionOptions o;
  o.limits.key_lengths = {2, 3};
  for (int64_t step = 0; step < 3; ++step) {
    o.q_begin = {step};
    const std::vector<Sets> got = seen(Mask::full(), 2, 1, 1, 3, o);
    EXPECT_EQ(got[0], (Sets{{0, 1}}));
    EXPECT_EQ(got[1], (Sets{{0, 1, 2}}));
  }
}

TEST(BugCase22, PenaltiesDoNotStack) { EXPECT_EQ(seen(Mask::causal() & ~Mask::prefix(1), 3), (Sets{{}, {1}, {1, 2}})); }

TEST(BugCase23, WindowsAreSpeltOut) {
  EXPECT_EQ(seen(Mask::window(2, 0), 1, 6, at(5)), (Sets{{3, 4, 5}}));
  EXPECT_EQ(seen(Mask::window(3, 0), 1, 6, at(5)), (Sets{{2, 3, 4, 5}}));
  EXPECT_EQ(seen(Mask::window(0, 0), 3), (Sets{{0}, {1}, {2}}));
}

TEST(BugCase24, AWindowAloneIsHonoured) { EXPECT_EQ(seen(Mask::window(1, 1), 5), (Sets{{0, 1}, {0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4}})); }

TEST(BugCase25, UnlimitedIsNotAWidth) {
  EXPECT_EQ(seen(Mask::window(kUnlimited, kUnlimited), 4), (Sets{range(0, 4), range(0, 4), range(0, 4), range(0, 4)}));
  EXPECT_EQ(seen(Mask::window(kUnlimited, 0), 4), seen(Mask::causal(), 4));
  EXPECT_EQ(seen(Mask::window(0, kUnlimited), 4), (Sets{range(0, 4), range(1, 4), range(2, 4), range(3, 4)}));
  EXPECT_EQ(seen(Mask::window(0, 0), 4), (Sets{{0}, {1}, {2}, {3}}));
  EXPECT_THROW(Mask::window(-1, 0), Error);
}

TEST(BugCase26, SlotsOfARingCarryTheirPositions) {
  const Mask mask = Mask::window(3, 0);
  EXPECT_EQ(seen(mask, 6), (Sets{{0}, {0, 1}, {0, 1, 2}, range(0, 4), range(1, 5), range(2, 6)}));
  const std::vector<int64_t> slots = {4, 5, 6, 3};  // positions 4, 5, 2, 3 after the call; 6 overwrites 2
  AttentionOptions o;
  o.q_begin = {6};
  o.k_positions = TensorView<const int64_t>(slots.data(), {4});
  EXPECT_EQ(seen(mask, 1, 4, o), (Sets{{0, 1, 2, 3}}));
  o.q_begin = {5};
  EXPECT_EQ(seen(mask, 1, 4, o), (Sets{{0, 1, 3}})) << "position 6 is not seen from 5";
}

TEST(BugCase27, ChunksHaveAWindowForEachRow) {
  for (int64_t chunk : {1, 2, 3, 4}) EXPECT_EQ(seen_through_cache(Mask::window(1, 0), 4, chunk), (Sets{{0}, {0, 1}, {1, 2}, {2, 3}}));
}

TEST(BugCase28, CellsOfOtherSequencesAreNotCounted) {
  const std::vector<int64_t> cells = {0, -1, 1, -1, 2, -1, 3, -1};  // A0, B0, A1, B1, ... as sequence A has them
  AttentionOptions o;
  o.q_begin = {3};
  o.k_positions = TensorView<const int64_t>(cells.data(), {8});
  EXPECT_EQ(seen(Mask::window(2, 0), 1, 8, o), (Sets{{2, 4, 6}}));
}

TEST(BugCase29, OrderOfAndAndOr) {
  const Mask image = Mask::documents({0, 1, 1, 1, 1, 2}) & ~Mask::prefix(1) & keys_below(5), near = Mask::window(1, 1), causal = Mask::causal();
  EXPECT_EQ(seen((causal | image) & near, 6), (Sets{{0}, {0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4}, {4, 5}}));
  EXPECT_EQ(seen((causal & near) | image, 6), (Sets{{0}, range(0, 5), range(1, 5), range(1, 5), range(1, 5), {4, 5}}));
  EXPECT_EQ(seen(Mask::full() & keys_below(3), 4), (Sets{range(0, 3), range(0, 3), range(0, 3), range(0, 3)}));
  EXPECT_EQ(seen(Mask::full() | keys_below(3), 4), (Sets{range(0, 4), range(0, 4), range(0, 4), range(0, 4)}));
}

TEST(BugCase30, PrefixCountsItsKeys) {
  EXPECT_EQ(seen(Mask::causal() | Mask::prefix(3), 5), (Sets{range(0, 3), range(0, 3), range(0, 3), range(0, 4), range(0, 5)}));
  EXPECT_EQ(seen(Mask::causal() | Mask::prefix(0), 5), seen(Mask::causal(), 5));
  EXPECT_EQ(seen(Mask::causal() | Mask::prefix(1), 5), seen(Mask::causal(), 5));
  EXPECT_EQ(seen(Mask::causal() | Mask::prefix(5), 5), seen(Mask::full(), 5));
}

TEST(BugCase31, ChunksCountFromThePositionNotTheSlot) {
  const std::vector<int64_t> positions = {-1, 0, 1, 2, 3, 4};  // one pad on the left
  AttentionOptions o;
  o.q_positions = o.k_positions = TensorView<const int64_t>(positions.data(), {6});
  EXPECT_EQ(seen(Mask::causal() & Mask::chunk(3), 6, 6, o), (Sets{{}, {1}, {1, 2}, {1, 2, 3}, {4}, {4, 5}}));
}

TEST(BugCase32, ANeutralMaskIsNeutral) {
  const Sets want = {{0}, {0, 1}, {0, 1, 2}, {3}, {3, 4}};
  const Mask packed = Mask::causal() & Mask::documents({0, 0, 0, 1, 1});
  EXPECT_EQ(seen(packed, 5), want);
  EXPECT_EQ(seen(packed & keys_below(5), 5), want);
  AttentionOptions o = at(0);
  o.limits.documents = DocumentLimit{{0, 0, 0, 1, 1}, {0, 0, 0, 1, 1}};
  EXPECT_EQ(seen(Mask::causal(), 5, 5, o), want);
}

TEST(BugCase33, DocumentsAreIsolatedToTheBit) {
  const Mask mask = Mask::causal() & Mask::documents({0, 0, 1, 1, 1});
  EXPECT_EQ(seen(mask, 5), (Sets{{0}, {0, 1}, {2}, {2, 3}, {2, 3, 4}}));
  Problem p;
  p.q_len = p.kv_len = 5;
  p.fill(33);
  std::vector<float> clean(5 * 64), dirty(5 * 64);
  const auto run = [&](std::vector<float>& out) {
    attend(TensorView<const float>(p.q.data(), {1, 1, 5, 64}), TensorView<const float>(p.k.data(), {1, 1, 5, 64}),
           TensorView<const float>(p.v.data(), {1, 1, 5, 64}), mask, {}, {out.data(), {1, 1, 5, 64}});
  };
  run(clean);
  for (int i = 0; i < 2 * 64; ++i) p.k[static_cast<size_t>(i)] += 1, p.v[static_cast<size_t>(i)] = NAN;
  run(dirty);
  EXPECT_TRUE(same_bits(clean.data() + 2 * 64, dirty.data() + 2 * 64, 3 * 64));
  EXPECT_TRUE(std::isnan(dirty[0]));
}

TEST(BugCase34, RowsBehindTheLastSequence) {
  Problem p;
  p.q_len = p.kv_len = 8;
  p.fill(34);
  for (int64_t i = 5 * 64; i < 8 * 64; ++i) p.q[static_cast<size_t>(i)] = p.k[static_cast<size_t>(i)] = p.v[static_cast<size_t>(i)] = NAN;
  std::vector<float> out(8 * 64, NAN);
  AttentionOptions o = at(0);
  o.limits.key_lengths = {5};
  o.query_lengths = {5};
  attend(TensorView<const float>(p.q.data(), {1, 1, 8, 64}), TensorView<const float>(p.k.data(), {1, 1, 8, 64}),
         TensorView<const float>(p.v.data(), {1, 1, 8, 64}), Mask::documents({0, 0, 0, 1, 1, 2, 2, 2}), o, {out.data(), {1, 1, 8, 64}});
  for (int64_t i = 0; i < 8 * 64; ++i) {
    const float x = out[static_cast<size_t>(i)];
    if (i < 5 * 64)
      EXPECT_TRUE(std::isfinite(x));
    else
      EXPECT_EQ(bits(x), 0u);
  }
}

TEST(BugCase35, StridedIsLocalOrStride) {
  EXPECT_EQ(seen(Mask::causal() & Mask::dilated(2), 6), (Sets{{0}, {1}, {0, 2}, {1, 3}, {0, 2, 4}, {1, 3, 5}}));
  EXPECT_EQ(seen(Mask::parse("causal & (window(1, 0) | dilated(2))"), 6), (Sets{{0}, {0, 1}, {0, 1, 2}, {1, 2, 3}, {0, 2, 3, 4}, {1, 3, 4, 5}}));
  EXPECT_EQ(seen(Mask::parse("causal & (window(2, 0) | dilated(3))"), 1, 8, at(7)), (Sets{{1, 4, 5, 6, 7}}));
}

TEST(BugCase36, ATreeAcrossATileEdge) {
  for (int64_t base : {0, 3, 62, 253, 254, 255}) {
    const Mask mask = Mask::tree({base}, {-1, 0, 0, 1, 2});
    const Sets tree = {{0}, {0, 1}, {0, 2}, {0, 1, 3}, {0, 2, 4}};
    Sets want;
    for (const std::vector<int64_t>& nodes : tree) {
      want.push_back(range(0, base));
      for (int64_t node : nodes) want.back().push_back(base + node);
    }
    EXPECT_EQ(seen(mask, 5, base + 5, at(base)), want) << base;
  }
}

TEST(BugCase37, UnwrittenSlotsAreNotKeys) {
  const std::vector<int64_t> positions = {0, 1, 2, -1, -1, -1};
  Problem p;
  p.q_len = 1, p.kv_len = 6, p.d = 8, p.dv = 6;
  p.fill(37, 0);
  for (int64_t j = 0; j < 6; ++j)
    for (int64_t c = 0; c < 6; ++c) p.value(0, 0, j)[c] = j >= 3 ? NAN : j == c ? 1.0f : 0.0f;
  std::fill_n(p.key(0, 0, 3), 3 * 8, NAN);
  std::vector<float> out(6);
  AttentionOptions o;
  o.q_begin = {2};
  o.k_positions = TensorView<const int64_t>(positions.data(), {6});
  attend(TensorView<const float>(p.q.data(), {1, 1, 1, 8}), TensorView<const float>(p.k.data(), {1, 1, 6, 8}), TensorView<const float>(p.v.data(), {1, 1, 6, 6}),
         Mask::causal(), o, {out.data(), {1, 1, 1, 6}});
  EXPECT_EQ(out, (std::vector<float>{1.0f / 3, 1.0f / 3, 1.0f / 3, 0, 0, 0}));
}

TEST(BugCase42, ReorderedBeamsReadTheirOwnCache) {
  KvCacheOptions options;
  options.geometry = {.num_kv_heads = 1, .head_dim = 1, .value_dim = 1};
  ThreadPool pool(1);
  for (int64_t length : {3, 256, 300}) {
    std::vector<KvCache> beams;
    for (int b = 0; b < 2; ++b) {
      beams.emplace_back(options);
      const std::vector<float> rows(static_cast<size_t>(length), static_cast<float>(b));
      beams.back().append({.k = rows.data(), .k_token_stride = 1, .k_head_stride = 0, .v = rows.data(), .v_token_stride = 1, .v_head_stride = 0}, length);
    }
    std::vector<KvCache> chosen;
    chosen.push_back(beams[1].fork());
    chosen.push_back(beams[1].fork());
    beams.clear();
    const MaskPlan plan(Mask::causal(), {}, 2, 1);
    AttentionWorkspace workspace;
    const AttentionShape shape{1, 1, 1, 1, 1, 0};
    const float q = 0;
    float out[2];
    const auto read = [&] {
      std::vector<SequenceQueries> s(2);
      for (size_t b = 0; b < 2; ++b) {
        s[b].q = &q, s[b].out = &out[b], s[b].tokens = 1, s[b].batch_row = static_cast<int64_t>(b);
        s[b].keys = chosen[b].view(), s[b].first_position = chosen[b].size() - 1;
      }
      attend_sequences(s, shape, plan, workspace, pool);
    };
    read();
    EXPECT_EQ(out[0], 1.0f);
    EXPECT_EQ(out[1], 1.0f);
    const float next[2] = {static_cast<float>(length) * 2 + 3, -1};
    for (size_t b = 0; b < 2; ++b)
      chosen[b].append({.k = &q, .k_token_stride = 1, .k_head_stride = 0, .v = &next[b], .v_token_stride = 1, .v_head_stride = 0}, 1);
    read();
    EXPECT_FLOAT_EQ(out[0], 3.0f) << "(length + 2 length + 3) / (length + 1)";
    EXPECT_FLOAT_EQ(out[1], static_cast<float>(length - 1) / static_cast<float>(length + 1));
  }
}

TEST(BugCase43, SoftcapComesBeforeTheMask) {
  EXPECT_EQ(weights_of({0.0f, 0.0f}, Mask::prefix(1), 1.0), (std::vector<float>{1.0f, 0.0f}));
  EXPECT_EQ(weights_of({0.0f, 0.0f}, Mask::table("t", BitTable::from_array(Polarity::kKeep, TensorView<const uint8_t>(std::array<uint8_t, 2>{1, 0}.data(), {1, 2}))), 1.0),
            (std::vector<float>{1.0f, 0.0f}));
}

TEST(BugCase44, SoftcapIsApplied) {
  const std::vector<float> w = weights_of({4.0f, 1.0f}, Mask::full(), 2.0), plain = weights_of({4.0f, 1.0f}, Mask::full());
  EXPECT_NEAR(w[0], 0.731809, 1e-6);
  EXPECT_NEAR(w[1], 0.268191, 1e-6);
  EXPECT_NEAR(plain[0], 0.952574, 1e-6);
  EXPECT_NEAR(plain[1], 0.047426, 1e-6);
}

TEST(BugCase47, GroupedHeadsAreRepeatedNotTiled) {
  const std::vector<float> q(4, 0.5f), k = {1, 1}, v = {0, 1};
  std::vector<float> out(4);
  attend(TensorView<const float>(q.data(), {1, 4, 1, 1}), TensorView<const float>(k.data(), {1, 2, 1, 1}), TensorView<const float>(v.data(), {1, 2, 1, 1}),
         Mask::full(), {}, {out.data(), {1, 4, 1, 1}});
  EXPECT_EQ(out, (std::vector<float>{0, 0, 1, 1}));
}

TEST(BugCase49, AMaskServesEveryLength) {
  const Mask mask = Mask::causal();
  EXPECT_EQ(seen(mask, 6).size(), 6u);
  EXPECT_EQ(seen(mask, 2, 4, at(2)), (Sets{range(0, 3), range(0, 4)}));
}

TEST(BugCase50, ATableThatIsTooSmallIsRefused) {
  const auto table = [](int64_t q, int64_t k) {
    const std::vector<uint8_t> ones(static_cast<size_t>(q * k), 1);
    return Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(ones.data(), {q, k}));
  };
  EXPECT_EQ(seen(table(10, 20), 10, 20, at(0))[9], range(0, 20));
  EXPECT_THROW(seen(table(9, 20), 10, 20, at(0)), Error) << "no query beyond the table";
  EXPECT_EQ(seen(table(10, 15), 10, 20, at(0))[0], range(0, 15)) << "keys beyond the table are not seen, and no bit is read there";
  // Where a shape must fit, BitTable's importer is told it and names both; see the mask tests.
}

TEST(BugCase51, NoIndexIsNarrow) {
  const int64_t n = 65538;
  Problem p;
  p.q_len = p.kv_len = n, p.d = p.dv = 1;
  p.q.assign(static_cast<size_t>(n), 0.0f);
  p.k = p.q;
  for (int64_t j = 0; j < n; ++j) p.v.push_back(static_cast<float>(j % 97));
  std::vector<float> out(static_cast<size_t>(n));
  attend(TensorView<const float>(p.q.data(), {1, 1, n, 1}), TensorView<const float>(p.k.data(), {1, 1, n, 1}), TensorView<const float>(p.v.data(), {1, 1, n, 1}),
         Mask::window(1, 0), {}, {out.data(), {1, 1, n, 1}});
  for (int64_t i : {int64_t{1}, int64_t{32767}, int64_t{32768}, int64_t{32769}, int64_t{65535}, int64_t{65536}, int64_t{65537}})
    EXPECT_EQ(out[static_cast<size_t>(i)], static_cast<float>((i - 1) % 97 + i % 97) / 2) << i;
  // M13: tile numbers beyond 2^31 and positions around the ends of 32 bits.
  for (int64_t base : {(int64_t{1} << 31) - 3, (int64_t{1} << 32) - 3, (int64_t{1} << 40) - 3}) {
    EXPECT_EQ(seen(Mask::causal() & Mask::window(2, 0), 6, 6, at(base, base)), (Sets{{0}, {0, 1}, {0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4, 5}}));
    EXPECT_EQ(seen(Mask::causal(), 2, 4, at(base + 2, base)), (Sets{{0, 1, 2}, {0, 1, 2, 3}}));
  }
}

}  // namespace
}  // namespace regard
