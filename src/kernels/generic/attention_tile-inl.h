// A few rows against one tile, for every type that stores keys and values. Read micro_tile() first: scores, softmax and values.
// Included inside an anonymous namespace, after attention_types-inl.h.

#include "kernels/generic/attention_store-inl.h"
#include "kernels/generic/attention_ahead-inl.h"
#include "kernels/generic/attention_scores-inl.h"
#include "kernels/generic/attention_softmax-inl.h"
#include "kernels/generic/attention_values-inl.h"

template <class T, int R>
void micro_tile(const AttentionTile& tile, int first, FiniteValues<T>& finite_values, const AttentionState& state) {
  Seen<R> seen;
  const Sight sight = look<R>(tile, first, seen);
  if (sight == Sight::kNothing) return;
  const float* q = tile.q + static_cast<int64_t>(first) * tile.head_dim;
  float* s = tile.scores;
  const bool ahead = fetch_ahead<T, R>(tile, first);
  alignas(64) float m[kLanes] = {}, l[kLanes] = {};
  unsigned finite = 0;
  F32 top[R];
  for (int r = 0; r < R; ++r) top[r] = splat(-kInf);
  if (sight == Sight::kEverything) {
    if (ahead)
      scores_of_all_ahead<T, R>(tile, q, s, top);
    else
      scores_of_all<T, R>(tile, q, s, top);
    if (tile.softcap != 0.0f || tile.bias != nullptr) {
      for (int r = 0; r < R; ++r) {
        if (tile.softcap != 0.0f) cap_row<R>(s + r * kTileKeys, nullptr, r, tile.softcap);
        if (tile.bias != nullptr) bias_row<R>(s + r * kTileKeys, nullptr, r, tile.bias[first + r]);
      }
      maxima_of_all<R>(s, top);
    }
    if (has_scales(kTypeOf<T>) && ahead) fetch_scales<T>(tile);
    softmax_of_all<R>(s, top, m, l);
  } else {
    const bool changed = tile.softcap != 0.0f || tile.bias != nullptr;
    scores_of_some<T, R>(tile, q, seen, s, top);
    for (int r = 0; r < R; ++r) {
      if (tile.softcap != 0.0f) cap_row<R>(s + r * kTileKeys, &seen, r, tile.softcap);
      if (tile.bias != nullptr) bias_row<R>(s + r * kTileKeys, &seen, r, tile.bias[first + r]);
    }
    softmax_of_some<R>(s, seen, changed ? nullptr : top, m, l);
    for (int w = 0; w < kPanelsPerTile; ++w)
      if (seen.any[w] != seen.all[w] && tile.keep == nullptr && finite_values.of(tile, w)) finite |= 1u << w;
  }
  weigh_codes<T, R>(tile, sight == Sight::kEverything ? nullptr : &seen, s);
  FoldFactors factors;
  fold_scales(state.m + first, state.l + first, m, l, R, factors.old, factors.tile);
  float* o = state.o + static_cast<int64_t>(first) * tile.value_dim;
  if (tile.keep != nullptr) drop<R>(tile, first, sight, seen);
  if (sight == Sight::kSome || tile.keep != nullptr)
    values<Way::kSome, T, R>(tile, s, seen, finite, factors, o);
  else if (ahead)
    values<Way::kAllAhead, T, R>(tile, s, seen, finite, factors, o);
  else
    values<Way::kAll, T, R>(tile, s, seen, finite, factors, o);
}

// The weights that micro_tile() would use, against a sum over all tiles that is known by now.
template <class T, int R>
void micro_weights(const AttentionTile& tile, int first, const float* lse_high, const float* lse_low, float* out) {
  Seen<R> seen;
  const Sight sight = look<R>(tile, first, seen);
  const float* q = tile.q + static_cast<int64_t>(first) * tile.head_dim;
  float* s = tile.scores;
  if (sight == Sight::kEverything)
    scores_of_all<T, R>(tile, q, s, nullptr);
  else if (sight == Sight::kSome)
    scores_of_some<T, R>(tile, q, seen, s, nullptr);
  for (int r = 0; r < R; ++r) {
    float* row = out + static_cast<int64_t>(first + r) * kTileKeys;
    const bool empty = sight == Sight::kNothing || lse_high[first + r] == -kInf;
    const F32 high = splat(lse_high[first + r]), low = splat(lse_low[first + r]), cap = splat(tile.softcap);
    for (int v = 0; v < kTileKeys / kLanes; ++v) {
      const uint64_t word = empty ? 0 : sight == Sight::kEverything ? ~uint64_t{0} : seen.row[r][v / 4];
      const uint32_t bits = static_cast<uint32_t>(word >> (kLanes * (v % 4))) & 0xFFFF;
      F32 p = zero();
      if (bits != 0) {
        const F32 raw = load(s + r * kTileKeys + kLanes * v);
        F32 score = tile.softcap != 0.0f ? capped(raw, cap) : raw;
        if (tile.bias != nullptr) score = biased(score, load(tile.bias[first + r] + kLanes * v));
        p = select(lanes(bits), exp2(sub(sub(score, high), low)), zero());
      }
      store(row + kLanes * v, p);
    }
  }
}

// Calls the template for as many rows as are left, at most kMicroRows.
template <class T, int R>
REGARD_INLINE void tile_rows(const AttentionTile& tile, int first, FiniteValues<T>& finite, const AttentionState& state) {
  if constexpr (R > 1)
    if (tile.rows - first < R) return tile_rows<T, R - 1>(tile, first, finite, state);
  micro_tile<T, R>(tile, first, finite, state);
}
template <class T, int R>
REGARD_INLINE void weight_rows(const AttentionTile& tile, int first, const float* lse_high, const float* lse_low,
                               float* out) {
  if constexpr (R > 1)
    if (tile.rows - first < R) return weight_rows<T, R - 1>(tile, first, lse_high, lse_low, out);
  micro_weights<T, R>(tile, first, lse_high, lse_low, out);
}

template <class T>
void tile_of(const AttentionTile& tile, const AttentionState& state) {
  FiniteValues<T> finite(tile);
  for (int r = 0; r < tile.rows; r += kMicroRows) tile_rows<T, kMicroRows>(tile, r, finite, state);
}
template <class T>
void weights_of(const AttentionTile& tile, const float* lse_high, const float* lse_low, float* out) {
  for (int r = 0; r < tile.rows; r += kMicroRows) weight_rows<T, kMicroRows>(tile, r, lse_high, lse_low, out);
}

template <class T>
inline constexpr StoredKernels kKernelsOf{tile_of<T>, weights_of<T>};
