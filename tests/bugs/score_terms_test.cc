// Public bug reports about biases, sinks and dropout, numbered as in rows_and_masks_test.cc.
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/probe.h"
#include "regard/error.h"

namespace regard {
namespace {

using namespace testing_attention;

// One or several queries of zeros over `kv_len` keys; the weights of all of them, and lse where asked for.
std::vector<float> weights_with(int64_t q_len, int64_t kv_len, const Mask& mask, const AttentionOptions& options,
                                std::vector<float>* lse = nullptr) {
  const std::vector<float> q(static_cast<size_t>(q_len), 0.0f), k(static_cast<size_t>(kv_len), 1.0f);
  std::vector<float> v(static_cast<size_t>(kv_len * kv_len), 0.0f), out(static_cast<size_t>(q_len * kv_len));
  for (int64_t j = 0; j < kv_len; ++j) v[static_cast<size_t>(j * kv_len + j)] = 1.0f;
  std::vector<float> all_lse(static_cast<size_t>(q_len));
  attend(TensorView<const float>(q.data(), {1, 1, q_len, 1}), TensorView<const float>(k.data(), {1, 1, kv_len, 1}),
         TensorView<const float>(v.data(), {1, 1, kv_len, kv_len}), mask, options, {out.data(), {1, 1, q_len, kv_len}},
         {all_lse.data(), {1, 1, q_len}});
  if (lse != nullptr) *lse = all_lse;
  return out;
}

void expect_weights(const std::vector<float>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
}

TEST(BugCase08, AConstantBiasOnEveryRemainderOfATile) {  // the forward half, scores of -95 by a bias
  for (int64_t n : {64, 128 + 64, 256 + 1, 256 + 17, 256 + 128, 511}) {
    const float bias = -95.0f;
    AttentionOptions o = at(0);
    o.bias = TensorView<const float>(&bias, {1, 1, 1, 1});
    std::vector<float> lse;
    const std::vector<float> w = weights_with(1, n, Mask::full(), o, &lse);
    for (float x : w) ASSERT_NEAR(x, 1.0 / static_cast<double>(n), 1e-8);
    EXPECT_NEAR(lse[0], -95 + std::log(static_cast<double>(n)), 2e-5);
  }
}

TEST(BugCase16, ZerosAndOnesAddedAreABiasNotAMask) {
  const float bias[2] = {1.0f, 0.0f};
  AttentionOptions o = at(0);
  o.bias = TensorView<const float>(bias, {1, 1, 1, 2});
  expect_weights(weights_with(1, 2, Mask::full(), o), {0.731059, 0.268941});
  const uint8_t keep[2] = {1, 0};
  EXPECT_EQ(weights_with(1, 2, Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(keep, {1, 2})), at(0)),
            (std::vector<float>{1, 0}));
}

TEST(BugCase38, DistancesKnowTheCache) {
  // A table of one bucket per distance: b(d) = -d for keys before their query.
  std::vector<float> table;
  for (int d = 0; d < 16; ++d) table.push_back(static_cast<float>(-d));
  AttentionOptions o = at(3);
  o.t5 = T5Bias{TensorView<const float>(table.data(), {16, 1}), T5Direction::kCausal, 128};
  const std::vector<double> want = {0.032059, 0.087144, 0.236883, 0.643914};
  expect_weights(weights_with(1, 4, Mask::causal(), o), want);
  const std::vector<float> whole = [&] {
    o.q_begin = {0};
    return weights_with(4, 4, Mask::causal(), o);
  }();
  expect_weights({whole.begin() + 12, whole.end()}, want);
  o = at(3);
  o.alibi = Alibi{{1.0f}};
  expect_weights(weights_with(1, 4, Mask::causal(), o), want);
}

TEST(BugCase39, AlibiFavoursNearKeys) {
  AttentionOptions o = at(0);
  o.alibi = Alibi{{1.0f}};
  const std::vector<float> w = weights_with(3, 3, Mask::causal(), o);
  expect_weights({w.begin() + 6, w.end()}, {0.090031, 0.244728, 0.665241});
  // Both directions: the first query of three, without a mask.
  const std::vector<float> both = weights_with(3, 3, Mask::full(), o);
  expect_weights({both.begin(), both.begin() + 3}, {0.665241, 0.244728, 0.090031});
  // Two pads on the left change nothing for the others.
  const std::vector<float> padded = weights_with(5, 5, Mask::causal() & ~Mask::prefix(2), o);
  expect_weights({padded.begin() + 20, padded.end()}, {0, 0, 0.090031, 0.244728, 0.665241});
  // Nor does a constant for the whole row.
  const float constant = 7.5f;
  o.bias = TensorView<const float>(&constant, {1, 1, 1, 1});
  const std::vector<float> shifted = weights_with(3, 3, Mask::causal(), o);
  expect_weights({shifted.begin() + 6, shifted.end()}, {0.090031, 0.244728, 0.665241});
}

TEST(BugCase45, ASinkIsInTheDenominatorOnce) {
  const std::pair<float, double> cases[] = {{0.0f, 1.0 / 3}, {std::log(2.0f), 0.25}, {2.0f, 0.106507}};
  for (const auto& [sink, weight] : cases) {
    AttentionOptions o = at(0);
    o.sink = TensorView<const float>(&sink, {1});
    std::vector<float> lse;
    expect_weights(weights_with(1, 2, Mask::full(), o, &lse), {weight, weight});
    EXPECT_NEAR(lse[0], std::log(2 + std::exp(static_cast<double>(sink))), 1e-6) << "lse includes the sink";
    // However many tiles and threads take part.
    const std::vector<float> many = weights_with(1, 512, Mask::full(), o);
    for (float x : many) ASSERT_NEAR(x, 1 / (512 + std::exp(static_cast<double>(sink))), 1e-8);
  }
}

TEST(BugCase14, TheMaskHoldsUnderDropoutAndWithWeights) {
  for (double rate : {0.0, 0.5}) {
    AttentionOptions o = at(0);
    o.dropout = Dropout{.rate = rate, .seed = 3};
    const std::vector<float> got = weights_with(3, 3, Mask::causal(), o),
                             plain = weights_with(3, 3, Mask::causal(), at(0));
    for (size_t i = 0; i < 3; ++i)
      for (size_t j = 0; j < 3; ++j) {
        const float want = j > i ? 0.0f : plain[3 * i + j];
        EXPECT_TRUE(got[3 * i + j] == want || (rate > 0 && (got[3 * i + j] == 0 || got[3 * i + j] == 2 * want)));
      }
    const std::vector<float> q(3, 0.0f), k(3, 1.0f), lse = {0.0f, std::log(2.0f), std::log(3.0f)};
    std::vector<float> w(9);
    for (Dropout::Weights when : {Dropout::Weights::kBefore, Dropout::Weights::kAfter}) {
      o.dropout->weights = when;
      attention_weights(TensorView<const float>(q.data(), {1, 1, 3, 1}),
                        TensorView<const float>(k.data(), {1, 1, 3, 1}), TensorView<const float>(lse.data(), {1, 1, 3}),
                        Mask::causal(), o, {0, 3}, {0, 3}, {w.data(), {1, 1, 3, 3}});
      for (size_t i = 0; i < 3; ++i)
        for (size_t j = 0; j < 3; ++j) {
          if (j > i) {
            EXPECT_EQ(w[3 * i + j], 0.0f);
          } else {
            const double before = 1.0 / static_cast<double>(i + 1);
            const bool after = when == Dropout::Weights::kAfter && rate > 0;
            EXPECT_NEAR(w[3 * i + j], after ? (got[3 * i + j] == 0 ? 0 : 2 * before) : before, 1e-6);
          }
        }
    }
  }
}

// A rate is part of a call that trains; a call without one drops nothing.
TEST(BugCase46, DropoutIsPartOfTheCallThatWantsIt) {
  AttentionOptions train = at(0);
  train.dropout = Dropout{.rate = 0.5, .seed = 1};
  const std::vector<float> a = weights_with(1, 64, Mask::full(), train), b = weights_with(1, 64, Mask::full(), train);
  EXPECT_TRUE(same_bits(a, b)) << "the seed is part of the call, too";
  EXPECT_GT(std::count(a.begin(), a.end(), 0.0f), 16);
  EXPECT_LT(std::count(a.begin(), a.end(), 0.0f), 48);
  const std::vector<float> none = weights_with(1, 64, Mask::full(), at(0));
  for (float x : none) EXPECT_EQ(x, 1.0f / 64);
  train.dropout->rate = 0;
  EXPECT_TRUE(same_bits(weights_with(1, 64, Mask::full(), train), none));
  train.dropout->rate = 0.5;
  train.dropout->seed = 2;
  EXPECT_FALSE(same_bits(weights_with(1, 64, Mask::full(), train), a));
}

}  // namespace
}  // namespace regard
