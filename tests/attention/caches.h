// What the tests of caches share: tokens with numbers of their own, one maker for each kind of cache, looking into
// slots.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attention/kv_cache.h"
#include "attention/paged_kv_cache.h"
#include "attention/ring_kv_cache.h"
#include "attention/testing.h"
#include "base/half.h"

namespace regard::testing_attention {

inline KvGeometry geometry(int heads, int d, int dv, DType type = DType::kF32, int scale_block = 0) {
  return {.num_kv_heads = heads, .head_dim = d, .value_dim = dv, .type = type, .scale_block = scale_block};
}

// Token t of stream s: k[head][i] and v[head][c] are numbers of their own.
struct Tokens {
  int heads, d, dv;
  std::vector<float> k, v;
  Tokens(int stream, int count, const KvGeometry& g) : heads(g.num_kv_heads), d(g.head_dim), dv(g.value_dim) {
    k = gaussians(static_cast<uint64_t>(100 + stream), int64_t{count} * heads * d);
    v = gaussians(static_cast<uint64_t>(200 + stream), int64_t{count} * heads * dv);
  }
  KvRows rows(int64_t first) const {
    return {.k = k.data() + first * heads * d,
            .k_token_stride = heads * d,
            .k_head_stride = d,
            .v = v.data() + first * heads * dv,
            .v_token_stride = heads * dv,
            .v_head_stride = dv};
  }
};

// Which scale of its row a number has.
inline int block_of(const KvGeometry& g, int i) { return g.scale_block == 0 ? 0 : i / g.scale_block; }

// One stored number as it is read: decoded, and a code times its scale.
inline float stored_number(const KvView& view, const std::byte* row, int index, float scale) {
  const DType type = view.geometry.type;
  const std::byte* at = row + kernels::stored_at(type, index) * kernels::cache_bytes(type);
  float number;
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  if (type == DType::kF16) return half_to_float(half);
  if (type == DType::kBF16) return bf16_to_float(half);
  if (type == DType::kI8) return static_cast<float>(std::bit_cast<int8_t>(*at)) * scale;
  std::memcpy(&number, at, sizeof number);
  return number;
}
inline float key_at(const KvView& view, int64_t position, int head, int i) {
  const int64_t tile = position / kernels::kTileKeys - view.first_tile;
  const int panel = static_cast<int>(position % kernels::kTileKeys / kernels::kPanelKeys),
            column = static_cast<int>(position % kernels::kPanelKeys);
  const float* scales = view.scales(tile, panel, head);
  return stored_number(
      view, view.keys(tile, panel, head) + i * kernels::kPanelKeys * kernels::cache_bytes(view.geometry.type), column,
      scales == nullptr ? 1 : scales[block_of(view.geometry, i) * kernels::kPanelKeys + column]);
}
inline float value_at(const KvView& view, int64_t position, int head, int c) {
  const int64_t tile = position / kernels::kTileKeys - view.first_tile;
  const int panel = static_cast<int>(position % kernels::kTileKeys / kernels::kPanelKeys),
            column = static_cast<int>(position % kernels::kPanelKeys);
  const float* scales = view.scales(tile, panel, head);
  const int row = kernels::stored_dim(view.geometry.type, view.geometry.value_dim);
  return stored_number(view, view.values(tile, panel, head) + column * row * kernels::cache_bytes(view.geometry.type),
                       c,
                       scales == nullptr ? 1
                                         : scales[view.geometry.key_scales() * kernels::kPanelKeys +
                                                  column * view.geometry.value_scales() + block_of(view.geometry, c)]);
}

// Position p of the cache holds token p of `tokens`, for p in [begin, end).
inline void expect_holds(const KvStore& cache, const Tokens& tokens, int64_t begin, int64_t end) {
  const KvView view = cache.view();
  ASSERT_GE(begin, cache.begin());
  ASSERT_LE(end, cache.size());
  for (int64_t p = begin; p < end; ++p)
    for (int h = 0; h < tokens.heads; ++h) {
      for (int i = 0; i < tokens.d; ++i)
        ASSERT_EQ(key_at(view, p, h, i), tokens.k[static_cast<size_t>((p * tokens.heads + h) * tokens.d + i)]) << p;
      for (int c = 0; c < tokens.dv; ++c)
        ASSERT_EQ(value_at(view, p, h, c), tokens.v[static_cast<size_t>((p * tokens.heads + h) * tokens.dv + c)]) << p;
    }
}

// A pool of `pages` pages that hands them out in a random order.
inline std::shared_ptr<PagePool> shuffled_pool(const KvGeometry& g, int64_t page_keys, int64_t pages,
                                               uint64_t seed = 1) {
  auto pool = std::make_shared<PagePool>(PagePoolOptions{.geometry = g, .page_keys = page_keys, .max_pages = pages});
  std::vector<PagePool::Pointer> all;
  for (int64_t i = 0; i < pages; ++i) all.push_back(pool->take(0));
  for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random_bits(seed, 3, i) % i]);
  while (!all.empty()) all.pop_back();
  return pool;
}

// A maker of empty caches for up to `tokens` tokens under a mask.
struct CacheKind {
  std::string name;
  std::function<std::unique_ptr<KvStore>(const KvGeometry&, int64_t tokens, const Mask&)> make;
};

inline CacheKind contiguous_kind() {
  return {"contiguous", [](const KvGeometry& g, int64_t, const Mask&) -> std::unique_ptr<KvStore> {
            return std::make_unique<KvCache>(KvCacheOptions{.geometry = g});
          }};
}
inline CacheKind paged_kind(int64_t page_keys) {
  return {"pages of " + std::to_string(page_keys),
          [page_keys](const KvGeometry& g, int64_t tokens, const Mask&) -> std::unique_ptr<KvStore> {
            return std::make_unique<PagedKvCache>(
                shuffled_pool(g, page_keys, (tokens + kernels::kPanelKeys) / page_keys + 2));
          }};
}
inline CacheKind ring_kind(int64_t capacity) {
  return {"ring of " + std::to_string(capacity),
          [capacity](const KvGeometry& g, int64_t, const Mask& mask) -> std::unique_ptr<KvStore> {
            return std::make_unique<RingKvCache>(RingKvCacheOptions{.geometry = g, .mask = mask, .capacity = capacity});
          }};
}

}  // namespace regard::testing_attention
