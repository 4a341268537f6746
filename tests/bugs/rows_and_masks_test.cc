// Public bug reports about attention libraries, each as a named test with the case and the right value. They are
// numbered 1 to 51 over the files of this directory: rows and masks here, windows and packing, caches, score terms,
// gradients and rotary pairs beside it, and once more as questions to the algebra alone in mask_algebra_test.cc.
#include <gtest/gtest.h>

#include <array>

#include "attention/probe.h"
#include "regard/attention_merge.h"
#include "regard/error.h"

namespace regard {
namespace {

using namespace testing_attention;

TEST(BugCase01, EmptyRowForward) { EXPECT_EQ(seen(table_of(3, {{0}, {}}), 2, 3, at(0)), (Sets{{0}, {}})); }

TEST(BugCase02, EmptyRowStaysOutOfItsNeighbours) {  // the forward half
  EXPECT_EQ(seen(Mask::window(1, 0) & keys_below(2), 4), (Sets{{0}, {0, 1}, {1}, {}}));
}

TEST(BugCase03, MaskedScoreIsNotANumberToAdd) {
  const std::vector<float> w = weights_of({-20.0f, 1.0f}, ~Mask::prefix(1));
  EXPECT_EQ(w, (std::vector<float>{0.0f, 1.0f}));
  EXPECT_EQ(weights_of({-20.0f, -20.0f}, Mask::none()), (std::vector<float>{0.0f, 0.0f}));
}

TEST(BugCase04, ForbiddenTwiceIsForbiddenOnce) {
  EXPECT_EQ(seen(Mask::causal() & keys_below(2), 3), (Sets{{0}, {0, 1}, {0, 1}}));
}

TEST(BugCase05, VeryNegativeScoresAreReal) {
  float lse = 0;
  const std::vector<float> w = weights_of({-60000.0f, -60010.0f}, Mask::full(), 0, &lse);
  EXPECT_NEAR(w[0], 0.999955, 0.02 * 0.0000454 + 1e-6);
  EXPECT_NEAR(w[1], 0.0000454, 0.02 * 0.0000454);  // scores of 6e4 are known to 2^-8 relative to 10
  EXPECT_NEAR(lse, -59999.999955, 0.01);
}

TEST(BugCase06, MergingEmptyPartialResults) {
  const auto merge = [](float* into, float& into_lse, const float* other, float other_lse) {
    const TensorView<float> into_out(into, {1, 1, 1, 3}), into_sum(&into_lse, {1, 1, 1});
    merge_attention(into_out, into_sum, TensorView<const float>(other, {1, 1, 1, 3}),
                    TensorView<const float>(&other_lse, {1, 1, 1}), into_out, into_sum);
  };
  const float none = -INFINITY, v[3] = {1.5f, -2.0f, 0.25f};
  float out[3] = {0, 0, 0}, lse = none;
  const float zero[3] = {0, 0, 0};
  merge(out, lse, zero, none);
  EXPECT_TRUE(same_bits(out, zero, 3));
  EXPECT_EQ(lse, none);
  merge(out, lse, v, 0.7f);
  EXPECT_TRUE(same_bits(out, v, 3));
  EXPECT_EQ(lse, 0.7f);
  merge(out, lse, zero, none);
  EXPECT_TRUE(same_bits(out, v, 3));
  EXPECT_EQ(lse, 0.7f);
  // Associative to rounding.
  const float a[3] = {1, 2, 3}, b[3] = {-1, 0, 4}, c[3] = {5, 5, -5};
  float left[3] = {1, 2, 3}, left_lse = 1.0f, right[3] = {-1, 0, 4}, right_lse = 3.0f;
  merge(left, left_lse, b, 3.0f);
  merge(left, left_lse, c, 2.0f);
  merge(right, right_lse, c, 2.0f);
  float whole[3] = {a[0], a[1], a[2]}, whole_lse = 1.0f;
  merge(whole, whole_lse, right, right_lse);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(left[i], whole[i], 1e-6);
  EXPECT_NEAR(left_lse, whole_lse, 1e-6);
}

TEST(BugCase07, NanBehindTheMaskStaysThere) {
  for (float poison : {NAN, INFINITY}) {
    const float q[2] = {0.3f, -1.0f}, k[2] = {0.5f, poison}, v[2] = {4.0f, poison};
    float out[2];
    attend(TensorView<const float>(q, {1, 1, 2, 1}), TensorView<const float>(k, {1, 1, 2, 1}),
           TensorView<const float>(v, {1, 1, 2, 1}), Mask::prefix(1), at(0), {out, {1, 1, 2, 1}});
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
    attend(TensorView<const float>(&one, {1, 1, 1, 1}), TensorView<const float>(k.data(), {1, 1, n, 1}),
           TensorView<const float>(v.data(), {1, 1, n, 1}), Mask::full(), o, {&out, {1, 1, 1, 1}}, {&lse, {1, 1, 1}});
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
  attend(TensorView<const float>(p.q.data(), {1, 1, 1, 64}), k, v, Mask::causal(), at(40),
         {alone.data(), {1, 1, 1, 64}});
  for (int64_t n = 2; n <= 17; ++n) {
    attend(TensorView<const float>(p.q.data(), {1, 1, n, 64}), k, v, Mask::causal(), at(40),
           {company.data(), {1, 1, n, 64}});
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
  const TensorView<const float> q(p.q.data(), {1, 1, 3, 64}), k(p.k.data(), {1, 1, 3, 64}),
      v(p.v.data(), {1, 1, 3, 64});
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

TEST(BugCase24, AWindowAloneIsHonoured) {
  EXPECT_EQ(seen(Mask::window(1, 1), 5), (Sets{{0, 1}, {0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4}}));
}

TEST(BugCase25, UnlimitedIsNotAWidth) {
  EXPECT_EQ(seen(Mask::window(kUnlimited, kUnlimited), 4), (Sets{range(0, 4), range(0, 4), range(0, 4), range(0, 4)}));
  EXPECT_EQ(seen(Mask::window(kUnlimited, 0), 4), seen(Mask::causal(), 4));
  EXPECT_EQ(seen(Mask::window(0, kUnlimited), 4), (Sets{range(0, 4), range(1, 4), range(2, 4), range(3, 4)}));
  EXPECT_EQ(seen(Mask::window(0, 0), 4), (Sets{{0}, {1}, {2}, {3}}));
  EXPECT_THROW(Mask::window(-1, 0), Error);
}

}  // namespace
}  // namespace regard
