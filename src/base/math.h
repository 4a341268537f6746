// Elementary functions of our own in f64, so that a result does not depend on which C library a program was linked with.
// Plain Horner schemes after an argument reduction; errors stay below 2 ulp of f64 (the tests measure them against the C
// library in long double). The vector versions for f32 are in kernels/generic/math-inl.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace regard::math {

inline constexpr double kLn2 = 0x1.62e42fefa39efp-1;
inline constexpr double kLog2e = 0x1.71547652b82fep+0;

/// e^x. Overflow gives infinity, underflow 0 or a subnormal, NaN gives NaN.
inline double exp(double x) {
  if (!(x > -746.0)) return x != x ? x : 0.0;
  if (x > 710.0) return std::numeric_limits<double>::infinity();
  // ln 2 in two parts, the first with enough trailing zeros that n * kHigh is exact.
  constexpr double kHigh = 0x1.62e42feep-1, kLow = 0x1.a39ef35793c76p-33;
  const double n = std::nearbyint(x * kLog2e);
  const double r = (x - n * kHigh) - n * kLow;
  double sum = 1.0 / 6227020800.0;  // 1/13!
  constexpr double kInverseFactorial[] = {1.0,          1.0,           1.0 / 2,      1.0 / 6,       1.0 / 24,      1.0 / 120,     1.0 / 720,
                                          1.0 / 5040,   1.0 / 40320,   1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600};
  for (int i = 12; i >= 0; --i) sum = sum * r + kInverseFactorial[i];
  return std::ldexp(sum, static_cast<int>(n));
}

/// Natural logarithm. log(0) is -infinity, a negative argument gives NaN.
inline double log(double x) {
  if (x != x || x < 0) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return -std::numeric_limits<double>::infinity();
  if (std::isinf(x)) return x;
  int exponent = 0;
  double m;  // [1/2, 1)
  if (x >= std::numeric_limits<double>::min()) {
    const auto bits = std::bit_cast<uint64_t>(x);
    exponent = static_cast<int>(bits >> 52) - 1022;
    m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) | 0x3FE0000000000000u);
  } else {
    m = std::frexp(x, &exponent);
  }
  if (m < 0x1.6a09e667f3bcdp-1) {       // below sqrt(1/2): centre the reduced range on 1
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1), s2 = s * s;  // log m = 2 atanh s, |s| < 0.172
  double sum = 1.0 / 25;
  for (int k = 23; k >= 3; k -= 2) sum = sum * s2 + 1.0 / k;
  const double tail = 2 * s * s2 * sum;
  constexpr double kHigh = 0x1.62e42feep-1, kLow = 0x1.a39ef35793c76p-33;
  return exponent * kHigh + (2 * s + (tail + exponent * kLow));
}

inline double log2(double x) { return log(x) * kLog2e; }

struct SinCos {
  double sin, cos;
};

/// Sine and cosine of an angle in radians, for |x| up to 2^50.
inline SinCos sincos(double x) {
  // pi/2 in two parts; fma keeps the products exact, so the reduced angle is good to 2^-54 whatever the multiple.
  constexpr double kHigh = 0x1.921fb54442d18p+0, kLow = 0x1.1a62633145c07p-54, kTwoOverPi = 0x1.45f306dc9c883p-1;
  const double n = std::nearbyint(x * kTwoOverPi);
  const double r = std::fma(-n, kLow, std::fma(-n, kHigh, x)), r2 = r * r;
  double s = -1.0 / 1307674368000.0, c = 1.0 / 20922789888000.0;  // -1/15!, 1/16!
  constexpr double kSin[] = {1.0 / 6227020800.0, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6};
  constexpr double kCos[] = {-1.0 / 87178291200.0, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24};
  for (double coefficient : kSin) s = s * r2 + coefficient;
  for (double coefficient : kCos) c = c * r2 + coefficient;
  // 1 - r^2/2 loses its last bits; what it lost is added back with the rest of the series.
  const double half = 0.5 * r2, head = 1 - half;
  const double sine = r + r * r2 * s, cosine = head + (((1 - head) - half) + r2 * r2 * c);
  switch (static_cast<int64_t>(n) & 3) {
    case 0: return {sine, cosine};
    case 1: return {cosine, -sine};
    case 2: return {-sine, -cosine};
    default: return {-cosine, sine};
  }
}

/// x^y for x > 0, by logarithm: the relative error grows with |y log x|.
inline double pow(double x, double y) { return exp(y * log(x)); }

}  // namespace regard::math
