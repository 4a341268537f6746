// A cache with memory of its own, from the first token to the last. Start with append(), truncate() and fork().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/kv_store.h"
#include "attention/kv_tile.h"

namespace regard {

struct KvCacheOptions {
  KvGeometry geometry;
  int64_t max_tokens = kMaxCacheTokens;   ///< a longer sequence is refused
  std::shared_ptr<KvBudget> budget = {};  ///< null: no limit
};

/// Memory comes in whole tiles of 256 tokens; tiles never move, so growing copies nothing.
///
/// A fork shares all full tiles with its origin and copies the last, partly filled one; a shared tile is copied when
/// one of its owners writes into it after truncate().
class KvCache final : public KvStore {
 public:
  /// Errors: as check_geometry().
  explicit KvCache(KvCacheOptions options);
  KvCache(KvCache&&) noexcept = default;
  KvCache& operator=(KvCache&&) noexcept = default;

  /// Tokens that fit without asking for memory.
  int64_t capacity() const noexcept { return static_cast<int64_t>(tiles_.size()) * kernels::kTileKeys; }
  int64_t bytes() const noexcept override {
    return static_cast<int64_t>(tiles_.size()) * KvTile::bytes(options_.geometry);
  }
  static int64_t tile_bytes(const KvGeometry& geometry) noexcept { return KvTile::bytes(geometry); }
  /// Bytes that a cache of `tokens` tokens takes.
  static int64_t bytes_for(const KvGeometry& geometry, int64_t tokens) noexcept;

  /// Makes room for `tokens` tokens in all. Errors: kResourceExhausted, with the numbers, when max_tokens or the budget
  /// is exceeded or the memory is not there.
  void reserve(int64_t tokens);

  void truncate(int64_t size) override;

  /// Gives back the tiles that hold no token.
  void shrink();

  /// A cache with the same tokens. Errors: kResourceExhausted for the copy of the last tile.
  KvCache fork() const;
  std::unique_ptr<KvStore> clone() const override { return std::make_unique<KvCache>(fork()); }

  KvView view() const noexcept override;
  void prepare(int64_t count) override;
  KvSlots slots(int64_t position, int kv_head) noexcept override;

 private:
  void set_tile(size_t index, KvTile::Pointer tile);

  // What lies beyond is read from memory at every step, and faster from huge pages. Smaller caches should not hold one that
  // they need a part of.
  static constexpr int64_t kLarge = int64_t{8} << 20;
  static constexpr size_t kArenaPiece = size_t{8} << 20;

  KvCacheOptions options_;
  std::vector<KvTile::Pointer> tiles_;
  std::vector<const std::byte*> runs_;  // one for each tile
  Arena arena_{kArenaPiece};            // of the tiles from kLarge bytes on
};

}  // namespace regard
