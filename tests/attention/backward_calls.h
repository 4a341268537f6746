// What the tests of the backward pass share: gradients by the public call, by the scalar definition and in f64.
#pragma once

#include <algorithm>

#include "attention/calls.h"
#include "kernels/reference/attention_backward.h"
#include "kernels/reference/spec_backward.h"
#include "regard/attention_backward.h"
#include "regard/mask.h"
#include "runtime/thread_pool.h"

namespace regard::testing_attention {

/// Gradients with respect to q, k and v, in the shapes of these.
struct Gradients {
  std::vector<float> q, k, v;
  explicit Gradients(const Problem& p, float filler = -7.0f)
      : q(p.q.size(), filler), k(p.k.size(), filler), v(p.v.size(), filler) {}
  friend bool operator==(const Gradients& a, const Gradients& b) {
    return same_bits(a.q, b.q) && same_bits(a.k, b.k) && same_bits(a.v, b.v);
  }
};

/// What a caller hands over beside the problem: the results of the forward pass and their gradients.
struct Upstream {
  Result forward;
  std::vector<float> dout, dlse;  // dlse may be empty: none
  Upstream(Result results, uint64_t seed)
      : forward(std::move(results)),
        dout(gaussians(seed, static_cast<int64_t>(forward.out.size()))),
        dlse(gaussians(seed + 1, static_cast<int64_t>(forward.lse.size()))) {}
};

inline TensorView<const float> like_out(const Problem& p, const std::vector<float>& x) {
  return TensorView<const float>(x.data(), {p.batch, p.num_q_heads, p.q_len, p.dv});
}
inline TensorView<const float> like_lse(const Problem& p, const std::vector<float>& x) {
  if (x.empty() && p.q_len > 0) return {};
  return TensorView<const float>(x.data(), {p.batch, p.num_q_heads, p.q_len});
}
inline TensorView<float> dq_view(const Problem& p, Gradients& g) {
  return {g.q.data(), {p.batch, p.num_q_heads, p.q_len, p.d}};
}
inline TensorView<float> dk_view(const Problem& p, Gradients& g) {
  return {g.k.data(), {p.batch, p.num_kv_heads, p.kv_len, p.d}};
}
inline TensorView<float> dv_view(const Problem& p, Gradients& g) {
  return {g.v.data(), {p.batch, p.num_kv_heads, p.kv_len, p.dv}};
}

inline Gradients run_backward(const Problem& p, const Upstream& up, const Mask& mask, const AttentionOptions& options) {
  Gradients g(p);
  attend_backward(q_view(p), k_view(p), v_view(p), like_out(p, up.forward.out), like_lse(p, up.forward.lse),
                  like_out(p, up.dout), like_lse(p, up.dlse), mask, options, dq_view(p, g), dk_view(p, g),
                  dv_view(p, g));
  return g;
}
inline Gradients run_backward(const Problem& p, const Upstream& up, const Mask& mask) {
  return run_backward(p, up, mask, options_of(p));
}

/// The scalar definition: what the call must give bit for bit.
template <kernels::reference::Rounding R>
Gradients backward_by_spec(const Problem& p, const Upstream& up, const Mask& mask, const PairTerms& terms = {}) {
  using namespace kernels::reference;
  Gradients g(p, 0.0f);
  const auto factor = static_cast<float>(p.scale * math::kLog2e), cap = static_cast<float>(p.softcap * math::kLog2e);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t kv = 0; kv < p.num_kv_heads; ++kv)
      for (int64_t i = 0; i < p.q_len; ++i)
        for (int64_t h = kv * p.group(); h < (kv + 1) * p.group(); ++h) {
          const int64_t row = (b * p.num_q_heads + h) * p.q_len + i;
          const auto at = static_cast<size_t>(row);
          attention_backward_row_spec<R>(
              p.query(b, h, i), up.forward.out.data() + row * p.dv, up.dout.data() + row * p.dv, up.forward.lse[at],
              up.dlse.empty() ? 0.0f : up.dlse[at], static_cast<int>(p.d), static_cast<int>(p.dv), p.k_begin,
              p.k_begin + p.kv_len, static_cast<float>(p.scale), factor, cap,
              [&](int64_t j, int x) { return p.key(b, kv, j - p.k_begin)[x]; },
              [&](int64_t j, int c) { return p.value(b, kv, j - p.k_begin)[c]; },
              [&](int64_t j) { return mask.allowed(b, h, p.q_begin + i, j); }, g.q.data() + row * p.d,
              [&](int64_t j) { return g.k.data() + ((b * p.num_kv_heads + kv) * p.kv_len + j - p.k_begin) * p.d; },
              [&](int64_t j) { return g.v.data() + ((b * p.num_kv_heads + kv) * p.kv_len + j - p.k_begin) * p.dv; },
              [](int64_t, float) {}, RowTerms(terms, p, b, h, i));
        }
  for (float& x : g.k) x = spec_finish(x, static_cast<float>(math::kLn2));
  for (float& x : g.v) x = spec_finish(x, static_cast<float>(terms.keep_scale));
  return g;
}
inline Gradients backward_by_spec(const Problem& p, const Upstream& up, const Mask& mask, const PairTerms& terms = {}) {
  using kernels::reference::Rounding;
  return kernels::kernels().isa == Isa::kBaseline ? backward_by_spec<Rounding::kSeparate>(p, up, mask, terms)
                                                  : backward_by_spec<Rounding::kFused>(p, up, mask, terms);
}

