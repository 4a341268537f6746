// Keys and values as the kernels want them: per KV head, K packed in panels [head_dim][64] and V in blocks [64][padded
// value_dim], cut at absolute multiples of 64 positions, some of them together in a run, and found through a table. Caches
// and PackedKv make such memory; a KvView is what attention reads. Where a run lies is nothing but an address, so pages are
// another way to fill the table. How numbers are stored is in kernels/kv_layout.h, what writes them in kv_block.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_bf16.h"
#include "kernels/kv_layout.h"
#include "kernels/registry.h"
#include "regard/dtype.h"

namespace regard {

/// How the numbers of a block lie.
enum class KvLayout {
  kNumbers,  ///< as kernels/kv_layout.h says
  kPairs,    ///< as kernels/attention_bf16.h says; of bf16, and in PackedKv only
};

/// The shape of what is stored for one token.
struct KvGeometry {
  int num_kv_heads = 0;
  int head_dim = 0;
  int value_dim = 0;         ///< 0: keys alone
  DType type = DType::kF32;  ///< f32, f16, bf16, or i8 with scales
  int scale_block = 0;       ///< i8: how many numbers of a key or value share a scale; 0: all
  KvLayout layout = KvLayout::kNumbers;
  int run = 1;  ///< how many blocks of a head lie together: 1, 2 or 4 (see key_at())

  // The numbers that a key and a value take, with padding.
  int stored_key() const noexcept { return layout == KvLayout::kPairs ? 2 * kernels::pairs(head_dim) : head_dim; }
  int stored_value() const noexcept {
    return layout == KvLayout::kPairs ? kernels::padded_dim(value_dim) : kernels::stored_dim(type, value_dim);
  }

  // Scales of a key and of a value, where numbers are codes.
  int key_scales() const noexcept { return kernels::scale_blocks(scale_block, head_dim); }
  int value_scales() const noexcept { return kernels::scale_blocks(scale_block, value_dim); }
  int64_t scale_bytes() const noexcept {
    return kernels::has_scales(type) ? (key_scales() + value_scales()) * static_cast<int64_t>(sizeof(float)) : 0;
  }

  // One head's keys, values and scales of 64 positions.
  int64_t key_bytes() const noexcept { return int64_t{kernels::kPanelKeys} * stored_key() * kernels::cache_bytes(type); }
  int64_t value_bytes() const noexcept {
    return int64_t{kernels::kPanelKeys} * stored_value() * kernels::cache_bytes(type);
  }
  int64_t block_bytes() const noexcept { return key_bytes() + value_bytes() + kernels::kPanelKeys * scale_bytes(); }

  // `run` blocks: the keys of all, then the values of all, then the scales of all, and where those of block i begin. Decode
  // reads four blocks' keys and then their values: in a run of four that is one stream, which the hardware fetches ahead
  // best.
  int64_t run_bytes() const noexcept { return run * block_bytes(); }
  int64_t key_at(int64_t i) const noexcept { return i * key_bytes(); }
  int64_t value_at(int64_t i) const noexcept { return run * key_bytes() + i * value_bytes(); }
  int64_t scale_at(int64_t i) const noexcept {
    return run * (key_bytes() + value_bytes()) + i * kernels::kPanelKeys * scale_bytes();
  }
  /// All heads of a tile of 256 positions.
  int64_t tile_bytes() const noexcept { return kernels::kPanelsPerTile * num_kv_heads * block_bytes(); }

  friend bool operator==(const KvGeometry&, const KvGeometry&) = default;
};

/// `count` slots that follow each other in one block, from `column` on: columns are counted through a run.
struct KvSlots {
  std::byte* run = nullptr;
  int column = 0;
  int count = 0;
};

/// The keys and values of one sequence. Tiles stand in rising order of position; a tile that holds nothing may be left
/// out.
struct KvView {
  KvGeometry geometry;
  const std::byte* const* runs = nullptr;  ///< [num_tiles][4 / geometry.run]: run of KV head 0; others follow it
  int64_t num_tiles = 0;
  int64_t first_tile = 0;             ///< tile i holds the positions from 256 (first_tile + i) on ...
  const int64_t* tile_ids = nullptr;  ///< ... or from 256 tile_ids[i] on, when some are left out
  const uint64_t* written =
      nullptr;                 ///< [num_tiles][4] bits of the positions that hold a key; null: all of [begin, end)
  int64_t begin = 0, end = 0;  ///< no key stands outside

  /// Where one head's token of a position that is held lies.
  const std::byte* run_of(int64_t position, int kv_head) const noexcept {
    return run(position / kernels::kTileKeys - first_tile,
               static_cast<int>(position % kernels::kTileKeys / kernels::kPanelKeys), kv_head);
  }
  int column_of(int64_t position) const noexcept {
    return static_cast<int>(position % (kernels::kPanelKeys * geometry.run));
  }

  int64_t tile_id(int64_t i) const noexcept { return tile_ids == nullptr ? first_tile + i : tile_ids[i]; }
  /// One head's run with the panels of tile i from `panel` / geometry.run * geometry.run on.
  const std::byte* run(int64_t i, int panel, int kv_head) const noexcept {
    return runs[(i * kernels::kPanelsPerTile + panel) / geometry.run] + kv_head * geometry.run_bytes();
  }
  const std::byte* keys(int64_t i, int panel, int kv_head) const noexcept {
    return run(i, panel, kv_head) + geometry.key_at(panel % geometry.run);
  }
  const std::byte* values(int64_t i, int panel, int kv_head) const noexcept {
    return run(i, panel, kv_head) + geometry.value_at(panel % geometry.run);
  }
  /// [key_scales()][64] of the keys, then [64][value_scales()] of the values; null where numbers are no codes.
  const float* scales(int64_t i, int panel, int kv_head) const noexcept {
    if (!kernels::has_scales(geometry.type)) return nullptr;
    return reinterpret_cast<const float*>(run(i, panel, kv_head) + geometry.scale_at(panel % geometry.run));
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

}  // namespace regard
