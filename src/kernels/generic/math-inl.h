// Elementary functions on vectors, the same roundings in the same order on every instruction set that has a fused
// multiply-add. kernels/reference/spec.h says exp2 again in scalar code, which attention kernels must equal bit for bit.
// Coefficients are weighted least-squares fits refined towards minimax (tools/fit_polynomials.py).

// 2^x: round to the nearest integer n, a degree-6 polynomial in x - n of [-1/2, 1/2] with p(0) = 1, then an exact scaling.
// exp2(0) = 1, exp2(-inf) = 0, exp2(NaN) = NaN; results below the normal range are rounded once. Error 0.94 ulp, 1.2
// without a fused multiply-add.
inline constexpr float kExp2[7] = {1.0f,           0x1.62e430p-1f, 0x1.ebfbdcp-3f, 0x1.c6aee8p-5f,
                                   0x1.3b2d4cp-7f, 0x1.5f3e52p-10f, 0x1.41fbbcp-13f};
REGARD_INLINE F32 exp2(F32 x) {
  F32 n;
  const F32 r = split_integer(x, n);
  F32 p = splat(kExp2[6]);
  REGARD_UNROLL
  for (int i = 5; i >= 0; --i) p = fma(p, r, splat(kExp2[i]));
  return scale_by_power(p, n);
}

// e^x with the reduction in two parts of ln 2, so that large arguments keep their accuracy. Error below 2 ulp.
REGARD_INLINE F32 exp(F32 x) {
  constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;
  constexpr float kExp[6] = {0x1.000000p-1f, 0x1.555554p-3f, 0x1.55548ep-5f, 0x1.111270p-7f, 0x1.6d8d06p-10f, 0x1.9f0896p-13f};
  x = min(splat(150.0f), max(splat(-150.0f), x));
  const F32 n = round(mul(x, splat(0x1.715476p+0f)));
  const F32 r = fma(n, splat(-kLn2Low), fma(n, splat(-kLn2High), x));
  F32 p = splat(kExp[5]);
  REGARD_UNROLL
  for (int i = 4; i >= 0; --i) p = fma(p, r, splat(kExp[i]));
  return scale_by_power(add(splat(1.0f), fma(mul(r, r), p, r)), n);
}

// 1 / (1 + e^-x), never overflowing in between.
REGARD_INLINE F32 sigmoid(F32 x) { return div(splat(1.0f), add(splat(1.0f), exp(sub(zero(), x)))); }

// x / (1 + e^-x). A large negative x divides by infinity and gives -0.
REGARD_INLINE F32 silu(F32 x) { return div(x, add(splat(1.0f), exp(sub(zero(), x)))); }

// tanh: an odd polynomial below 5/8, 1 - 2 / (e^2|x| + 1) above. Error below 2 ulp.
REGARD_INLINE F32 tanh(F32 x) {
  constexpr float kTanh[6] = {-0x1.555554p-2f, 0x1.111066p-3f, -0x1.b9ee90p-5f, 0x1.638b58p-6f, -0x1.0bf4fcp-7f, 0x1.18e1dep-9f};
  const F32 size = abs(x), square = mul(x, x);
  F32 p = splat(kTanh[5]);
  REGARD_UNROLL
  for (int i = 4; i >= 0; --i) p = fma(p, square, splat(kTanh[i]));
  const F32 small = fma(mul(x, square), p, x);
  const F32 large = sub(splat(1.0f), div(splat(2.0f), add(exp(add(size, size)), splat(1.0f))));
  return copy_sign(select(less(size, splat(0.625f)), small, large), x);
}

// erf: an odd polynomial below 7/8, 1 - e^-q(|x|) above, where q is a fit of -log erfc; +-1 from 3.95 on. Error below
// 2.5 ulp.
REGARD_INLINE F32 erf(F32 x) {
  constexpr float kSmall[7] = {0x1.20dd76p+0f, -0x1.812744p-2f, 0x1.ce2e84p-4f, -0x1.b819a6p-6f, 0x1.553abap-8f, -0x1.ae7f92p-11f, 0x1.6bdf50p-14f};
  constexpr float kLarge[8] = {-0x1.53ca54p-13f, 0x1.2123d8p+0f, 0x1.4456a2p-1f, 0x1.baeffep-4f, -0x1.9a0b72p-6f, 0x1.0f089ap-8f, -0x1.bfd434p-12f, 0x1.571de6p-16f};
  const F32 size = abs(x), square = mul(x, x);
  F32 s = splat(kSmall[6]), q = splat(kLarge[7]);
  const F32 bounded = min(splat(3.95f), size);
  REGARD_UNROLL
  for (int i = 5; i >= 0; --i) s = fma(s, square, splat(kSmall[i]));
  REGARD_UNROLL
  for (int i = 6; i >= 0; --i) q = fma(q, bounded, splat(kLarge[i]));
  const F32 large = sub(splat(1.0f), exp(sub(zero(), q)));
  return select(less(size, splat(0.875f)), mul(x, s), copy_sign(large, x));
}

// x Phi(x) = x/2 (1 + erf(x / sqrt 2)). Hendrycks and Gimpel, 2016, "Gaussian error linear units".
REGARD_INLINE F32 gelu_erf(F32 x) {
  return mul(mul(splat(0.5f), x), add(splat(1.0f), erf(mul(x, splat(0x1.6a09e6p-1f)))));
}

// Its tanh form, as GPT-2 and Gemma use it: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
REGARD_INLINE F32 gelu_tanh(F32 x) {
  const F32 inner = mul(splat(0x1.988454p-1f), fma(mul(mul(x, x), x), splat(0.044715f), x));
  return mul(mul(splat(0.5f), x), add(splat(1.0f), tanh(inner)));
}
