// The keys and values that one layer of one sequence has seen so far, packed as they arrive, so that neither prefill
// nor decode ever packs again. Start with append(), truncate() and fork().
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "attention/kv_view.h"
#include "base/aligned_buffer.h"

namespace regard {

class ThreadPool;

/// How many bytes the caches of a session may hold together. Shared by all of them; safe to use from several threads.
class KvBudget {
 public:
  static constexpr int64_t kUnlimitedBytes = std::numeric_limits<int64_t>::max();

  explicit KvBudget(int64_t limit_bytes = kUnlimitedBytes) : limit_(limit_bytes) {}

  /// Takes `bytes` or nothing. Returns false when they are not to be had.
  bool take(int64_t bytes) noexcept;
  void give_back(int64_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  int64_t used() const noexcept { return used_.load(std::memory_order_relaxed); }
  int64_t limit() const noexcept { return limit_; }

 private:
  std::atomic<int64_t> used_{0};
  int64_t limit_;
};

struct KvCacheOptions {
  KvGeometry geometry;
  int64_t max_tokens = std::numeric_limits<int64_t>::max() / 1024;  ///< a longer sequence is refused
  std::shared_ptr<KvBudget> budget = {};                            ///< null: no limit
};

/// Token i of the sequence has position i. Memory comes in whole tiles of 256 tokens, filled with NaN until they are
/// written; tiles never move, so growing copies nothing.
///
/// A fork shares all full tiles with its origin and copies the last, partly filled one; a shared tile is copied when
/// one of its owners writes into it after truncate(). Different caches may be used from different threads, forks of
/// each other included; one cache by one thread at a time. Every function leaves the cache as it was when it throws.
class KvCache {
 public:
  /// Errors: kInvalidArgument for extents below 1 (value_dim too) or above the kernels' limit; kUnsupported for another
  /// type than f32.
  explicit KvCache(KvCacheOptions options);
  KvCache(KvCache&&) noexcept = default;
  KvCache& operator=(KvCache&&) noexcept = default;

  const KvGeometry& geometry() const noexcept { return options_.geometry; }
  int64_t size() const noexcept { return size_; }
  /// Tokens that fit without asking for memory.
  int64_t capacity() const noexcept { return static_cast<int64_t>(tiles_.size()) * kernels::kTileKeys; }
  /// Bytes of the tiles, shared ones included.
  int64_t bytes() const noexcept { return static_cast<int64_t>(tiles_.size()) * tile_bytes(geometry()); }
  static int64_t tile_bytes(const KvGeometry& geometry) noexcept {
    return geometry.tile_floats() * static_cast<int64_t>(sizeof(float));
  }
  /// Bytes that a cache of `tokens` tokens takes.
  static int64_t bytes_for(const KvGeometry& geometry, int64_t tokens) noexcept;

  /// Makes room for `tokens` tokens in all. Errors: kResourceExhausted, with the numbers, when max_tokens or the budget
  /// is exceeded or the memory is not there.
  void reserve(int64_t tokens);

  /// Appends `count` tokens. Errors: as reserve(); kInvalidArgument for a negative count.
  void append(const KvRows& rows, int64_t count);

  /// Forgets all tokens but the first `size`; the memory stays. Errors: kInvalidArgument unless 0 <= size <= size().
  void truncate(int64_t size);

  /// Gives back the tiles that hold no token.
  void shrink();

  /// A cache with the same tokens. Errors: kResourceExhausted for the copy of the last tile.
  KvCache fork() const;

  /// What attention reads; valid until the next change of this cache.
  KvView view() const noexcept;

  /// append() in two parts, for callers that write in parallel: extend() makes the slots and returns the first, then
  /// each (head, portion of 64 positions) is written once by write() from any thread. See append_all().
  int64_t extend(int64_t count);
  /// Writes the tokens [first, first + count) of one head; row 0 of `rows` is the token at position `rows_begin`.
  void write(const KvRows& rows, int64_t rows_begin, int64_t first, int64_t count, int kv_head) noexcept;

 private:
  // A tile with the number of caches that hold it.
  struct Tile {
    Tile(const KvGeometry& geometry, std::shared_ptr<KvBudget> owner);
    ~Tile();
    std::atomic<int> holders{1};
    std::shared_ptr<KvBudget> budget;
    AlignedBuffer<float> data;
  };
  struct Release {
    void operator()(Tile* tile) const noexcept;
  };
  using TilePointer = std::unique_ptr<Tile, Release>;

  TilePointer new_tile(int64_t tokens_wanted) const;
  float* block(int64_t position, int kv_head) noexcept;
  void set_tile(size_t index, TilePointer tile);

  KvCacheOptions options_;
  int64_t size_ = 0;
  std::vector<TilePointer> tiles_;
  std::vector<const float*> blocks_;  // four for each tile
};

/// One sequence's part of append_all().
struct KvAppend {
  KvCache* cache = nullptr;
  KvRows rows;
  int64_t count = 0;
};

/// Appends to several different caches, the work shared out over the pool where it is worth it. All or nothing: when
/// one of them is refused, none has grown. Errors: as KvCache::append.
void append_all(const KvAppend* appends, int64_t count, ThreadPool& pool);

}  // namespace regard
