// The public caches: checks and shapes around KvStore and attend_sequences(). Read AttentionCache::attend() first.
#include <algorithm>
#include <utility>

#include "attention/call.h"
#include "attention/kv_cache.h"
#include "attention/kv_save.h"
#include "attention/paged_kv_cache.h"
#include "attention/ring_kv_cache.h"
#include "attention/score_terms.h"
#include "attention/tensor_check.h"
#include "base/check.h"
#include "regard/kv_cache.h"
#include "runtime/thread_pool.h"

namespace regard {

namespace {

constexpr std::string_view kAppend = "AttentionCache::append", kAttend = "AttentionCache::attend";

int checked_extent(std::string_view name, int64_t extent, int64_t most) {
  require(extent >= 1 && extent <= most, "[AttentionCache] {} is {}, expected 1 to {}", name, extent, most);
  return static_cast<int>(extent);
}

CacheShape completed(CacheShape shape) {
  if (shape.value_dim == 0) shape.value_dim = shape.head_dim;
  return shape;
}

int checked_block(const CacheShape& shape) {
  require(kernels::is_scale_block(shape.scale_block) && (shape.scale_block == 0 || kernels::has_scales(shape.type)),
          "[AttentionCache] scale_block is {} in a cache of {}, expected 0, or in one of i8 a power of two from {} to {}",
          shape.scale_block, info(shape.type).name, kernels::kLanes, kernels::kMaxHeadDim);
  return static_cast<int>(shape.scale_block);
}

KvGeometry geometry_of(const CacheShape& shape) {
  constexpr int64_t kMaxHeads = 1 << 20;
  return {.num_kv_heads = checked_extent("num_kv_heads", shape.num_kv_heads, kMaxHeads),
          .head_dim = checked_extent("head_dim", shape.head_dim, kernels::kMaxHeadDim),
          .value_dim = checked_extent("value_dim", shape.value_dim, kernels::kMaxHeadDim),
          .type = shape.type,
          .scale_block = checked_block(shape)};
}

std::shared_ptr<KvBudget> budget_of(const CacheLimits& limits) {
  require(limits.max_bytes >= 0, "[AttentionCache] max_bytes is {}, expected 0 or more", limits.max_bytes);
  return std::make_shared<KvBudget>(limits.max_bytes);
}

template <class T>
bool has_shape(const TensorView<T>& t, int64_t a, int64_t b, int64_t c) {
  return t.shape[0] == a && t.shape[1] == b && t.shape[2] == c;
}

}  // namespace

struct AttentionCache::Impl {
  CacheShape shape;
  std::unique_ptr<KvStore> store;
};

AttentionCache::AttentionCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AttentionCache::AttentionCache(AttentionCache&&) noexcept = default;
AttentionCache& AttentionCache::operator=(AttentionCache&&) noexcept = default;
AttentionCache::~AttentionCache() = default;

AttentionCache AttentionCache::contiguous(const CacheShape& given, const CacheLimits& limits) {
  const CacheShape shape = completed(given);
  auto store = std::make_unique<KvCache>(
      KvCacheOptions{.geometry = geometry_of(shape), .max_tokens = limits.max_tokens, .budget = budget_of(limits)});
  return AttentionCache(std::make_unique<Impl>(Impl{shape, std::move(store)}));
}

AttentionCache AttentionCache::ring(const CacheShape& given, const Mask& mask, int64_t capacity, int64_t num_q_heads,
                                    const CacheLimits& limits) {
  const CacheShape shape = completed(given);
  auto store = std::make_unique<RingKvCache>(RingKvCacheOptions{.geometry = geometry_of(shape),
                                                                .mask = mask,
                                                                .num_q_heads = num_q_heads,
                                                                .capacity = capacity,
                                                                .max_tokens = limits.max_tokens,
                                                                .budget = budget_of(limits)});
  return AttentionCache(std::make_unique<Impl>(Impl{shape, std::move(store)}));
}

int64_t AttentionCache::begin() const noexcept { return impl_->store->begin(); }
int64_t AttentionCache::size() const noexcept { return impl_->store->size(); }
const CacheShape& AttentionCache::shape() const noexcept { return impl_->shape; }
int64_t AttentionCache::bytes() const noexcept { return impl_->store->bytes(); }

void AttentionCache::append(TensorView<const float> k, TensorView<const float> v) {
  check_tensor(kAppend, "k", k, 3);
  check_tensor(kAppend, "v", v, 3);
  const CacheShape& shape = impl_->shape;
  const int64_t tokens = k.shape[1];
  require(has_shape(k, shape.num_kv_heads, tokens, shape.head_dim),
          "[AttentionCache::append] k has shape {}, expected [{}, tokens, {}]", shape_text(k), shape.num_kv_heads,
          shape.head_dim);
  require(has_shape(v, shape.num_kv_heads, tokens, shape.value_dim),
          "[AttentionCache::append] v has shape {}, expected [{}, {}, {}]", shape_text(v), shape.num_kv_heads, tokens,
          shape.value_dim);
  if (tokens == 0) return;
  AlignedBuffer<float> k_copy, v_copy;
  k = with_dense_rows(k, k_copy);
  v = with_dense_rows(v, v_copy);
  const KvAppend append{impl_->store.get(),
                        {.k = k.data,
                         .k_token_stride = k.strides[1],
                         .k_head_stride = k.strides[0],
                         .v = v.data,
                         .v_token_stride = v.strides[1],
                         .v_head_stride = v.strides[0]},
                        tokens};
  append_all(&append, 1, default_pool());
}

void AttentionCache::truncate(int64_t size) { impl_->store->truncate(size); }

AttentionCache AttentionCache::fork() const {
  return AttentionCache(std::make_unique<Impl>(Impl{impl_->shape, impl_->store->clone()}));
}

std::vector<uint8_t> AttentionCache::save() const { return save_kv(*impl_->store); }
void AttentionCache::restore(std::span<const uint8_t> bytes) { restore_kv(*impl_->store, bytes); }

// One call over several sequences: add() checks and describes one, with the memory of what had to be copied.
struct CachedCall {
  CachedCall(const Mask& given, const CallSizes& sizes, const AttentionOptions& options, double scale)
      : mask(given), plan(given, {}, sizes.batch, sizes.num_q_heads), terms(kAttend, sizes, options, scale) {}

