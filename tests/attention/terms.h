// Problems with score terms: the same numbers as options of a call, and pair by pair for the definition.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "attention/calls.h"
#include "regard/score_terms.h"

namespace regard::testing_attention {

/// Which terms a problem has, and how its dense bias is repeated.
struct Wanted {
  const char* name;
  bool dense = false, alibi = false, t5 = false, sink = false, xl = false;
  bool all_batch = false, all_heads = false, all_queries = false, all_keys = false;
  T5Direction direction = T5Direction::kBidirectional;
  int64_t clamp = 40;  // 0: vectors for all distances
  double dropout = 0;
};

/// Every term alone, and all of them at once.
inline std::vector<Wanted> wanted_terms() {
  return {{.name = "dense", .dense = true},
          {.name = "dense [1, 1, q, k]", .dense = true, .all_batch = true, .all_heads = true},
          {.name = "dense [b, 1, 1, k]", .dense = true, .all_heads = true, .all_queries = true},
          {.name = "dense [1, h, q, 1]", .dense = true, .all_batch = true, .all_keys = true},
          {.name = "alibi", .alibi = true},
          {.name = "t5 bidirectional", .t5 = true},
          {.name = "t5 causal", .t5 = true, .direction = T5Direction::kCausal},
          {.name = "sink", .sink = true},
          {.name = "xl", .xl = true},
          {.name = "xl without a clamp", .xl = true, .clamp = 0},
          {.name = "dropout", .dropout = 0.3},
          {.name = "all", .dense = true, .alibi = true, .t5 = true, .sink = true, .xl = true, .dropout = 0.5}};
}

struct TermProblem {
  Problem p;
  Wanted wanted;
  std::vector<float> dense, table, sinks, slopes, u, v, r;
  int64_t first_distance = 0, distances = 0;
  static constexpr uint64_t kSeed = 0x123456789ABCDEFull;
  int64_t dense_shape[4] = {1, 1, 1, 1};
  static constexpr int64_t kBuckets = 16, kMaxDistance = 40;

  TermProblem(const Problem& problem, const Wanted& terms) : p(problem), wanted(terms) {
    const bool all[4] = {wanted.all_batch, wanted.all_heads, wanted.all_queries, wanted.all_keys};
    const int64_t extents[4] = {p.batch, p.num_q_heads, p.q_len, p.kv_len};
    int64_t size = 1;
    for (int i = 0; i < 4; ++i) size *= dense_shape[i] = all[i] ? 1 : extents[i];
    dense = gaussians(71, size);
    table = gaussians(72, kBuckets * p.num_q_heads);
    sinks = gaussians(73, p.num_q_heads);
    first_distance = wanted.clamp > 0 ? -wanted.clamp : -p.kv_len;
    distances = wanted.clamp > 0 ? 2 * wanted.clamp + 1 : p.kv_len + p.q_begin + p.q_len;
    if (wanted.xl) {
      u = gaussians(74, p.num_q_heads * p.d);
      v = gaussians(75, p.num_q_heads * p.d);
      r = gaussians(76, distances * p.num_q_heads * p.d);
    }
    for (int64_t h = 0; h < p.num_q_heads; ++h) slopes.push_back(0.3f / static_cast<float>(h + 1));
  }

  AttentionOptions options() const {
    AttentionOptions o = options_of(p);
    if (wanted.dense)
      o.bias = TensorView<const float>(dense.data(), {dense_shape[0], dense_shape[1], dense_shape[2], dense_shape[3]});
    if (wanted.alibi) o.alibi = Alibi{slopes};
    if (wanted.t5)
      o.t5 = T5Bias{TensorView<const float>(table.data(), {kBuckets, p.num_q_heads}), wanted.direction, kMaxDistance};
    if (wanted.xl)
      o.xl = TransformerXl{.u = TensorView<const float>(u.data(), {p.num_q_heads, p.d}),
                           .v = TensorView<const float>(v.data(), {p.num_q_heads, p.d}),
                           .r = TensorView<const float>(r.data(), {distances, p.num_q_heads, p.d}),
                           .first_distance = first_distance,
                           .clamp = wanted.clamp};
    if (wanted.dropout > 0) o.dropout = Dropout{.rate = wanted.dropout, .seed = kSeed};
    if (wanted.sink) o.sink = TensorView<const float>(sinks.data(), {p.num_q_heads});
    return o;
  }

  size_t dense_index(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t at[4] = {b, h, i, j};
    int64_t index = 0;
    for (int axis = 0; axis < 4; ++axis) index = index * dense_shape[axis] + (dense_shape[axis] == 1 ? 0 : at[axis]);
    return static_cast<size_t>(index);
  }

