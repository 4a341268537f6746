// Linear layers on packed weights: y = x W^T, exactly. One table per instruction set; registry.h picks one.
//
// Every output is one chain acc = fma(x[k], w[k], acc) over k = 0, 1, ... in - 1 that starts at +0, where w are the f32 values of
// the stored weights (on an instruction set without a fused multiply-add, a product and a sum, rounded each). So its bits
// do not depend on how many rows are computed together, on which columns a thread takes, or on the storage format's path.
#pragma once

#include <cstdint>

#include "kernels/panels.h"

namespace regard::kernels {

/// Columns are shared out in halves of panels: half h covers the columns 32 h .. 32 h + 31. [begin, end).
struct HalfPanels {
  int64_t begin = 0;
  int64_t end = 0;
};

/// y[m * ldy + n] for the rows 0 .. rows - 1 and the columns n of `part` that are below weights.out; nothing else is written.
/// x is [rows, in] with stride ldx, y is [rows, out] with stride ldy and does not overlap x. Strides count elements.
/// in = 0 writes +0. NaN and infinity in a row of x stay in that row of y. When rows > fused_rows, `part` consists of
/// whole panels, and `scratch` has kLinearScratch floats aligned to 64 bytes.
using LinearKernel = void (*)(const Panels& weights, const float* x, int64_t ldx, int64_t rows, float* y, int64_t ldy,
                              HalfPanels part, float* scratch) noexcept;

/// How many inner positions of a panel are decoded at a time, and the room they need.
inline constexpr int kLinearChunk = 256;
inline constexpr int kLinearScratch = kLinearChunk * kPanelColumns;

struct LinearKernels {
  LinearKernel f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k;

  /// Up to this many rows, weights are decoded in registers and any halves of panels may be asked for.
  int fused_rows;

  /// The kernel of a weight type; null for other types.
  LinearKernel of(DType type) const noexcept {
    switch (type) {
      case DType::kF32: return f32;
      case DType::kF16: return f16;
      case DType::kBF16: return bf16;
      case DType::kQ8_0: return q8_0;
      case DType::kQ4_0: return q4_0;
      case DType::kQ4_1: return q4_1;
      case DType::kQ5_0: return q5_0;
      case DType::kQ5_1: return q5_1;
      case DType::kQ4_K: return q4_k;
      case DType::kQ5_K: return q5_k;
      case DType::kQ6_K: return q6_k;
      default: return nullptr;
    }
  }
};

}  // namespace regard::kernels
