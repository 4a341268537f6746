// The arithmetic of one attention row on bf16 dot products, in scalar code: the kernel of attention_bf16.h equals
// attention_row_spec_bf16() bit for bit.
//
// It is the row of spec.h with these differences:
//   q, k and v are rounded to bf16, to nearest even; below the normal range to 0.
//   s_j = factor * (chain over i of q[i] * k_j[i], from 0), factor = scale * log2(e) rounded once
//   p_j is rounded to bf16 where it is used: o_c = chain over visible j of p_j * v_j[c], from 0, and
//   l = 16 lane sums in the order of a chain (lane = j / 2 mod 16), then the lanes as in spec.h
//   A chain is that of bf16.h. Pairs of keys are cut at absolute positions; a key that the row does not see is left out of its
//   pair.
#pragma once

#include "kernels/reference/bf16.h"
#include "kernels/reference/spec.h"

namespace regard::kernels::reference {

/// As attention_row_spec(); key(j, i) and value(j, c) need not be rounded.
template <class Key, class Value, class Visible, class Terms = NoTerms>
float attention_row_spec_bf16(const float* q, int head_dim, int value_dim, int64_t k_begin, int64_t k_end, float factor,
                              float softcap, Key key, Value value, Visible visible, float* out,
                              const Terms& terms = {}) {
  constexpr Rounding kRounding = Rounding::kFused;
  constexpr float kLog2e = static_cast<float>(math::kLog2e);
  SpecTotals<kRounding> total;
  for (int64_t base = k_begin / kTileKeys * kTileKeys; base < k_end; base += kTileKeys) {
    const auto sees = [&](int j) { return base + j >= k_begin && base + j < k_end && visible(base + j); };
    float s[kTileKeys], p[kTileKeys] = {}, m = -kSpecInf;
    bool keeps[kTileKeys] = {}, nothing = true;
    for (int j = 0; j < kTileKeys; ++j) {
      if (!sees(j)) continue;
      nothing = false;
      keeps[j] = terms.keep(base + j);
      float sum = 0.0f;
      for (int n = 0; n < head_dim + head_dim % 2; ++n)
        if (const int i = n ^ 1; i < head_dim) sum = spec_add_product(sum, spec_bf16(q[i]), spec_bf16(key(base + j, i)));
      sum *= factor;
      if (softcap != 0.0f) sum = softcap * spec_tanh<kRounding>(sum / softcap);
      s[j] = spec_fma<kRounding>(static_cast<float>(terms.bias(base + j)), kLog2e, sum);
      if (s[j] > m) m = s[j];
    }
    if (nothing) continue;
    const float shift = m == -kSpecInf ? 0.0f : m;
    float lane[kLanes] = {}, o[kMaxHeadDim];
    for (int j = 0; j < kTileKeys; ++j) {
      if (!sees(j)) continue;
      p[j] = spec_bf16(spec_exp2<kRounding>(s[j] - shift));
    }
    for (int n = 0; n < kTileKeys; ++n) lane[n / 2 % kLanes] += p[n ^ 1];
    for (int c = 0; c < value_dim; ++c) {
      o[c] = 0.0f;
      for (int n = 0; n < kTileKeys; ++n)
        if (const int j = n ^ 1; keeps[j]) o[c] = spec_add_product(o[c], p[j], spec_bf16(value(base + j, c)));
    }
    total.fold(m, spec_lane_sum(lane), o, value_dim);
  }
  return total.end(value_dim, terms, out);
}

}  // namespace regard::kernels::reference
