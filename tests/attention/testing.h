// What the tests of this room share: problems with known random numbers, plain results in f64, and comparisons.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/spec.h"
#include "kernels/registry.h"
#include "regard/mask.h"

namespace regard::testing_attention {

inline float gaussian(uint64_t seed, uint64_t index) {
  const double u = random_uniform(seed, 1, index), v = random_uniform(seed, 2, index);
  return static_cast<float>(std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * M_PI * v));
}

inline std::vector<float> gaussians(uint64_t seed, int64_t count, double scale = 1) {
  std::vector<float> x;
  for (int64_t i = 0; i < count; ++i) x.push_back(static_cast<float>(scale * gaussian(seed, static_cast<uint64_t>(i))));
  return x;
}

inline uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }
inline bool same_bits(const float* a, const float* b, int64_t n) {
  return n == 0 || std::memcmp(a, b, static_cast<size_t>(n) * sizeof(float)) == 0;
}
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), static_cast<int64_t>(a.size()));
}

/// Dense tensors [batch, heads, length, dim] and where their rows stand.
struct Problem {
  int64_t batch = 1, num_q_heads = 1, num_kv_heads = 1, q_len = 1, kv_len = 1, d = 64, dv = 64;
  int64_t q_begin = 0, k_begin = 0;
  double scale = 0, softcap = 0;
  std::vector<float> q, k, v;

  int64_t group() const { return num_q_heads / num_kv_heads; }
  float* query(int64_t b, int64_t h, int64_t i) { return q.data() + ((b * num_q_heads + h) * q_len + i) * d; }
  float* key(int64_t b, int64_t g, int64_t j) { return k.data() + ((b * num_kv_heads + g) * kv_len + j) * d; }
  float* value(int64_t b, int64_t g, int64_t j) { return v.data() + ((b * num_kv_heads + g) * kv_len + j) * dv; }
  const float* query(int64_t b, int64_t h, int64_t i) const { return const_cast<Problem*>(this)->query(b, h, i); }
  const float* key(int64_t b, int64_t g, int64_t j) const { return const_cast<Problem*>(this)->key(b, g, j); }
  const float* value(int64_t b, int64_t g, int64_t j) const { return const_cast<Problem*>(this)->value(b, g, j); }

  /// Fills q, k and v with gaussians (times `spread` for q).
  Problem& fill(uint64_t seed, double spread = 1) {
    scale = scale == 0 ? 1 / std::sqrt(static_cast<double>(d)) : scale;
    q = gaussians(seed, batch * num_q_heads * q_len * d, spread);
    k = gaussians(seed + 1, batch * num_kv_heads * kv_len * d);
    v = gaussians(seed + 2, batch * num_kv_heads * kv_len * dv);
    return *this;
  }
};

/// Outputs [batch, heads, q_len, dv] and lse [batch, heads, q_len].
struct Result {
  std::vector<float> out, lse;
  explicit Result(const Problem& p, float filler = -7.0f)
      : out(static_cast<size_t>(p.batch * p.num_q_heads * p.q_len * p.dv), filler),
        lse(static_cast<size_t>(p.batch * p.num_q_heads * p.q_len), filler) {}
  friend bool operator==(const Result& a, const Result& b) {
    return same_bits(a.out, b.out) && same_bits(a.lse, b.lse);
  }
};

/// The score terms of a problem, pair by pair: batch row, query head, query and key by their numbers. As the definition
/// asks for them; nothing given: none.
struct PairTerms {
  std::function<float(int64_t b, int64_t h, int64_t i, int64_t j)> bias;
  std::function<bool(int64_t b, int64_t h, int64_t i, int64_t j)> keep;
  std::vector<float> sinks;  // by head
  double keep_scale = 1;
};
struct RowTerms {
  const PairTerms& all;
  int64_t b, h, i, k_begin;
  double keep_scale = 1, sink = -INFINITY;
  RowTerms(const PairTerms& terms, const Problem& p, int64_t row_b, int64_t row_h, int64_t row_i)
      : all(terms), b(row_b), h(row_h), i(row_i), k_begin(p.k_begin), keep_scale(terms.keep_scale) {
    if (!all.sinks.empty()) sink = all.sinks[static_cast<size_t>(h)];
  }
  float bias(int64_t j) const { return all.bias ? all.bias(b, h, i, j - k_begin) : 0.0f; }
  bool keep(int64_t j) const { return !all.keep || all.keep(b, h, i, j - k_begin); }
};

