// Gradients of norms: of the input row by row, of gain and bias column by column. training.h has the formulas. Included inside an
// instruction set's region, behind rows-inl.h.

namespace {

enum class Centred { kYes, kNo };  // LayerNorm subtracts the mean, RMSNorm does not

// Lanes beyond n have dy = 0, and so add nothing to the sums.
template <Centred C>
void norm_backward_row(const float* x, const float* weight, const float* dy, const NormStats<float>* stats, int64_t n, float* dx,
                       Accumulate accumulate) noexcept {
  const F32 mean = splat(stats->mean), rstd = splat(stats->rstd);
  F32 sum = zero(), along = zero();
  for (int64_t i = 0; i < n; i += 16) {
    F32 g = load_upto(dy, i, n);
    if (weight != nullptr) g = mul(g, load_upto(weight, i, n));
    sum = add(sum, g);
    along = fma(g, mul(sub(load_upto(x, i, n), mean), rstd), along);
  }
  const auto count = static_cast<float>(n);
  const F32 shift = C == Centred::kYes ? splat(reduce_add(sum) / count) : zero(), slope = splat(reduce_add(along) / count);
  for (int64_t i = 0; i < n; i += 16) {
    F32 g = load_upto(dy, i, n);
    if (weight != nullptr) g = mul(g, load_upto(weight, i, n));
    const F32 h = mul(sub(load_upto(x, i, n), mean), rstd);
    const F32 d = sub(sub(g, shift), mul(h, slope));
    store_upto(dx, i, n, fma(d, rstd, accumulate == Accumulate::kAdd ? load_upto(dx, i, n) : zero()));
  }
}

// V vectors of columns, all rows: their chains run side by side.
template <int V>
void norm_backward_columns(const float* x, const float* dy, int64_t ld, const NormStats<float>* stats, int64_t rows, int64_t n, float* dweight,
                           float* dbias) {
  F32 gain[V], bias[V];
  REGARD_UNROLL
  for (int v = 0; v < V; ++v) {
    gain[v] = dweight != nullptr && 16 * v < n ? load_upto(dweight, 16 * v, n) : zero();
    bias[v] = dbias != nullptr && 16 * v < n ? load_upto(dbias, 16 * v, n) : zero();
  }
  for (int64_t r = 0; r < rows; ++r, x += ld, dy += ld) {
    const F32 mean = splat(stats[r].mean), rstd = splat(stats[r].rstd);
    REGARD_UNROLL
    for (int v = 0; v < V; ++v) {
      if (16 * v >= n) continue;
      const F32 g = load_upto(dy, 16 * v, n);
      gain[v] = fma(g, mul(sub(load_upto(x, 16 * v, n), mean), rstd), gain[v]);
      bias[v] = add(bias[v], g);
    }
  }
  REGARD_UNROLL
  for (int v = 0; v < V; ++v) {
    if (16 * v >= n) continue;
    if (dweight != nullptr) store_upto(dweight, 16 * v, n, gain[v]);
    if (dbias != nullptr) store_upto(dbias, 16 * v, n, bias[v]);
  }
}

void norm_backward_weight(const float* x, const float* dy, int64_t ld, const NormStats<float>* stats, int64_t rows, int64_t columns, float* dweight,
                          float* dbias) noexcept {
  constexpr int kVecs = kVectors >= 32 ? 4 : 1;
  for (int64_t j = 0; j < columns; j += 16 * kVecs)
    norm_backward_columns<kVecs>(x + j, dy + j, ld, stats, rows, columns - j < 16 * kVecs ? columns - j : 16 * kVecs,
                                 dweight == nullptr ? nullptr : dweight + j, dbias == nullptr ? nullptr : dbias + j);
}

}  // namespace
