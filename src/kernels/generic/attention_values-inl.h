// Weighted sums of values, and folding them into the running result. Part of attention_tile-inl.h.

// acc[r][c] += p[r][k] * value k (its vector v + c) for keys that only some rows see: bit `shift + k` of panel w of seen. A
// forbidden value must not be multiplied even by a weight of 0 (0 * NaN), so the sums of that row are left alone.
template <class T, class S, int R, int C>
REGARD_INLINE void accumulate_some(Tile<R, C>& acc, const float* p, const T* values, const S& scales, int v,
                                   int64_t stride, int n, const Seen<R>& seen, int w, int shift) {
  for (int k = 0; k < n; ++k, values += stride) {
    F32 columns[C];
    REGARD_UNROLL
    for (int c = 0; c < C; ++c) columns[c] = scaled(stored(values, v + c), scales, k, v + c);
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const bool sees = ((seen.row[r][w] >> (shift + k)) & 1) != 0;
      const F32 weight = splat(p[r * kTileKeys + k]);
      REGARD_UNROLL
      for (int c = 0; c < C; ++c) acc[r][c] = fma_if(sees, weight, columns[c], acc[r][c]);
    }
  }
}

// Bit i of the result: the bits i .. i+7 are all set. (Behind the last bit counts as not set.)
REGARD_INLINE uint64_t eight_in_a_row(uint64_t bits) {
  bits &= bits >> 1;
  bits &= bits >> 2;
  return bits & bits >> 4;
}

// Whether the values of panel w are finite: 0 times a number is 0, times anything else it is NaN. Several sums, so that one
// need not wait for the other.
template <class T>
REGARD_NOINLINE bool values_are_finite(const AttentionTile& tile, int w) {
  constexpr int kSums = 4;
  const auto* values = static_cast<const T*>(tile.v[w]);
  const int64_t stride = stored_dim(kTypeOf<T>, tile.value_dim);
  F32 sums[kSums];
  REGARD_UNROLL
  for (int i = 0; i < kSums; ++i) sums[i] = zero();
  for (int k = 0; k < kPanelKeys; k += kSums, values += kSums * stride)
    for (int v = 0; v < tile.value_dim / kLanes; ++v) {
      REGARD_UNROLL
      for (int i = 0; i < kSums; ++i) sums[i] = fma(stored(values + i * stride, v), zero(), sums[i]);
    }
  return reduce_add(add(add(sums[0], sums[1]), add(sums[2], sums[3]))) == 0.0f;
}

// The same, found out when it is first asked for. Of finite values a forbidden one may be multiplied by its weight of 0: that
// adds a zero, which no result shows. So rows that see different keys of such a panel go through the plain loop. One look at
// each value pays when many rows share it.
template <class T>
class FiniteValues {
 public:
  explicit FiniteValues(const AttentionTile& tile) : worth_it_(tile.rows >= kWorthALook && !has_scales(kTypeOf<T>)) {}

  bool of(const AttentionTile& tile, int w) {
    if (!worth_it_) return false;
    if (state_[w] == kUnknown) state_[w] = values_are_finite<T>(tile, w) ? kFinite : kOther;
    return state_[w] == kFinite;
  }

 private:
  static constexpr int kWorthALook = 24;
  enum State : uint8_t { kUnknown, kFinite, kOther };

  bool worth_it_;
  State state_[kPanelsPerTile] = {};
};

// The weights of a vector in which no row sees a key were never written; those of every other vector are 0 or more.
template <class T, int R, int C>
REGARD_INLINE void accumulate_touched(Tile<R, C>& acc, const float* weights, const T* values, int v, int64_t stride,
                                      uint64_t any) {
  uint64_t vectors = 0;
  for (uint64_t vector = 0xFFFF; vector != 0; vector <<= kLanes) vectors |= (any & vector) != 0 ? vector : 0;
  const int end = 64 - std::countl_zero(any);
  for (int k = std::countr_zero(any); k < end;) {
    const int run = std::countr_one(vectors >> k), n = run < end - k ? run : end - k;
    accumulate_stored(acc, weights + k, kTileKeys, values + k * stride, NoScales{}, v, stride, n);
    k += n;
    if (k < end) k += std::countr_zero(any >> k);
  }
}