/// The scalar definition applied to every row: what a kernel must give bit for bit.
template <kernels::reference::Rounding R>
Result by_spec(const Problem& p, const Mask& mask, const PairTerms& terms = {}) {
  Result result(p);
  const auto factor = static_cast<float>(p.scale * math::kLog2e), cap = static_cast<float>(p.softcap * math::kLog2e);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.num_q_heads; ++h)
      for (int64_t i = 0; i < p.q_len; ++i) {
        const int64_t row = (b * p.num_q_heads + h) * p.q_len + i, g = h / p.group();
        result.lse[static_cast<size_t>(row)] = kernels::reference::attention_row_spec<R>(
            p.query(b, h, i), static_cast<int>(p.d), static_cast<int>(p.dv), p.k_begin, p.k_begin + p.kv_len, factor,
            cap, [&](int64_t j, int x) { return p.key(b, g, j - p.k_begin)[x]; },
            [&](int64_t j, int c) { return p.value(b, g, j - p.k_begin)[c]; },
            [&](int64_t j) { return mask.allowed(b, h, p.q_begin + i, j); }, result.out.data() + row * p.dv,
            RowTerms(terms, p, b, h, i));
      }
  return result;
}
inline Result by_spec(const Problem& p, const Mask& mask, const PairTerms& terms = {}) {
  using kernels::reference::Rounding;
  return kernels::kernels().isa == Isa::kBaseline ? by_spec<Rounding::kSeparate>(p, mask, terms)
                                                  : by_spec<Rounding::kFused>(p, mask, terms);
}

/// Expects `got` within c * eps * (1 + max|s|) * sum_j w_j |v_j| of attention in f64, and lse within c * eps * (1 +
/// max|s|).
inline void expect_close(const Problem& p, const Mask& mask, const Result& got, const std::string& what,
                         const PairTerms& terms = {}) {
  constexpr double kEps = 0x1p-24, kFactor = 6;
  std::vector<double> out(static_cast<size_t>(p.dv)), size(static_cast<size_t>(p.dv));
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.num_q_heads; ++h)
      for (int64_t i = 0; i < p.q_len; ++i) {
        const int64_t row = (b * p.num_q_heads + h) * p.q_len + i, g = h / p.group();
        const auto query = [&](int64_t x) { return p.query(b, h, i)[x]; };
        const auto key = [&](int64_t j, int64_t x) { return p.key(b, g, j - p.k_begin)[x]; };
        const auto value = [&](int64_t j, int64_t c) { return p.value(b, g, j - p.k_begin)[c]; };
        const auto magnitude = [&](int64_t j, int64_t c) { return std::fabs(value(j, c)); };
        const auto visible = [&](int64_t j) { return mask.allowed(b, h, p.q_begin + i, j); };
        const auto reference = [&](const auto& values, std::vector<double>& to) {
          return kernels::reference::attention_row<double>(query, p.d, p.dv, p.k_begin, p.k_begin + p.kv_len, p.scale,
                                                           p.softcap, key, values, visible, to.data(), nullptr,
                                                           RowTerms(terms, p, b, h, i));
        };
        const double lse = reference(value, out);
        reference(magnitude, size);
        // The sums of products behind a score bound its error, however much of them cancels.
        double top = 0;
        for (int64_t j = p.k_begin; j < p.k_begin + p.kv_len; ++j) {
          if (!visible(j)) continue;
          double s = terms.bias ? std::fabs(terms.bias(b, h, i, j - p.k_begin)) : 0;
          if (!std::isfinite(s)) continue;
          for (int64_t x = 0; x < p.d; ++x) s += std::fabs(static_cast<double>(query(x)) * key(j, x) * p.scale);
          top = std::max(top, s);
        }
        const double bound = kFactor * kEps * (1 + top);
        const float got_lse = got.lse[static_cast<size_t>(row)];
        if (std::isfinite(lse))
          ASSERT_NEAR(got_lse, lse, bound * (1 + std::fabs(lse) / (1 + top))) << what << " lse of row " << row;
        else
          ASSERT_EQ(got_lse, lse) << what << " row " << row;
        for (int64_t c = 0; c < p.dv; ++c)
          ASSERT_NEAR(got.out[static_cast<size_t>(row * p.dv + c)], out[static_cast<size_t>(c)],
                      bound * size[static_cast<size_t>(c)] + 1e-44)
              << what << " row " << row << " column " << c;
      }
}

}  // namespace regard::testing_attention
