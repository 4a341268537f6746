// Sequences packed behind each other: the bits of a call for each alone, and of a padded batch.
#include <gtest/gtest.h>

#include "attention/packed.h"
#include "runtime/thread_pool.h"

namespace regard {
namespace {

using namespace testing_attention;

TEST(PackedSequences, EqualAPaddedBatchAndCallsOfTheirOwn) {
  for (const Wanted& wanted : wanted_terms()) {
    if (wanted.clamp == 0) continue;
    const Packed t = packed_example(wanted);
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
  const Packed t = packed_example({.name = "alibi", .alibi = true});
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
  const Packed t = packed_example({.name = "dense", .dense = true});
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
  AttentionOptions o;
  Problem p = with_lengths(4, 4, 8, 8);
  p.batch = 2;
  p.fill(1);
  o = options_of(p);
  o.q_offsets = {0, 4};
  expect_refused(Code::kInvalidArgument, {"q_offsets", "batch is 2"}, [&] { run(p, Mask::full(), o); });
}

}  // namespace
}  // namespace regard
