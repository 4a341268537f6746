// Sequences packed behind each other, and the padded batch that they are compared with.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "attention/terms.h"

namespace regard::testing_attention {

/// A padded batch, and the same sequences packed; NaN wherever nobody may look.
struct Packed {
  TermProblem padded;
  std::vector<int64_t> q_lengths, k_lengths, q_offsets = {0}, k_offsets = {0};
  std::vector<float> q, k, v;
  int64_t q_total = 0, k_total = 0;
  static constexpr int64_t kSlack = 3;

  Packed(const Problem& p, const Wanted& wanted, std::vector<int64_t> q_len, std::vector<int64_t> k_len)
      : padded(p, wanted), q_lengths(std::move(q_len)), k_lengths(std::move(k_len)) {
    for (size_t s = 0; s < q_lengths.size(); ++s) {
      q_offsets.push_back(q_offsets.back() + q_lengths[s]);
      k_offsets.push_back(k_offsets.back() + k_lengths[s]);
    }
    q_total = q_offsets.back() + kSlack;
    k_total = k_offsets.back() + kSlack;
    Problem& all = padded.p;
    const auto pack = [&](int64_t heads, int64_t dim, int64_t total, const std::vector<int64_t>& lengths,
                          const std::vector<int64_t>& offsets, std::vector<float>& to, auto&& row) {
      to.assign(static_cast<size_t>(heads * total * dim), NAN);
      for (int64_t s = 0; s < all.batch; ++s)
        for (int64_t h = 0; h < heads; ++h)
          for (int64_t i = 0; i < lengths[static_cast<size_t>(s)]; ++i)
            std::copy_n(row(s, h, i), dim,
                        &to[static_cast<size_t>((h * total + offsets[static_cast<size_t>(s)] + i) * dim)]);
    };
    pack(all.num_q_heads, all.d, q_total, q_lengths, q_offsets, q,
         [&](int64_t s, int64_t h, int64_t i) { return all.query(s, h, i); });
    pack(all.num_kv_heads, all.d, k_total, k_lengths, k_offsets, k,
         [&](int64_t s, int64_t h, int64_t i) { return all.key(s, h, i); });
    pack(all.num_kv_heads, all.dv, k_total, k_lengths, k_offsets, v,
         [&](int64_t s, int64_t h, int64_t i) { return all.value(s, h, i); });
  }

  AttentionOptions options() const {
    AttentionOptions o = padded.options();
    o.q_offsets = q_offsets;
    o.k_offsets = k_offsets;
    o.q_begin.clear();
    for (size_t s = 0; s < q_lengths.size(); ++s)
      o.q_begin.push_back(std::max<int64_t>(0, k_lengths[s] - q_lengths[s]));
    return o;
  }
  TensorView<const float> q_view() const { return {q.data(), {1, padded.p.num_q_heads, q_total, padded.p.d}}; }
  TensorView<const float> k_view() const { return {k.data(), {1, padded.p.num_kv_heads, k_total, padded.p.d}}; }
  TensorView<const float> v_view() const { return {v.data(), {1, padded.p.num_kv_heads, k_total, padded.p.dv}}; }

  Result run(const Mask& mask, const AttentionOptions& o) const {
    Problem shape = padded.p;
    shape.batch = 1, shape.q_len = q_total;
    Result r(shape);
    attend(q_view(), k_view(), v_view(), mask, o, {r.out.data(), {1, shape.num_q_heads, q_total, shape.dv}},
           {r.lse.data(), {1, shape.num_q_heads, q_total}});
    return r;
  }

  /// Compares the rows of sequence s with those of `row` of a result [.., heads, q_len, dv].
  void expect_rows(const Result& got, size_t s, const Result& want, int64_t row, int64_t q_len,
                   const std::string& what) const {
    const int64_t heads = padded.p.num_q_heads, dv = padded.p.dv, n = q_lengths[s];
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t a = h * q_total + q_offsets[s], b = (row * heads + h) * q_len;
      ASSERT_TRUE(same_bits(got.out.data() + a * dv, want.out.data() + b * dv, n * dv)) << what << ", sequence " << s;
      ASSERT_TRUE(same_bits(got.lse.data() + a, want.lse.data() + b, n)) << what << ", sequence " << s;
    }
  }
};

/// Sequences without queries, without keys, of one query, and of more than a tile.
inline Packed packed_example(const Wanted& wanted) {
  const std::vector<int64_t> q_lengths = {5, 0, 60, 1, 3, 17}, k_lengths = {5, 4, 300, 257, 0, 17};
  Problem p = with_lengths(60, 300, 16, 20);
  p.batch = 6, p.q_begin = 240;
  p.fill(41);
  return Packed(p, wanted, q_lengths, k_lengths);
}

}  // namespace regard::testing_attention
