// Optimisers in one pass over flat spans, and sums of squares. Every element is computed by itself, so spans may be cut anywhere.
// Included inside an instruction set's region, behind rows-inl.h.

namespace {

// The square roots of all lanes; memory bounds this pass, so it takes what the compiler makes of a plain loop.
REGARD_INLINE F32 square_root(F32 x) {
  float lane[16];
  store(lane, x);
  REGARD_UNROLL
  for (int i = 0; i < 16; ++i) lane[i] = __builtin_sqrtf(lane[i]);
  return load(lane);
}

void adamw_span(const AdamWStep& step, const float* gradient, int64_t n, float* value, float* m, float* v) noexcept {
  const F32 scale = splat(static_cast<float>(step.gradient_factor));
  const F32 beta1 = splat(static_cast<float>(step.beta1)), rest1 = splat(static_cast<float>(1 - step.beta1));
  const F32 beta2 = splat(static_cast<float>(step.beta2)), rest2 = splat(static_cast<float>(1 - step.beta2));
  const F32 root_factor = splat(static_cast<float>(1 / __builtin_sqrt(step.correction2))), eps = splat(static_cast<float>(step.eps));
  const F32 keep = splat(static_cast<float>(1 - step.rate * step.decay)), length = splat(static_cast<float>(-step.rate / step.correction1));
  for (int64_t i = 0; i < n; i += 16) {
    const F32 g = mul(load_upto(gradient, i, n), scale);
    const F32 first = fma(beta1, load_upto(m, i, n), mul(rest1, g));
    const F32 second = fma(beta2, load_upto(v, i, n), mul(mul(rest2, g), g));
    const F32 direction = div(first, fma(square_root(second), root_factor, eps));
    store_upto(m, i, n, first);
    store_upto(v, i, n, second);
    store_upto(value, i, n, fma(length, direction, mul(load_upto(value, i, n), keep)));
  }
}

void sgd_span(const SgdStep& step, const float* gradient, int64_t n, float* value, float* m) noexcept {
  const F32 scale = splat(static_cast<float>(step.gradient_factor)), momentum = splat(static_cast<float>(step.momentum));
  const F32 keep = splat(static_cast<float>(1 - step.rate * step.decay)), length = splat(static_cast<float>(-step.rate));
  for (int64_t i = 0; i < n; i += 16) {
    const F32 first = fma(momentum, load_upto(m, i, n), mul(load_upto(gradient, i, n), scale));
    store_upto(m, i, n, first);
    store_upto(value, i, n, fma(length, first, mul(load_upto(value, i, n), keep)));
  }
}

double sum_of_squares_span(const float* x, int64_t n) noexcept {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kSquaresStretch) {
    const int64_t end = begin + kSquaresStretch < n ? begin + kSquaresStretch : n;
    F32 sum = zero();
    for (int64_t i = begin; i < end; i += 16) {
      const F32 v = load_upto(x, i, end);
      sum = fma(v, v, sum);
    }
    total += static_cast<double>(reduce_add(sum));
  }
  return total;
}

}  // namespace