  void add(const CachedQueries& given) {
    const auto b = static_cast<int64_t>(sequences.size());
    const KvStore& store = *given.cache->impl_->store;
    const CacheShape& shape = given.cache->shape();
    const int64_t tokens = given.q.shape[1];
    const ByteRange q_range = check_tensor(kAttend, "q", given.q, 3),
                    out_range = check_tensor(kAttend, "out", given.out, 3);
    require(has_shape(given.q, plan.num_q_heads(), tokens, shape.head_dim),
            "[AttentionCache::attend] q has shape {}, expected [{}, tokens, {}]", shape_text(given.q),
            plan.num_q_heads(), shape.head_dim);
    require(has_shape(given.out, plan.num_q_heads(), tokens, shape.value_dim),
            "[AttentionCache::attend] out has shape {}, expected [{}, {}, {}]", shape_text(given.out),
            plan.num_q_heads(), tokens, shape.value_dim);
    check_no_self_overlap(kAttend, "out", given.out);
    require(!out_range.overlaps(q_range),
            "[AttentionCache::attend] the memory of out overlaps that of q: give it its own");
    for (const ByteRange& input : terms.ranges())
      require(!out_range.overlaps(input), "[AttentionCache::attend] the memory of out overlaps that of a score term: give it its own");
    const bool lse = given.lse.rank != 0 || given.lse.data != nullptr;
    if (lse) {
      const ByteRange range = check_tensor(kAttend, "lse", given.lse, 2);
      require(has_shape(given.lse, plan.num_q_heads(), tokens, 1),
              "[AttentionCache::attend] lse has shape {}, expected [{}, {}]", shape_text(given.lse), plan.num_q_heads(),
              tokens);
      check_no_self_overlap(kAttend, "lse", given.lse);
      require(!range.overlaps(q_range) && !range.overlaps(out_range),
              "[AttentionCache::attend] the memory of lse overlaps that of q or out: give it its own");
      for (const ByteRange& input : terms.ranges())
        require(!range.overlaps(input), "[AttentionCache::attend] the memory of lse overlaps that of a score term: give it its own");
    }
    require(given.q_begin >= 0 && given.q_begin <= PackedKv::kMaxPosition,
            "[AttentionCache::attend] q_begin is {}, expected 0 to {}", given.q_begin, PackedKv::kMaxPosition);
    const Interval queries{given.q_begin, given.q_begin + tokens};
    if (tokens > 0) plan.check_queries(b, queries);
    check_nothing_lost(store, b, queries);

    Copies& copy = copies.emplace_back();
    copy.out = given.out;
    const TensorView<const float> q = with_dense_rows(given.q, copy.q_memory);
    copy.result = has_dense_rows(given.out) ? given.out : dense_like(given.out, copy.out_memory);
    SequenceQueries s;
    s.q = q.data;
    s.q_token_stride = q.strides[1];
    s.q_head_stride = q.strides[0];
    s.out = copy.result.data;
    s.out_token_stride = copy.result.strides[1];
    s.out_head_stride = copy.result.strides[0];
    s.lse = lse ? given.lse.data : nullptr;
    s.lse_token_stride = given.lse.strides[1];
    s.lse_head_stride = given.lse.strides[0];
    s.tokens = tokens;
    s.first_position = given.q_begin;
    s.keys = store.view();
    s.batch_row = b;
    sequences.push_back(s);
    PackSource keys;
    keys.kv_len = store.size() - store.begin();
    keys.k_begin = store.begin();
    terms.place(s, keys, {.first_key = store.begin()});
  }

