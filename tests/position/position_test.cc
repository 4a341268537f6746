// Position encodings against their formulas in long double; tests/golden/numeric holds the scalings of an independent library.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "regard/error.h"
#include "regard/position.h"

namespace regard {
namespace {

RopeConfig plain(int64_t dim, double theta) {
  RopeConfig config;
  config.rotary_dim = dim;
  config.theta = theta;
  return config;
}

TEST(Rope, AnglesAreRoundedOnceFromExactOnes) {
  const Rope rope(plain(64, 1e4));
  std::vector<float> c(32), s(32);
  for (int64_t p : {0, 1, 2, 255, 8191, 131071, 1000003}) {
    rope.angles(p, c.data(), s.data());
    for (int i = 0; i < 32; ++i) {
      const long double angle = p * std::pow(1e4L, -2.0L * i / 64);
      // The frequency itself carries a few ulp of f64, which a large position magnifies.
      const double bound = 0x1p-25 + static_cast<double>(p) * 1e-15;
      ASSERT_NEAR(c[i], static_cast<double>(std::cos(angle)), bound) << p << " " << i;
      ASSERT_NEAR(s[i], static_cast<double>(std::sin(angle)), bound) << p << " " << i;
    }
  }
}

TEST(Rope, ScoresDependOnTheDifferenceOfPositionsOnly) {
  const Rope rope(plain(32, 500));
  std::vector<float> c(16), s(16);
  const auto dot = [&](int64_t p, int64_t k) {
    double sum = 0;
    std::vector<double> turned[2];
    for (int64_t position : {p, k}) {
      rope.angles(position, c.data(), s.data());
      auto& v = turned[position == p && turned[0].empty() ? 0 : 1];
      for (int i = 0; i < 16; ++i) {
        const double a = std::sin(i + 1.0), b = std::cos(3.0 * i);
        v.push_back(a * c[i] - b * s[i]);
        v.push_back(b * c[i] + a * s[i]);
      }
    }
    for (size_t i = 0; i < 32; ++i) sum += turned[0][i] * turned[1][i];
    return sum;
  };
  for (int64_t shift : {1, 100, 5000}) EXPECT_NEAR(dot(17, 5), dot(17 + shift, 5 + shift), 1e-5);
}

// Yarn keeps the fastest pair, divides the slowest by the factor, and multiplies by 0.1 ln(factor) + 1.
TEST(Rope, YarnEndsOfTheRamp) {
  RopeConfig config = plain(64, 1e4);
  config.scaling = RopeScaling::kYarn;
  config.factor = 4;
  config.original_context = 2048;
  const Rope yarn(config), base(plain(64, 1e4));
  EXPECT_DOUBLE_EQ(yarn.frequencies().front(), base.frequencies().front());
  EXPECT_DOUBLE_EQ(yarn.frequencies().back(), base.frequencies().back() / 4);
  EXPECT_DOUBLE_EQ(yarn.magnitude(), 0.1 * std::log(4.0) + 1);
}

TEST(Rope, LinearAndDivisors) {
  RopeConfig config = plain(8, 1e4);
  config.scaling = RopeScaling::kLinear;
  config.factor = 8;
  config.divisors = {1, 2, 3, 4};
  const Rope scaled(config), base(plain(8, 1e4));
  for (size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(scaled.frequencies()[i], base.frequencies()[i] / 8 / (1.0 + static_cast<double>(i)));
}

TEST(Rope, RefusesWhatMakesNoSense) {
  EXPECT_THROW(Rope(plain(7, 1e4)), Error);
  EXPECT_THROW(Rope(plain(0, 1e4)), Error);
  EXPECT_THROW(Rope(plain(8, 0)), Error);
  EXPECT_THROW(Rope(plain(8, NAN)), Error);
  RopeConfig dynamic = plain(8, 1e4);
  dynamic.scaling = RopeScaling::kDynamic;
  dynamic.factor = 2;
  dynamic.original_context = 16;
  EXPECT_THROW(Rope{dynamic}, Error) << "the length must be declared";
  dynamic.declared_length = 8;
  EXPECT_DOUBLE_EQ(Rope(dynamic).frequencies()[1], Rope(plain(8, 1e4)).frequencies()[1]) << "not yet longer than the original";
}

TEST(Sinusoidal, FourLayouts) {
  const int d = 16, half = 8;
  for (int64_t p : {0, 1, 7, 511}) {
    std::vector<float> paper(d), hf(d), native(d), t2t(d);
    sinusoidal(Sinusoidal::kPaper, p, paper);
    sinusoidal(Sinusoidal::kMarianHf, p, hf);
    sinusoidal(Sinusoidal::kMarianNative, p, native);
    sinusoidal(Sinusoidal::kTensor2Tensor, p, t2t);
    for (int j = 0; j < half; ++j) {
      const long double by_dim = p * std::pow(1e4L, -2.0L * j / d), by_count = p * std::pow(1e4L, -1.0L * j / (half - 1));
      EXPECT_FLOAT_EQ(paper[2 * j], static_cast<float>(std::sin(by_dim)));
      EXPECT_FLOAT_EQ(paper[2 * j + 1], static_cast<float>(std::cos(by_dim)));
      EXPECT_FLOAT_EQ(hf[j], static_cast<float>(std::sin(by_dim)));
      EXPECT_FLOAT_EQ(hf[half + j], static_cast<float>(std::cos(by_dim)));
      EXPECT_FLOAT_EQ(native[j], static_cast<float>(std::sin(by_count)));
      EXPECT_FLOAT_EQ(t2t[half + j], static_cast<float>(std::cos(by_count)));
    }
  }
  EXPECT_EQ(first_position(Sinusoidal::kTensor2Tensor), 1);
  EXPECT_EQ(first_position(Sinusoidal::kPaper), 0);
  std::vector<float> odd(7);
  EXPECT_THROW(sinusoidal(Sinusoidal::kPaper, 0, odd), Error);
}

TEST(LearnedPosition, RowsAndTheirEnd) {
  float table[6] = {1, 2, 3, 4, 5, 6};
  const TensorView<const float> view(table, {3, 2});
  EXPECT_EQ(learned_position(view, 1)[0], 3);
  EXPECT_EQ(learned_position(view, 0, 2)[1], 6);
  EXPECT_THROW(learned_position(view, 3), Error);
  EXPECT_THROW(learned_position(view, 1, 2), Error);
}

}  // namespace
}  // namespace regard