/// Gradients in f64, from q, k, v and the gradients of out and lse alone.
struct WideGradients {
  std::vector<double> q, k, v;
  std::vector<double> pairs;  // [batch, heads, q_len, kv_len]: of the bias of each pair
  std::vector<double> sink;   // by head
};
inline WideGradients backward_in_f64(const Problem& p, const std::vector<float>& dout, const std::vector<float>& dlse,
                                     const Mask& mask, const PairTerms& terms = {}) {
  WideGradients g{std::vector<double>(p.q.size()), std::vector<double>(p.k.size()), std::vector<double>(p.v.size()),
                  std::vector<double>(static_cast<size_t>(p.batch * p.num_q_heads * p.q_len * p.kv_len)),
                  std::vector<double>(static_cast<size_t>(p.num_q_heads))};
  std::vector<double> scratch(static_cast<size_t>(p.dv + p.kv_len));
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.num_q_heads; ++h)
      for (int64_t i = 0; i < p.q_len; ++i) {
        const int64_t row = (b * p.num_q_heads + h) * p.q_len + i, kv = b * p.num_kv_heads + h / p.group();
        g.sink[static_cast<size_t>(h)] += kernels::reference::attention_backward_row<double>(
            [&](int64_t x) { return p.query(b, h, i)[x]; },
            [&](int64_t c) { return dout[static_cast<size_t>(row * p.dv + c)]; },
            dlse.empty() ? 0.0 : static_cast<double>(dlse[static_cast<size_t>(row)]), p.d, p.dv, p.k_begin,
            p.k_begin + p.kv_len, p.scale, p.softcap,
            [&](int64_t j, int64_t x) { return p.key(b, h / p.group(), j - p.k_begin)[x]; },
            [&](int64_t j, int64_t c) { return p.value(b, h / p.group(), j - p.k_begin)[c]; },
            [&](int64_t j) { return mask.allowed(b, h, p.q_begin + i, j); }, scratch.data(), g.q.data() + row * p.d,
            [&](int64_t j) { return g.k.data() + (kv * p.kv_len + j - p.k_begin) * p.d; },
            [&](int64_t j) { return g.v.data() + (kv * p.kv_len + j - p.k_begin) * p.dv; },
            g.pairs.data() + row * p.kv_len, RowTerms(terms, p, b, h, i));
      }
  return g;
}

/// The largest difference over the largest element; 0 and 0 agree.
inline double relative_error(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0, top = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = std::fabs(got[i] - want[i]);
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
    top = std::max(top, std::fabs(want[i]));
  }
  return top == 0 ? (error == 0 ? 0 : INFINITY) : error / top;
}

/// Threads of the default pool for as long as the object lives.
class Threads {
 public:
  explicit Threads(int threads) : before_(default_pool().size()) { set_default_pool_size(threads); }
  ~Threads() { set_default_pool_size(before_); }

 private:
  int before_;
};

}  // namespace regard::testing_attention
