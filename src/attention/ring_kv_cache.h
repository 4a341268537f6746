// A cache that holds the last tokens only, for masks with a window. Start with RingKvCacheOptions and append().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention/kv_store.h"
#include "attention/kv_tile.h"
#include "mask/plan.h"

namespace regard {

struct RingKvCacheOptions {
  KvGeometry geometry;
  Mask mask;                              ///< every coming query looks under this mask, in batch row 0
  int64_t num_q_heads = 1;                ///< of the mask, where it depends on the head
  int64_t capacity = 0;                   ///< tokens, rounded up to whole tiles: at least the window and one chunk
  int64_t max_tokens = kMaxCacheTokens;   ///< a longer sequence is refused
  std::shared_ptr<KvBudget> budget = {};  ///< null: no limit
};

/// The token at position p lies in slot p mod capacity() and overwrites the one that was there, so the memory is that
/// of capacity() tokens however long the sequence grows. Positions stay what they are, tiles are those of any other
/// cache and stand in rising order, so a row's bits do not depend on where the ring is wrapped.
///
/// An append that would overwrite a key which the mask still shows to one of the appended tokens or a later one is
/// refused; so is a truncate() to where a coming query would see a key that was overwritten. Where the mask's intervals
/// do not decide, the key counts as seen.
///
/// A fork shares all tiles; whoever writes into a shared tile copies it first.
class RingKvCache final : public KvStore {
 public:
  /// Errors: as check_geometry() and MaskPlan; kInvalidArgument for a capacity below 1.
  explicit RingKvCache(RingKvCacheOptions options);
  RingKvCache(RingKvCache&&) noexcept = default;
  RingKvCache& operator=(RingKvCache&&) noexcept = default;

  int64_t capacity() const noexcept { return static_cast<int64_t>(tiles_.size()) * kernels::kTileKeys; }
  int64_t bytes() const noexcept override;

  void truncate(int64_t size) override;

  /// A ring with the same tokens. Errors: kResourceExhausted.
  RingKvCache fork() const;
  std::unique_ptr<KvStore> clone() const override { return std::make_unique<RingKvCache>(fork()); }

  KvView view() const noexcept override;
  void prepare(int64_t count) override;
  KvSlots slots(int64_t position, int kv_head) noexcept override;
  void begin_at(int64_t position, int64_t first_query) override;

 private:
  void commit(int64_t count) noexcept override;
  int64_t first_seen(int64_t from, int64_t end) const noexcept;
  void set_tile(size_t index, KvTile::Pointer tile) noexcept;

  RingKvCacheOptions options_;
  MaskPlan plan_;
  std::vector<KvTile::Pointer> tiles_;  // of the ring; null until it is written
  // One for each tile, twice around, so that a stretch that wraps is one stretch.
  std::vector<const std::byte*> runs_;
};

}  // namespace regard
