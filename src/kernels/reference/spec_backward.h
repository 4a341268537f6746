// The arithmetic of the backward pass in scalar code: every rounding that the kernels make, in their order. The tests
// compare bits, on every instruction set. spec.h has the forward pass.
//
// For the rows that share a KV head, in rising (token, head of the group), and for each the keys it sees, rising:
//   q'    = q * factor, factor = scale * log2(e) rounded once; lse2 = lse * log2(e) in f64, as the sum high + low
//   delta = dout . out in 16 lanes and their fixed sum, minus dlse
//   s     = fma chain over i of q'[i] * k[i]; with a soft-cap c: t = tanh(s / c), s = c * t; then fma(bias, log2(e), s)
//   p     = 2^((s - high) - low)
//   dp    = fma chain over c of dout[c] * v[c]; with dropout times keep_scale, 0 for a key that is not kept
//   db    = p * (dp - delta); ds = db, with a soft-cap times fma(-t, t, 1)
//   dq[i] = fma chain of ds * k[i] over the row's keys; dk[i], dv[c] = fma chains of ds * q'[i], p * dout[c] over the
//           rows that see the key, with 0 for p where the row does not keep it; all from +0
// End: dq * scale, dk * ln 2, dv * keep_scale, plus 0, every NaN the same one. A row whose lse is -inf takes part in
// nothing.
#pragma once

#include "kernels/reference/spec.h"

namespace regard::kernels::reference {

/// lse * log2(e) in two parts, so that no more than the rounding of lse itself is lost.
struct SplitLse {
  float high = 0, low = 0;
};
inline SplitLse spec_split_lse(float lse) {
  const double lse2 = static_cast<double>(lse) * math::kLog2e;
  const auto high = static_cast<float>(lse2);
  return {high, std::isfinite(high) ? static_cast<float>(lse2 - static_cast<double>(high)) : 0.0f};
}

inline float spec_finish(float x, float factor) {
  const float y = x * factor + 0.0f;
  return std::isnan(y) ? kSpecNan : y;
}

/// One row over the keys at positions [k_begin, k_end). dq [head_dim] is written and finished; dk(j)[i] and dv(j)[c],
/// pointers, are added to and are to be finished with ln 2 and keep_scale after the last row. db(j, x) is told the
/// gradient of each visible key's bias. `terms` as in attention_row(); its sink is in lse already.
template <Rounding R, class Key, class Value, class Visible, class Dk, class Dv, class Db, class Terms = NoTerms>
void attention_backward_row_spec(const float* q, const float* out, const float* dout, float lse, float dlse,
                                 int head_dim, int value_dim, int64_t k_begin, int64_t k_end, float scale, float factor,
                                 float softcap, Key key, Value value, Visible visible, float* dq, Dk dk, Dv dv, Db db,
                                 const Terms& terms = {}) {
  for (int i = 0; i < head_dim; ++i) dq[i] = 0.0f;
  bool nothing = lse == -kSpecInf;
  for (int64_t j = k_begin; j < k_end && !nothing; ++j)
    if (visible(j))
      break;
    else
      nothing = j + 1 == k_end;
  if (nothing) return;

  float scaled[kMaxHeadDim], lane[kLanes] = {};
  for (int i = 0; i < head_dim; ++i) scaled[i] = q[i] * factor;
  for (int c = 0; c < padded_dim(value_dim); ++c)
    lane[c % kLanes] = spec_fma<R>(c < value_dim ? dout[c] : 0.0f, c < value_dim ? out[c] : 0.0f, lane[c % kLanes]);
  const float delta = spec_lane_sum(lane) - dlse;
  const SplitLse lse2 = spec_split_lse(lse);

  for (int64_t j = k_begin; j < k_end; ++j) {
    if (!visible(j)) continue;
    float s = 0.0f, dp = 0.0f, slope = 1.0f;
    for (int i = 0; i < head_dim; ++i) s = spec_fma<R>(scaled[i], key(j, i), s);
    for (int c = 0; c < value_dim; ++c) dp = spec_fma<R>(dout[c], value(j, c), dp);
    if (softcap != 0.0f) {
      const float t = spec_tanh<R>(s / softcap);
      s = softcap * t;
      slope = spec_fma<R>(0.0f - t, t, 1.0f);
    }
    s = spec_fma<R>(static_cast<float>(terms.bias(j)), static_cast<float>(math::kLog2e), s);
    const float p = spec_exp2<R>((s - lse2.high) - lse2.low);
    dp = terms.keep(j) ? dp * static_cast<float>(terms.keep_scale) : 0.0f;
    float ds = p * (dp - delta);
    db(j, ds);
    if (softcap != 0.0f) ds = ds * slope;
    for (int c = 0; c < value_dim; ++c) dv(j)[c] = spec_fma<R>(terms.keep(j) ? p : 0.0f, dout[c], dv(j)[c]);
    for (int i = 0; i < head_dim; ++i) {
      dq[i] = spec_fma<R>(ds, key(j, i), dq[i]);
      dk(j)[i] = spec_fma<R>(ds, scaled[i], dk(j)[i]);
    }
  }
  for (int i = 0; i < head_dim; ++i) dq[i] = spec_finish(dq[i], scale);
}

}  // namespace regard::kernels::reference
