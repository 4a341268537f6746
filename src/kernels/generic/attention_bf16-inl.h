// The kernels of attention_bf16.h. Included inside the instruction set's region, after micro_bf16-inl.h. Read micro_tile()
// first: it goes through the steps of its namesake in attention_tile-inl.h and shares what does not touch a product.

namespace {

#include "kernels/generic/attention_store-inl.h"
#include "kernels/generic/attention_ahead-inl.h"
#include "kernels/generic/attention_scores-inl.h"
#include "kernels/generic/attention_softmax-inl.h"
#include "kernels/generic/attention_values-inl.h"
#include "kernels/generic/pack_bf16-inl.h"

inline constexpr int kTilePairs = pairs(kTileKeys);
inline constexpr int kPanelPairs = pairs(kPanelKeys);

// ---- scores

template <int R, int W>
REGARD_INLINE void multiply_tile(Tile<R, W>& acc, float factor) {
  const F32 f = splat(factor);
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    REGARD_UNROLL
    for (int w = 0; w < W; ++w) acc[r][w] = mul(acc[r][w], f);
  }
}

// The scores of panel w, and where `top` is given the maximum of each row in lanes.
template <int R>
REGARD_INLINE void pair_score_panel(const AttentionTile& tile, const uint32_t* q, float factor, int w, float* s, F32* top) {
  static_assert(kScoreVectors<R> == kPanelVectors);
  const int ldq = pairs(tile.head_dim);
  Tile<R, kPanelVectors> acc;
  clear_tile<R, kPanelVectors>(acc);
  accumulate_pairs<R, kPanelVectors>(acc, q, ldq, static_cast<const uint32_t*>(tile.k[w]), kPanelKeys, ldq);
  multiply_tile<R, kPanelVectors>(acc, factor);
  store_tile<R, kPanelVectors>(acc, s + kPanelKeys * w, kTileKeys);
  if (top != nullptr) raise<R, kPanelVectors>(top, acc);
}

template <int R>
REGARD_NOINLINE void pair_scores_of_all(const AttentionTile& tile, const uint32_t* q, float factor, float* s, F32* top) {
  for (int w = 0; w < kPanelsPerTile; ++w) pair_score_panel<R>(tile, q, factor, w, s, top);
}

// The scores of R rows for W vectors of keys, wherever in the tile these are.
template <int R, int W>
REGARD_INLINE void pair_score_vectors(const AttentionTile& tile, const uint32_t* q, float factor, const int* vectors, float* s) {
  const uint32_t* columns[W];
  for (int w = 0; w < W; ++w)
    columns[w] = static_cast<const uint32_t*>(tile.k[vectors[w] / kPanelVectors]) + kLanes * (vectors[w] % kPanelVectors);
  Tile<R, W> acc;
  clear_tile<R, W>(acc);
  const int64_t ldq = pairs(tile.head_dim);
  REGARD_UNROLL_2
  for (int64_t k = 0; k < ldq; ++k) {
    I32 key[W];
    REGARD_UNROLL
    for (int w = 0; w < W; ++w) key[w] = load_i(columns[w] + k * kPanelKeys);
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const I32 row = splat_pair(q + r * ldq + k);
      REGARD_UNROLL
      for (int w = 0; w < W; ++w) acc[r][w] = add_products(acc[r][w], row, key[w]);
    }
  }
  multiply_tile<R, W>(acc, factor);
  REGARD_UNROLL
  for (int w = 0; w < W; ++w) {
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) store(s + r * kTileKeys + kLanes * vectors[w], acc[r][w]);
  }
}
template <int R, int W>
REGARD_INLINE void pair_score_at_most(const AttentionTile& tile, int count, const uint32_t* q, float factor, const int* vectors,
                                      float* s) {
  if constexpr (W > 1)
    if (count < W) return pair_score_at_most<R, W - 1>(tile, count, q, factor, vectors, s);
  pair_score_vectors<R, W>(tile, q, factor, vectors, s);
}

// Only the vectors of 16 keys in which some row sees one: whole panels, then what is left in passes of about the same width.
// The maxima over the panels that all rows see whole go to `top`.
template <int R>
REGARD_NOINLINE void pair_scores_of_some(const AttentionTile& tile, const uint32_t* q, float factor, const Seen<R>& seen, float* s,
                                         F32* top) {
  int rest[kTileVectors], count = 0;
  for (int i = 0; i < seen.count;) {
    const int v = seen.vectors[i], w = v / kPanelVectors;
    if (v % kPanelVectors == 0 && i + kPanelVectors <= seen.count &&
        seen.vectors[i + kPanelVectors - 1] == v + kPanelVectors - 1) {
      pair_score_panel<R>(tile, q, factor, w, s, seen.all[w] == ~uint64_t{0} ? top : nullptr);
      i += kPanelVectors;
    } else {
      rest[count++] = v;
      ++i;
    }
  }
  int passes = (count + kPanelVectors - 1) / kPanelVectors;
  for (int i = 0; passes > 0; --passes) {
    const int width = (count - i + passes - 1) / passes;
    pair_score_at_most<R, kPanelVectors>(tile, width, q, factor, rest + i, s);
    i += width;
  }
}

