// The arithmetic of one attention row in scalar code: every rounding that the kernels make, in their order. A kernel
// equals attention_row_spec() bit for bit, on every instruction set; the tests compare bits.
//
// The arithmetic of a row:
//   q' = q * factor, factor = scale * log2(e) rounded once. Keys are cut into tiles of 256 at absolute multiples. For
//   each tile in which the row sees a key, on its own:
//     s_j = fma chain over i of q'[i] * k_j[i], from 0, times the key's scale where it is stored as codes; with a
//     soft-cap
//           c (in units of log2) c * tanh(s_j / c); with a bias fma(bias_j, log2(e), s_j)
//     m   = maximum of the visible s_j, NaN ignored
//     p_j = 2^(s_j - m), 0 instead of m when m is -inf
//     l   = sum of p_j in 16 lanes (lane = j mod 16, j rising), then lanes (i, i+8), (i, i+4), (i, i+2), (i, i+1)
//     o_c = fma chain over visible j, rising, of p_j * v_j[c], from 0, where p_j is first multiplied by the value's
//     scale
//           where it is stored as codes; with dropout over those that are kept
//   The tiles are folded from the left into (M, L, O), which starts at (-inf, 0, 0):
//     M' = max(M, m), a = 2^(M - M'), b = 2^(m - M') (0 instead of M' when M' is -inf)
//     L' = fma(L, a, l * b), O' = fma(O, a, o * b)
//   A sink is one more part, folded last: m = sink log2(e) (product in f64), l = 1, o = 0.
//   End: L = 0 gives out 0 and lse -inf. Else out = O / L + 0, every NaN the same one, lse = (M + log2 L) ln 2 in f64;
//   with dropout out is then multiplied by 1 / (1 - rate), rounded to f32. A row that saw nothing has its sink as lse.
//
// The online recurrence would give other bits for other cuts; independent tiles do not, and cost nothing measurable.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/math.h"
#include "kernels/attention.h"
#include "kernels/reference/attention.h"

namespace regard::kernels::reference {

/// How an instruction set rounds fma(): AVX2 and AVX-512 once, the baseline after the product and after the sum.
enum class Rounding { kFused, kSeparate };

template <Rounding R>
float spec_fma(float a, float b, float c) {
  if constexpr (R == Rounding::kFused) return std::fma(a, b, c);
  const float product = a * b;
  return product + c;
}

template <Rounding R>
float spec_exp2(float x) {
  constexpr float kCoefficients[7] = {1.0f,           0x1.62e430p-1f,  0x1.ebfbdcp-3f, 0x1.c6aee8p-5f,
                                      0x1.3b2d4cp-7f, 0x1.5f3e52p-10f, 0x1.41fbbcp-13f};
  if (std::isnan(x)) return x;
  x = std::fmin(252.0f, std::fmax(-252.0f, x));
  const float n = std::nearbyint(x), r = x - n;
  float p = kCoefficients[6];
  for (int i = 5; i >= 0; --i) p = spec_fma<R>(p, r, kCoefficients[i]);
  return static_cast<float>(std::ldexp(static_cast<double>(p), static_cast<int>(n)));
}

template <Rounding R>
float spec_exp(float x) {
  constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;
  constexpr float kCoefficients[6] = {0x1.000000p-1f, 0x1.555554p-3f,  0x1.55548ep-5f,
                                      0x1.111270p-7f, 0x1.6d8d06p-10f, 0x1.9f0896p-13f};
  if (std::isnan(x)) return x;
  x = std::fmin(150.0f, std::fmax(-150.0f, x));
  const float n = std::nearbyint(x * 0x1.715476p+0f);
  const float r = spec_fma<R>(n, -kLn2Low, spec_fma<R>(n, -kLn2High, x));
  float p = kCoefficients[5];
  for (int i = 4; i >= 0; --i) p = spec_fma<R>(p, r, kCoefficients[i]);
  const float square = r * r, y = 1.0f + spec_fma<R>(square, p, r);
  return static_cast<float>(std::ldexp(static_cast<double>(y), static_cast<int>(n)));
}

template <Rounding R>
float spec_tanh(float x) {
  constexpr float kCoefficients[6] = {-0x1.555554p-2f, 0x1.111066p-3f,  -0x1.b9ee90p-5f,
                                      0x1.638b58p-6f,  -0x1.0bf4fcp-7f, 0x1.18e1dep-9f};
  const float size = std::fabs(x), square = x * x;
  float y;
  if (size < 0.625f) {
    float p = kCoefficients[5];
    for (int i = 4; i >= 0; --i) p = spec_fma<R>(p, square, kCoefficients[i]);
    const float cube = x * square;
    y = spec_fma<R>(cube, p, x);
  } else {
    const float e = spec_exp<R>(size + size);
    y = 1.0f - 2.0f / (e + 1.0f);
  }
  return std::copysign(y, x);
}

/// The fixed order in which 16 lane sums become one.
inline float spec_lane_sum(const float (&lane)[kLanes]) {
  float v[kLanes];
  for (int i = 0; i < kLanes; ++i) v[i] = lane[i];
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) v[i] = v[i] + v[i + half];
  return v[0];
}

