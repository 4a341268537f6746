// Our elementary functions against the C library in long double.
#include <gtest/gtest.h>

#include <cmath>

#include "base/math.h"
#include "base/rng.h"

namespace regard {
namespace {

double ulps(double got, long double want) {
  const double rounded = static_cast<double>(want);
  const double ulp = std::nextafter(std::fabs(rounded), INFINITY) - std::fabs(rounded);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want)) / ulp;
}

TEST(Math, ExpWithinTwoUlp) {
  for (uint64_t i = 0; i < 200000; ++i) {
    const double x = (random_uniform(1, 0, i) * 2 - 1) * 700;
    ASSERT_LT(ulps(math::exp(x), std::exp(static_cast<long double>(x))), 2.0) << x;
  }
  EXPECT_EQ(math::exp(-INFINITY), 0.0);
  EXPECT_EQ(math::exp(0.0), 1.0);
  EXPECT_EQ(math::exp(800.0), INFINITY);
  EXPECT_TRUE(std::isnan(math::exp(NAN)));
}

TEST(Math, LogWithinTwoUlp) {
  for (uint64_t i = 0; i < 200000; ++i) {
    const double x = std::ldexp(1 + random_uniform(2, 0, i), static_cast<int>(random_bits(2, 1, i) % 200) - 100);
    ASSERT_LT(ulps(math::log(x), std::log(static_cast<long double>(x))), 2.0) << x;
  }
  for (uint64_t i = 0; i < 100000; ++i) {
    const double x = 0.5 + random_uniform(3, 0, i);
    ASSERT_LT(ulps(math::log(x), std::log(static_cast<long double>(x))), 2.0) << x;
  }
  EXPECT_EQ(math::log(0.0), -INFINITY);
  EXPECT_EQ(math::log(1.0), 0.0);
  EXPECT_TRUE(std::isnan(math::log(-1.0)));
}

TEST(Math, SinCosAbsoluteErrorStaysSmallForLargeAngles) {
  for (uint64_t i = 0; i < 200000; ++i) {
    const double x = std::ldexp(random_uniform(4, 0, i) * 2 - 1, static_cast<int>(random_bits(4, 1, i) % 31));
    const auto [s, c] = math::sincos(x);
    ASSERT_LT(std::fabs(s - std::sin(static_cast<long double>(x))), 2.5e-16L) << x;
    ASSERT_LT(std::fabs(c - std::cos(static_cast<long double>(x))), 2.5e-16L) << x;
  }
}

}  // namespace
}  // namespace regard
