// The backward pass against its scalar definition on bits, against f64 and finite differences in value.
#include <gtest/gtest.h>

#include "attention/backward_calls.h"

namespace regard {
namespace {

using namespace testing_attention;

struct Sizes {
  int64_t d, dv, q_len, kv_len;
};

std::vector<Mask> all_masks() {
  std::vector<Mask> all = masks();
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 900; ++i) ids.push_back(i / 37 + i / 300);
  all.push_back(Mask::documents(ids) & Mask::causal());
  all.push_back(Mask::none());
  std::vector<uint8_t> bits;
  for (uint64_t i = 0; i < 900 * 900; ++i) bits.push_back(i / 900 % 7 == 3 ? 0 : random_uniform(5, 6, i) < 0.4);
  all.push_back(Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(bits.data(), {900, 900})));
  return all;
}

TEST(Backward, IsItsScalarDefinitionBitForBit) {
  const Sizes sizes[] = {{1, 1, 5, 5},       {8, 8, 70, 64},     {33, 40, 100, 257}, {40, 33, 97, 300},
                         {64, 64, 10, 530},  {72, 80, 40, 65},   {80, 72, 9, 513},   {96, 16, 20, 256},
                         {128, 128, 9, 300}, {256, 250, 7, 140}, {260, 8, 7, 140},   {512, 512, 3, 70},
                         {16, 16, 1, 1},     {16, 16, 3, 0},     {16, 16, 0, 3}};
  const std::vector<Mask> all = all_masks();
  for (const Sizes& s : sizes) {
    Problem p = with_lengths(s.q_len, s.kv_len, s.d, s.dv);
    p.fill(static_cast<uint64_t>(s.d + s.kv_len));
    for (size_t m = 0; m < all.size(); ++m) {
      p.softcap = m % 3 == 1 ? 1.5 : 0;
      Upstream up(by_spec(p, all[m]), 40);
      if (m % 2 == 1) up.dlse.clear();
      const Gradients want = backward_by_spec(p, up, all[m]);
      for (int threads : {1, 3}) {
        const Threads guard(threads);
        const Gradients got = run_backward(p, up, all[m]);
        ASSERT_TRUE(same_bits(got.q, want.q)) << "dq " << s.d << " " << s.kv_len << " " << all[m].text();
        ASSERT_TRUE(same_bits(got.k, want.k)) << "dk " << s.d << " " << s.kv_len << " " << all[m].text();
        ASSERT_TRUE(same_bits(got.v, want.v)) << "dv " << s.d << " " << s.kv_len << " " << all[m].text();
      }
    }
  }
}

// 1e-5 of the largest gradient on gaussian inputs.
TEST(Backward, IsCloseToF64) {
  for (const Sizes& s : {Sizes{64, 64, 130, 130}, Sizes{33, 20, 20, 400}, Sizes{128, 128, 40, 100}}) {
    Problem p = with_lengths(s.q_len, s.kv_len, s.d, s.dv);
    p.fill(7);
    for (const Mask& mask : all_masks())
      for (double softcap : {0.0, 1.0}) {
        p.softcap = softcap;
        const Upstream up(run(p, mask), 41);
        const Gradients got = run_backward(p, up, mask);
        const WideGradients want = backward_in_f64(p, up.dout, up.dlse, mask);
        EXPECT_LT(relative_error(got.q, want.q), 1e-5) << "dq " << mask.text();
        EXPECT_LT(relative_error(got.k, want.k), 1e-5) << "dk " << mask.text();
        EXPECT_LT(relative_error(got.v, want.v), 1e-5) << "dv " << mask.text();
      }
  }
}

// Numbers for every pair and a sink, and a dropout of every fifth pair.
struct NumberedTerms {
  const std::vector<double>& biases;
  int64_t row, keys;
  double sink, keep_scale = 1.25;
  double bias(int64_t j) const { return biases[static_cast<size_t>(row * keys + j)]; }
  bool keep(int64_t j) const { return (row + 2 * j) % 5 != 0; }
};