// Runs of keys that all R rows see go through the plain loop, runs that only some see through the masked one, and runs
// that no row sees are skipped. A run of less than eight keys is not worth leaving the masked loop for. Bit w of `finite`:
// the values of panel w are, and weights are 0 where a row sees nothing.
template <class T, int R, int C>
REGARD_INLINE void accumulate_seen(Tile<R, C>& acc, const float* p, const AttentionTile& tile, int v,
                                   const Seen<R>& seen, unsigned finite) {
  const int64_t stride = stored_dim(kTypeOf<T>, tile.value_dim);
  for (int w = 0; w < kPanelsPerTile; ++w) {
    const float* weights = p + kPanelKeys * w;
    const uint64_t all = seen.all[w], any = seen.any[w];
    if (any == 0) continue;
    if (((finite >> w) & 1) != 0) {
      accumulate_touched<T, R, C>(acc, weights, static_cast<const T*>(tile.v[w]), v, stride, any);
      continue;
    }
    const auto scales = value_scales<T>(tile, w);
    const uint64_t plain = eight_in_a_row(all), nobody = eight_in_a_row(~any);
    const int end = 64 - std::countl_zero(any);
    for (int k = std::countr_zero(any); k < end;) {
      const T* row = static_cast<const T*>(tile.v[w]) + k * stride;
      int n;
      if (((nobody >> k) & 1) != 0) {
        n = std::countr_zero(any >> k);
      } else if (((plain >> k) & 1) != 0) {
        n = std::countr_one(all >> k);
        accumulate_stored(acc, weights + k, kTileKeys, row, from_row(scales, k), v, stride, n);
      } else {
        const uint64_t next = (plain | nobody) >> k;
        n = next == 0 ? end - k : (std::countr_zero(next) < end - k ? std::countr_zero(next) : end - k);
        accumulate_some(acc, weights + k, row, from_row(scales, k), v, stride, n, seen, w, k);
      }
      k += n;
    }
  }
}

// ---- folding: M' = max(M, m), L' = fma(L, a, l b), O' = fma(O, a, o b) with a = 2^(M - M'), b = 2^(m - M')
// ------------ One of a and b is 1. While nothing was seen, M' is -inf and 0 is subtracted instead.

// The factors of the first `rows` rows, and their M and L.
REGARD_INLINE void fold_scales(float* M, float* L, const float* m, const float* l, int rows, float* a, float* b) {
  const F32 m_old = load(M), m_tile = load(m);
  const F32 m_new = max(m_old, m_tile), shift = finite_or_zero(m_new);
  const F32 old_factor = exp2(sub(m_old, shift)), tile_factor = exp2(sub(m_tile, shift));
  store(a, old_factor);
  store(b, tile_factor);
  store_first(M, m_new, rows);
  store_first(L, fma(load(L), old_factor, mul(load(l), tile_factor)), rows);
}

template <int R, int C>
REGARD_INLINE void fold_values(float* o, int64_t stride, const float* a, const float* b, const Tile<R, C>& acc) {
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    const F32 old_factor = splat(a[r]), tile_factor = splat(b[r]);
    REGARD_UNROLL
    for (int c = 0; c < C; ++c) {
      float* at = o + r * stride + kLanes * c;
      store(at, fma(load(at), old_factor, mul(acc[r][c], tile_factor)));
    }
  }
}

struct FoldFactors {
  alignas(64) float old[kLanes];
  alignas(64) float tile[kLanes];
};

// Lets the compiler know it.
template <class T, int C>
REGARD_INLINE int first_of_pair(int v) {
  return kTypeOf<T> == DType::kBF16 && C > 1 ? v & ~1 : v;
}

// ---- C vectors of columns of R rows, all keys of the tile reduced in registers. Functions of their own: inside a
// larger one the compiler runs out of registers and spills sums in the inner loop.
template <class T, int R, int C>
REGARD_NOINLINE void values_of_all(const AttentionTile& tile, const float* p, int v, const FoldFactors& factors,
                                   float* o) {
  Tile<R, C> acc;
  clear_tile<R, C>(acc);
  for (int w = 0; w < kPanelsPerTile; ++w)
    accumulate_stored(acc, p + kPanelKeys * w, kTileKeys, static_cast<const T*>(tile.v[w]), value_scales<T>(tile, w),
                      first_of_pair<T, C>(v), stored_dim(kTypeOf<T>, tile.value_dim), kPanelKeys);
  fold_values<R, C>(o + kLanes * v, tile.value_dim, factors.old, factors.tile, acc);
}

// The same, fetching ahead.
template <class T, int R, int C>
REGARD_NOINLINE void values_of_all_ahead(const AttentionTile& tile, const float* p, int v, const FoldFactors& factors,
                                         float* o) {
  constexpr int kLines = (C * static_cast<int>(sizeof(T)) + 3) / 4;
  Tile<R, C> acc;
  clear_tile<R, C>(acc);
  for (int w = 0; w < kPanelsPerTile; ++w)
    accumulate_ahead<kLines>(acc, p + kPanelKeys * w, kTileKeys, static_cast<const T*>(tile.v[w]), value_scales<T>(tile, w),
                             first_of_pair<T, C>(v), stored_dim(kTypeOf<T>, tile.value_dim), kPanelKeys,
                             ahead_of_values<T, R>(tile, w));
  fold_values<R, C>(o + kLanes * v, tile.value_dim, factors.old, factors.tile, acc);
}