// ---- softmax: as in attention_softmax-inl.h, with weights that are rounded to bf16. Their sum is that of the rounded ones, pairs times
// ---- pairs of ones: what rounding does to a weight then cancels where all values are alike.

inline constexpr int32_t kOnes = 0x3F803F80;

template <int R>
REGARD_INLINE void pair_softmax_of_all(const float* s, const F32* top, uint32_t* weights, float* m_out, float* l_out) {
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) m_out[r] = reduce_max(top[r]);
  F32 sum[R];
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    const F32 shift = splat(m_out[r] == -kInf ? 0.0f : m_out[r]);
    sum[r] = zero();
    REGARD_UNROLL
    for (int v = 0; v < kTileVectors; v += 2) {
      const float* at = s + r * kTileKeys + kLanes * v;
      const F32 first = exp2(sub(load(at), shift)), second = exp2(sub(load(at + kLanes), shift));
      const I32 rounded = narrow_row(first, second);
      sum[r] = add_products(sum[r], rounded, splat_i(kOnes));
      store_i(weights + r * kTilePairs + kLanes / 2 * v, rounded);
    }
  }
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) l_out[r] = reduce_add(sum[r]);
}

// The same from weights that are there, of every two vectors of which some row sees a key; they are 0 where the row does not.
template <int R>
REGARD_INLINE void round_weights(const float* p, const Seen<R>& seen, uint32_t* weights, float* l_out) {
  F32 sum[R];
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) sum[r] = zero();
  for (int v = 0; v < kTileVectors; v += 2) {
    const int w = v / kPanelVectors;
    const bool first = touched<R>(seen, w, v % kPanelVectors), second = touched<R>(seen, w, v % kPanelVectors + 1);
    if (!first && !second) continue;
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const float* at = p + r * kTileKeys + kLanes * v;
      const I32 rounded = narrow_row(first ? load(at) : zero(), second ? load(at + kLanes) : zero());
      sum[r] = add_products(sum[r], rounded, splat_i(kOnes));
      store_i(weights + r * kTilePairs + kLanes / 2 * v, rounded);
    }
  }
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) l_out[r] = reduce_add(sum[r]);
}

// ---- values

// A key that row r sees, in pairs with one that it does not see: the other's weight is 0 and its value is taken for 0, so that a
// NaN does not come through. Adding the products of zeros changes no sum but the sign of one that is 0, which the end does
// not show.
template <int R>
struct SeenPairs {
  uint64_t any[kPanelsPerTile];  // both bits of a pair of which some row sees a key,
  uint64_t all[kPanelsPerTile];  // and of one of which all rows see both keys
  alignas(64) uint32_t masks[R][kTilePairs];
};

template <int R>
REGARD_INLINE void look_at_pairs(const Seen<R>& seen, SeenPairs<R>& out) {
  constexpr uint64_t kFirst = 0x5555555555555555u;
  for (int w = 0; w < kPanelsPerTile; ++w) {
    out.any[w] = ((seen.any[w] | seen.any[w] >> 1) & kFirst) * 3;
    out.all[w] = (seen.all[w] & seen.all[w] >> 1 & kFirst) * 3;
    if (out.any[w] == 0) continue;
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const uint64_t word = seen.row[r][w];
      store_i(out.masks[r] + kPanelPairs * w, half_masks(static_cast<uint32_t>(word)));
      store_i(out.masks[r] + kPanelPairs * w + kLanes, half_masks(static_cast<uint32_t>(word >> 32)));
    }
  }
}

template <int R, int C>
REGARD_INLINE void accumulate_masked_pairs(Tile<R, C>& acc, const uint32_t* p, const uint32_t* masks, const uint32_t* values,
                                           int64_t stride, int n) {
  for (int k = 0; k < n; ++k, values += stride) {
    I32 columns[C];
    REGARD_UNROLL
    for (int c = 0; c < C; ++c) columns[c] = load_i(values + kLanes * c);
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const I32 weight = splat_pair(p + r * kTilePairs + k), mask = splat_pair(masks + r * kTilePairs + k);
      REGARD_UNROLL
      for (int c = 0; c < C; ++c) acc[r][c] = add_products(acc[r][c], weight, bit_and(columns[c], mask));
    }
  }
}

