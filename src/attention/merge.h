// How two parts of a row's keys weigh in their merged result, in f64. The public calls are in regard/attention_merge.h;
// the kernels fold tiles (kernels/attention.h) and keep bits.
#pragma once

#include <algorithm>

#include "base/math.h"

namespace regard {

/// exp(a - lse) and exp(b - lse), and lse = log(exp a + exp b) itself.
struct MergeWeights {
  double a, b;
  float lse;
};

/// For finite a and b.
inline MergeWeights merge_weights(float a, float b) noexcept {
  const double top = std::max(a, b), x = math::exp(a - top), y = math::exp(b - top), sum = x + y;
  return {x / sum, y / sum, static_cast<float>(top + math::log(sum))};
}

}  // namespace regard
