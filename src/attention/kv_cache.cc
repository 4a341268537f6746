#include "attention/kv_cache.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked.h"

namespace regard {

using kernels::kTileKeys;

KvCache::KvCache(KvCacheOptions options) : KvStore(KvTile::whole(options.geometry)), options_(std::move(options)) {
  check_geometry("KvCache", geometry_);
  require(options_.max_tokens >= 0, "[KvCache] max_tokens is {}, expected 0 or more", options_.max_tokens);
}

int64_t KvCache::bytes_for(const KvGeometry& geometry, int64_t tokens) noexcept {
  return ceil_div<int64_t>(tokens, kTileKeys) * tile_bytes(geometry);
}

void KvCache::set_tile(size_t index, KvTile::Pointer tile) {
  runs_[index] = tile->run(geometry_, 0);
  tiles_[index] = std::move(tile);
}

void KvCache::reserve(int64_t tokens) {
  if (tokens > options_.max_tokens)
    fail(Code::kResourceExhausted, "[KvCache::reserve] {} tokens do not fit into a cache for at most {}", tokens,
         options_.max_tokens);
  const size_t before = tiles_.size(),
               wanted = static_cast<size_t>(std::max<int64_t>(0, ceil_div<int64_t>(tokens, kTileKeys)));
  try {
    while (tiles_.size() < wanted) {
      Arena* arena = bytes() >= kLarge || bytes_for(geometry_, tokens) >= 2 * kLarge ? &arena_ : nullptr;
      KvTile::Pointer tile = KvTile::make(geometry_, options_.budget, "KvCache", tokens, arena);
      runs_.emplace_back();
      tiles_.emplace_back();
      set_tile(tiles_.size() - 1, std::move(tile));
    }
  } catch (...) {
    tiles_.resize(before);
    runs_.resize(before);
    throw;
  }
}

void KvCache::prepare(int64_t count) {
  const int64_t size = size_after("KvCache::append", count, options_.max_tokens);
  reserve(size);
  if (count == 0) return;
  // After truncate() the tiles that are written next may still be shared with a fork. Of the first one something may be
  // kept.
  auto t = static_cast<size_t>(size_ / kTileKeys);
  if (size_ % kTileKeys != 0) {
    if (tiles_[t]->shared()) set_tile(t, tiles_[t]->copy(geometry_, options_.budget, "KvCache", size));
    ++t;
  }
  for (; t < static_cast<size_t>(ceil_div<int64_t>(size, kTileKeys)); ++t)
    if (tiles_[t]->shared()) set_tile(t, KvTile::make(geometry_, options_.budget, "KvCache", size));
}

KvSlots KvCache::slots(int64_t position, int kv_head) noexcept {
  return tiles_[static_cast<size_t>(position / kTileKeys)]->slots(geometry_, position, kv_head);
}

void KvCache::truncate(int64_t size) {
  require(size >= 0 && size <= size_, "[KvCache::truncate] size {}, expected 0 to {}", size, size_);
  size_ = size;
}

void KvCache::shrink() {
  const auto keep = static_cast<size_t>(ceil_div<int64_t>(size_, kTileKeys));
  tiles_.resize(keep);
  runs_.resize(keep);
}

KvCache KvCache::fork() const {
  KvCache copy(options_);
  const auto whole = static_cast<size_t>(size_ / kTileKeys),
             all = static_cast<size_t>(ceil_div<int64_t>(size_, kTileKeys));
  copy.runs_.resize(all);
  copy.tiles_.resize(all);
  for (size_t t = 0; t < whole; ++t) copy.set_tile(t, tiles_[t]->share());
  if (whole < all) copy.set_tile(whole, tiles_[whole]->copy(geometry_, options_.budget, "KvCache", size_));
  copy.size_ = size_;
  return copy;
}

KvView KvCache::view() const noexcept { return view_in_order(runs_.data()); }

}  // namespace regard
