// Keys and values as the kernels want them: per KV head, K packed in panels [head_dim][64] and V in blocks [64][padded
// value_dim], cut at absolute multiples of 64 positions and found through a table. KvCache and PackedKv make such
// memory; a KvView is what attention reads. Where a block lies is nothing but an address, so pages are another way to
// fill the table.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/registry.h"
#include "regard/dtype.h"

namespace regard {

/// The shape of what is stored for one token.
struct KvGeometry {
  int num_kv_heads = 0;
  int head_dim = 0;
  int value_dim = 0;         ///< 0: keys alone
  DType type = DType::kF32;  ///< the only type that is built so far; others are refused

  int64_t key_floats() const noexcept { return int64_t{kernels::kPanelKeys} * head_dim; }
  int64_t value_floats() const noexcept { return int64_t{kernels::kPanelKeys} * kernels::padded_dim(value_dim); }
  /// One head's keys and values of 64 positions: the panel, then the block of values.
  int64_t block_floats() const noexcept { return key_floats() + value_floats(); }
  /// All heads of a tile of 256 positions.
  int64_t tile_floats() const noexcept { return kernels::kPanelsPerTile * num_kv_heads * block_floats(); }

  friend bool operator==(const KvGeometry&, const KvGeometry&) = default;
};

/// The keys and values of one sequence. Tiles stand in rising order of position; a tile that holds nothing may be left
/// out.
struct KvView {
  KvGeometry geometry;
  const float* const* blocks = nullptr;  ///< [num_tiles][4]: block of KV head 0
  int64_t head_stride = 0;               ///< from one KV head's block to the next one's
  int64_t num_tiles = 0;
  int64_t first_tile = 0;             ///< tile i holds the positions from 256 (first_tile + i) on ...
  const int64_t* tile_ids = nullptr;  ///< ... or from 256 tile_ids[i] on, when some are left out
  const uint64_t* written =
      nullptr;                 ///< [num_tiles][4] bits of the positions that hold a key; null: all of [begin, end)
  int64_t begin = 0, end = 0;  ///< no key stands outside

  int64_t tile_id(int64_t i) const noexcept { return tile_ids == nullptr ? first_tile + i : tile_ids[i]; }
  const float* keys(int64_t i, int panel, int kv_head) const noexcept {
    return blocks[i * kernels::kPanelsPerTile + panel] + kv_head * head_stride;
  }
  const float* values(int64_t i, int panel, int kv_head) const noexcept {
    return keys(i, panel, kv_head) + geometry.key_floats();
  }
};

/// Rows of keys and values as a model has them: element (token, head, i) at k[token * k_token_stride + head *
/// k_head_stride + i].
struct KvRows {
  const float* k = nullptr;
  int64_t k_token_stride = 0, k_head_stride = 0;
  const float* v = nullptr;
  int64_t v_token_stride = 0, v_head_stride = 0;
};

/// Writes `count` tokens, from rows.token `token` on, into the slots `column` ... of one head's block of 64.
inline void write_block(const KvGeometry& geometry, const KvRows& rows, int64_t token, int count, int kv_head,
                        float* block, int column) {
  kernels::kernels().attention->pack_keys(rows.k + token * rows.k_token_stride + kv_head * rows.k_head_stride,
                                          rows.k_token_stride, count, geometry.head_dim, block, column);
  const int dim = geometry.value_dim, padded = kernels::padded_dim(dim);
  if (dim == 0) return;
  float* to = block + geometry.key_floats() + int64_t{column} * padded;
  const float* from = rows.v + token * rows.v_token_stride + kv_head * rows.v_head_stride;
  for (int n = 0; n < count; ++n, to += padded, from += rows.v_token_stride) {
    for (int c = 0; c < dim; ++c) to[c] = from[c];
    for (int c = dim; c < padded; ++c) to[c] = 0.0f;
  }
}

/// Copies `count` tokens of one head from one block to another.
inline void copy_slots(const KvGeometry& geometry, const float* from, int from_column, float* to, int to_column,
                       int count) {
  const auto n = static_cast<size_t>(count);
  for (int i = 0; i < geometry.head_dim; ++i)
    std::copy_n(from + i * kernels::kPanelKeys + from_column, n, to + i * kernels::kPanelKeys + to_column);
  const int64_t row = kernels::padded_dim(geometry.value_dim), values = geometry.key_floats();
  std::copy_n(from + values + from_column * row, n * static_cast<size_t>(row), to + values + to_column * row);
}

/// Fills the slots of `count` tokens with NaN, as if they had never been written. All bits set is a NaN.
inline void clear_slots(const KvGeometry& geometry, float* block, int column, int count) {
  const auto bytes = static_cast<size_t>(count) * sizeof(float);
  for (int i = 0; i < geometry.head_dim; ++i) std::memset(block + i * kernels::kPanelKeys + column, 0xFF, bytes);
  const int64_t row = kernels::padded_dim(geometry.value_dim);
  std::memset(block + geometry.key_floats() + column * row, 0xFF, bytes * static_cast<size_t>(row));
}

/// One token of one head as it is stored, its key and then its value without padding.
inline void read_token(const KvGeometry& geometry, const float* block, int column, uint8_t* to) {
  for (int i = 0; i < geometry.head_dim; ++i, to += sizeof(float))
    std::memcpy(to, block + i * kernels::kPanelKeys + column, sizeof(float));
  const float* value = block + geometry.key_floats() + column * kernels::padded_dim(geometry.value_dim);
  std::memcpy(to, value, static_cast<size_t>(geometry.value_dim) * sizeof(float));
}

/// The inverse of read_token().
inline void write_token(const KvGeometry& geometry, const uint8_t* from, float* block, int column) {
  for (int i = 0; i < geometry.head_dim; ++i, from += sizeof(float))
    std::memcpy(block + i * kernels::kPanelKeys + column, from, sizeof(float));
  const int padded = kernels::padded_dim(geometry.value_dim);
  float* value = block + geometry.key_floats() + column * padded;
  std::memcpy(value, from, static_cast<size_t>(geometry.value_dim) * sizeof(float));
  std::fill(value + geometry.value_dim, value + padded, 0.0f);
}

}  // namespace regard
