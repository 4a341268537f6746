// Attention on bf16 dot products: what AttentionKernels::tile() does, with both products in bf16 and summed in f32. The
// arithmetic of a row is in kernels/reference/spec_bf16.h, and the kernel equals it bit for bit; the implementation
// starts in generic/attention_bf16-inl.h. Everything else of an attention call (folding, sinks, results) is as in f32.
//
// Numbers lie in pairs (pairs.h).
//
//   queries  [rows][pairs(head_dim)]
//   keys     panels [pairs(head_dim)][64]: pairs along head_dim, 64 keys side by side
//   values   blocks [32][padded_dim(value_dim)]: pairs of keys
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/pairs.h"

namespace regard::kernels {

/// What a block of rows has besides its AttentionTile, whose `q`, `type`, `next` and `scales` are not used.
struct AttentionBf16Rows {
  const uint32_t* q;  ///< [rows][pairs(head_dim)]
  float factor;       ///< scale * log2(e); multiplies each sum of products
  uint32_t* weights;  ///< scratch [kMaxMicroRows][pairs(256)]
};

struct AttentionBf16Kernels {
  /// Rounds queries: q [rows] pointers to head_dim floats, out [rows][pairs(head_dim)].
  void (*pack_queries)(const float* const* q, int rows, int head_dim, uint32_t* out) noexcept;

  /// Writes `count` keys (rows of head_dim floats, `stride` apart) into a panel from column `column` on.
  void (*pack_keys)(const float* keys, int64_t stride, int count, int head_dim, uint32_t* panel, int column) noexcept;

  /// Writes `count` values (rows of value_dim floats, `stride` apart) into a block from key `first` on, 0 in the
  /// padding. The other key of a pair that is written by half keeps what it has.
  void (*pack_values)(const float* values, int64_t stride, int count, int value_dim, uint32_t* block,
                      int first) noexcept;

  /// Folds the tile's (m, l, o) into `state`.
  void (*tile)(const AttentionTile& tile, const AttentionBf16Rows& rows, const AttentionState& state) noexcept;
};

}  // namespace regard::kernels
