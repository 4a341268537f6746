#include "attention/page_pool.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked.h"

namespace regard {

using kernels::kPanelKeys;
using kernels::kPanelsPerTile;
using kernels::kTileKeys;

namespace {

// Blocks of all heads, for `pages` pages.
int64_t blocks_of(const PagePoolOptions& options, int64_t pages) {
  return ceil_div<int64_t>(pages * options.page_keys, kPanelKeys);
}
int64_t bytes_of(const PagePoolOptions& options, int64_t pages) {
  return blocks_of(options, pages) * options.geometry.num_kv_heads * options.geometry.block_bytes();
}

}  // namespace

PagePool::PagePool(PagePoolOptions options) : options_(std::move(options)) {
  constexpr int64_t kMaxPageKeys = int64_t{1} << 20;
  check_geometry("PagePool", options_.geometry);
  const int64_t keys = options_.page_keys;
  require(keys >= 1 && keys <= kMaxPageKeys && (keys % kPanelKeys == 0 || kPanelKeys % keys == 0),
          "[PagePool] pages of {} keys, expected a multiple of {} up to {}, or 1, 2, 4, 8, 16 or 32", keys, kPanelKeys,
          kMaxPageKeys);
  require(options_.max_pages >= 0, "[PagePool] max_pages is {}, expected 0 or more", options_.max_pages);
  options_.geometry.run = keys % kTileKeys == 0 ? kPanelsPerTile : keys % (2 * kPanelKeys) == 0 ? 2 : 1;
}

int64_t PagePool::page_bytes() const noexcept {
  return options_.geometry.num_kv_heads * options_.geometry.block_bytes() * options_.page_keys / kPanelKeys;
}

int64_t PagePool::pages_in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use();
}

int64_t PagePool::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

PagePool::Piece::Piece(const PagePoolOptions& options, int64_t count, int64_t tokens_wanted)
    : share(options.budget, bytes_of(options, count), "PagePool", tokens_wanted),
      data(static_cast<size_t>(bytes_of(options, count))),
      pages(std::make_unique<KvPage[]>(static_cast<size_t>(count))) {
  const int64_t stride = options.geometry.num_kv_heads * options.geometry.block_bytes();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t key = i * options.page_keys;
    pages[static_cast<size_t>(i)].data = data.data() + key / kPanelKeys * stride;
    pages[static_cast<size_t>(i)].column = static_cast<int>(key % kPanelKeys);
  }
}

void PagePool::make_pages(int64_t tokens_wanted) {
  const int64_t left = options_.max_pages - made_;
  if (left <= 0)
    fail(Code::kResourceExhausted,
         "[PagePool] {} tokens need another page of {} keys, and all {} pages are in use: raise max_pages or use "
         "shorter "
         "sequences",
         tokens_wanted, options_.page_keys, options_.max_pages);
  const int64_t count = std::min(left, std::max<int64_t>(1, kTileKeys / options_.page_keys));
  auto piece = std::make_unique<Piece>(options_, count, tokens_wanted);
  free_.reserve(static_cast<size_t>(made_ + count));
  pieces_.reserve(pieces_.size() + 1);
  for (int64_t i = count; i-- > 0;) {
    KvPage& page = piece->pages[static_cast<size_t>(i)];
    page.pool = this;
    page.id = made_ + i;
    free_.push_back(&page);
  }
  made_ += count;
  bytes_ += static_cast<int64_t>(piece->data.size());
  pieces_.push_back(std::move(piece));
}

PagePool::Pointer PagePool::take(int64_t tokens_wanted) {
  KvPage* page;
  {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) make_pages(tokens_wanted);
    page = free_.back();
    free_.pop_back();
  }
  page->holders.store(1, std::memory_order_relaxed);
  // All bits set is a NaN: a slot that was never written cannot pass for a key.
  for (int64_t offset = 0; offset < options_.page_keys;) {
    int count = 0;
    for (int h = 0; h < options_.geometry.num_kv_heads; ++h) {
      const KvSlots free = slots(*page, offset, h);
      clear_slots(options_.geometry, free.run, free.column, free.count);
      count = free.count;
    }
    offset += count;
  }
  return Pointer(page);
}

void PagePool::give_back(KvPage* page) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(page);
}

KvSlots PagePool::slots(KvPage& page, int64_t offset, int kv_head) const noexcept {
  const KvGeometry& g = options_.geometry;
  const int64_t at = page.column + offset, end = page.column + options_.page_keys, run_keys = kPanelKeys * g.run;
  return {page.data + (at / run_keys * g.num_kv_heads + kv_head) * g.run_bytes(), static_cast<int>(at % run_keys),
          static_cast<int>(std::min(end - at, kPanelKeys - at % kPanelKeys))};
}

}  // namespace regard