// The f64 formulas themselves: the loss sum(dout * out) + sum(dlse * lse) differentiated numerically along random
// directions.
TEST(BackwardReference, AgreesWithFiniteDifferences) {
  constexpr int64_t kQueries = 5, kKeys = 7, kDim = 3, kValues = 4;
  const auto draw = [](uint64_t stream, int64_t n) {
    std::vector<double> x;
    for (int64_t i = 0; i < n; ++i) x.push_back(2 * random_uniform(77, stream, static_cast<uint64_t>(i)) - 1);
    return x;
  };
  const auto rows = [](const std::vector<double>& x, int64_t dim) {
    return [&x, dim](int64_t j, int64_t i) { return x[static_cast<size_t>(j * dim + i)]; };
  };
  const auto row = [](const std::vector<double>& x, int64_t i, int64_t dim) {
    return [&x, i, dim](int64_t c) { return x[static_cast<size_t>(i * dim + c)]; };
  };
  // q, k, v, the biases and the sink, in this order.
  using Inputs = std::vector<std::vector<double>>;
  const Inputs inputs = {draw(1, kQueries * kDim), draw(2, kKeys * kDim), draw(3, kKeys * kValues),
                         draw(4, kQueries * kKeys), draw(5, 1)};
  const std::vector<double> dout = draw(6, kQueries * kValues), dlse = draw(7, kQueries);
  for (const char* text : {"full", "causal", "window(1, 1)", "causal & ~dilated(2)"})
    for (double softcap : {0.0, 0.7}) {
      const Mask mask = Mask::parse(text);
      const auto sees = [&](int64_t i) { return [&mask, i](int64_t j) { return mask.allowed(0, 0, i, j); }; };
      const auto terms = [](const Inputs& x, int64_t i) { return NumberedTerms{x[3], i, kKeys, x[4][0]}; };
      const auto loss = [&](const Inputs& x) {
        double sum = 0;
        std::vector<double> out(kValues);
        for (int64_t i = 0; i < kQueries; ++i) {
          const double lse = kernels::reference::attention_row<double>(row(x[0], i, kDim), kDim, kValues, 0, kKeys, 0.6,
                                                                       softcap, rows(x[1], kDim), rows(x[2], kValues),
                                                                       sees(i), out.data(), nullptr, terms(x, i));
          for (int64_t c = 0; c < kValues; ++c)
            sum += dout[static_cast<size_t>(i * kValues + c)] * out[static_cast<size_t>(c)];
          sum += dlse[static_cast<size_t>(i)] * lse;
        }
        return sum;
      };
      Inputs gradients;
      for (const std::vector<double>& x : inputs) gradients.emplace_back(x.size());
      std::vector<double> scratch(kValues + kKeys);
      for (int64_t i = 0; i < kQueries; ++i)
        gradients[4][0] += kernels::reference::attention_backward_row<double>(
            row(inputs[0], i, kDim), row(dout, i, kValues), dlse[static_cast<size_t>(i)], kDim, kValues, 0, kKeys, 0.6,
            softcap, rows(inputs[1], kDim), rows(inputs[2], kValues), sees(i), scratch.data(),
            gradients[0].data() + i * kDim, [&](int64_t j) { return gradients[1].data() + j * kDim; },
            [&](int64_t j) { return gradients[2].data() + j * kValues; }, gradients[3].data() + i * kKeys,
            terms(inputs, i));
      for (size_t input = 0; input < inputs.size(); ++input)
        for (uint64_t direction = 10; direction < 16; ++direction) {
          constexpr double kStep = 1e-5;
          const std::vector<double> along = draw(direction + 10 * input, static_cast<int64_t>(inputs[input].size()));
          const auto moved = [&](double step) {
            Inputs x = inputs;
            for (size_t i = 0; i < along.size(); ++i) x[input][i] += step * along[i];
            return x;
          };
          double want = 0;
          for (size_t i = 0; i < along.size(); ++i) want += gradients[input][i] * along[i];
          EXPECT_NEAR(want, (loss(moved(kStep)) - loss(moved(-kStep))) / (2 * kStep), 1e-8)
              << text << " input " << input;
          EXPECT_NE(want, 0.0) << "a gradient of zero proves nothing";
        }
    }
}

}  // namespace
}  // namespace regard
