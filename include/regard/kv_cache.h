// Keys and values that stay: a sequence that grows token by token, and attention of its queries over what it has seen.
//
//   AttentionCache cache = AttentionCache::contiguous({.num_kv_heads = 8, .head_dim = 64});
//   cache.append(k, v);                                              // [num_kv_heads, tokens, head_dim]
//   cache.attend(q, cache.size() - tokens, Mask::causal(), {}, out);  // [num_q_heads, tokens, head_dim]
//
// The arithmetic is that of regard::attend() to the bit, however the tokens came: at once, in chunks or one by one,
// from memory of their own, from pages or from a ring. Many sequences, or sequences that begin alike: see CachePool.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "regard/dtype.h"
#include "regard/export.h"
#include "regard/mask.h"
#include "regard/score_terms.h"
#include "regard/stop_token.h"
#include "regard/tensor.h"

namespace regard {

/// What is stored for one token.
struct CacheShape {
  int64_t num_kv_heads = 1;
  int64_t head_dim = 0;   ///< 1 to 512
  int64_t value_dim = 0;  ///< 1 to 512; 0: as head_dim
  /// How numbers are stored; arithmetic is in f32 with each type. f32; f16 and bf16, rounded to nearest even; i8, codes
  /// with a scale of max|x| / 127 for each token's key and value of each head, so that a number is off by half a scale
  /// at most (a key or value with a NaN or an infinity in it is NaN as a whole).
  DType type = DType::kF32;
  /// i8: how many numbers along head_dim and value_dim share a scale, a power of two from 16 to 512; 0: all of a token's key or
  /// value. Blocks of 32 or 64 keep an outlier from coarsening its whole row; they cost 4 bytes each, and some arithmetic where
  /// memory is not what limits. A block with a NaN or an infinity in it is NaN as a whole. The numbers that are then stored
  /// are code * scale, rounded to f32, and a row has the bits of f32 attention over them.
  int64_t scale_block = 0;
};

/// What a cache or a pool may grow to.
struct CacheLimits {
  int64_t max_tokens = std::numeric_limits<int64_t>::max() / 1024;  ///< of each sequence
  int64_t max_bytes = std::numeric_limits<int64_t>::max();          ///< of a cache and its forks, or of a pool
};

struct CachedAttentionOptions {
  std::optional<double> scale;      ///< multiplies q . k; 1 / sqrt(head_dim) where nothing is given
  double softcap = 0;               ///< s -> softcap * tanh(s / softcap), after the scale; 0: none
  /// As in AttentionOptions, with position j for key j, also of keys that a ring has lost: `bias` is [sequences, num_q_heads,
  /// tokens, size], of the most tokens and the largest size() of the call, with 1 in place of any extent.
  TensorView<const float> bias = {};
  std::optional<Alibi> alibi = {};
  std::optional<T5Bias> t5 = {};
  std::optional<TransformerXl> xl = {};
  TensorView<const float> sink = {};  ///< [num_q_heads]
  const StopToken* stop = nullptr;  ///< polled between tiles; null: never
};

/// The keys and values of one sequence. Token i has position i.
///
/// Threads: different caches may be used from different threads, forks of each other included; one cache by one thread
/// at a time. Every function leaves the cache as it was when it throws.
class REGARD_API AttentionCache {
 public:
  /// Memory of its own, in whole tiles of 256 tokens. Errors: kInvalidArgument for a shape out of range; kUnsupported
  /// for a type that no kernel reads.
  static AttentionCache contiguous(const CacheShape& shape, const CacheLimits& limits = {});

  /// The last `capacity` tokens (rounded up to whole tiles of 256), for masks with a window: at least the window and
  /// the largest append. `mask` is what every coming query looks under; num_q_heads matters where it depends on the
  /// head. Errors: as contiguous().
  static AttentionCache ring(const CacheShape& shape, const Mask& mask, int64_t capacity, int64_t num_q_heads = 1,
                             const CacheLimits& limits = {});

  AttentionCache(AttentionCache&&) noexcept;
  AttentionCache& operator=(AttentionCache&&) noexcept;
  ~AttentionCache();

  /// The tokens [begin(), size()) are held; begin() is 0 but for a ring that has wrapped.
  int64_t begin() const noexcept;
  int64_t size() const noexcept;
  const CacheShape& shape() const noexcept;
  /// Bytes of memory, shared memory included.
  int64_t bytes() const noexcept;

