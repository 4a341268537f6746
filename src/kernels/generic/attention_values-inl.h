// Weighted sums of values, and folding them into the running result. Part of attention-inl.h.

// acc[r][c] += p[r][k] * v[k] for keys that only some rows see: bit `shift + k` of seen[r]. A forbidden value must not
// be multiplied even by a weight of 0 (0 * NaN), so the sums of that row are left alone.
template <int R, int C>
REGARD_INLINE void accumulate_some(Tile<R, C>& acc, const float* p, const float* v, int64_t stride, int n,
                                   const uint64_t (&seen)[R], int shift) {
  for (int k = 0; k < n; ++k, v += stride) {
    F32 columns[C];
    REGARD_UNROLL
    for (int c = 0; c < C; ++c) columns[c] = load(v + kLanes * c);
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const bool sees = ((seen[r] >> (shift + k)) & 1) != 0;
      const F32 weight = splat(p[r * kTileKeys + k]);
      REGARD_UNROLL
      for (int c = 0; c < C; ++c) acc[r][c] = fma_if(sees, weight, columns[c], acc[r][c]);
    }
  }
}

// Runs of keys that all R rows see go through the plain loop, runs that only some see through the masked one; keys that
// no row sees are skipped, whatever lies there.
template <int R, int C>
REGARD_INLINE void accumulate_seen(Tile<R, C>& acc, const float* p, const AttentionTile& tile, int column,
                                   const Seen<R>& seen) {
  for (int w = 0; w < kPanelsPerTile; ++w) {
    const float* v = tile.v[w] + column;
    const float* weights = p + kPanelKeys * w;
    const uint64_t all = seen.all[w];
    uint64_t left = seen.any[w];
    while (left != 0) {
      const int k = std::countr_zero(left);
      const bool everyone = ((all >> k) & 1) != 0;
      const int n = everyone ? std::countr_one(all >> k) : std::countr_one((left & ~all) >> k);
      const float* row = v + static_cast<int64_t>(k) * tile.value_dim;
      if (everyone)
        accumulate_tile<R, C>(acc, weights + k, kTileKeys, row, tile.value_dim, n);
      else
        accumulate_some<R, C>(acc, weights + k, row, tile.value_dim, n, seen.row[w], k);
      left = k + n == 64 ? 0 : left & (~uint64_t{0} << (k + n));
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

// ---- C vectors of columns of R rows, all keys of the tile reduced in registers. Functions of their own: inside a larger
// one the compiler runs out of registers and spills sums in the inner loop.
// -----------------------------------------
template <int R, int C>
REGARD_NOINLINE void values_of_all(const AttentionTile& tile, const float* p, int column, const FoldFactors& factors,
                                 float* o) {
  Tile<R, C> acc;
  clear_tile<R, C>(acc);
  for (int w = 0; w < kPanelsPerTile; ++w)
    accumulate_tile<R, C>(acc, p + kPanelKeys * w, kTileKeys, tile.v[w] + column, tile.value_dim, kPanelKeys);
  fold_values<R, C>(o + column, tile.value_dim, factors.old, factors.tile, acc);
}

// The same, fetching the next tile's keys meanwhile: of each panel, the share that these columns are of all columns.
template <int R, int C>
REGARD_NOINLINE void values_of_all_ahead(const AttentionTile& tile, const float* p, int column,
                                       const FoldFactors& factors, float* o) {
  Tile<R, C> acc;
  clear_tile<R, C>(acc);
  for (int w = 0; w < kPanelsPerTile; ++w)
    accumulate_ahead<R, C, C>(acc, p + kPanelKeys * w, kTileKeys, tile.v[w] + column, tile.value_dim, kPanelKeys,
                              tile.next[w] + static_cast<int64_t>(column) * kPanelKeys);
  fold_values<R, C>(o + column, tile.value_dim, factors.old, factors.tile, acc);
}

template <int R, int C>
REGARD_NOINLINE void values_of_some(const AttentionTile& tile, const float* p, int column, const Seen<R>& seen,
                                  const FoldFactors& factors, float* o) {
  Tile<R, C> acc;
  clear_tile<R, C>(acc);
  accumulate_seen<R, C>(acc, p, tile, column, seen);
  fold_values<R, C>(o + column, tile.value_dim, factors.old, factors.tile, acc);
}

// How many vectors of columns R rows take at once: as many as the registers allow, so that few rows read a value once.
template <int R>
inline constexpr int kValueVectors = kRegisters / (R + 1) >= 8 ? 8 : kScoreVectors<R>;

enum class Way { kAll, kAllAhead, kSome };

// One pass over at most C vectors of columns; returns how many it took. Widths between 4 and 8 are taken as 4 and the
// rest.
template <Way W, int R, int C>
REGARD_INLINE int values_pass(const AttentionTile& tile, const float* p, int column, const Seen<R>& seen,
                              const FoldFactors& factors, float* o) {
  if constexpr (C > 1)
    if (tile.value_dim - column < kLanes * C)
      return values_pass < W, R, C == 8 ? 4 : C - 1 > (tile, p, column, seen, factors, o);
  if constexpr (W == Way::kAll)
    values_of_all<R, C>(tile, p, column, factors, o);
  else if constexpr (W == Way::kAllAhead)
    values_of_all_ahead<R, C>(tile, p, column, factors, o);
  else
    values_of_some<R, C>(tile, p, column, seen, factors, o);
  return C;
}

template <Way W, int R>
void values(const AttentionTile& tile, const float* p, const Seen<R>& seen, const FoldFactors& factors, float* o) {
  for (int column = 0; column < tile.value_dim;)
    column += kLanes * values_pass<W, R, kValueVectors<R>>(tile, p, column, seen, factors, o);
}
