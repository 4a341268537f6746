// Norms of a row, forward; training keeps the statistics (null: they are not wanted). Included inside an instruction set's region,
// behind rows-inl.h.

namespace {

void rms_norm_with_stats(const float* x, const float* weight, float eps, int64_t n, float* y, NormStats<float>* stats) noexcept {
  F32 squares = zero();
  for (int64_t i = 0; i < n; i += 16) {
    const F32 v = load_upto(x, i, n);
    squares = fma(v, v, squares);
  }
  const float rstd = 1.0f / __builtin_sqrtf(reduce_add(squares) / static_cast<float>(n) + eps);
  if (stats != nullptr) *stats = {0.0f, rstd};
  const F32 factor = splat(rstd);
  for (int64_t i = 0; i < n; i += 16) {
    F32 v = mul(load_upto(x, i, n), factor);
    if (weight != nullptr) v = mul(v, load_upto(weight, i, n));
    store_upto(y, i, n, v);
  }
}

void layer_norm_with_stats(const float* x, const float* weight, const float* bias, float eps, int64_t n, float* y,
                           NormStats<float>* stats) noexcept {
  F32 sum = zero();
  for (int64_t i = 0; i < n; i += 16) sum = add(sum, load_upto(x, i, n));
  const float average = reduce_add(sum) / static_cast<float>(n);
  const F32 mean = splat(average);
  F32 squares = zero();
  for (int64_t i = 0; i < n; i += 16) {
    F32 v = sub(load_upto(x, i, n), mean);
    if (i + 16 > n) v = select(lanes((1u << (n - i)) - 1u), v, zero());  // the absent lanes hold -mean now
    squares = fma(v, v, squares);
  }
  const float rstd = 1.0f / __builtin_sqrtf(reduce_add(squares) / static_cast<float>(n) + eps);
  if (stats != nullptr) *stats = {average, rstd};
  const F32 factor = splat(rstd);
  for (int64_t i = 0; i < n; i += 16) {
    F32 v = mul(sub(load_upto(x, i, n), mean), factor);
    if (weight != nullptr) v = mul(v, load_upto(weight, i, n));
    if (bias != nullptr) v = add(v, load_upto(bias, i, n));
    store_upto(y, i, n, v);
  }
}

}  // namespace