  /// Appends tokens: k [num_kv_heads, tokens, head_dim], v [num_kv_heads, tokens, value_dim], any strides; the numbers
  /// are copied, rounded to the cache's type. Errors: kInvalidArgument for shapes that do not fit, and when a ring
  /// would overwrite a key that a coming query still sees; kResourceExhausted, with the numbers.
  void append(TensorView<const float> k, TensorView<const float> v);

  /// out = softmax(mask(softcap(scale q k^T) + biases)) v over the tokens held, for the queries at positions q_begin, q_begin +
  /// 1,
  /// ...: after an append of n tokens their own queries have q_begin = size() - n.
  ///
  /// Shapes: q [num_q_heads, tokens, head_dim], out [num_q_heads, tokens, value_dim], lse [num_q_heads, tokens] or no
  /// data; num_q_heads is a multiple of num_kv_heads. Empty rows give 0 and -inf, or the sink. A row's bits do not depend on the
  /// other rows, how the tokens were appended, the kind of cache, its page size or the number of threads. Errors,
  /// aliasing and cost: as regard::attend(), without the packing; kInvalidArgument also when a query would see a key
  /// that a ring has lost.
  void attend(TensorView<const float> q, int64_t q_begin, const Mask& mask, const CachedAttentionOptions& options,
              TensorView<float> out, TensorView<float> lse = {}) const;

  /// Forgets all tokens but those below position `size`. Errors: kInvalidArgument unless 0 <= size <= size(), or when a
  /// ring has lost keys that a query at `size` would see.
  void truncate(int64_t size);

  /// A cache of the same kind with the same tokens; full tiles or pages are shared, and no more than the last, partly
  /// filled one is ever copied (a ring copies each tile that it writes into while it is shared). Errors:
  /// kResourceExhausted.
  AttentionCache fork() const;

  /// The tokens as bytes that depend neither on the kind of cache nor on the machine; restore() gives the same bits.
  std::vector<uint8_t> save() const;
  /// Fills an empty cache. The bytes are untrusted. Errors: kCorruptData for bytes that save() has not written or that
  /// have changed since; kInvalidArgument when the cache is not empty or of another shape, or cannot hold these tokens;
  /// kResourceExhausted.
  void restore(std::span<const uint8_t> bytes);

 private:
  friend class CachePool;
  friend struct CachedCall;
  struct Impl;
  explicit AttentionCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Memory for many sequences, in pages of `page_keys` tokens. Sequences that begin alike share the pages of their
/// common prefix when they are forks of one cache. Copies of a pool are the same pool; its caches keep it alive. Safe
/// to use from several threads.
class REGARD_API CachePool {
 public:
  /// page_keys: a multiple of 64; or 1, 2, 4, 8, 16 or 32, which are correct but gathered into a copy before they are
  /// read. Errors: as AttentionCache::contiguous(); kInvalidArgument for another page size.
  explicit CachePool(const CacheShape& shape, int64_t page_keys = 64, const CacheLimits& limits = {});

  /// An empty cache whose pages come from here.
  AttentionCache cache() const;

  int64_t page_keys() const noexcept;
  int64_t pages_in_use() const;
  /// Bytes of all pages that were made, in use or not.
  int64_t bytes() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// The queries of one sequence in a batch; the members are the arguments of AttentionCache::attend().
struct CachedQueries {
  const AttentionCache* cache = nullptr;
  TensorView<const float> q;
  int64_t q_begin = 0;
  TensorView<float> out, lse = {};
};

/// AttentionCache::attend() for many sequences at once, which shares their rows out over the threads together. Sequence
/// i is batch row i of the mask. All caches have one shape. Errors: as AttentionCache::attend().
REGARD_API void attend(std::span<const CachedQueries> sequences, const Mask& mask,
                       const CachedAttentionOptions& options);

/// caches[i] becomes what the former caches[parents[i]] was, for all parents: what beam search does after every step.
/// A cache that is wanted once is moved, others are forked. All or nothing. Errors: kInvalidArgument for a parent that
/// is no cache; kResourceExhausted.
REGARD_API void reorder(std::vector<AttentionCache>& caches, std::span<const int64_t> parents);

}  // namespace regard
