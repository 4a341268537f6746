// Merging attention over two parts of the keys. The kernels fold tiles (kernels/attention.h) and keep bits; this is the
// same sum for finished results, where only the rounding of the parts is known.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/math.h"

namespace regard {

/// (out, lse) of a row becomes that of both parts of its keys: lse = log(exp a + exp b), out = the mean of the parts
/// weighted with exp(lse_part - lse). A part that saw nothing, lse -inf, is neutral: the other one is kept bit for bit.
inline void merge_partials(float* out, float& lse, const float* other_out, float other_lse,
                           int64_t value_dim) noexcept {
  constexpr float kEmpty = -std::numeric_limits<float>::infinity();
  if (other_lse == kEmpty) return;
  if (lse == kEmpty) {
    std::copy_n(other_out, value_dim, out);
    lse = other_lse;
    return;
  }
  const double top = std::max(lse, other_lse), a = math::exp(lse - top), b = math::exp(other_lse - top), sum = a + b;
  for (int64_t c = 0; c < value_dim; ++c) out[c] = static_cast<float>((a * out[c] + b * other_out[c]) / sum);
  lse = static_cast<float>(top + math::log(sum));
}

}  // namespace regard