inline constexpr float kSpecNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kSpecInf = std::numeric_limits<float>::infinity();

/// The running result of a row: tiles are folded into it from the left.
template <Rounding R>
struct SpecTotals {
  float M = -kSpecInf, L = 0.0f, o[kMaxHeadDim] = {};

  void fold(float m, float l, const float* tile, int value_dim) {
    const float M2 = M > m ? M : m, shift = M2 == -kSpecInf ? 0.0f : M2;
    const float a = spec_exp2<R>(M - shift), b = spec_exp2<R>(m - shift);
    M = M2;
    L = spec_fma<R>(L, a, l * b);
    for (int c = 0; c < value_dim; ++c) o[c] = spec_fma<R>(o[c], a, tile[c] * b);
  }

  // Counts the sink, writes the row and returns its lse.
  template <class Terms>
  float end(int value_dim, const Terms& terms, float* out) {
    const auto sink = static_cast<float>(terms.sink);
    const bool saw_nothing = L == 0.0f;
    const float nothing[kMaxHeadDim] = {};
    fold(static_cast<float>(static_cast<double>(sink) * math::kLog2e), 1.0f, nothing, value_dim);
    for (int c = 0; c < value_dim; ++c) {
      const float x = L == 0.0f ? 0.0f : o[c] / L + 0.0f;
      out[c] = (std::isnan(x) ? kSpecNan : x) * static_cast<float>(terms.keep_scale);
    }
    if (saw_nothing && std::isfinite(sink)) return sink;
    if (L == 0.0f) return -kSpecInf;
    const auto lse = static_cast<float>((static_cast<double>(M) + math::log2(static_cast<double>(L))) * math::kLn2);
    return std::isnan(lse) ? kSpecNan : lse;
  }
};

/// One row over the keys at positions [k_begin, k_end). key(j, i), value(j, c) and visible(j) are asked by position,
/// keys, values and terms only where visible(j). `factor` is scale * log2(e), `softcap` is in units of log2 (0: none);
/// `terms` are in natural units. Keys or values that are codes have a member scale(j). Returns lse.
template <Rounding R, class Key, class Value, class Visible, class Terms = NoTerms>
float attention_row_spec(const float* q, int head_dim, int value_dim, int64_t k_begin, int64_t k_end, float factor,
                         float softcap, Key key, Value value, Visible visible, float* out, const Terms& terms = {}) {
  constexpr float kLog2e = static_cast<float>(math::kLog2e);
  float scaled[kMaxHeadDim], o[kMaxHeadDim];
  for (int i = 0; i < head_dim; ++i) scaled[i] = q[i] * factor;
  SpecTotals<R> total;
  for (int64_t base = k_begin / kTileKeys * kTileKeys; base < k_end; base += kTileKeys) {
    int seen[kTileKeys], count = 0;
    for (int j = 0; j < kTileKeys; ++j)
      if (base + j >= k_begin && base + j < k_end && visible(base + j)) seen[count++] = j;
    if (count == 0) continue;

    float s[kTileKeys], m = -kSpecInf;
    for (int n = 0; n < count; ++n) {
      float sum = 0.0f;
      for (int i = 0; i < head_dim; ++i) sum = spec_fma<R>(scaled[i], key(base + seen[n], i), sum);
      if constexpr (requires { key.scale(base); }) sum *= key.scale(base + seen[n]);
      if (softcap != 0.0f) sum = softcap * spec_tanh<R>(sum / softcap);
      s[n] = spec_fma<R>(static_cast<float>(terms.bias(base + seen[n])), kLog2e, sum);
      if (s[n] > m) m = s[n];
    }
    const float shift = m == -kSpecInf ? 0.0f : m;
    float lane[kLanes] = {};
    for (int c = 0; c < value_dim; ++c) o[c] = 0.0f;
    for (int n = 0; n < count; ++n) {
      const float p = spec_exp2<R>(s[n] - shift);
      lane[seen[n] % kLanes] += p;
      if (!terms.keep(base + seen[n])) continue;
      float weight = p;
      if constexpr (requires { value.scale(base); }) weight *= value.scale(base + seen[n]);
      for (int c = 0; c < value_dim; ++c) o[c] = spec_fma<R>(weight, value(base + seen[n], c), o[c]);
    }
    total.fold(m, spec_lane_sum(lane), o, value_dim);
  }
  return total.end(value_dim, terms, out);
}

}  // namespace regard::kernels::reference
