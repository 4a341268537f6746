// The rows of elementwise.h, written once for every instruction set. Included inside an instruction set's region, behind rows-inl.h and
// norm-inl.h.

namespace {

// Functions as types: a lambda would not inherit the region's instruction set on every compiler.
#define REGARD_FUNCTOR(Name, expression) \
  struct Name {                          \
    REGARD_INLINE_MEMBER F32 operator()(F32 x) const { return expression; } \
  }
REGARD_FUNCTOR(Silu, silu(x));
REGARD_FUNCTOR(GeluErf, gelu_erf(x));
REGARD_FUNCTOR(GeluTanh, gelu_tanh(x));
REGARD_FUNCTOR(Relu, max(zero(), x));  // max gives its second operand for NaN, so NaN comes through
REGARD_FUNCTOR(Exp, exp(x));
REGARD_FUNCTOR(Exp2, exp2(x));
REGARD_FUNCTOR(Erf, erf(x));
REGARD_FUNCTOR(Tanh, tanh(x));
#undef REGARD_FUNCTOR

template <class F>
struct Gated {
  REGARD_INLINE_MEMBER F32 operator()(F32 gate, F32 up) const { return mul(F{}(gate), up); }
};
struct Add {
  REGARD_INLINE_MEMBER F32 operator()(F32 a, F32 b) const { return add(a, b); }
};
struct Scale {
  float factor;
  REGARD_INLINE_MEMBER F32 operator()(F32 x) const { return mul(x, splat(factor)); }
};

template <class F>
void map_row(const float* x, int64_t n, float* y) noexcept {
  map(x, n, y, F{});
}
template <class F>
void zip_row(const float* a, const float* b, int64_t n, float* y) noexcept {
  zip(a, b, n, y, F{});
}
void scale_row(float factor, int64_t n, float* y) noexcept { map(y, n, y, Scale{factor}); }
void add_row(const float* x, int64_t n, float* y) noexcept { zip(y, x, n, y, Add{}); }

void rms_norm_row(const float* x, const float* weight, float eps, int64_t n, float* y) noexcept {
  rms_norm_with_stats(x, weight, eps, n, y, nullptr);
}
void layer_norm_row(const float* x, const float* weight, const float* bias, float eps, int64_t n, float* y) noexcept {
  layer_norm_with_stats(x, weight, bias, eps, n, y, nullptr);
}

void softmax_row(const float* x, int64_t n, float* y) noexcept {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  F32 top = splat(-kInf);
  for (int64_t i = 0; i < n; i += 16) {
    F32 v = load_upto(x, i, n);
    if (i + 16 > n) v = select(lanes((1u << (n - i)) - 1u), v, splat(-kInf));
    top = max(v, top);  // ignores a NaN in v; it comes back through the exponent
  }
  const float m = reduce_max(top);
  // All -inf: subtracting 0 instead keeps every exponential 0, so that the row is empty and not NaN.
  const F32 shift = splat(m == -kInf ? 0.0f : m);
  F32 sum = zero();
  for (int64_t i = 0; i < n; i += 16) {
    F32 e = exp(sub(load_upto(x, i, n), shift));
    if (i + 16 > n) e = select(lanes((1u << (n - i)) - 1u), e, zero());
    sum = add(sum, e);
    store_upto(y, i, n, e);
  }
  const float total = reduce_add(sum);
  const F32 factor = splat(total);
  for (int64_t i = 0; i < n; i += 16) store_upto(y, i, n, total == 0.0f ? zero() : div(load_upto(y, i, n), factor));
}

void rotate_half_row(float* x, const float* cos, const float* sin, int64_t half) noexcept {
  for (int64_t i = 0; i < half; i += 16) {
    const F32 a = load_upto(x, i, half), b = load_upto(x + half, i, half);
    const F32 c = load_upto(cos, i, half), s = load_upto(sin, i, half);
    store_upto(x, i, half, sub(mul(a, c), mul(b, s)));
    store_upto(x + half, i, half, add(mul(b, c), mul(a, s)));
  }
}

// Scalar: pairs lie side by side, and no model at hand spends time here.
void rotate_interleaved_row(float* x, const float* cos, const float* sin, int64_t half) noexcept {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cos[i] - b * sin[i];
    x[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

}  // namespace

extern const ElementwiseKernels kElementwise;
const ElementwiseKernels kElementwise = {
    .rms_norm = rms_norm_row,
    .layer_norm = layer_norm_row,
    .softmax = softmax_row,
    .silu = map_row<Silu>,
    .gelu_erf = map_row<GeluErf>,
    .gelu_tanh = map_row<GeluTanh>,
    .relu = map_row<Relu>,
    .exp = map_row<Exp>,
    .exp2 = map_row<Exp2>,
    .erf = map_row<Erf>,
    .tanh = map_row<Tanh>,
    .silu_mul = zip_row<Gated<Silu>>,
    .gelu_tanh_mul = zip_row<Gated<GeluTanh>>,
    .relu_mul = zip_row<Gated<Relu>>,
    .gelu_erf_mul = zip_row<Gated<GeluErf>>,
    .add = add_row,
    .scale = scale_row,
    .rotate_half = rotate_half_row,
    .rotate_interleaved = rotate_interleaved_row,
};
