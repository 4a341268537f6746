// Attention as mathematics, in plain loops over a scalar type; f64 is what results are held against. Never optimised.
// spec.h beside it says how the kernels round.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace regard::kernels::reference {

/// One query row: weights w_j = exp(s_j - lse) over the keys it sees, out = sum_j w_j v_j.
///   s_j = scale q . k_j, then softcap * tanh(s_j / softcap) where softcap is not 0
///   lse = log sum_j exp(s_j)
/// key(j, i), value(j, c) and visible(j) are asked for j in [k_begin, k_end), and for keys only where visible(j).
/// Returns lse. A row that sees nothing, or only scores of -inf, gives out = 0 and -inf. `weights` (may be null) gets
/// k_end - k_begin values. Vaswani et al., 2017, "Attention is all you need", equation 1; soft-cap: Gemma Team, 2024,
/// "Gemma 2", section 2.
template <class T, class Query, class Key, class Value, class Visible>
T attention_row(Query query, int64_t head_dim, int64_t value_dim, int64_t k_begin, int64_t k_end, T scale, T softcap,
                Key key, Value value, Visible visible, T* out, T* weights = nullptr) {
  const T kInfinity = std::numeric_limits<T>::infinity();
  const auto score = [&](int64_t j) {
    T s = 0;
    for (int64_t i = 0; i < head_dim; ++i) s += static_cast<T>(query(i)) * static_cast<T>(key(j, i));
    s *= scale;
    return softcap == 0 ? s : softcap * std::tanh(s / softcap);
  };
  T top = -kInfinity;
  for (int64_t j = k_begin; j < k_end; ++j) {
    if (!visible(j)) continue;
    const T s = score(j);
    if (s > top || std::isnan(s)) top = s;
  }
  for (int64_t c = 0; c < value_dim; ++c) out[c] = 0;
  T sum = 0;
  for (int64_t j = k_begin; j < k_end; ++j) {
    if (weights != nullptr) weights[j - k_begin] = 0;
    if (!visible(j)) continue;
    const T s = score(j), p = s == -kInfinity ? T{0} : std::exp(s - top);
    sum += p;
    if (weights != nullptr) weights[j - k_begin] = p;
    for (int64_t c = 0; c < value_dim; ++c) out[c] += p * static_cast<T>(value(j, c));
  }
  for (int64_t c = 0; c < value_dim; ++c) out[c] = sum == 0 ? T{0} : out[c] / sum;
  if (weights != nullptr)
    for (int64_t j = 0; j < k_end - k_begin; ++j) weights[j] = sum == 0 ? T{0} : weights[j] / sum;
  return sum == 0 ? -kInfinity : top + std::log(sum);
}

}  // namespace regard::kernels::reference