template <class T, int R, int C>
REGARD_NOINLINE void values_of_some(const AttentionTile& tile, const float* p, int v, const Seen<R>& seen, unsigned finite,
                                    const FoldFactors& factors, float* o) {
  Tile<R, C> acc;
  clear_tile<R, C>(acc);
  accumulate_seen<T, R, C>(acc, p, tile, first_of_pair<T, C>(v), seen, finite);
  fold_values<R, C>(o + kLanes * v, tile.value_dim, factors.old, factors.tile, acc);
}

// The same for values that need several passes: all columns of some rows, then of the next, with the sums in memory between.
template <class T, int R, int C>
REGARD_NOINLINE void values_of_rows(const AttentionTile& tile, const float* p, int64_t row, int64_t n, int v, float* sums) {
  constexpr int kLines = (C * static_cast<int>(sizeof(T)) + 3) / 4;
  const int panel = static_cast<int>(row / kPanelKeys);
  const int64_t ldv = stored_dim(kTypeOf<T>, tile.value_dim), in_panel = row % kPanelKeys;
  Tile<R, C> acc;
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    REGARD_UNROLL
    for (int c = 0; c < C; ++c) acc[r][c] = row == 0 ? zero() : load(sums + r * tile.value_dim + kLanes * (v + c));
  }
  accumulate_ahead<kLines>(acc, p + row, kTileKeys, static_cast<const T*>(tile.v[panel]) + in_panel * ldv,
                           from_row(value_scales<T>(tile, panel), in_panel), first_of_pair<T, C>(v), ldv, n,
                           ahead_of_pass<T, R, kLines>(tile, row, n, v));
  store_tile<R, C>(acc, sums + kLanes * v, tile.value_dim);
}
template <class T, int R, int C>
REGARD_INLINE int rows_pass(const AttentionTile& tile, const float* p, int64_t row, int64_t n, int v, float* sums) {
  if constexpr (C > 1)
    if (tile.value_dim / kLanes - v < C) return rows_pass < T, R, C == 8 ? 4 : C - 1 > (tile, p, row, n, v, sums);
  values_of_rows<T, R, C>(tile, p, row, n, v, sums);
  return C;
}
template <class T, int R>
REGARD_NOINLINE void values_by_rows(const AttentionTile& tile, const float* p, const FoldFactors& factors, float* o) {
  alignas(64) float sums[R * kMaxHeadDim];
  const int64_t n = rows_at_once<T>(tile);
  for (int64_t row = 0; row < kTileKeys; row += n)
    for (int v = 0; v < tile.value_dim / kLanes;) v += rows_pass<T, R, kValueVectors<T, R>>(tile, p, row, n, v, sums);
  for (int v = 0; v < tile.value_dim / kLanes; ++v) {
    Tile<R, 1> acc;
    for (int r = 0; r < R; ++r) acc[r][0] = load(sums + r * tile.value_dim + kLanes * v);
    fold_values<R, 1>(o + kLanes * v, tile.value_dim, factors.old, factors.tile, acc);
  }
}

enum class Way { kAll, kAllAhead, kSome };

// One pass over at most C vectors of columns; returns how many it took. Widths between 4 and 8 are taken as 4 and the
// rest.
template <Way W, class T, int R, int C>
REGARD_INLINE int values_pass(const AttentionTile& tile, const float* p, int v, const Seen<R>& seen, unsigned finite,
                              const FoldFactors& factors, float* o) {
  if constexpr (C > 1)
    if (tile.value_dim / kLanes - v < C)
      return values_pass < W, T, R, C == 8 ? 4 : C - 1 > (tile, p, v, seen, finite, factors, o);
  if constexpr (W == Way::kAll)
    values_of_all<T, R, C>(tile, p, v, factors, o);
  else if constexpr (W == Way::kAllAhead)
    values_of_all_ahead<T, R, C>(tile, p, v, factors, o);
  else
    values_of_some<T, R, C>(tile, p, v, seen, finite, factors, o);
  return C;
}

template <Way W, class T, int R>
void values(const AttentionTile& tile, const float* p, const Seen<R>& seen, unsigned finite, const FoldFactors& factors,
            float* o) {
  if constexpr (W == Way::kAllAhead)
    if (value_passes<T, R>(tile) > 1) return values_by_rows<T, R>(tile, p, factors, o);
  for (int v = 0; v < tile.value_dim / kLanes;)
    v += values_pass<W, T, R, kValueVectors<T, R>>(tile, p, v, seen, finite, factors, o);
}