  /// The problem whose queries the definition takes: with Transformer-XL's u added.
  Problem shifted() const {
    Problem shifted = p;
    for (int64_t b = 0; wanted.xl && b < p.batch; ++b)
      for (int64_t h = 0; h < p.num_q_heads; ++h)
        for (int64_t i = 0; i < p.q_len; ++i)
          for (int64_t x = 0; x < p.d; ++x) shifted.query(b, h, i)[x] += u[static_cast<size_t>(h * p.d + x)];
    return shifted;
  }

  /// The relative term of a pair, rounded as the kernels round it.
  template <kernels::reference::Rounding R>
  float relative(int64_t b, int64_t h, int64_t i, int64_t distance) const {
    if (wanted.clamp > 0) distance = std::clamp(distance, -wanted.clamp, wanted.clamp);
    const float* vector = r.data() + ((distance - first_distance) * p.num_q_heads + h) * p.d;
    float sum = 0;
    for (int64_t x = 0; x < p.d; ++x)
      sum = kernels::reference::spec_fma<R>(
          (p.query(b, h, i)[x] + v[static_cast<size_t>(h * p.d + x)]) * static_cast<float>(p.scale), vector[x], sum);
    return sum;
  }
  float relative(int64_t b, int64_t h, int64_t i, int64_t distance) const {
    using kernels::reference::Rounding;
    return kernels::kernels().isa == Isa::kBaseline ? relative<Rounding::kSeparate>(b, h, i, distance)
                                                    : relative<Rounding::kFused>(b, h, i, distance);
  }

  /// The same where query i and key j stand at these positions, for encodings and for dropout, which knows the mask's.
  PairTerms pairs(std::function<int64_t(int64_t)> query_at, std::function<int64_t(int64_t)> key_at) const {
    return pairs(
        query_at, key_at, [this](int64_t i) { return p.q_begin + i; }, [this](int64_t j) { return p.k_begin + j; });
  }
  PairTerms pairs(std::function<int64_t(int64_t)> query_at, std::function<int64_t(int64_t)> key_at,
                  std::function<int64_t(int64_t)> query_position, std::function<int64_t(int64_t)> key_position) const {
    PairTerms terms;
    terms.bias = [this, query_at, key_at](int64_t b, int64_t h, int64_t i, int64_t j) {
      const int64_t distance = key_at(j) - query_at(i);
      float sum = 0;
      if (wanted.alibi)
        sum = static_cast<float>(-static_cast<double>(slopes[static_cast<size_t>(h)]) *
                                 std::fabs(static_cast<double>(distance)));
      if (wanted.t5)
        sum += table[static_cast<size_t>(t5_bucket(distance, kBuckets, kMaxDistance, wanted.direction) * p.num_q_heads +
                                         h)];
      if (wanted.dense) sum += dense[dense_index(b, h, i, j)];
      if (wanted.xl) sum += relative(b, h, i, -distance);
      return sum;
    };
    if (wanted.sink) terms.sinks = sinks;
    if (wanted.dropout > 0) {
      terms.keep_scale = 1 / (1 - wanted.dropout);
      terms.keep = [this, query_position, key_position](int64_t b, int64_t h, int64_t i, int64_t j) {
        const auto q = static_cast<uint64_t>(query_position(i)), k = static_cast<uint64_t>(key_position(j));
        const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
        const PhiloxBlock row = philox({static_cast<uint32_t>(b), static_cast<uint32_t>(h), low(q), low(q >> 32)},
                                       {low(kSeed), low(kSeed >> 32)});
        const uint64_t c = k / 256 * 64 + k % 64;
        return static_cast<double>(philox({low(c), low(c >> 32), 0, 0}, {row[0], row[1]})[k / 64 % 4]) >=
               std::floor(wanted.dropout * 0x1p32);
      };
    }
    return terms;
  }
  PairTerms pairs() const {
    return pairs([this](int64_t i) { return p.q_begin + i; }, [this](int64_t j) { return p.k_begin + j; });
  }
};

/// A problem of several heads and batch rows whose queries end the keys.
inline Problem small(int64_t q_len, int64_t kv_len, int64_t batch = 2) {
  Problem p = with_lengths(q_len, kv_len, 24, 20);
  p.batch = batch;
  p.fill(static_cast<uint64_t>(31 + q_len + kv_len));
  return p;
}

inline std::vector<Mask> some_masks() {
  return {Mask::full(), Mask::causal(), Mask::window(100, 20), Mask::parse("causal & ~dilated(3)"),
          Mask::parse("per_head(causal, window(10, *), full, none)")};
}

}  // namespace regard::testing_attention
