// Attention as mathematics, in plain loops over a scalar type; f64 is what results are held against. Never optimised.
// spec.h beside it says how the kernels round.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace regard::kernels::reference {

/// What may come to a row's scores besides the soft-cap: nothing. Another type with these members stands in its place.
struct NoTerms {
  double bias(int64_t) const { return 0; }                 ///< is added to the score of a visible key
  bool keep(int64_t) const { return true; }                ///< false: dropout takes the key's weight out of `out`
  double keep_scale = 1;                                   ///< what `out` is multiplied by
  double sink = -std::numeric_limits<double>::infinity();  ///< the score of a key without a value
};

/// One query row: weights w_j = exp(s_j - lse) over the keys it sees, out = keep_scale sum_j w_j v_j over those it
/// keeps.
///   s_j = scale q . k_j, then softcap * tanh(s_j / softcap) where softcap is not 0, then + bias_j
///   lse = log (exp(sink) + sum_j exp(s_j))
/// key(j, i), value(j, c) and visible(j) are asked for j in [k_begin, k_end), and for keys and terms only where
/// visible(j). Returns lse. A row that sees nothing, or only scores of -inf, gives out = 0 and the sink (-inf without
/// one). `weights` (may be null) gets k_end - k_begin values, before dropout. Vaswani et al., 2017, "Attention is all
/// you need", equation 1; soft-cap: Gemma Team, 2024, "Gemma 2", section 2.
template <class T, class Query, class Key, class Value, class Visible, class Terms = NoTerms>
T attention_row(Query query, int64_t head_dim, int64_t value_dim, int64_t k_begin, int64_t k_end, T scale, T softcap,
                Key key, Value value, Visible visible, T* out, T* weights = nullptr, const Terms& terms = {}) {
  const T kInfinity = std::numeric_limits<T>::infinity();
  const auto score = [&](int64_t j) {
    T s = 0;
    for (int64_t i = 0; i < head_dim; ++i) s += static_cast<T>(query(i)) * static_cast<T>(key(j, i));
    s *= scale;
    if (softcap != 0) s = softcap * std::tanh(s / softcap);
    return s + static_cast<T>(terms.bias(j));
  };
  const T sink = static_cast<T>(terms.sink);
  T top = sink;
  for (int64_t j = k_begin; j < k_end; ++j) {
    if (!visible(j)) continue;
    const T s = score(j);
    if (s > top || std::isnan(s)) top = s;
  }
  for (int64_t c = 0; c < value_dim; ++c) out[c] = 0;
  T sum = sink == -kInfinity ? T{0} : std::exp(sink - top);
  for (int64_t j = k_begin; j < k_end; ++j) {
    if (weights != nullptr) weights[j - k_begin] = 0;
    if (!visible(j)) continue;
    const T s = score(j), p = s == -kInfinity ? T{0} : std::exp(s - top);
    sum += p;
    if (weights != nullptr) weights[j - k_begin] = p;
    if (!terms.keep(j)) continue;
    for (int64_t c = 0; c < value_dim; ++c) out[c] += p * static_cast<T>(value(j, c));
  }
  for (int64_t c = 0; c < value_dim; ++c) out[c] = sum == 0 ? T{0} : out[c] / sum * static_cast<T>(terms.keep_scale);
  if (weights != nullptr)
    for (int64_t j = 0; j < k_end - k_begin; ++j) weights[j] = sum == 0 ? T{0} : weights[j] / sum;
  return sum == 0 ? -kInfinity : top + std::log(sum);
}

}  // namespace regard::kernels::reference
