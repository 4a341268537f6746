#include "attention/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked.h"
#include "runtime/thread_pool.h"

namespace regard {

using kernels::kPanelKeys;
using kernels::kPanelsPerTile;
using kernels::kTileKeys;

bool KvBudget::take(int64_t bytes) noexcept {
  int64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ - used) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

// All bits set is a NaN: a slot that was never written cannot pass for a key.
KvCache::Tile::Tile(const KvGeometry& geometry, std::shared_ptr<KvBudget> owner)
    : budget(std::move(owner)), data(static_cast<size_t>(geometry.tile_floats())) {
  std::memset(data.data(), 0xFF, data.size() * sizeof(float));
}

KvCache::Tile::~Tile() {
  if (budget != nullptr) budget->give_back(static_cast<int64_t>(data.size() * sizeof(float)));
}

// The last holder sees everything that the others did with the tile before they let go of it.
void KvCache::Release::operator()(Tile* tile) const noexcept {
  if (tile->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete tile;
}

KvCache::KvCache(KvCacheOptions options) : options_(std::move(options)) {
  const KvGeometry& g = options_.geometry;
  require(g.num_kv_heads >= 1, "[KvCache] num_kv_heads is {}, expected at least 1", g.num_kv_heads);
  require(g.head_dim >= 1 && g.head_dim <= kernels::kMaxHeadDim, "[KvCache] head_dim is {}, expected 1 to {}",
          g.head_dim, kernels::kMaxHeadDim);
  require(g.value_dim >= 1 && g.value_dim <= kernels::kMaxHeadDim, "[KvCache] value_dim is {}, expected 1 to {}",
          g.value_dim, kernels::kMaxHeadDim);
  require(options_.max_tokens >= 0, "[KvCache] max_tokens is {}, expected 0 or more", options_.max_tokens);
  if (g.type != DType::kF32)
    fail(Code::kUnsupported, "[KvCache] caches of type {} are not supported, use f32", info(g.type).name);
}

int64_t KvCache::bytes_for(const KvGeometry& geometry, int64_t tokens) noexcept {
  return ceil_div<int64_t>(tokens, kTileKeys) * tile_bytes(geometry);
}

KvCache::TilePointer KvCache::new_tile(int64_t tokens_wanted) const {
  const int64_t bytes = tile_bytes(geometry());
  if (options_.budget != nullptr && !options_.budget->take(bytes))
    fail(Code::kResourceExhausted,
         "[KvCache] {} tokens need {} more bytes of keys and values; {} of the budget of {} bytes are in use: raise "
         "the budget or use "
         "shorter sequences",
         tokens_wanted, bytes, options_.budget->used(), options_.budget->limit());
  try {
    return TilePointer(new Tile(geometry(), options_.budget));
  } catch (...) {
    if (options_.budget != nullptr) options_.budget->give_back(bytes);
    throw;
  }
}

void KvCache::set_tile(size_t index, TilePointer tile) {
  for (int w = 0; w < kPanelsPerTile; ++w)
    blocks_[index * kPanelsPerTile + static_cast<size_t>(w)] =
        tile->data.data() + w * geometry().num_kv_heads * geometry().block_floats();
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
      TilePointer tile = new_tile(tokens);
      blocks_.resize((tiles_.size() + 1) * kPanelsPerTile);
      tiles_.emplace_back();
      set_tile(tiles_.size() - 1, std::move(tile));
    }
  } catch (...) {
    tiles_.resize(before);
    blocks_.resize(before * kPanelsPerTile);
    throw;
  }
}

int64_t KvCache::extend(int64_t count) {
  require(count >= 0, "[KvCache::append] {} tokens, expected 0 or more", count);
  const auto size = checked_add<int64_t>(size_, count);
  if (!size)
    fail(Code::kResourceExhausted, "[KvCache::append] {} tokens after {} are more than can be counted", count, size_);
  reserve(*size);
  // After truncate() the tile that is written next may still be shared with a fork.
  if (count > 0 && size_ % kTileKeys != 0) {
    const auto last = static_cast<size_t>(size_ / kTileKeys);
    if (tiles_[last]->holders.load(std::memory_order_acquire) > 1) {
      TilePointer own = new_tile(*size);
      std::memcpy(own->data.data(), tiles_[last]->data.data(), own->data.size() * sizeof(float));
      set_tile(last, std::move(own));
    }
  }
  for (auto t = static_cast<size_t>(ceil_div<int64_t>(size_, kTileKeys));
       count > 0 && t < static_cast<size_t>(ceil_div<int64_t>(*size, kTileKeys)); ++t)
    if (tiles_[t]->holders.load(std::memory_order_acquire) > 1)
      set_tile(t, new_tile(*size));  // shared, but nothing of it is kept
  const int64_t first = size_;
  size_ = *size;
  return first;
}

