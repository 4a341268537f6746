// Mistakes about gradients and rotary tables that other libraries made, as tests. The numbers are the case's number.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/calls.h"
#include "regard/attention_backward.h"
#include "regard/position.h"

namespace regard {
namespace {

using namespace testing_attention;

struct Gradients {
  std::vector<float> out, lse, dq, dk, dv, dbias;
};

// One head; q, k, v, dout [length, 2].
Gradients gradients(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v,
                    const std::vector<float>& dout, const Mask& mask, AttentionOptions options, std::vector<int64_t> bias_shape = {}) {
  const auto rows = static_cast<int64_t>(q.size()) / 2, keys = static_cast<int64_t>(k.size()) / 2;
  options.q_begin = options.k_begin = {0};
  Gradients g;
  g.out.resize(q.size());
  g.lse.resize(static_cast<size_t>(rows));
  g.dq.resize(q.size());
  g.dk.resize(k.size());
  g.dv.resize(v.size());
  const TensorView<const float> q_in(q.data(), {1, 1, rows, 2}), k_in(k.data(), {1, 1, keys, 2}), v_in(v.data(), {1, 1, keys, 2});
  const TensorView<float> out(g.out.data(), {1, 1, rows, 2}), lse(g.lse.data(), {1, 1, rows});
  ScoreTermGradients terms;
  if (!bias_shape.empty()) {
    g.dbias.resize(static_cast<size_t>(bias_shape[0] * bias_shape[1] * bias_shape[2] * bias_shape[3]));
    terms.bias = {g.dbias.data(), {bias_shape[0], bias_shape[1], bias_shape[2], bias_shape[3]}};
  }
  attend(q_in, k_in, v_in, mask, options, out, lse);
  attend_backward(q_in, k_in, v_in, out, lse, TensorView<const float>(dout.data(), {1, 1, rows, 2}), {}, mask, options,
                  {g.dq.data(), {1, 1, rows, 2}}, {g.dk.data(), {1, 1, keys, 2}}, {g.dv.data(), {1, 1, keys, 2}}, terms);
  return g;
}

TEST(BugCase02, AnEmptyRowPoisonsNoGradient) {
  const std::vector<float> x = {0.3f, -1, 2, 0.5f, -0.7f, 1.5f, 0.9f, -0.2f}, y = {1, 0.2f, -0.4f, 0.8f, 5, 6, 7, 8}, z = {2, -1, 0.5f, 3, 9, 8, 7, 6};
  AttentionOptions padded;
  padded.limits.key_lengths = {2};
  const Mask band = Mask::window(1, 0);
  for (const float last : {0.0f, 1.0f}) {
    const std::vector<float> dout = {1, 1, 1, 1, 1, 1, last, last};
    const Gradients all = gradients(x, y, z, dout, band, padded);
    const Gradients three = gradients({x.begin(), x.end() - 2}, y, z, {1, 1, 1, 1, 1, 1}, band, padded);
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(all.dq[i], three.dq[i]);
    EXPECT_EQ(all.dq[6], 0);
    EXPECT_EQ(all.dq[7], 0);
    EXPECT_EQ(all.dk, three.dk);
    EXPECT_EQ(all.dv, three.dv);
    EXPECT_NE(all.dk[0], 0);
    for (size_t i = 4; i < 8; ++i) {
      EXPECT_EQ(all.dk[i], 0);
      EXPECT_EQ(all.dv[i], 0);
    }
  }
}

TEST(BugCase08, TheTailOfTheLastTileInBackward) {
  // Scores of -95 by a bias on every remainder of a tile: all weights are 1 / length, and the score gradient of key j is
  // (dout . v_j - mean) / length.
  for (const int64_t length : {257, 320, 384, 511}) {
    const auto n = static_cast<size_t>(length);
    std::vector<float> k(2 * n), v(2 * n), bias(n, -95.0f);
    for (size_t j = 0; j < n; ++j) k[2 * j + 1] = v[2 * j] = static_cast<float>(j % 7) - 3;  // k . q = 0 for q = (1, 0)
    AttentionOptions options;
    options.scale = 1;
    options.bias = {bias.data(), {1, 1, 1, length}};
    const Gradients g = gradients({1, 0}, k, v, {1, 0}, Mask::full(), options);
    double mean = 0, dq = 0;
    for (size_t j = 0; j < n; ++j) mean += static_cast<double>(v[2 * j]) / static_cast<double>(length);
    for (size_t j = 0; j < n; ++j)
      dq += (static_cast<double>(v[2 * j]) - mean) * static_cast<double>(k[2 * j + 1]) / static_cast<double>(length);
    EXPECT_NEAR(g.dq[1], dq, 1e-4) << length;
    EXPECT_EQ(g.dq[0], 0);
    EXPECT_NEAR(g.dv[0], 1.0 / static_cast<double>(length), 1e-7);
  }
}

Rope rope_of(int64_t dim, RopeOrder order) {
  RopeConfig config;
  config.rotary_dim = dim;
  config.order = order;
  return Rope(config);
}

std::vector<float> turned(const Rope& rope, int64_t position, std::vector<float> x, bool interleaved) {
  const auto half = static_cast<size_t>(rope.half());
  std::vector<float> cos(half), sin(half);
  rope.angles(position, cos.data(), sin.data());
  for (size_t j = 0; j < half; ++j) {
    float &a = x[interleaved ? 2 * j : j], &b = x[interleaved ? 2 * j + 1 : j + half];
    const float first = a * cos[j] - b * sin[j], second = a * sin[j] + b * cos[j];
    a = first;
    b = second;
  }
  return x;
}

TEST(BugCase40, RotaryAnglesFollowTheirPosition) {
  const Rope rope = rope_of(2, RopeOrder::kHalfSplit);
  EXPECT_EQ(turned(rope, 0, {1, 0}, false), (std::vector<float>{1, 0}));
  const std::vector<float> later = turned(rope, 3, {1, 0}, false);
  EXPECT_NEAR(later[0], -0.989992, 1e-6);
  EXPECT_NEAR(later[1], 0.141120, 1e-6);
}

TEST(BugCase41, InterleavedAndHalfSplitPairs) {
  const std::vector<double> interleaved = {-1.142640, 1.922076, 2.959851, 4.029800}, half = {-1.984111, 1.959901, 2.462378, 4.019800};
  const Rope a = rope_of(4, RopeOrder::kInterleaved), b = rope_of(4, RopeOrder::kHalfSplit);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(turned(a, 1, {1, 2, 3, 4}, true)[i], interleaved[i], 1e-6);
    EXPECT_NEAR(turned(b, 1, {1, 2, 3, 4}, false)[i], half[i], 1e-6);
  }
}

TEST(BugCase48, TheGradientOfABroadcastBiasIsASum) {
  const std::vector<float> bias(2, 0.0f);
  AttentionOptions options;
  options.bias = {bias.data(), {1, 1, 1, 2}};
  const std::vector<float> zeros(4), v = {0, 0, 1, 0}, dout = {1, 0, 1, 0};
  EXPECT_EQ(gradients(zeros, zeros, v, dout, Mask::full(), options, {1, 1, 1, 2}).dbias, (std::vector<float>{-0.5f, 0.5f}));
  // Masked pairs add exactly nothing: under causal, the first row sees one key and has no gradient.
  EXPECT_EQ(gradients(zeros, zeros, v, dout, Mask::causal(), options, {1, 1, 1, 2}).dbias, (std::vector<float>{-0.25f, 0.25f}));
}

}  // namespace
}  // namespace regard
