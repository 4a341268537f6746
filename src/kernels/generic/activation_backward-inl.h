// Gradients of activations, plain and gated. Included inside an instruction set's region, behind rows-inl.h.

namespace {

// f'(x) as a type beside f(x), because a lambda would not inherit the region's instruction set on every compiler.
struct SiluSlope {
  REGARD_INLINE_MEMBER F32 value(F32 x) const { return silu(x); }
  REGARD_INLINE_MEMBER F32 operator()(F32 x) const {
    const F32 s = sigmoid(x);
    return mul(s, fma(x, sub(splat(1.0f), s), splat(1.0f)));
  }
};

// Beyond this both forms of GELU are x or 0 to the last bit, so that no square below overflows. NaN comes through, see max().
REGARD_INLINE F32 bounded(F32 x) { return max(splat(-100.0f), min(splat(100.0f), x)); }

// Phi(x) + x phi(x).
struct GeluErfSlope {
  REGARD_INLINE_MEMBER F32 value(F32 x) const { return gelu_erf(x); }
  REGARD_INLINE_MEMBER F32 operator()(F32 x) const {
    x = bounded(x);
    const F32 below = fma(splat(0.5f), erf(mul(x, splat(0x1.6a09e6p-1f))), splat(0.5f));
    const F32 density = mul(splat(0x1.988454p-2f), exp(mul(mul(splat(-0.5f), x), x)));
    return fma(x, density, below);
  }
};

// (1 + t)/2 + x/2 (1 - t^2) u' with t = tanh u, u = sqrt(2/pi) (x + 0.044715 x^3). With e = exp(-2|u|), 1 - t^2 is 4 e / (1 + e)^2,
// which does not cancel.
struct GeluTanhSlope {
  REGARD_INLINE_MEMBER F32 value(F32 x) const { return gelu_tanh(x); }
  REGARD_INLINE_MEMBER F32 operator()(F32 x) const {
    x = bounded(x);
    const F32 one = splat(1.0f), square = mul(x, x);
    const F32 u = mul(splat(0x1.988454p-1f), fma(mul(square, x), splat(0.044715f), x));
    const F32 slope = mul(splat(0x1.988454p-1f), fma(square, splat(3 * 0.044715f), one));
    const F32 e = exp(mul(splat(-2.0f), abs(u))), sum = add(one, e);
    const F32 t = copy_sign(div(sub(one, e), sum), u);
    const F32 falloff = div(mul(splat(2.0f), e), mul(sum, sum));  // (1 - t^2) / 2
    return fma(mul(x, falloff), slope, fma(splat(0.5f), t, splat(0.5f)));
  }
};

struct ReluSlope {
  REGARD_INLINE_MEMBER F32 value(F32 x) const { return max(zero(), x); }
  REGARD_INLINE_MEMBER F32 operator()(F32 x) const { return select(less(zero(), x), splat(1.0f), zero()); }
};

template <class Slope>
struct TimesSlope {
  REGARD_INLINE_MEMBER F32 operator()(F32 x, F32 dy) const { return mul(dy, Slope{}(x)); }
};
template <class Slope>
void activation_backward_row(const float* x, const float* dy, int64_t n, float* dx) noexcept {
  zip(x, dy, n, dx, TimesSlope<Slope>{});
}
template <class Slope>
void gated_backward_row(const float* gate, const float* up, const float* dy, int64_t n, float* dgate, float* dup) noexcept {
  for (int64_t i = 0; i < n; i += 16) {
    const F32 g = load_upto(gate, i, n), u = load_upto(up, i, n), d = load_upto(dy, i, n);
    store_upto(dgate, i, n, mul(mul(d, u), Slope{}(g)));
    store_upto(dup, i, n, mul(d, Slope{}.value(g)));
  }
}

}  // namespace
