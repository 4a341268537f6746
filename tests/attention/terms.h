// Problems with score terms: the same numbers as options of a call, and pair by pair for the definition.
#pragma once

#include <string>
#include <vector>

#include "attention/calls.h"
#include "regard/score_terms.h"

namespace regard::testing_attention {

/// Which terms a problem has, and how its dense bias is repeated.
struct Wanted {
  const char* name;
  bool dense = false, alibi = false, t5 = false, sink = false;
  bool all_batch = false, all_heads = false, all_queries = false, all_keys = false;
  T5Direction direction = T5Direction::kBidirectional;
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
          {.name = "all", .dense = true, .alibi = true, .t5 = true, .sink = true}};
}

struct TermProblem {
  Problem p;
  Wanted wanted;
  std::vector<float> dense, table, sinks, slopes;
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
    for (int64_t h = 0; h < p.num_q_heads; ++h) slopes.push_back(0.3f / static_cast<float>(h + 1));
  }

  AttentionOptions options() const {
    AttentionOptions o = options_of(p);
    if (wanted.dense)
      o.bias = TensorView<const float>(dense.data(), {dense_shape[0], dense_shape[1], dense_shape[2], dense_shape[3]});
    if (wanted.alibi) o.alibi = Alibi{slopes};
    if (wanted.t5)
      o.t5 = T5Bias{TensorView<const float>(table.data(), {kBuckets, p.num_q_heads}), wanted.direction, kMaxDistance};
    if (wanted.sink) o.sink = TensorView<const float>(sinks.data(), {p.num_q_heads});
    return o;
  }

  size_t dense_index(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t at[4] = {b, h, i, j};
    int64_t index = 0;
    for (int axis = 0; axis < 4; ++axis) index = index * dense_shape[axis] + (dense_shape[axis] == 1 ? 0 : at[axis]);
    return static_cast<size_t>(index);
  }

  /// The same where query i and key j stand at these positions.
  PairTerms pairs(std::function<int64_t(int64_t)> query_at, std::function<int64_t(int64_t)> key_at) const {
    PairTerms terms;
    terms.bias = [this, query_at, key_at](int64_t b, int64_t h, int64_t i, int64_t j) {
      const int64_t distance = key_at(j) - query_at(i);
      float sum = 0;
      if (wanted.alibi)
        sum = static_cast<float>(-static_cast<double>(slopes[static_cast<size_t>(h)]) *
                                 std::fabs(static_cast<double>(distance)));
      if (wanted.t5)
        sum += table[static_cast<size_t>(t5_bucket(distance, kBuckets, kMaxDistance, wanted.direction) * p.num_q_heads + h)];
      if (wanted.dense) sum += dense[dense_index(b, h, i, j)];
      return sum;
    };
    if (wanted.sink) terms.sinks = sinks;
    return terms;
  }
  PairTerms pairs() const {
    return pairs([this](int64_t i) { return p.q_begin + i; }, [this](int64_t j) { return p.k_begin + j; });
  }
};

}  // namespace regard::testing_attention
