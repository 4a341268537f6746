// Probe U: queries 0 and one-hot values (value_dim = kv_len), so that output row i is 1 / |set| on the keys it sees and
// 0 elsewhere; a row that sees nothing is 0 with lse -inf.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "attention/attention.h"
#include "attention/kv_cache.h"
#include "attention/testing.h"
#include "regard/attention.h"
#include "runtime/thread_pool.h"

namespace regard::testing_attention {

using Sets = std::vector<std::vector<int64_t>>;

inline AttentionOptions at(int64_t q_begin, int64_t k_begin = 0) {
  AttentionOptions o;
  o.q_begin = {q_begin};
  o.k_begin = {k_begin};
  return o;
}

// The sets of keys (by index) that the rows of [batch][head] see, by probe U; checks output, lse and weights on the
// way.
inline std::vector<Sets> seen(const Mask& mask, int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len,
                              const AttentionOptions& options) {
  Problem p;
  p.batch = batch, p.num_q_heads = heads, p.num_kv_heads = 1, p.q_len = q_len, p.kv_len = kv_len, p.d = 2,
  p.dv = kv_len;
  p.fill(3, 0);
  std::fill(p.v.begin(), p.v.end(), 0.0f);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t j = 0; j < kv_len; ++j) p.value(b, 0, j)[j] = 1.0f;
  Result r(p);
  std::vector<float> w(static_cast<size_t>(batch * heads * q_len * kv_len), -7.0f);
  const TensorView<const float> q(p.q.data(), {batch, heads, q_len, 2}), k(p.k.data(), {batch, 1, kv_len, 2}),
      v(p.v.data(), {batch, 1, kv_len, kv_len});
  attend(q, k, v, mask, options, {r.out.data(), {batch, heads, q_len, kv_len}}, {r.lse.data(), {batch, heads, q_len}});
  attention_weights(q, k, TensorView<const float>(r.lse.data(), {batch, heads, q_len}), mask, options, {0, q_len},
                    {0, kv_len}, {w.data(), {batch, heads, q_len, kv_len}});
  std::vector<Sets> all;
  for (int64_t bh = 0; bh < batch * heads; ++bh) {
    Sets sets;
    for (int64_t i = 0; i < q_len; ++i) {
      const size_t row = static_cast<size_t>(bh * q_len + i);
      std::vector<int64_t> set;
      for (int64_t j = 0; j < kv_len; ++j)
        if (r.out[row * static_cast<size_t>(kv_len) + static_cast<size_t>(j)] != 0) set.push_back(j);
      for (int64_t j = 0; j < kv_len; ++j) {
        const float x = r.out[row * static_cast<size_t>(kv_len) + static_cast<size_t>(j)];
        const bool in = std::find(set.begin(), set.end(), j) != set.end();
        EXPECT_EQ(x, in ? 1.0f / static_cast<float>(set.size()) : 0.0f);
        EXPECT_NEAR(w[row * static_cast<size_t>(kv_len) + static_cast<size_t>(j)], x, 1e-6)
            << "weights and output disagree";
      }
      if (set.empty())
        EXPECT_EQ(r.lse[row], -INFINITY);
      else
        EXPECT_NEAR(r.lse[row], std::log(static_cast<double>(set.size())), 1e-6);
      sets.push_back(set);
    }
    all.push_back(sets);
  }
  return all;
}
inline Sets seen(const Mask& mask, int64_t q_len, int64_t kv_len, const AttentionOptions& options) {
  return seen(mask, 1, 1, q_len, kv_len, options)[0];
}
inline Sets seen(const Mask& mask, int64_t n) { return seen(mask, n, n, at(0)); }

inline std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> r;
  for (int64_t i = begin; i < end; ++i) r.push_back(i);
  return r;
}

// One query and keys whose scores are given numbers; returns the weights.
inline std::vector<float> weights_of(const std::vector<float>& scores, const Mask& mask, double softcap = 0,
                                     float* lse = nullptr) {
  const auto n = static_cast<int64_t>(scores.size());
  const float one = 1.0f;
  std::vector<float> v(static_cast<size_t>(n * n), 0.0f), out(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) v[static_cast<size_t>(j * n + j)] = 1.0f;
  AttentionOptions o = at(0);
  o.scale = 1.0;
  o.softcap = softcap;
  float unused = 0;
  attend(TensorView<const float>(&one, {1, 1, 1, 1}), TensorView<const float>(scores.data(), {1, 1, n, 1}),
         TensorView<const float>(v.data(), {1, 1, n, n}), mask, o, {out.data(), {1, 1, 1, n}},
         {lse == nullptr ? &unused : lse, {1, 1, 1}});
  return out;
}

// What a sequence sees step by step through a cache: portions of `chunk` tokens, each row's set by probe U.
inline Sets seen_through_cache(const Mask& mask, int64_t n, int64_t chunk) {
  const int dim = static_cast<int>(n);
  KvCacheOptions options;
  options.geometry = {.num_kv_heads = 1, .head_dim = 2, .value_dim = dim};
  KvCache cache(options);
  ThreadPool pool(2);
  AttentionWorkspace workspace;
  const MaskPlan plan(mask, {}, 1, 1);
  const AttentionShape shape{1, 1, 2, dim, 1, 0};
  std::vector<float> q(static_cast<size_t>(2 * n), 0.0f), k(q), v(static_cast<size_t>(n * n), 0.0f), out(v);
  for (int64_t j = 0; j < n; ++j) v[static_cast<size_t>(j * n + j)] = 1.0f;
  for (int64_t first = 0; first < n; first += chunk) {
    const int64_t count = std::min(chunk, n - first);
    cache.append({.k = k.data() + 2 * first,
                  .k_token_stride = 2,
                  .k_head_stride = 0,
                  .v = v.data() + n * first,
                  .v_token_stride = n,
                  .v_head_stride = 0},
                 count);
    SequenceQueries s;
    s.q = q.data() + 2 * first, s.q_token_stride = 2;
    s.out = out.data() + n * first, s.out_token_stride = n;
    s.tokens = count, s.first_position = first, s.keys = cache.view();
    attend_sequences({&s, 1}, shape, plan, workspace, pool);
  }
  Sets sets;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<int64_t> set;
    for (int64_t j = 0; j < n; ++j)
      if (out[static_cast<size_t>(i * n + j)] != 0) set.push_back(j);
    sets.push_back(set);
  }
  return sets;
}

inline Mask keys_below(int64_t n) { return Mask::lengths({n}); }

// A mask from rows of sets, as a table.
inline Mask table_of(int64_t kv_len, const Sets& sets) {
  std::vector<uint8_t> bytes(sets.size() * static_cast<size_t>(kv_len), 0);
  for (size_t i = 0; i < sets.size(); ++i)
    for (int64_t j : sets[i]) bytes[i * static_cast<size_t>(kv_len) + static_cast<size_t>(j)] = 1;
  return Mask::from_array(Polarity::kKeep,
                          TensorView<const uint8_t>(bytes.data(), {static_cast<int64_t>(sets.size()), kv_len}));
}

}  // namespace regard::testing_attention
