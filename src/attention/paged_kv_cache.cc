#include "attention/paged_kv_cache.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked.h"

namespace regard {

using kernels::kPanelsPerTile;

PagedKvCache::PagedKvCache(std::shared_ptr<PagePool> pool, int64_t max_tokens)
    : KvStore(pool == nullptr ? KvGeometry{} : pool->geometry()), pool_(std::move(pool)), max_tokens_(max_tokens) {
  require(pool_ != nullptr, "[PagedKvCache] no pool, expected one");
  require(max_tokens >= 0, "[PagedKvCache] max_tokens is {}, expected 0 or more", max_tokens);
}

int64_t PagedKvCache::bytes() const noexcept {
  return static_cast<int64_t>(pages_.size()) * pool_->page_bytes() + (gathered_ == nullptr ? 0 : gathered_->bytes());
}

std::vector<int64_t> PagedKvCache::page_table() const {
  std::vector<int64_t> ids;
  for (const PagePool::Pointer& page : pages_) ids.push_back(page->id);
  return ids;
}

// Whole tiles stand in the table, because the next tile's keys are fetched ahead whether they are there or not.
void PagedKvCache::set_runs(size_t first_page) {
  if (gathers()) return;
  const auto per_page = static_cast<size_t>(pool_->runs_per_page()),
             per_tile = static_cast<size_t>(kPanelsPerTile / geometry_.run);
  const size_t all = pages_.size() * per_page;
  runs_.resize(ceil_div(all, per_tile) * per_tile);
  for (size_t i = first_page * per_page; i < all; ++i)
    runs_[i] = pool_->run(*pages_[i / per_page], static_cast<int64_t>(i % per_page));
  if (all > 0) std::fill(runs_.begin() + static_cast<int64_t>(all), runs_.end(), runs_[all - 1]);
}

void PagedKvCache::prepare(int64_t count) {
  const int64_t size = size_after("PagedKvCache::append", count, max_tokens_), keys = pool_->page_keys();
  if (count == 0) return;
  const size_t before = pages_.size(), wanted = static_cast<size_t>(ceil_div(size, keys));
  const auto last = static_cast<size_t>(size_ / keys);  // the page that is written first
  PagePool::Pointer own;
  if (size_ % keys != 0 && pages_[last]->shared()) {
    own = pool_->take(size);
    for (int h = 0; h < geometry_.num_kv_heads; ++h)
      for (int64_t i = 0; i < size_ % keys;) {
        const KvSlots from = pool_->slots(*pages_[last], i, h), to = pool_->slots(*own, i, h);
        const int n = static_cast<int>(std::min<int64_t>({size_ % keys - i, from.count, to.count}));
        copy_slots(geometry_, from.run, from.column, geometry_, to.run, to.column, n);
        i += n;
      }
  }
  try {
    pages_.reserve(wanted);
    while (pages_.size() < wanted) pages_.push_back(pool_->take(size));
    set_runs(before);
  } catch (...) {
    pages_.resize(before);
    throw;
  }
  if (own == nullptr) return;
  pages_[last] = std::move(own);
  set_runs(last);
}

KvSlots PagedKvCache::slots(int64_t position, int kv_head) noexcept {
  const int64_t keys = pool_->page_keys();
  return pool_->slots(*pages_[static_cast<size_t>(position / keys)], position % keys, kv_head);
}

void PagedKvCache::truncate(int64_t size) {
  require(size >= 0 && size <= size_, "[PagedKvCache::truncate] size {}, expected 0 to {}", size, size_);
  size_ = size;
  pages_.resize(static_cast<size_t>(ceil_div(size, pool_->page_keys())));
  set_runs(pages_.size());
  if (gathered_ != nullptr && gathered_->size() > size) gathered_->truncate(size);
}

PagedKvCache PagedKvCache::fork(int64_t tokens) const {
  require(tokens >= 0 && tokens <= size_, "[PagedKvCache::fork] {} tokens, expected 0 to {}", tokens, size_);
  PagedKvCache copy(pool_, max_tokens_);
  const auto pages = static_cast<size_t>(ceil_div(tokens, pool_->page_keys()));
  copy.pages_.reserve(pages);
  for (size_t i = 0; i < pages; ++i) copy.pages_.push_back(PagePool::share(pages_[i]));
  copy.size_ = tokens;
  copy.set_runs(0);
  return copy;
}

void PagedKvCache::gather() const {
  if (gathered_ == nullptr)
    gathered_ = std::make_unique<KvCache>(KvCacheOptions{.geometry = geometry_, .budget = pool_->budget()});
  const int64_t keys = pool_->page_keys();
  const int64_t first = gathered_->extend(size_ - gathered_->size());
  for (int h = 0; h < geometry_.num_kv_heads; ++h)
    for (int64_t p = first; p < size_;) {
      const KvSlots from = pool_->slots(*pages_[static_cast<size_t>(p / keys)], p % keys, h),
                    to = gathered_->slots(p, h);
      const int n = static_cast<int>(std::min<int64_t>({size_ - p, from.count, to.count}));
      copy_slots(geometry_, from.run, from.column, gathered_->geometry(), to.run, to.column, n);
      p += n;
    }
}

KvView PagedKvCache::view() const {
  if (gathers()) {
    gather();
    return gathered_->view();
  }
  return view_in_order(runs_.data());
}

}  // namespace regard
