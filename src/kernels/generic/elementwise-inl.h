// The rows of elementwise.h, written once for every instruction set. Included inside an instruction set's region.

namespace {

// y[i] = f(x[i]) by whole vectors; the rest goes through a partial load and store.
template <class F>
REGARD_INLINE void map(const float* x, int64_t n, float* y, F f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, f(load(x + i)));
  if (i < n) store_first(y + i, f(load_first(x + i, static_cast<int>(n - i))), static_cast<int>(n - i));
}
template <class F>
REGARD_INLINE void zip(const float* a, const float* b, int64_t n, float* y, F f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, f(load(a + i), load(b + i)));
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    store_first(y + i, f(load_first(a + i, rest), load_first(b + i, rest)), rest);
  }
}

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

// Lanes beyond n load as 0 and add nothing.
REGARD_INLINE F32 load_upto(const float* x, int64_t i, int64_t n) {
  return i + 16 <= n ? load(x + i) : load_first(x + i, static_cast<int>(n - i));
}
REGARD_INLINE void store_upto(float* y, int64_t i, int64_t n, F32 v) {
  if (i + 16 <= n)
    store(y + i, v);
  else
    store_first(y + i, v, static_cast<int>(n - i));
}

void rms_norm_row(const float* x, const float* weight, float eps, int64_t n, float* y) noexcept {
  F32 squares = zero();
  for (int64_t i = 0; i < n; i += 16) {
    const F32 v = load_upto(x, i, n);
    squares = fma(v, v, squares);
  }
  const F32 factor = splat(1.0f / __builtin_sqrtf(reduce_add(squares) / static_cast<float>(n) + eps));
  for (int64_t i = 0; i < n; i += 16) {
    F32 v = mul(load_upto(x, i, n), factor);
    if (weight != nullptr) v = mul(v, load_upto(weight, i, n));
    store_upto(y, i, n, v);
  }
}

void layer_norm_row(const float* x, const float* weight, const float* bias, float eps, int64_t n, float* y) noexcept {
  F32 sum = zero();
  for (int64_t i = 0; i < n; i += 16) sum = add(sum, load_upto(x, i, n));
  const F32 mean = splat(reduce_add(sum) / static_cast<float>(n));
  F32 squares = zero();
  for (int64_t i = 0; i < n; i += 16) {
    F32 v = sub(load_upto(x, i, n), mean);
    if (i + 16 > n) v = select(lanes((1u << (n - i)) - 1u), v, zero());  // the absent lanes hold -mean now
    squares = fma(v, v, squares);
  }
  const F32 factor = splat(1.0f / __builtin_sqrtf(reduce_add(squares) / static_cast<float>(n) + eps));
  for (int64_t i = 0; i < n; i += 16) {
    F32 v = mul(sub(load_upto(x, i, n), mean), factor);
    if (weight != nullptr) v = mul(v, load_upto(weight, i, n));
    if (bias != nullptr) v = add(v, load_upto(bias, i, n));
    store_upto(y, i, n, v);
  }
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
