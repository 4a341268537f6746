// What bf16 dot products compute, in scalar code: rounding, and one step of a chain. Kernels on them equal it bit for bit.
//
// A chain takes its numbers in pairs (2i, 2i + 1), pairs rising, of each pair the second one first: that is what the instruction
// does (Intel, "Architecture instruction set extensions programming reference", VDPBF16PS). A step is a multiply-add that
// rounds once, to nearest even; numbers below the normal range, coming in or going out, are 0.
#pragma once

#include <cmath>

#include "base/half.h"

namespace regard::kernels::reference {

inline float spec_flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

/// x rounded to bf16, to nearest even; below the normal range to 0.
inline float spec_bf16(float x) { return bf16_to_float(float_to_bf16(spec_flushed(x))); }

/// One step: sum + a * b of numbers that are bf16.
inline float spec_add_product(float sum, float a, float b) {
  a = spec_flushed(a), b = spec_flushed(b), sum = spec_flushed(sum);
  // A result counts as small when it still is after rounding to 24 bits. In f64 both the product and, so near to the end of
  // the range, the sum are exact.
  constexpr double kSmallest = 0x1.FFFFFFp-127;
  const double exact = static_cast<double>(a) * b + sum;
  if (std::fabs(exact) < kSmallest) return std::copysign(0.0f, static_cast<float>(exact));
  return std::fma(a, b, sum);
}

}  // namespace regard::kernels::reference
