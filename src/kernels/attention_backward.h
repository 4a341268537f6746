// Kernels of the backward pass: a block of query rows that share one KV head against a block of up to 256 keys. What
// they compute is written down as scalar code in kernels/reference/spec_backward.h, which they equal bit for bit; the
// implementation starts in generic/attention_backward-inl.h.
//
// With s the score of a pair in units of log2 (after soft-cap and bias) and lse2 = lse * log2(e):
//   p = 2^(s - lse2),  dp = dout . v,  db = p (dp - delta),  ds = db (1 - tanh^2),  delta = dout . out - dlse
//   dq = scale * sum_j ds k_j,  dk = ln 2 * sum_i ds q'_i,  dv = sum_i p dout_i,  q' = q * scale * log2(e)
// Every element of a gradient is one chain of fused multiply-adds in rising key or row that is carried from block to
// block through memory, which changes no bit; so blocks may be cut anywhere. A pair that is masked enters no chain, not
// even as a zero, and nothing of its key or row is read into a result.
//
// All kernels are noexcept and allocate nothing.
#pragma once

#include "kernels/attention.h"

namespace regard::kernels {

/// Floats from one row of weights to the next: a tile, and a line more, because columns are read downwards and rows a
/// power of two apart would share few cache sets.
inline constexpr int kWeightStride = kTileKeys + kLanes;

struct BackwardBlock {
  const float* q;     ///< [rows][padded_dim(head_dim)], multiplied by scale * log2(e), then zeros
  const float* dout;  ///< [rows][value_dim], then zeros up to padded_dim(value_dim); rows are dout_stride floats apart
  int64_t dout_stride;
  int rows;           ///< 1 .. kBlockRows
  int panels;         ///< 1 .. kPanelsPerTile: the block has 64 * panels keys
  int head_dim;       ///< 1 .. kMaxHeadDim
  int value_dim;
  float softcap;  ///< in units of log2; 0: none

  const float* k;       ///< [panels] panels [head_dim][64]
  const float* v;       ///< [panels] panels [value_dim][64]
  const float* k_rows;  ///< [64 * panels][padded_dim(head_dim)], then zeros

  const float* lse_high;  ///< [rows] lse * log2(e) in two parts; finite, or NaN
  const float* lse_low;
  const float* delta;

  /// Bit j of seen[r][w]: row r sees key 64 w + j. Null: every row sees every key.
  const uint64_t (*seen)[kPanelsPerTile];

  /// bias[r][j] was added to the score of key j: 64 * panels readable floats each, as in AttentionTile. Null: none.
  const float* const* bias;
  /// Dropout: a pair whose bit is not set adds nothing to dv, its dp is 0; that of the others is multiplied by
  /// keep_scale, with which dv is to be finished. Null: all are kept.
  const uint64_t (*keep)[kPanelsPerTile];
  float keep_scale;

  /// Where the rows' gradients lie, fetched by weights() for add_queries(); null: they are not.
  float* const* dq;

  float* p;   ///< [rows][kWeightStride]: written by weights(), read by the others; unseen pairs hold anything
  float* ds;  ///< likewise
  float* db;  ///< likewise, the gradient of what is added after the soft-cap; null: not wanted
};

struct AttentionBackwardKernels {
  /// out[r][i] = from[r][i] * factor, zeros from dim to padded_dim(dim). A null row is not read: zeros.
  void (*load_rows)(const float* const* from, int rows, int dim, float factor, float* out) noexcept;

  /// out[r] = a[r] . b[r]: lane sums (lane = i mod 16), then lanes (i, i+8), (i, i+4), (i, i+2), (i, i+1). A null row
  /// gives 0.
  void (*dot_rows)(const float* const* a, const float* const* b, int rows, int dim, float* out) noexcept;

  /// p and ds of the pairs that are seen.
  void (*weights)(const BackwardBlock& block) noexcept;

  /// dk[j] += sum over rows of ds q', dv[j] += sum over rows of p dout; [64 * panels][padded dims].
  void (*add_keys)(const BackwardBlock& block, float* dk, float* dv) noexcept;

  /// dq[r] += sum over keys of ds k; only head_dim elements of a row are touched.
  void (*add_queries)(const BackwardBlock& block, float* const* dq) noexcept;

  /// to[r] = from[r] * factor. A zero is +0 and every NaN the same NaN. from[r] and to[r] may be the same.
  void (*finish_rows)(const float* const* from, int rows, int dim, float factor, float* const* to) noexcept;
};

}  // namespace regard::kernels
