// A cache whose tokens lie in pages of a common pool, in any order, shared between sequences that begin alike. Start
// with append() and fork().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/kv_cache.h"
#include "attention/page_pool.h"

namespace regard {

/// Page i holds the tokens from i * page_keys on. A fork shares all pages with its origin; whoever writes into a last,
/// partly filled page that is shared copies the tokens in it first, and nothing else is ever copied. truncate() gives
/// the pages behind the end back at once.
///
/// The kernels read pages of 64 keys or a multiple where they lie. Smaller ones are gathered into a copy beside them
/// that view() keeps up to date and the pool's budget counts: correct, but neither small nor fast.
class PagedKvCache final : public KvStore {
 public:
  /// Errors: kInvalidArgument for no pool or a negative max_tokens.
  explicit PagedKvCache(std::shared_ptr<PagePool> pool, int64_t max_tokens = kMaxCacheTokens);
  PagedKvCache(PagedKvCache&&) noexcept = default;
  PagedKvCache& operator=(PagedKvCache&&) noexcept = default;

  const std::shared_ptr<PagePool>& pool() const noexcept { return pool_; }
  /// Bytes of the pages and of what was gathered from them, shared pages included.
  int64_t bytes() const noexcept override;
  /// Which pages of the pool hold the tokens, in the order of the tokens.
  std::vector<int64_t> page_table() const;

  void truncate(int64_t size) override;

  /// A cache with the same tokens, or with the first `tokens` of them: a common prefix. Errors: kInvalidArgument unless
  /// 0 <= tokens <= size().
  PagedKvCache fork() const { return fork(size_); }
  PagedKvCache fork(int64_t tokens) const;
  std::unique_ptr<KvStore> clone() const override { return std::make_unique<PagedKvCache>(fork()); }

  KvView view() const override;
  void prepare(int64_t count) override;
  KvSlots slots(int64_t position, int kv_head) noexcept override;

 private:
  bool gathers() const noexcept { return pool_->page_keys() < kernels::kPanelKeys; }
  void gather() const;
  void set_runs(size_t first_page);

  std::shared_ptr<PagePool> pool_;  // outlives the pages
  int64_t max_tokens_;
  std::vector<PagePool::Pointer> pages_;
  std::vector<const std::byte*> runs_;         // pages of 64 or more: of whole tiles, the last one repeated
  mutable std::unique_ptr<KvCache> gathered_;  // smaller pages: the tokens below its size
};

}  // namespace regard
