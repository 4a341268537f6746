// Memory for many sequences in pages of a fixed number of keys, handed out one by one and counted by holder. A page of
// 64 keys or a multiple is made of whole runs of blocks as the kernels read them, the longest that fit; smaller pages lie
// side by side in a block.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "attention/kv_store.h"
#include "base/aligned_buffer.h"

namespace regard {

class PagePool;

/// One page, or where it is smaller than a block, that block: `column` is where it begins in it.
struct KvPage {
  PagePool* pool = nullptr;
  int64_t id = 0;
  std::byte* data = nullptr;
  int column = 0;
  std::atomic<int> holders{0};

  bool shared() const noexcept { return holders.load(std::memory_order_acquire) > 1; }
};

struct PagePoolOptions {
  KvGeometry geometry;
  int64_t page_keys = kernels::kPanelKeys;  ///< a multiple of 64, or 1, 2, 4, 8, 16 or 32
  int64_t max_pages = kMaxCacheTokens;      ///< more are refused
  std::shared_ptr<KvBudget> budget = {};    ///< null: no limit
};

/// Memory is taken in pieces of about 256 keys as it is needed and stays with the pool; a page that its last holder has
/// let go of is the next one handed out, filled with NaN again, so that nothing of one sequence is left to another.
/// Safe to use from several threads. Caches keep their pool alive.
class PagePool {
 public:
  /// Errors: as check_geometry(); kInvalidArgument for another page size or a negative max_pages.
  explicit PagePool(PagePoolOptions options);
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  const KvGeometry& geometry() const noexcept { return options_.geometry; }
  int64_t page_keys() const noexcept { return options_.page_keys; }
  const std::shared_ptr<KvBudget>& budget() const noexcept { return options_.budget; }
  int64_t page_bytes() const noexcept;
  int64_t pages_in_use() const;
  /// Bytes of all pages that were made, in use or not.
  int64_t bytes() const;

  struct Release {
    // The last holder sees everything that the others did with the page before they let go of it.
    void operator()(KvPage* page) const noexcept {
      if (page->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) page->pool->give_back(page);
    }
  };
  using Pointer = std::unique_ptr<KvPage, Release>;

  /// A page for a cache that is to hold `tokens_wanted` tokens. Errors: kResourceExhausted, with the numbers.
  Pointer take(int64_t tokens_wanted);
  /// One more holder of the same page.
  static Pointer share(const Pointer& page) noexcept {
    page->holders.fetch_add(1, std::memory_order_relaxed);
    return Pointer(page.get());
  }

  /// The runs of a page of 64 keys or more, one behind the other; those of the other heads follow each of them.
  int64_t runs_per_page() const noexcept { return options_.page_keys / (kernels::kPanelKeys * geometry().run); }
  const std::byte* run(const KvPage& page, int64_t i) const noexcept {
    return page.data + i * geometry().num_kv_heads * geometry().run_bytes();
  }
  /// Where the slots of one head from `offset` on lie, up to the end of the page or block.
  KvSlots slots(KvPage& page, int64_t offset, int kv_head) const noexcept;

 private:
  // Pages that were made together.
  struct Piece {
    Piece(const PagePoolOptions& options, int64_t pages, int64_t tokens_wanted);
    KvBudgetShare share;
    AlignedBuffer<std::byte> data;
    std::unique_ptr<KvPage[]> pages;
  };

  void make_pages(int64_t tokens_wanted);
  void give_back(KvPage* page) noexcept;
  int64_t in_use() const noexcept { return made_ - static_cast<int64_t>(free_.size()); }

  PagePoolOptions options_;
  mutable std::mutex mutex_;  // guards what follows
  int64_t made_ = 0, bytes_ = 0;
  std::vector<std::unique_ptr<Piece>> pieces_;
  std::vector<KvPage*> free_;  // has room for all pages, so that giving back cannot fail
};

}  // namespace regard
