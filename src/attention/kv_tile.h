// The memory of a whole tile of 256 positions, which several caches may hold together.
#pragma once

#include <atomic>
#include <memory>

#include "attention/kv_store.h"
#include "base/aligned_buffer.h"

namespace regard {

/// A run of four blocks for each head, filled with NaN until they are written: a slot that was never written cannot pass for a
/// key. Counted in a budget.
class KvTile {
 public:
  struct Release {
    // The last holder sees everything that the others did with the tile before they let go of it.
    void operator()(KvTile* tile) const noexcept {
      if (tile->holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete tile;
    }
  };
  using Pointer = std::unique_ptr<KvTile, Release>;

  static int64_t bytes(const KvGeometry& geometry) noexcept { return geometry.tile_bytes(); }
  /// The same numbers in runs of whole tiles.
  static KvGeometry whole(KvGeometry geometry) noexcept {
    geometry.run = kernels::kPanelsPerTile;
    return geometry;
  }

  /// In `arena`, or where that is null in memory of its own. Errors: kResourceExhausted, with the numbers.
  static Pointer make(const KvGeometry& geometry, const std::shared_ptr<KvBudget>& budget, const char* function,
                      int64_t tokens_wanted, Arena* arena = nullptr);
  /// A tile of its own with the same contents. Errors: as make().
  Pointer copy(const KvGeometry& geometry, const std::shared_ptr<KvBudget>& budget, const char* function,
               int64_t tokens_wanted) const;
  /// One more holder of the same tile.
  Pointer share() noexcept {
    holders_.fetch_add(1, std::memory_order_relaxed);
    return Pointer(this);
  }
  bool shared() const noexcept { return holders_.load(std::memory_order_acquire) > 1; }

  /// One head's run; the geometry is one of whole tiles.
  std::byte* run(const KvGeometry& geometry, int kv_head) noexcept {
    return data_.data() + kv_head * geometry.run_bytes();
  }
  /// The slots of the tile's positions from `position` % 256 on, up to the end of the block.
  KvSlots slots(const KvGeometry& geometry, int64_t position, int kv_head) noexcept {
    const auto column = static_cast<int>(position % kernels::kTileKeys);
    return {run(geometry, kv_head), column, kernels::kPanelKeys - column % kernels::kPanelKeys};
  }

 private:
  KvTile(const KvGeometry& geometry, const std::shared_ptr<KvBudget>& budget, const char* function,
         int64_t tokens_wanted, Arena* arena);

  std::atomic<int> holders_{1};
  KvBudgetShare share_;
  AlignedBuffer<std::byte> data_;
};

}  // namespace regard
