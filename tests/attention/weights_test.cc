// Weights on demand: the ones that the output was made of, for any rectangle.
#include <gtest/gtest.h>

#include "attention/calls.h"

namespace regard {
namespace {

using namespace testing_attention;

TEST(Weights, RebuildTheOutput) {
  for (const auto& [kv_len, cap] : {std::pair{30, 0.0}, std::pair{600, 0.0}, std::pair{300, 1.5}}) {
    Problem p = with_lengths(15, kv_len, 40, 24);
    p.softcap = cap;
    p.fill(static_cast<uint64_t>(kv_len));
    for (const Mask& mask : masks()) {
      Result r = run(p, mask);
      std::vector<float> w(static_cast<size_t>(4 * 15 * kv_len), -7.0f);
      attention_weights(q_view(p), k_view(p), lse_view(p, r), mask, options_of(p), {0, 15}, {0, kv_len},
                        {w.data(), {1, 4, 15, kv_len}});
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t i = 0; i < 15; ++i) {
          std::vector<double> exact(static_cast<size_t>(kv_len)), out(24);
          const auto visible = [&](int64_t j) { return mask.allowed(0, h, p.q_begin + i, j); };
          kernels::reference::attention_row<double>(
              [&](int64_t x) { return p.query(0, h, i)[x]; }, 40, 24, 0, kv_len, p.scale, p.softcap,
              [&](int64_t j, int64_t x) { return p.key(0, h / 2, j)[x]; },
              [&](int64_t j, int64_t c) { return p.value(0, h / 2, j)[c]; }, visible, out.data(), exact.data());
          for (int64_t j = 0; j < kv_len; ++j) {
            const float got = w[static_cast<size_t>((h * 15 + i) * kv_len + j)];
            if (!visible(j))
              ASSERT_EQ(bits(got), 0u) << mask.text();
            else
              ASSERT_NEAR(got, exact[static_cast<size_t>(j)], 40 * 0x1p-24 * exact[static_cast<size_t>(j)])
                  << mask.text() << " " << h << " " << i << " " << j;
          }
        }
      // Any rectangle of it is the same numbers.
      std::vector<float> part(static_cast<size_t>(4 * 5 * (kv_len / 2)));
      attention_weights(q_view(p), k_view(p), lse_view(p, r), mask, options_of(p), {7, 12},
                        {kv_len / 3, kv_len / 3 + kv_len / 2}, {part.data(), {1, 4, 5, kv_len / 2}});
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t i = 0; i < 5; ++i)
          ASSERT_TRUE(same_bits(&part[static_cast<size_t>((h * 5 + i) * (kv_len / 2))],
                                &w[static_cast<size_t>((h * 15 + 7 + i) * kv_len + kv_len / 3)], kv_len / 2));
    }
  }
}

TEST(Weights, FollowTheSlotsWhenPositionsAreGiven) {
  Problem p;
  p.q_len = 2, p.kv_len = 5, p.d = p.dv = 8;
  p.fill(22);
  const std::vector<int64_t> k_position = {300, -1, 2, 700, 1}, q_position = {300, -1};
  AttentionOptions o = options_of(p);
  o.q_begin.clear(), o.k_begin.clear();
  o.q_positions = TensorView<const int64_t>(q_position.data(), {2});
  o.k_positions = TensorView<const int64_t>(k_position.data(), {5});
  Result r = run(p, Mask::causal(), o);
  std::vector<float> w(10, -7.0f);
  attention_weights(q_view(p), k_view(p), lse_view(p, r), Mask::causal(), o, {0, 2}, {0, 5}, {w.data(), {1, 1, 2, 5}});
  EXPECT_NEAR(w[0] + w[2] + w[4], 1, 1e-6);
  EXPECT_GT(std::min({w[0], w[2], w[4]}), 0.0f);
  EXPECT_EQ(w[1], 0.0f);
  EXPECT_EQ(w[3], 0.0f);
  for (int64_t c = 0; c < 8; ++c)
    EXPECT_NEAR(r.out[static_cast<size_t>(c)],
                w[0] * p.value(0, 0, 0)[c] + w[2] * p.value(0, 0, 2)[c] + w[4] * p.value(0, 0, 4)[c], 1e-6);
  for (int j = 5; j < 10; ++j) EXPECT_EQ(bits(w[static_cast<size_t>(j)]), 0u);
}

TEST(Refusals, WeightsCheckTheirRectangle) {
  Problem p = with_lengths(3, 5, 8, 8);
  p.fill(1);
  Result r = run(p, Mask::causal());
  std::vector<float> w(100);
  const auto call = [&](Interval queries, Interval keys, int64_t rows, int64_t columns) {
    attention_weights(q_view(p), k_view(p), lse_view(p, r), Mask::causal(), options_of(p), queries, keys,
                      {w.data(), {1, 4, rows, columns}});
  };
  call({0, 3}, {0, 5}, 3, 5);
  call({1, 1}, {0, 5}, 0, 5);
  expect_refused(Code::kInvalidArgument, {"queries 0 to 4", "3"}, [&] { call({0, 4}, {0, 5}, 4, 5); });
  expect_refused(Code::kInvalidArgument, {"keys -1 to 5"}, [&] { call({0, 3}, {-1, 5}, 3, 6); });
  expect_refused(Code::kInvalidArgument, {"[1, 4, 3, 4]", "[1, 4, 3, 5]"}, [&] { call({0, 3}, {0, 5}, 3, 4); });
}

}  // namespace
}  // namespace regard
