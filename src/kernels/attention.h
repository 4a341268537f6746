// Attention kernels: a block of query rows that share one KV head, against one tile of 256 keys at a time. What a row
// computes is written down as scalar code in kernels/reference/spec.h, and every kernel equals it bit for bit; the
// implementation starts in generic/attention-inl.h.
//
// Keys are cut into tiles at absolute multiples of 256. A tile's partial result (m, l, o) depends on the row and that
// tile alone; the partial results are folded from the left. So any cut between tiles, into calls, threads or chunks, is
// exact.
//
// All kernels are noexcept, allocate nothing, and read no key and no value that a row may not see into its result.
#pragma once

#include <cstdint>

#include "regard/dtype.h"

namespace regard::kernels {

inline constexpr int kLanes = 16;
inline constexpr int kPanelKeys = 64;  ///< keys in one packed panel of K and one block of V
inline constexpr int kTileKeys = 256;
inline constexpr int kPanelsPerTile = kTileKeys / kPanelKeys;
inline constexpr int kBlockRows = 96;     ///< query rows of one block; the scratch of a thread is laid out for it
inline constexpr int kMaxBlockRows = 192;  ///< at most, where keys and values are too many for the caches
inline constexpr int kMaxMicroRows = 6;   ///< rows in registers at once, on the widest instruction set
inline constexpr int kMaxHeadDim = 512;   ///< for keys and for values

/// Values are stored in rows of whole vectors; what lies behind the last value never enters a result.
constexpr int padded_dim(int value_dim) noexcept { return (value_dim + kLanes - 1) / kLanes * kLanes; }

/// The running result of a block of rows: M in units of log2, L, and O [rows][padded_dim(value_dim)], not yet divided
/// by L. m and l hold rows + kLanes elements, because whole vectors are read from any row on.
struct AttentionState {
  float* o;
  float* m;
  float* l;
};

/// One block of rows against one tile.
struct AttentionTile {
  const float* q;  ///< [rows][head_dim], multiplied by scale * log2(e)
  int rows;        ///< 1 .. kMaxBlockRows
  int head_dim;    ///< 1 .. kMaxHeadDim
  int value_dim;   ///< padded
  float softcap;   ///< in units of log2; 0: none

  DType type;                        ///< of keys and values, stored as kv_layout.h says
  const void* k[kPanelsPerTile];     ///< panels [head_dim][64]
  const void* v[kPanelsPerTile];     ///< blocks [64][stored_dim]
  const void* next[kPanelsPerTile];  ///< panels that will be wanted next, fetched meanwhile when next[0] is not null
  const float* scales[kPanelsPerTile];  ///< of codes: [blocks][64] of the keys, then [64][blocks] of the values
  int scale_block;  ///< of codes: how many numbers of a key or value share a scale, a power of two from 16 on; 0: all

  /// Row r sees the keys lo[r] <= j < hi[r] of the tile (0 .. 256; lo >= hi: none). Null: every row sees every key.
  const int32_t* lo;
  const int32_t* hi;
  /// And of those only the ones whose bit is set: bit j of words[r][w] is key 64 w + j. Null: all.
  const uint64_t (*words)[kPanelsPerTile];

  /// bias[r][j] is added to the score of key j after the soft-cap, in natural units: s = fma(bias, log2 e, s). Each
  /// points at 256 readable floats; what stands there for a key that the row does not see never matters. Null: none.
  const float* const* bias;
  /// Dropout: a visible key whose bit is not set counts in l but not in o, and its value is not read into the result.
  /// Null: all are kept.
  const uint64_t (*keep)[kPanelsPerTile];

  float* scores;  ///< scratch [kMaxMicroRows][256]
};

struct AttentionKernels {
  /// out[r][i] = q[r][i] * factor, densely packed [rows][head_dim].
  void (*scale_queries)(const float* const* q, int rows, int head_dim, float factor, float* out) noexcept;

  /// An empty result: (-inf, 0, 0).
  void (*reset)(const AttentionState& state, int rows, int value_dim) noexcept;

  /// Folds the tile's (m, l, o) into `state`.
  void (*tile)(const AttentionTile& tile, const AttentionState& state) noexcept;

  /// Folds `part` into `into`, row by row; a part of one tile gives the same bits as tile() does.
  void (*fold)(const AttentionState& into, const AttentionState& part, int rows, int value_dim) noexcept;

  /// Folds a sink into `state`, after the last tile and once: a part with m = sinks[r] log2(e), l = 1 and o = 0. A sink
  /// of -inf changes nothing.
  void (*fold_sink)(const AttentionState& state, const float* sinks, int rows, int value_dim) noexcept;

  /// out[r] = O / L (value_dim elements), lse[r] = (M + log2 L) ln 2. A row without a visible key gives 0 and -inf. A
  /// zero is +0 and every NaN is the same NaN, so that they cannot tell how a row was computed. value_dim is not padded
  /// here; lse may be null.
  void (*finish)(const AttentionState& state, int rows, int value_dim, float* const* out, float* lse) noexcept;

  /// The weights 2^(s - lse2) of the tile's keys, rebuilt from the scores: out [rows][256]; 0 for a key that the row
  /// does not see and in a row whose lse is -inf. lse2 = lse_high[r] + lse_low[r] is lse * log2(e) in two parts.
  /// `tile.v` and `tile.keep` are not used.
  void (*weights)(const AttentionTile& tile, const float* lse_high, const float* lse_low, float* out) noexcept;

  /// out[r * out_stride + n] = q[r * q_stride ...] . column (first + n) of panels [head_dim][64] that follow each other, one
  /// chain over head_dim each, for rows <= kMaxMicroRows and n < count; first and count are multiples of 16.
  void (*dots)(const float* q, int64_t q_stride, int rows, int head_dim, const float* panels, int64_t first, int count,
               float* out, int64_t out_stride) noexcept;

  /// dropout_keep_words() of dropout.h; row_key has two words.
  void (*keep_words)(const uint32_t* row_key, int64_t tile, uint32_t threshold, uint64_t* words) noexcept;

  /// Writes `count` keys (rows of head_dim elements, `stride` apart) into a panel [head_dim][64] from column `column`
  /// on.
  void (*pack_keys)(const float* keys, int64_t stride, int count, int head_dim, float* panel, int column) noexcept;
};

}  // namespace regard::kernels
