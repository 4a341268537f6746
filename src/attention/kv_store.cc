#include "attention/kv_store.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked.h"
#include "runtime/thread_pool.h"

namespace regard {

using kernels::kPanelKeys;

bool KvBudget::take(int64_t bytes) noexcept {
  int64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ - used) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

KvBudgetShare::KvBudgetShare(std::shared_ptr<KvBudget> budget, int64_t bytes, const char* function,
                             int64_t tokens_wanted)
    : budget_(std::move(budget)), bytes_(bytes) {
  if (budget_ == nullptr || budget_->take(bytes)) return;
  const int64_t used = budget_->used(), limit = budget_->limit();
  fail(
      Code::kResourceExhausted,
      "[{}] {} tokens need {} more bytes of keys and values; {} of the budget of {} bytes are in use: raise the budget "
      "or use shorter sequences",
      function, tokens_wanted, bytes, used, limit);
}

void check_geometry(const char* function, const KvGeometry& g) {
  require(g.num_kv_heads >= 1, "[{}] num_kv_heads is {}, expected at least 1", function, g.num_kv_heads);
  require(g.head_dim >= 1 && g.head_dim <= kernels::kMaxHeadDim, "[{}] head_dim is {}, expected 1 to {}", function,
          g.head_dim, kernels::kMaxHeadDim);
  require(g.value_dim >= 1 && g.value_dim <= kernels::kMaxHeadDim, "[{}] value_dim is {}, expected 1 to {}", function,
          g.value_dim, kernels::kMaxHeadDim);
  if (!kernels::is_cache_type(g.type))
    fail(Code::kUnsupported, "[{}] caches of type {} are not supported, use f32, f16, bf16 or i8", function,
         info(g.type).name);
  require(kernels::is_scale_block(g.scale_block) && (g.scale_block == 0 || kernels::has_scales(g.type)),
          "[{}] scale_block is {} in a cache of {}, expected 0, or in one of i8 a power of two from {} to {}", function,
          g.scale_block, info(g.type).name, kernels::kLanes, kernels::kMaxHeadDim);
}

int64_t KvStore::size_after(const char* function, int64_t count, int64_t max_tokens) const {
  require(count >= 0, "[{}] {} tokens, expected 0 or more", function, count);
  const auto size = checked_add<int64_t>(size_, count);
  if (!size)
    fail(Code::kResourceExhausted, "[{}] {} tokens after {} are more than can be counted", function, count, size_);
  if (*size > max_tokens)
    fail(Code::kResourceExhausted, "[{}] {} tokens do not fit into a cache for at most {}", function, *size,
         max_tokens);
  return *size;
}

KvView KvStore::view_in_order(const std::byte* const* runs) const noexcept {
  KvView view;
  view.geometry = geometry_;
  view.runs = runs;
  view.num_tiles = ceil_div<int64_t>(size_, kernels::kTileKeys);
  view.end = size_;
  return view;
}

int64_t KvStore::extend(int64_t count) {
  prepare(count);
  const int64_t first = size_;
  commit(count);
  return first;
}

void KvStore::write(const KvRows& rows, int64_t rows_begin, int64_t first, int64_t count, int kv_head) noexcept {
  while (count > 0) {
    const KvSlots to = slots(first, kv_head);
    const int n = static_cast<int>(std::min<int64_t>(count, to.count));
    write_block(geometry_, rows, first - rows_begin, n, kv_head, to.run, to.column);
    first += n;
    count -= n;
  }
}

void KvStore::append(const KvRows& rows, int64_t count) {
  const int64_t first = extend(count);
  for (int h = 0; h < geometry_.num_kv_heads; ++h) write(rows, first, first, count, h);
}

void KvStore::begin_at(int64_t position, int64_t) {
  require(size_ == 0, "[KvStore] a cache with {} tokens cannot begin anew, truncate it to 0 first", size_);
  require(position == 0, "[KvStore] tokens from position {} on do not fit: only a ring begins elsewhere than at 0",
          position);
}

void check_parent(int64_t parent, int64_t caches) {
  require(parent >= 0 && parent < caches, "[reorder] parent {} of {} caches", parent, caches);
}

void append_all(const KvAppend* appends, int64_t count, ThreadPool& pool) {
  // Below this many elements a phase of the pool costs more than the copying.
  constexpr int64_t kWorthSharing = 1 << 16;
  std::vector<int64_t> first, items_before{0};
  int64_t elements = 0;
  for (int64_t i = 0; i < count; ++i) {
    const KvAppend& a = appends[i];
    a.cache->prepare(a.count);
    const int64_t at = a.cache->size();
    const int64_t portions = a.count == 0 ? 0 : (at + a.count - 1) / kPanelKeys - at / kPanelKeys + 1;
    const KvGeometry& g = a.cache->geometry();
    first.push_back(at);
    items_before.push_back(items_before.back() + portions * g.num_kv_heads);
    elements += a.count * g.num_kv_heads * (g.head_dim + g.value_dim);
  }
  for (int64_t i = 0; i < count; ++i) appends[i].cache->extend(appends[i].count);
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
