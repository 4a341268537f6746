// Sequences packed behind each other: the bits of a call for each alone, and of a padded batch.
#include <gtest/gtest.h>

#include "attention/terms.h"
#include "runtime/thread_pool.h"

namespace regard {
namespace {

using namespace testing_attention;

// A padded batch, and the same sequences packed; NaN wherever nobody may look.
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

  // Compares the rows of sequence s with those of `row` of a result [.., heads, q_len, dv].
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

Packed example(const Wanted& wanted) {
  const std::vector<int64_t> q_lengths = {5, 0, 60, 1, 3, 17}, k_lengths = {5, 4, 300, 257, 0, 17};
  Problem p = with_lengths(60, 300, 16, 20);
  p.batch = 6, p.q_begin = 240;
  p.fill(41);
  return Packed(p, wanted, q_lengths, k_lengths);
}

TEST(PackedSequences, EqualAPaddedBatchAndCallsOfTheirOwn) {
  for (const Wanted& wanted : wanted_terms()) {
    if (wanted.clamp == 0) continue;
    const Packed t = example(wanted);
    for (const Mask& mask : {Mask::full(), Mask::causal(), Mask::parse("causal & ~dilated(3)"), Mask::window(20, 3)}) {
      const std::string what = std::string(wanted.name) + " under " + mask.text();
      AttentionOptions o = t.options();
      set_default_pool_size(1);
      const Result got = t.run(mask, o);
      set_default_pool_size(3);
      ASSERT_EQ(t.run(mask, o), got) << what;
      set_default_pool_size(2);
      AttentionOptions padded = t.padded.options();
      padded.q_begin = o.q_begin;
      padded.query_lengths = t.q_lengths;
      padded.limits.key_lengths = t.k_lengths;
      const Result batch = run(t.padded.p, mask, padded);
      for (size_t s = 0; s < t.q_lengths.size(); ++s) {
        ASSERT_NO_FATAL_FAILURE(t.expect_rows(got, s, batch, static_cast<int64_t>(s), 60, what + ", padded"));
        if (wanted.dropout > 0) continue;  // it counts batch rows
        AttentionOptions own = t.padded.options();
        own.q_begin = {o.q_begin[s]};
        if (wanted.dense) {
          if (!wanted.all_batch) own.bias.data += static_cast<int64_t>(s) * own.bias.strides[0], own.bias.shape[0] = 1;
          if (!wanted.all_queries) own.bias.shape[2] = t.q_lengths[s];
          if (!wanted.all_keys) own.bias.shape[3] = t.k_lengths[s];
        }
        Problem shape = t.padded.p;
        shape.batch = 1, shape.q_len = t.q_lengths[s];
        Result alone(shape);
        TensorView<const float> q = t.q_view(), k = t.k_view(), v = t.v_view();
        q.data += t.q_offsets[s] * q.strides[2], q.shape[2] = t.q_lengths[s];
        k.data += t.k_offsets[s] * k.strides[2], k.shape[2] = t.k_lengths[s];
        v.data += t.k_offsets[s] * v.strides[2], v.shape[2] = t.k_lengths[s];
        attend(q, k, v, mask, own, {alone.out.data(), {1, shape.num_q_heads, shape.q_len, shape.dv}},
               {alone.lse.data(), {1, shape.num_q_heads, shape.q_len}});
        ASSERT_NO_FATAL_FAILURE(t.expect_rows(got, s, alone, 0, shape.q_len, what + ", alone"));
      }
      for (int64_t h = 0; h < 4; ++h)  // the slack
        for (int64_t i = t.q_offsets.back(); i < t.q_total; ++i) {
          const float lse = got.lse[static_cast<size_t>(h * t.q_total + i)];
          ASSERT_EQ(lse, wanted.sink ? t.padded.sinks[static_cast<size_t>(h)] : -INFINITY) << what;
          for (int64_t c = 0; c < 20; ++c)
            ASSERT_EQ(bits(got.out[static_cast<size_t>((h * t.q_total + i) * 20 + c)]), 0u);
        }
    }
  }
}

TEST(BugCase34, RowsBehindTheLastOffset) {
  std::vector<float> q(8 * 4, NAN), k(8 * 4, NAN), v(8 * 4, NAN), out(8 * 4, NAN), lse(8, NAN);
  for (int i = 0; i < 5 * 4; ++i)
    q[static_cast<size_t>(i)] = 0, k[static_cast<size_t>(i)] = 1, v[static_cast<size_t>(i)] = static_cast<float>(i / 4);
  AttentionOptions o;
  o.q_offsets = {0, 3, 5};
  attend(TensorView<const float>(q.data(), {1, 1, 8, 4}), TensorView<const float>(k.data(), {1, 1, 8, 4}),
         TensorView<const float>(v.data(), {1, 1, 8, 4}), Mask::causal(), o, {out.data(), {1, 1, 8, 4}},
         {lse.data(), {1, 1, 8}});
  const float want[8] = {0, 0.5f, 1, 3, 3.5f, 0, 0, 0};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(out[static_cast<size_t>(4 * i)], want[i]) << i;
  for (int i = 5; i < 8; ++i) EXPECT_EQ(lse[static_cast<size_t>(i)], -INFINITY);
}

// Positions and encoding positions are lists over all slots; documents and lengths count sequences as batch rows.
TEST(PackedSequences, ListsOfPositionsAndLimits) {
  const Packed t = example({.name = "alibi", .alibi = true});
  AttentionOptions o = t.options();
  const Result want = t.run(Mask::causal(), o);
  std::vector<int64_t> q_at, k_at;
  for (size_t s = 0; s < 6; ++s) {
    for (int64_t i = 0; i < t.q_lengths[s]; ++i) q_at.push_back(o.q_begin[s] + i);
    for (int64_t j = 0; j < t.k_lengths[s]; ++j) k_at.push_back(j);
  }
  q_at.resize(static_cast<size_t>(t.q_total), 7), k_at.resize(static_cast<size_t>(t.k_total), 7);
  o.q_begin.clear(), o.k_begin.clear();
  o.q_positions = TensorView<const int64_t>(q_at.data(), {t.q_total});
  o.k_positions = TensorView<const int64_t>(k_at.data(), {t.k_total});
  EXPECT_EQ(t.run(Mask::causal(), o), want);
  o = t.options();
  o.q_encoding_positions = TensorView<const int64_t>(q_at.data(), {1, t.q_total});
  o.k_encoding_positions = TensorView<const int64_t>(k_at.data(), {t.k_total});
  EXPECT_EQ(t.run(Mask::causal(), o), want);
  o = t.options();
  o.limits.key_lengths = {5, 4, 120, 257, 0, 17};
  const Result less = t.run(Mask::causal(), o);
  for (int64_t h = 0; h < 4; ++h)
    for (int64_t i = 0; i < t.q_total; ++i) {
      const bool other = i >= t.q_offsets[2] && i < t.q_offsets[3];  // 120 of 300 keys in the third sequence
      const auto at = static_cast<size_t>(h * t.q_total + i);
      ASSERT_EQ(bits(less.lse[at]) != bits(want.lse[at]), other) << h << " " << i;
    }
}

TEST(Refusals, OffsetsThatDoNotFit) {
  const Packed t = example({.name = "dense", .dense = true});
  const auto with = [&](auto&& change, std::initializer_list<const char*> words) {
    AttentionOptions o = t.options();
    change(o);
    expect_refused(Code::kInvalidArgument, words, [&] { t.run(Mask::causal(), o); });
  };
  with([](auto& o) { o.q_offsets = {0}; }, {"[attend]", "q_offsets", "1 numbers"});
  with([](auto& o) { o.q_offsets[0] = 1; }, {"q_offsets", "begins with 1"});
  with([](auto& o) { o.q_offsets[2] = 4; }, {"q_offsets", "from 5 to 4", "never fall"});
  with([](auto& o) { o.q_offsets.back() = 90; }, {"q_offsets", "90", "89 slots"});
  with([](auto& o) { o.k_offsets.pop_back(); }, {"q_offsets and k_offsets", "7 and 6"});
  with([](auto& o) { o.k_offsets.clear(), o.q_offsets.back() = 88; }, {"bias"});
  with([](auto& o) { o.q_offsets.clear(); }, {"k_offsets", "without q_offsets"});
  with([](auto& o) { o.query_lengths = {1}; }, {"q_offsets and query_lengths"});
  with([](auto& o) { o.q_begin = {1, 2}; }, {"q_begin", "2 numbers", "6 batch rows"});
  with([](auto& o) { o.q_begin.clear(), o.k_begin.clear(); }, {"60 queries and 300 keys", "not stated"});
  with([](auto& o) { o.bias.shape[0] = 5; }, {"bias", "[6, 4, 60, 300]"});
  std::vector<float> w(4 * 300), lse(4 * 300);
  AttentionOptions o = t.options();
  o.bias = {};
  expect_refused(Code::kInvalidArgument, {"[attention_weights]", "q_offsets"}, [&] {
    attention_weights(t.q_view(), t.k_view(), TensorView<const float>(lse.data(), {1, 4, t.q_total}), Mask::causal(), o,
                      {0, 1}, {0, 1}, {w.data(), {1, 4, 1, 1}});
  });
  Problem p = with_lengths(4, 4, 8, 8);
  p.batch = 2;
  p.fill(1);
  o = options_of(p);
  o.q_offsets = {0, 4};
  expect_refused(Code::kInvalidArgument, {"q_offsets", "batch is 2"}, [&] { run(p, Mask::full(), o); });
}

}  // namespace
}  // namespace regard
