// Keys and values of one call, packed for the kernels: what a KvCache is for a sequence that grows, for tensors that
// are there as a whole. Keys stand at any positions, in any order.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/kv_block.h"
#include "base/aligned_buffer.h"

namespace regard {

class ThreadPool;

/// One sequence to pack.
struct PackSource {
  KvRows rows;
  int64_t kv_len = 0;
  int64_t k_begin = 0;                 ///< position of the first key, when `positions` is null
  const int64_t* positions = nullptr;  ///< position of each key, -1 for a slot that was never written
};

/// The written slots of one sequence by rising position; empty when the keys simply follow each other.
struct KeyOrder {
  std::vector<int64_t> position, slot;
};

/// Errors: kInvalidArgument when two keys have the same position, or one is negative (but -1) or above
/// PackedKv::kMaxPosition.
KeyOrder sort_keys(const PackSource& source, int64_t batch_row);

/// Packs a batch of sequences, in parallel. Memory: the keys and values once, rounded up to whole tiles.
class PackedKv {
 public:
  /// Errors: as sort_keys(); kResourceExhausted.
  PackedKv(const KvGeometry& geometry, const std::vector<PackSource>& sources, ThreadPool& pool);
  /// Only lays out: pack() does the rest, as often as wanted, into memory of the caller.
  PackedKv(const KvGeometry& geometry, const std::vector<PackSource>& sources);
  PackedKv(const PackedKv&) = delete;
  PackedKv& operator=(const PackedKv&) = delete;

  /// What pack() takes.
  size_t bytes() const noexcept { return written_.size() / kernels::kPanelsPerTile * static_cast<size_t>(geometry_.tile_bytes()); }
  /// Packs other rows of the same lengths and positions into bytes() of `memory`, which the views then lead to. Allocates
  /// nothing.
  void pack(const std::vector<PackSource>& sources, std::byte* memory, ThreadPool& pool);

  const KvView& view(int64_t batch_row) const noexcept { return views_[static_cast<size_t>(batch_row)]; }

  /// Tile numbers and 256-key ends stay far from the end of int64_t.
  static constexpr int64_t kMaxPosition = int64_t{1} << 62;

 private:
  // `count` keys from slot `token` on go to consecutive positions inside one block of 64.
  struct Run {
    int64_t token;
    int32_t count, column;
  };

  void pack_block(const KvGeometry& geometry, const PackSource& source, const KeyOrder& order, int64_t first_position,
                  std::byte* block);

  KvGeometry geometry_;
  std::vector<KeyOrder> orders_;
  std::vector<size_t> tiles_before_;  // by batch row
  AlignedBuffer<std::byte> data_;  // empty when the caller brings the memory
  std::vector<const std::byte*> blocks_;
  std::vector<int64_t> tile_ids_;
  std::vector<uint64_t> written_;
  std::vector<KvView> views_;
};

}  // namespace regard