// As accumulate_seen(): runs of pairs that all rows see whole, runs that only some see, and runs that are skipped.
template <int R, int C>
REGARD_INLINE void accumulate_seen_pairs(Tile<R, C>& acc, const uint32_t* p, const AttentionTile& tile, int v,
                                         const SeenPairs<R>& seen) {
  for (int w = 0; w < kPanelsPerTile; ++w) {
    const uint64_t all = seen.all[w], any = seen.any[w];
    if (any == 0) continue;
    const uint32_t* values = static_cast<const uint32_t*>(tile.v[w]) + kLanes * v;
    const uint64_t plain = eight_in_a_row(all), nobody = eight_in_a_row(~any);
    const int end = 64 - std::countl_zero(any);
    for (int k = std::countr_zero(any), n; k < end; k += n) {  // all of these are even
      const uint32_t* weights = p + kPanelPairs * w + k / 2;
      const uint32_t* row = values + k / 2 * static_cast<int64_t>(tile.value_dim);
      if (((nobody >> k) & 1) != 0) {
        n = std::countr_zero(any >> k);
      } else if (((plain >> k) & 1) != 0) {
        n = std::countr_one(all >> k);
        accumulate_pairs<R, C>(acc, weights, kTilePairs, row, tile.value_dim, n / 2);
      } else {
        const uint64_t next = (plain | nobody) >> k;
        n = next == 0 ? end - k : (std::countr_zero(next) < end - k ? std::countr_zero(next) : end - k);
        accumulate_masked_pairs<R, C>(acc, weights, seen.masks[0] + kPanelPairs * w + k / 2, row, tile.value_dim, n / 2);
      }
    }
  }
}

// C vectors of columns of R rows from vector v on, all keys of the tile reduced in registers. Functions of their own, as in
// attention_values-inl.h.
template <int R, int C>
REGARD_NOINLINE void pair_values_of_all(const AttentionTile& tile, const uint32_t* p, int v, const FoldFactors& factors, float* o) {
  Tile<R, C> acc;
  clear_tile<R, C>(acc);
  for (int w = 0; w < kPanelsPerTile; ++w)
    accumulate_pairs<R, C>(acc, p + kPanelPairs * w, kTilePairs, static_cast<const uint32_t*>(tile.v[w]) + kLanes * v,
                           tile.value_dim, kPanelPairs);
  fold_values<R, C>(o + kLanes * v, tile.value_dim, factors.old, factors.tile, acc);
}
template <int R, int C>
REGARD_NOINLINE void pair_values_of_some(const AttentionTile& tile, const uint32_t* p, int v, const SeenPairs<R>& seen,
                                         const FoldFactors& factors, float* o) {
  Tile<R, C> acc;
  clear_tile<R, C>(acc);
  accumulate_seen_pairs<R, C>(acc, p, tile, v, seen);
  fold_values<R, C>(o + kLanes * v, tile.value_dim, factors.old, factors.tile, acc);
}

// One pass over at most C vectors of columns; returns how many it took.
template <int R, int C>
REGARD_INLINE int pair_values_pass(const AttentionTile& tile, const uint32_t* p, int v, const SeenPairs<R>* seen,
                                   const FoldFactors& factors, float* o) {
  if constexpr (C > 1)
    if (tile.value_dim / kLanes - v < C)
      return pair_values_pass<R, C == 8 ? 4 : C - 1>(tile, p, v, seen, factors, o);
  if (seen == nullptr)
    pair_values_of_all<R, C>(tile, p, v, factors, o);
  else
    pair_values_of_some<R, C>(tile, p, v, *seen, factors, o);
  return C;
}
template <int R>
void pair_values(const AttentionTile& tile, const uint32_t* p, const SeenPairs<R>* seen, const FoldFactors& factors, float* o) {
  for (int v = 0; v < tile.value_dim / kLanes;)
    v += pair_values_pass<R, kValueVectors<float, R>>(tile, p, v, seen, factors, o);
}

// ---- a few rows against one tile

