#include "attention/ring_kv_cache.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked.h"

namespace regard {

using kernels::kTileKeys;

RingKvCache::RingKvCache(RingKvCacheOptions options)
    : KvStore(KvTile::whole(options.geometry)), options_(std::move(options)), plan_(options_.mask, {}, 1, options_.num_q_heads) {
  check_geometry("RingKvCache", geometry_);
  require(options_.capacity >= 1 && options_.capacity <= kMaxCacheTokens,
          "[RingKvCache] capacity is {} tokens, expected 1 to {}", options_.capacity, kMaxCacheTokens);
  require(options_.max_tokens >= 0, "[RingKvCache] max_tokens is {}, expected 0 or more", options_.max_tokens);
  tiles_.resize(static_cast<size_t>(ceil_div<int64_t>(options_.capacity, kTileKeys)));
  runs_.resize(2 * tiles_.size());
}

int64_t RingKvCache::bytes() const noexcept {
  return std::count_if(tiles_.begin(), tiles_.end(), [](const KvTile::Pointer& t) { return t != nullptr; }) *
         KvTile::bytes(geometry_);
}

void RingKvCache::set_tile(size_t index, KvTile::Pointer tile) noexcept {
  runs_[index] = runs_[tiles_.size() + index] = tile->run(geometry_, 0);
  tiles_[index] = std::move(tile);
}

// The first key that the mask may show to a query at position `from` or later, or `end` when that is no key below it.
int64_t RingKvCache::first_seen(int64_t from, int64_t end) const noexcept {
  const Interval queries{from, int64_t{1} << 62};
  int64_t first = end;
  for (int64_t h = 0; h < (plan_.depends_on_head() ? options_.num_q_heads : 1); ++h) {
    const Interval seen = plan_.hull(0, h, queries);
    // The hull spans gaps; of what lies before `end`, something may be seen or nothing.
    if (seen.empty() || seen.begin >= first) continue;
    if (plan_.classify(0, h, queries, {seen.begin, end}) != TileClass::kEmpty) first = seen.begin;
  }
  return first;
}

void RingKvCache::prepare(int64_t count) {
  const int64_t size = size_after("RingKvCache::append", count, options_.max_tokens);
  if (count == 0) return;
  const int64_t kept = std::max(begin_, size - capacity());
  const int64_t seen = kept > begin_ ? first_seen(size_, kept) : kept;
  require(count <= capacity(), "[RingKvCache::append] {} tokens at once, and the ring holds {}: append fewer", count,
          capacity());
  require(
      seen >= kept,
      "[RingKvCache::append] {} tokens after {} overwrite the keys below position {} in a ring of {}, and \"{}\" still "
      "shows keys from {} on to coming queries: append at most {} at once or use a larger ring",
      count, size_, kept, capacity(), options_.mask.text(), seen,
      std::max<int64_t>(0, std::max(begin_, seen) + capacity() - size_));
  const auto tiles = static_cast<int64_t>(tiles_.size());
  const int64_t end = ceil_div<int64_t>(size, kTileKeys);
  for (int64_t t = size_ / kTileKeys; t < end; ++t) {
    const auto i = static_cast<size_t>(t % tiles);
    if (tiles_[i] == nullptr)
      set_tile(i, KvTile::make(geometry_, options_.budget, "RingKvCache", size));
    else if (tiles_[i]->shared())
      set_tile(i, tiles_[i]->copy(geometry_, options_.budget, "RingKvCache", size));
  }
}

void RingKvCache::commit(int64_t count) noexcept {
  size_ += count;
  begin_ = std::max(begin_, size_ - capacity());
}

KvSlots RingKvCache::slots(int64_t position, int kv_head) noexcept {
  const int64_t slot = position % capacity();
  return tiles_[static_cast<size_t>(slot / kTileKeys)]->slots(geometry_, slot, kv_head);
}

void RingKvCache::truncate(int64_t size) {
  require(size >= 0 && size <= size_, "[RingKvCache::truncate] size {}, expected 0 to {}", size, size_);
  const int64_t lost = std::min(begin_, size), seen = first_seen(size, lost);
  require(
      seen >= lost,
      "[RingKvCache::truncate] to {}: the keys below position {} were overwritten, and \"{}\" shows keys from {} on to "
      "coming queries",
      size, begin_, options_.mask.text(), seen);
  size_ = size;
  begin_ = lost;
}

RingKvCache RingKvCache::fork() const {
  RingKvCache copy(options_);
  for (size_t i = 0; i < tiles_.size(); ++i)
    if (tiles_[i] != nullptr) copy.set_tile(i, tiles_[i]->share());
  copy.begin_ = begin_;
  copy.size_ = size_;
  return copy;
}

void RingKvCache::begin_at(int64_t position, int64_t first_query) {
  require(size_ == begin_, "[RingKvCache] a cache with {} tokens cannot begin anew, truncate it to 0 first",
          size_ - begin_);
  require(position >= 0 && position <= options_.max_tokens, "[RingKvCache] begins at {}, expected 0 to {}", position,
          options_.max_tokens);
  const int64_t seen = first_seen(first_query, position);
  require(seen >= position, "[RingKvCache] begins at {}, and \"{}\" shows keys from {} on to coming queries", position,
          options_.mask.text(), seen);
  begin_ = size_ = position;
}

KvView RingKvCache::view() const noexcept {
  KvView view;
  view.geometry = geometry_;
  view.begin = begin_;
  view.end = size_;
  view.first_tile = begin_ / kTileKeys;
  view.num_tiles = begin_ == size_ ? 0 : ceil_div<int64_t>(size_, kTileKeys) - view.first_tile;
  view.runs = runs_.data() + view.first_tile % static_cast<int64_t>(tiles_.size());
  return view;
}

}  // namespace regard