float* KvCache::block(int64_t position, int kv_head) noexcept {
  Tile& tile = *tiles_[static_cast<size_t>(position / kTileKeys)];
  const int64_t w = position % kTileKeys / kPanelKeys;
  return tile.data.data() + (w * geometry().num_kv_heads + kv_head) * geometry().block_floats();
}

void KvCache::write(const KvRows& rows, int64_t rows_begin, int64_t first, int64_t count, int kv_head) noexcept {
  while (count > 0) {
    const int column = static_cast<int>(first % kPanelKeys),
              n = static_cast<int>(std::min<int64_t>(count, kPanelKeys - column));
    write_block(geometry(), rows, first - rows_begin, n, kv_head, block(first, kv_head), column);
    first += n;
    count -= n;
  }
}

void KvCache::append(const KvRows& rows, int64_t count) {
  const int64_t first = extend(count);
  for (int h = 0; h < geometry().num_kv_heads; ++h) write(rows, first, first, count, h);
}

void KvCache::truncate(int64_t size) {
  require(size >= 0 && size <= size_, "[KvCache::truncate] size {}, expected 0 to {}", size, size_);
  size_ = size;
}

void KvCache::shrink() {
  const auto keep = static_cast<size_t>(ceil_div<int64_t>(size_, kTileKeys));
  tiles_.resize(keep);
  blocks_.resize(keep * kPanelsPerTile);
}

KvCache KvCache::fork() const {
  KvCache copy(options_);
  const auto whole = static_cast<size_t>(size_ / kTileKeys);
  for (size_t t = 0; t < whole; ++t) {
    copy.blocks_.resize((t + 1) * kPanelsPerTile);
    copy.tiles_.emplace_back();
    tiles_[t]->holders.fetch_add(1, std::memory_order_relaxed);
    copy.set_tile(t, TilePointer(tiles_[t].get()));
  }
  copy.reserve(size_);
  if (size_ % kTileKeys != 0) {
    const AlignedBuffer<float>& last = tiles_[whole]->data;
    std::memcpy(copy.tiles_[whole]->data.data(), last.data(), last.size() * sizeof(float));
  }
  copy.size_ = size_;
  return copy;
}

KvView KvCache::view() const noexcept {
  KvView view;
  view.geometry = geometry();
  view.blocks = blocks_.data();
  view.head_stride = geometry().block_floats();
  view.num_tiles = ceil_div<int64_t>(size_, kTileKeys);
  view.end = size_;
  return view;
}

void append_all(const KvAppend* appends, int64_t count, ThreadPool& pool) {
  // Below this many elements a phase of the pool costs more than the copying.
  constexpr int64_t kWorthSharing = 1 << 16;
  std::vector<int64_t> first, items_before{0};
  int64_t elements = 0;
  try {
    first.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const KvAppend& a = appends[i];
      first.push_back(a.cache->size());
      a.cache->extend(a.count);
      const KvGeometry& g = a.cache->geometry();
      const int64_t portions =
          a.count == 0 ? 0 : (first.back() + a.count - 1) / kPanelKeys - first.back() / kPanelKeys + 1;
      items_before.push_back(items_before.back() + portions * g.num_kv_heads);
      elements += a.count * g.num_kv_heads * (g.head_dim + g.value_dim);
    }
  } catch (...) {
    for (size_t i = 0; i < first.size(); ++i) appends[i].cache->truncate(first[i]);
    throw;
  }
  if (elements < kWorthSharing || pool.size() == 1) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = first[static_cast<size_t>(i)];
      for (int h = 0; h < appends[i].cache->geometry().num_kv_heads; ++h)
        appends[i].cache->write(appends[i].rows, at, at, appends[i].count, h);
    }
    return;
  }
  const auto write_portion = [&](int64_t item, int) {
    const auto i = static_cast<size_t>(std::upper_bound(items_before.begin(), items_before.end(), item) -
                                       items_before.begin() - 1);
    const KvAppend& a = appends[i];
    const int heads = a.cache->geometry().num_kv_heads;
    const int64_t within = item - items_before[i], at = first[i], end = at + a.count;
    const int64_t panel = at / kPanelKeys + within / heads;
    const int64_t begin = std::max(at, panel * kPanelKeys), stop = std::min(end, (panel + 1) * kPanelKeys);
    a.cache->write(a.rows, at, begin, stop - begin, static_cast<int>(within % heads));
  };
  pool.for_each(items_before.back(), write_portion);
}

}  // namespace regard
