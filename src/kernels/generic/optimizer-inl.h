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

// No multiplication is fused with an addition: the baseline has no such instruction, and a run's bits are to be those of every set.
void adamw_span(const AdamWStep& step, const float* gradient, int64_t n, float* value, float* m, float* v) noexcept {
  const F32 scale = splat(static_cast<float>(step.gradient_factor));
  const F32 beta1 = splat(static_cast<float>(step.beta1)), rest1 = splat(static_cast<float>(1 - step.beta1));
  const F32 beta2 = splat(static_cast<float>(step.beta2)), rest2 = splat(static_cast<float>(1 - step.beta2));
  const F32 root_factor = splat(static_cast<float>(1 / __builtin_sqrt(step.correction2))), eps = splat(static_cast<float>(step.eps));
  const F32 keep = splat(static_cast<float>(1 - step.rate * step.decay)), length = splat(static_cast<float>(step.rate / step.correction1));
  for (int64_t i = 0; i < n; i += 16) {
    const F32 g = mul(load_upto(gradient, i, n), scale);
    const F32 first = add(mul(beta1, load_upto(m, i, n)), mul(rest1, g));
    const F32 second = add(mul(beta2, load_upto(v, i, n)), mul(mul(rest2, g), g));
    const F32 direction = div(first, add(mul(square_root(second), root_factor), eps));
    store_upto(m, i, n, first);
    store_upto(v, i, n, second);
    store_upto(value, i, n, sub(mul(load_upto(value, i, n), keep), mul(length, direction)));
  }
}

void sgd_span(const SgdStep& step, const float* gradient, int64_t n, float* value, float* m) noexcept {
  const F32 scale = splat(static_cast<float>(step.gradient_factor)), momentum = splat(static_cast<float>(step.momentum));
  const F32 keep = splat(static_cast<float>(1 - step.rate * step.decay)), length = splat(static_cast<float>(step.rate));
  for (int64_t i = 0; i < n; i += 16) {
    const F32 first = add(mul(momentum, load_upto(m, i, n)), mul(load_upto(gradient, i, n), scale));
    store_upto(m, i, n, first);
    store_upto(value, i, n, sub(mul(load_upto(value, i, n), keep), mul(length, first)));
  }
}

double multiply_adds_in_registers(int64_t rounds) noexcept {
  constexpr int kMostChains = 12;  // two units of latency four to six
  constexpr int kLeft = kVectors < 5 ? 2 : kVectors - 3;  // x, y and what the loop needs are in registers too
  constexpr int kChains = kLeft < kMostChains ? kLeft : kMostChains;
  const F32 x = splat(0.999f), y = splat(1e-3f);
  F32 chain[kChains];
  REGARD_UNROLL
  for (int i = 0; i < kChains; ++i) chain[i] = splat(static_cast<float>(i));
  for (int64_t k = 0; k < rounds; ++k) {
    REGARD_UNROLL
    for (int i = 0; i < kChains; ++i) chain[i] = fma(chain[i], x, y);
  }
  F32 sum = zero();
  REGARD_UNROLL
  for (int i = 0; i < kChains; ++i) sum = add(sum, chain[i]);
  volatile float kept = reduce_add(sum);  // or nothing would be computed
  static_cast<void>(kept);
  return 2.0 * 16 * kChains * static_cast<double>(rounds);
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