template <int R>
void micro_tile(const AttentionTile& tile, const AttentionBf16Rows& rows, int first, const AttentionState& state) {
  Seen<R> seen;
  const Sight sight = look<R>(tile, first, seen);
  if (sight == Sight::kNothing) return;
  const uint32_t* q = rows.q + static_cast<int64_t>(first) * pairs(tile.head_dim);
  float* s = tile.scores;
  alignas(64) float m[kLanes] = {}, l[kLanes] = {};
  const bool changed = tile.softcap != 0.0f || tile.bias != nullptr;
  F32 top[R];
  for (int r = 0; r < R; ++r) top[r] = splat(-kInf);
  if (sight == Sight::kEverything) {
    pair_scores_of_all<R>(tile, q, rows.factor, s, top);
    if (changed) {
      for (int r = 0; r < R; ++r) {
        if (tile.softcap != 0.0f) cap_row<R>(s + r * kTileKeys, nullptr, r, tile.softcap);
        if (tile.bias != nullptr) bias_row<R>(s + r * kTileKeys, nullptr, r, tile.bias[first + r]);
      }
      maxima_of_all<R>(s, top);
    }
    pair_softmax_of_all<R>(s, top, rows.weights, m, l);
  } else {
    pair_scores_of_some<R>(tile, q, rows.factor, seen, s, top);
    for (int r = 0; r < R; ++r) {
      if (tile.softcap != 0.0f) cap_row<R>(s + r * kTileKeys, &seen, r, tile.softcap);
      if (tile.bias != nullptr) bias_row<R>(s + r * kTileKeys, &seen, r, tile.bias[first + r]);
    }
    softmax_of_some<R>(s, seen, changed ? nullptr : top, m, l);
    round_weights<R>(s, seen, rows.weights, l);
  }
  FoldFactors factors;
  fold_scales(state.m + first, state.l + first, m, l, R, factors.old, factors.tile);
  float* o = state.o + static_cast<int64_t>(first) * tile.value_dim;
  if (tile.keep != nullptr) drop<R>(tile, first, sight, seen);
  if (sight == Sight::kSome || tile.keep != nullptr) {
    SeenPairs<R> seen_pairs;
    look_at_pairs<R>(seen, seen_pairs);
    pair_values<R>(tile, rows.weights, &seen_pairs, factors, o);
  } else {
    pair_values<R>(tile, rows.weights, nullptr, factors, o);
  }
}

// Calls the template for as many rows as are left, at most kMicroRows.
template <int R>
REGARD_INLINE void tile_rows(const AttentionTile& tile, const AttentionBf16Rows& rows, int first, const AttentionState& state) {
  if constexpr (R > 1)
    if (tile.rows - first < R) return tile_rows<R - 1>(tile, rows, first, state);
  micro_tile<R>(tile, rows, first, state);
}
void attention_tile(const AttentionTile& tile, const AttentionBf16Rows& rows, const AttentionState& state) noexcept {
  for (int r = 0; r < tile.rows; r += kMicroRows) tile_rows<kMicroRows>(tile, rows, r, state);
}

// ---- packing

void pack_queries(const float* const* q, int rows, int head_dim, uint32_t* out) noexcept {
  for (int r = 0; r < rows; ++r) pack_row(q[r], head_dim, out + static_cast<int64_t>(r) * pairs(head_dim));
}

void pack_keys(const float* keys, int64_t stride, int count, int head_dim, uint32_t* panel, int column) noexcept {
  pack_turned(keys, stride, count, head_dim, panel + column, kPanelKeys);
}

void pack_values(const float* values, int64_t stride, int count, int value_dim, uint32_t* block, int first) noexcept {
  const int padded = padded_dim(value_dim);
  for (int j = first; j < first + count;) {
    const bool low = j % 2 == 0, high = !low || j + 1 < first + count;  // which keys of the pair are written
    const float* x = values + (j - first) * stride;
    uint32_t* to = block + static_cast<int64_t>(j / 2) * padded;
    for (int c = 0; c < padded; c += kLanes) {
      const int n = value_dim - c < kLanes ? value_dim - c : kLanes;
      const F32 a = low ? load_first(x + c, n) : zero();
      const F32 b = high ? load_first(x + c + (low ? stride : 0), n) : zero();
      I32 pair = narrow_rows(a, b);
      if (!low || !high) {
        const I32 kept = bit_and(load_i(to + c), splat_i(static_cast<int32_t>(low ? 0xFFFF0000u : 0x0000FFFFu)));
        pair = bit_or(pair, kept);
      }
      store_i(to + c, pair);
    }
    j += low && high ? 2 : 1;
  }
}

}  // namespace

extern const AttentionBf16Kernels kAttentionBf16;
const AttentionBf16Kernels kAttentionBf16 = {
    .pack_queries = pack_queries,
    .pack_keys = pack_keys,
    .pack_values = pack_values,
    .tile = attention_tile,
};
