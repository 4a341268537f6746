// The register tile of micro-inl.h on pairs of bf16: scores and weighted sums of values use it.
//
// Each sum is one chain over the pairs in rising order, so its bits do not depend on R, on W, or on where the pairs were cut.

// acc[r][w] += x[r * ldx + k] . b[k * ldb + 16 w ...] for the pairs k = 0 .. n-1.
template <int R, int W>
REGARD_INLINE void accumulate_pairs(Tile<R, W>& acc, const uint32_t* x, int64_t ldx, const uint32_t* b, int64_t ldb,
                                    int64_t n) {
  REGARD_UNROLL_2
  for (int64_t k = 0; k < n; ++k, b += ldb) {
    I32 columns[W];
    REGARD_UNROLL
    for (int w = 0; w < W; ++w) columns[w] = load_i(b + 16 * w);
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const I32 row = splat_pair(x + r * ldx + k);
      REGARD_UNROLL
      for (int w = 0; w < W; ++w) acc[r][w] = add_products(acc[r][w], row, columns[w]);
    }
  }
}
