// The backward pass of attention as mathematics, in plain loops over a scalar type; f64 is what gradients are held
// against. Never optimised. spec_backward.h beside it says how the kernels round.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/reference/attention.h"

namespace regard::kernels::reference {

/// The gradients of one query row, given the gradient dout of its output and dlse of its lse.
///   w_j  = exp(s_j - lse), out = sum_j c_j w_j v_j, as attention_row() computes them; c_j is keep_scale or, for a key
///          that dropout does not keep, 0
///   dv_j = c_j w_j dout
///   db_j = w_j (c_j dout . v_j - dout . out + dlse), the gradient of the bias
///   dr_j = db_j (1 - tanh^2(r_j / softcap)), r_j = scale q . k_j the score before the soft-cap
///   d sink = -w_sink (dout . out - dlse), w_sink = exp(sink - lse)
///   dq   = scale sum_j dr_j k_j,  dk_j = scale dr_j q
/// query(i), dout(c), key(j, i), value(j, c) and visible(j) are asked as in attention_row(). dq [head_dim] is written;
/// dk(j)[i] and dv(j)[c], references, are added to, for visible j alone; db (may be null) gets k_end - k_begin values.
/// Returns d sink, 0 without a sink. `scratch` holds value_dim + k_end - k_begin values. A row that sees nothing, or
/// only scores of -inf, gives 0 and adds nothing. Dao et al., 2022, "FlashAttention", appendix B.2.
template <class T, class Query, class Dout, class Key, class Value, class Visible, class Dk, class Dv,
          class Terms = NoTerms>
T attention_backward_row(Query query, Dout dout, T dlse, int64_t head_dim, int64_t value_dim, int64_t k_begin,
                         int64_t k_end, T scale, T softcap, Key key, Value value, Visible visible, T* scratch, T* dq,
                         Dk dk, Dv dv, T* db = nullptr, const Terms& terms = {}) {
  T* out = scratch;
  T* weights = scratch + value_dim;
  const T lse = attention_row<T>(query, head_dim, value_dim, k_begin, k_end, scale, softcap, key, value, visible, out,
                                 weights, terms);
  for (int64_t i = 0; i < head_dim; ++i) dq[i] = 0;
  if (db != nullptr)
    for (int64_t j = 0; j < k_end - k_begin; ++j) db[j] = 0;
  if (lse == -std::numeric_limits<T>::infinity()) return 0;
  T delta = -dlse;
  for (int64_t c = 0; c < value_dim; ++c) delta += static_cast<T>(dout(c)) * out[c];
  for (int64_t j = k_begin; j < k_end; ++j) {
    if (!visible(j)) continue;
    const T w = weights[j - k_begin];
    T dp = 0, r = 0;
    for (int64_t c = 0; c < value_dim; ++c) dp += static_cast<T>(dout(c)) * static_cast<T>(value(j, c));
    for (int64_t i = 0; i < head_dim; ++i) r += static_cast<T>(query(i)) * static_cast<T>(key(j, i));
    const T kept = terms.keep(j) ? static_cast<T>(terms.keep_scale) : T{0};
    const T gradient = w * (kept * dp - delta), t = softcap == 0 ? T{0} : std::tanh(r * scale / softcap);
    const T raw = gradient * (1 - t * t) * scale;
    if (db != nullptr) db[j - k_begin] = gradient;
    for (int64_t c = 0; c < value_dim; ++c) dv(j)[c] += kept * w * static_cast<T>(dout(c));
    for (int64_t i = 0; i < head_dim; ++i) {
      dq[i] += raw * static_cast<T>(key(j, i));
      dk(j)[i] += raw * static_cast<T>(query(i));
    }
  }
  return -std::exp(static_cast<T>(terms.sink) - lse) * delta;
}

}  // namespace regard::kernels::reference