  // A ring has forgotten what lies before its begin; a query that would look there must not get less than it asked for.
  void check_nothing_lost(const KvStore& store, int64_t b, Interval queries) const {
    const Interval lost{0, store.begin()};
    if (lost.empty() || queries.empty()) return;
    for (int64_t h = 0; h < (plan.depends_on_head() ? plan.num_q_heads() : 1); ++h)
      require(
          plan.hull(b, h, queries).begin >= lost.end || plan.classify(b, h, queries, lost) == TileClass::kEmpty,
          "[AttentionCache::attend] \"{}\" shows keys below position {} to the queries from {} on, and the ring has "
          "overwritten them",
          mask.text(), lost.end, queries.begin);
  }

  void copy_back() const {
    for (const Copies& copy : copies)
      if (!copy.out_memory.empty()) copy_tensor(copy.result, copy.out);
  }

  struct Copies {
    AlignedBuffer<float> q_memory, out_memory;
    TensorView<float> result, out;
  };
  const Mask& mask;
  MaskPlan plan;
  ScoreTerms terms;
  std::vector<SequenceQueries> sequences;
  std::vector<Copies> copies;
};

void attend(std::span<const CachedQueries> sequences, const Mask& mask, const CachedAttentionOptions& options) {
  if (sequences.empty()) return;
  for (const CachedQueries& s : sequences)
    require(s.cache != nullptr, "[AttentionCache::attend] no cache, expected one for each sequence");
  const CacheShape& shape = sequences[0].cache->shape();
  for (const CachedQueries& s : sequences) {
    const CacheShape& other = s.cache->shape();
    require(
        other.num_kv_heads == shape.num_kv_heads && other.head_dim == shape.head_dim &&
            other.value_dim == shape.value_dim && other.type == shape.type,
        "[AttentionCache::attend] caches of {} heads with head_dim {}, value_dim {} in {} and of {} with {}, {} in {}: "
        "expected one shape",
        shape.num_kv_heads, shape.head_dim, shape.value_dim, info(shape.type).name, other.num_kv_heads, other.head_dim,
        other.value_dim, info(other.type).name);
  }
  CallSizes sizes;
  sizes.batch = static_cast<int64_t>(sequences.size());
  sizes.num_q_heads = sequences[0].q.shape[0];
  sizes.num_kv_heads = shape.num_kv_heads;
  sizes.head_dim = shape.head_dim;
  sizes.value_dim = shape.value_dim;
  require(sizes.num_q_heads >= 1 && sizes.num_q_heads <= INT32_MAX && sizes.num_q_heads % sizes.num_kv_heads == 0,
          "[AttentionCache::attend] {} query heads cannot share {} KV heads evenly: num_q_heads must be a multiple of "
          "num_kv_heads",
          sizes.num_q_heads, sizes.num_kv_heads);
  AttentionOptions numbers;
  numbers.scale = options.scale;
  numbers.softcap = options.softcap;
  numbers.bias = options.bias;
  numbers.alibi = options.alibi;
  numbers.t5 = options.t5;
  numbers.xl = options.xl;
  numbers.sink = options.sink;
  for (const CachedQueries& s : sequences) {
    sizes.q_len = std::max(sizes.q_len, s.q.shape[1]);
    sizes.kv_len = std::max(sizes.kv_len, s.cache->size());
  }
  AttentionShape attention = check_numbers(kAttend, sizes, numbers);
  CachedCall call(mask, sizes, numbers, attention.scale);
  for (const CachedQueries& s : sequences) call.add(s);
  if (!call.terms.empty()) attention.terms = &call.terms;
  AttentionWorkspace workspace;
  attend_sequences(call.sequences, attention, call.plan, workspace, default_pool(), options.stop);
  call.terms.check_distances(kAttend);
  call.copy_back();
}

void AttentionCache::attend(TensorView<const float> q, int64_t q_begin, const Mask& mask,
                            const CachedAttentionOptions& options, TensorView<float> out, TensorView<float> lse) const {
  const CachedQueries one{this, q, q_begin, out, lse};
  regard::attend({&one, 1}, mask, options);
}

struct CachePool::Impl {
  CacheShape shape;
  CacheLimits limits;
  std::shared_ptr<PagePool> pool;
};

CachePool::CachePool(const CacheShape& given, int64_t page_keys, const CacheLimits& limits) {
  const CacheShape shape = completed(given);
  auto pool = std::make_shared<PagePool>(
      PagePoolOptions{.geometry = geometry_of(shape), .page_keys = page_keys, .budget = budget_of(limits)});
  impl_ = std::make_shared<const Impl>(Impl{shape, limits, std::move(pool)});
}

AttentionCache CachePool::cache() const {
  auto store = std::make_unique<PagedKvCache>(impl_->pool, impl_->limits.max_tokens);
  return AttentionCache(std::make_unique<AttentionCache::Impl>(AttentionCache::Impl{impl_->shape, std::move(store)}));
}

int64_t CachePool::page_keys() const noexcept { return impl_->pool->page_keys(); }
int64_t CachePool::pages_in_use() const { return impl_->pool->pages_in_use(); }
int64_t CachePool::bytes() const { return impl_->pool->bytes(); }

void reorder(std::vector<AttentionCache>& caches, std::span<const int64_t> parents) {
  reorder<AttentionCache>(caches, parents);
}

}  // namespace regard
