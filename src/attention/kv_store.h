// A cache: the keys and values of one sequence, packed as they arrive, so that neither prefill nor decode ever packs
// again. KvStore is what attention and models need of one, wherever it keeps its tokens; the kinds are KvCache
// (kv_cache.h, memory of its own), PagedKvCache (paged_kv_cache.h, pages of a common pool) and RingKvCache
// (ring_kv_cache.h, the last tokens only).
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "attention/kv_block.h"

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

/// `bytes` of a budget (null: no limit) for as long as this lives.
class KvBudgetShare {
 public:
  /// Errors: kResourceExhausted, with the numbers; `function` and `tokens_wanted` are for the message.
  KvBudgetShare(std::shared_ptr<KvBudget> budget, int64_t bytes, const char* function, int64_t tokens_wanted);
  ~KvBudgetShare() {
    if (budget_ != nullptr) budget_->give_back(bytes_);
  }
  KvBudgetShare(const KvBudgetShare&) = delete;
  KvBudgetShare& operator=(const KvBudgetShare&) = delete;

 private:
  std::shared_ptr<KvBudget> budget_;
  int64_t bytes_;
};

/// No cache is asked for more tokens than this, so that positions and bytes can be counted.
inline constexpr int64_t kMaxCacheTokens = std::numeric_limits<int64_t>::max() / 1024;

/// Errors: kInvalidArgument for extents below 1 (value_dim too) or above the kernels' limit; kUnsupported for a type
/// that no kernel reads.
void check_geometry(const char* function, const KvGeometry& geometry);

/// Token i of the sequence has position i, and the tokens [begin(), size()) are held. Different stores may be used from
/// different threads, forks of each other included; one store by one thread at a time. Every function leaves the store
/// as it was when it throws, memory that it may have taken apart.
class KvStore {
 public:
  virtual ~KvStore() = default;

  const KvGeometry& geometry() const noexcept { return geometry_; }
  int64_t begin() const noexcept { return begin_; }
  int64_t size() const noexcept { return size_; }
  /// Bytes of memory, shared memory included.
  virtual int64_t bytes() const noexcept = 0;

  /// Appends `count` tokens. Errors: kInvalidArgument for a negative count or one that this kind of store cannot take;
  /// kResourceExhausted, with the numbers.
  void append(const KvRows& rows, int64_t count);

  /// Forgets all tokens but those below position `size`. Errors: kInvalidArgument unless 0 <= size <= size(), or when
  /// the store has lost tokens that would be the last ones then.
  virtual void truncate(int64_t size) = 0;

  /// What attention reads; valid until the next change of this store. Errors: kResourceExhausted.
  virtual KvView view() const = 0;

  /// A store of the same kind with the same tokens. Errors: kResourceExhausted.
  virtual std::unique_ptr<KvStore> clone() const = 0;

  // append() in parts, for callers that write in parallel: prepare() does everything that can be refused, extend()
  // makes the slots and returns the first (it is the only one that calls commit()), then each (head, portion of 64
  // positions) is written once by write() from any thread. See append_all().
  virtual void prepare(int64_t count) = 0;
  int64_t extend(int64_t count);
  /// Writes the tokens [first, first + count) of one head; row 0 of `rows` is the token at position `rows_begin`.
  void write(const KvRows& rows, int64_t rows_begin, int64_t first, int64_t count, int kv_head) noexcept;

  /// Where one head's tokens from `position` on lie, as many as follow each other in one block.
  virtual KvSlots slots(int64_t position, int kv_head) noexcept = 0;

  /// Makes an empty store begin at `position`, for queries from `first_query` on. Errors: kInvalidArgument when it
  /// holds tokens, or when such a query may look at what lies before `position`.
  virtual void begin_at(int64_t position, int64_t first_query);

 protected:
  explicit KvStore(const KvGeometry& geometry) : geometry_(geometry) {}
  KvStore(KvStore&&) noexcept = default;
  KvStore& operator=(KvStore&&) noexcept = default;

  /// The tokens [size(), size() + count) are there now; prepare(count) came before.
  virtual void commit(int64_t count) noexcept { size_ += count; }
  /// size() + count. Errors: kInvalidArgument for a negative count, kResourceExhausted above `max_tokens`.
  int64_t size_after(const char* function, int64_t count, int64_t max_tokens) const;
  /// view() of tokens that lie in order in runs[0], runs[1] ...
  KvView view_in_order(const std::byte* const* runs) const noexcept;

  KvGeometry geometry_;
  int64_t begin_ = 0, size_ = 0;
};

/// One sequence's part of append_all().
struct KvAppend {
  KvStore* cache = nullptr;
  KvRows rows;
  int64_t count = 0;
};

/// Appends to several different stores, the work shared out over the pool where it is worth it. All or nothing: when
/// one of them is refused, none has grown. Errors: as KvStore::append.
void append_all(const KvAppend* appends, int64_t count, ThreadPool& pool);

/// Errors: kInvalidArgument unless 0 <= parent < caches.
void check_parent(int64_t parent, int64_t caches);

/// caches[i] becomes what the former caches[parents[i]] was, for all parents: what beam search does after every step.
/// A cache that is wanted once is moved, others are forked, so no more than a last, partly filled page is ever copied.
/// All or nothing. Errors: kInvalidArgument for a parent that is no cache; as fork().
template <class Cache>
void reorder(std::vector<Cache>& caches, std::span<const int64_t> parents) {
  std::vector<int64_t> uses(caches.size(), 0);
  for (int64_t parent : parents) {
    check_parent(parent, static_cast<int64_t>(caches.size()));
    ++uses[static_cast<size_t>(parent)];
  }
  std::vector<Cache> forks;
  for (size_t i = 0; i < uses.size(); ++i)
    for (int64_t n = 1; n < uses[i]; ++n) forks.push_back(caches[i].fork());
  std::vector<Cache> reordered;
  reordered.reserve(parents.size());
  // Nothing below can fail. Forks of one origin stand together, and each use but the last takes one.
  std::vector<size_t> next(uses.size(), 0);
  for (size_t i = 1; i < uses.size(); ++i)
    next[i] = next[i - 1] + static_cast<size_t>(uses[i - 1] > 1 ? uses[i - 1] - 1 : 0);
  for (int64_t parent : parents) {
    const auto p = static_cast<size_t>(parent);
    reordered.push_back(--uses[p] > 0 ? std::move(forks[next[p]++]) : std::move(caches[p]));
  }
  caches = std::move(reordered);
}

}  // namespace regard
