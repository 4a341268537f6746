// The loss of a row of logits and its gradient; training.h has the formulas. Included inside an instruction set's region, behind
// rows-inl.h.

namespace {

// The largest of n, ignoring NaN; -infinity for none.
REGARD_INLINE float largest(const float* x, int64_t n) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  F32 top = splat(-kInf);
  for (int64_t i = 0; i < n; i += 16) {
    F32 v = load_upto(x, i, n);
    if (i + 16 > n) v = select(lanes((1u << (n - i)) - 1u), v, splat(-kInf));
    top = max(v, top);
  }
  return reduce_max(top);
}

RowLoss cross_entropy_row(const float* logits, int64_t n, int64_t label, const CrossEntropy& how, float scale, float* gradient) noexcept {
  const float target = logits[label], before = largest(logits, label), top = largest(logits, n);
  const auto smoothing = static_cast<float>(how.smoothing);
  F32 sum = zero(), total = zero();
  for (int64_t i = 0; i < n; i += 16) {
    const F32 x = load_upto(logits, i, n);
    F32 e = exp(sub(x, splat(top)));
    if (i + 16 > n) e = select(lanes((1u << (n - i)) - 1u), e, zero());
    sum = add(sum, e);
    total = add(total, x);
  }
  const float exponentials = reduce_add(sum);
  const double lse = static_cast<double>(top) + math::log(static_cast<double>(exponentials));
  RowLoss loss{lse - static_cast<double>(target), lse - (1 - how.smoothing) * static_cast<double>(target) + how.z_loss * lse * lse,
               before < target && top <= target};
  if (how.smoothing != 0) loss.objective -= how.smoothing / static_cast<double>(n) * static_cast<double>(reduce_add(total));
  if (gradient == nullptr) return loss;
  // softmax (1 + 2 z lse) - smoothing / n everywhere, and - (1 - smoothing) at the label.
  const F32 factor = splat(scale * static_cast<float>(1 + 2 * how.z_loss * lse) / exponentials);
  const F32 shift = splat(-scale * smoothing / static_cast<float>(n));
  for (int64_t i = 0; i < n; i += 16) store_upto(gradient, i, n, fma(exp(sub(load_upto(logits, i, n), splat(top))), factor, shift));
  gradient[label] -= scale * static_cast<float>(1 - how.smoothing);
  return loss;
}

}  // namespace
