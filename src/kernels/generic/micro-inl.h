// The register tile that everything dense runs on: R rows by W vectors of sums stay in registers while k runs over the
// inner dimension. Linear layers, scores and weighted sums of values all use it, with R up to kMicroRows and W up to
// kMicroVecs of the instruction set (more of either spills).
//
// Each sum is one chain of fma() in rising k that starts from what the tile holds, so its bits do not depend on R, on W,
// or on where the inner dimension was cut.

// The sums of R rows by W vectors of 16 columns.
template <int R, int W>
using Tile = F32[R][W];

template <int R, int W>
REGARD_INLINE void clear_tile(Tile<R, W>& acc) {
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    REGARD_UNROLL
    for (int w = 0; w < W; ++w) acc[r][w] = zero();
  }
}

// acc[r][w] = acc[r][w] + x[r * ldx + k] * b[k * ldb + 16 w ...] for k = 0 .. n-1.
template <int R, int W>
REGARD_INLINE void accumulate_tile(Tile<R, W>& acc, const float* x, int64_t ldx, const float* b, int64_t ldb, int64_t n) {
  REGARD_UNROLL_2
  for (int64_t k = 0; k < n; ++k, b += ldb) {
    F32 columns[W];
    REGARD_UNROLL
    for (int w = 0; w < W; ++w) columns[w] = load(b + 16 * w);
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const F32 row = splat(x[r * ldx + k]);
      REGARD_UNROLL
      for (int w = 0; w < W; ++w) acc[r][w] = fma(row, columns[w], acc[r][w]);
    }
  }
}

// How many lanes of vector w lie below `columns`.
REGARD_INLINE int lanes_below(int columns, int w) {
  const int n = columns - 16 * w;
  return n < 0 ? 0 : n > 16 ? 16 : n;
}

// The first `columns` columns of each row from and to memory; the others read as 0 and are not written.
template <int R, int W>
REGARD_INLINE void load_tile(Tile<R, W>& acc, const float* y, int64_t ldy, int columns = 16 * W) {
  if (columns >= 16 * W) {
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      REGARD_UNROLL
      for (int w = 0; w < W; ++w) acc[r][w] = load(y + r * ldy + 16 * w);
    }
  } else {
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      REGARD_UNROLL
      for (int w = 0; w < W; ++w) acc[r][w] = load_first(y + r * ldy + 16 * w, lanes_below(columns, w));
    }
  }
}
template <int R, int W>
REGARD_INLINE void store_tile(const Tile<R, W>& acc, float* y, int64_t ldy, int columns = 16 * W) {
  if (columns >= 16 * W) {
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      REGARD_UNROLL
      for (int w = 0; w < W; ++w) store(y + r * ldy + 16 * w, acc[r][w]);
    }
  } else {
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      REGARD_UNROLL
      for (int w = 0; w < W; ++w) store_first(y + r * ldy + 16 * w, acc[r][w], lanes_below(columns, w));
    }
  }
}
