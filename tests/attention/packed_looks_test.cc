// Packed sequences in what looks, in partial results and with mixed heads: the bits of a padded batch.
#include <gtest/gtest.h>

#include "attention/packed.h"
#include "regard/attention_merge.h"
#include "regard/attention_weights.h"
#include "regard/talking_heads.h"
#include "runtime/thread_pool.h"

namespace regard {
namespace {

using namespace testing_attention;

constexpr int64_t kHeads = 4, kTop = 5;

// All that looks at `queries` and `keys` of tensors with `batch` entries.
struct Looks {
  std::vector<float> weights, top_weights, sums, total, entropy, distance, mass, largest;
  std::vector<int64_t> top_keys, largest_key;

  Looks(const TensorView<const float>& q, const TensorView<const float>& k, const std::vector<float>& lse,
        const Mask& mask, const AttentionOptions& o, Interval queries, Interval keys, const KeySet& set) {
    const int64_t batch = q.shape[0], rows = queries.end - queries.begin, columns = keys.end - keys.begin;
    const auto make = [&](auto& x, int64_t size) { x.assign(static_cast<size_t>(batch * kHeads * size), -7); };
    for (auto* x : {&total, &entropy, &distance, &mass, &largest}) make(*x, rows);
    make(largest_key, rows);
    make(weights, rows * columns);
    make(top_weights, rows * kTop);
    make(top_keys, rows * kTop);
    make(sums, k.shape[2]);
    const TensorView<const float> l(lse.data(), {batch, kHeads, q.shape[2]});
    const auto view = [&](auto& x) { return TensorView(x.data(), {batch, kHeads, rows}); };
    attention_weights(q, k, l, mask, o, queries, keys, {weights.data(), {batch, kHeads, rows, columns}});
    attention_top_keys(q, k, l, mask, o, queries, {top_keys.data(), {batch, kHeads, rows, kTop}},
                       {top_weights.data(), {batch, kHeads, rows, kTop}});
    attention_column_sums(q, k, l, mask, o, queries, {sums.data(), {batch, kHeads, k.shape[2]}});
    attention_statistics(q, k, l, mask, o, queries, set,
                         {.total = view(total),
                          .entropy = view(entropy),
                          .distance = view(distance),
                          .mass = view(mass),
                          .largest = view(largest),
                          .largest_key = view(largest_key)});
  }
};

AttentionOptions padded_options(const Packed& t, const AttentionOptions& packed) {
  AttentionOptions o = t.padded.options();
  o.q_begin = packed.q_begin;
  o.query_lengths = t.q_lengths;
  o.limits.key_lengths = t.k_lengths;
  return o;
}

// A row that sees nothing has nothing in it.
void expect_empty(const Looks& l, size_t row, int64_t columns, const std::string& what) {
  for (int64_t j = 0; j < columns; ++j)
    ASSERT_EQ(bits(l.weights[row * static_cast<size_t>(columns) + static_cast<size_t>(j)]), 0u) << what;
  for (const auto* x : {&l.total, &l.entropy, &l.distance, &l.mass, &l.largest}) ASSERT_EQ(bits((*x)[row]), 0u) << what;
  ASSERT_EQ(l.largest_key[row], -1) << what;
  for (size_t n = 0; n < kTop; ++n) {
    ASSERT_EQ(l.top_keys[row * kTop + n], -1) << what;
    ASSERT_EQ(bits(l.top_weights[row * kTop + n]), 0u) << what;
  }
}

// The looks at all slots against those at the padded batch.
void expect_looks(const Packed& t, const Looks& got, const Looks& want, const std::string& what) {
  const int64_t q_len = t.padded.p.q_len, kv_len = t.padded.p.kv_len;
  for (int64_t h = 0; h < kHeads; ++h) {
    for (size_t s = 0; s < t.q_lengths.size(); ++s) {
      const int64_t first_key = t.k_offsets[s], batch_head = static_cast<int64_t>(s) * kHeads + h;
      ASSERT_TRUE(same_bits(&got.sums[static_cast<size_t>(h * t.k_total + first_key)],
                            &want.sums[static_cast<size_t>(batch_head * kv_len)], t.k_lengths[s]))
          << what << ", sums of sequence " << s;
      for (int64_t i = 0; i < t.q_lengths[s]; ++i) {
        const auto a = static_cast<size_t>(h * t.q_total + t.q_offsets[s] + i);
        const auto b = static_cast<size_t>(batch_head * q_len + i);
        for (int64_t j = 0; j < t.k_total; ++j) {
          const bool own = j >= first_key && j < first_key + t.k_lengths[s];
          const float w = own ? want.weights[b * static_cast<size_t>(kv_len) + static_cast<size_t>(j - first_key)] : 0.0f;
          ASSERT_EQ(bits(got.weights[a * static_cast<size_t>(t.k_total) + static_cast<size_t>(j)]), bits(w))
              << what << ", sequence " << s << " query " << i << " key " << j;
        }
        for (const auto x : {&Looks::total, &Looks::entropy, &Looks::distance, &Looks::mass, &Looks::largest})
          ASSERT_EQ(bits((got.*x)[a]), bits((want.*x)[b])) << what << ", sequence " << s << " query " << i;
        const auto slot = [&](int64_t key) { return key < 0 ? key : first_key + key; };
        ASSERT_EQ(got.largest_key[a], slot(want.largest_key[b])) << what;
        for (size_t n = 0; n < kTop; ++n) {
          ASSERT_EQ(got.top_keys[a * kTop + n], slot(want.top_keys[b * kTop + n])) << what;
          ASSERT_EQ(bits(got.top_weights[a * kTop + n]), bits(want.top_weights[b * kTop + n])) << what;
        }
      }
    }
    for (int64_t i = t.q_offsets.back(); i < t.q_total; ++i)
      ASSERT_NO_FATAL_FAILURE(expect_empty(got, static_cast<size_t>(h * t.q_total + i), t.k_total, what + ", slack"));
    for (int64_t j = t.k_offsets.back(); j < t.k_total; ++j)
      ASSERT_EQ(bits(got.sums[static_cast<size_t>(h * t.k_total + j)]), 0u) << what;
  }
}

TEST(PackedLooks, EqualThoseAtAPaddedBatch) {
  for (const Wanted& wanted : wanted_terms()) {
    if (wanted.clamp == 0) continue;
    const Packed t = packed_example(wanted);
    // Sequences are batch rows to a mask and to a set.
    const Mask set = Mask::lengths({3, 1, 200, 9, 5, 4}) & ~Mask::window(1, 0);
    for (const Mask& mask : {Mask::causal(), Mask::parse("causal & ~dilated(3)"),
                             Mask::lengths({5, 4, 120, 257, 1, 9}), Mask::window(20, 3)}) {
      const std::string what = std::string(wanted.name) + " under " + mask.text();
      AttentionOptions o = t.options();
      if (o.dropout) o.dropout->weights = Dropout::Weights::kAfter;
      AttentionOptions padded = padded_options(t, o);
      padded.dropout = o.dropout;
      const Looks want(q_view(t.padded.p), k_view(t.padded.p), run(t.padded.p, mask, padded).lse, mask, padded, {0, 60},
                       {0, 300}, {.mask = set});
      const std::vector<float> lse = t.run(mask, o).lse;
      for (const int threads : {1, 3}) {
        set_default_pool_size(threads);
        const Looks got(t.q_view(), t.k_view(), lse, mask, o, {0, t.q_total}, {0, t.k_total}, {.mask = set});
        ASSERT_NO_FATAL_FAILURE(expect_looks(t, got, want, what));
      }
      set_default_pool_size(2);
    }
  }
}

// Rectangles that cut sequences, leave some out, or reach into the slack.
TEST(PackedLooks, RectanglesArePartsOfTheWhole) {
  const Packed t = packed_example({.name = "dense", .dense = true, .alibi = true});
  const AttentionOptions o = t.options();
  std::vector<uint8_t> set(static_cast<size_t>(t.k_total));
  for (size_t j = 0; j < set.size(); ++j) set[j] = j % 5 == 1;
  const KeySet some{.bits = TensorView<const uint8_t>(set.data(), {t.k_total})};
  const std::vector<float> lse = t.run(Mask::causal(), o).lse;
  const auto at = [&](Interval queries, Interval keys) {
    return Looks(t.q_view(), t.k_view(), lse, Mask::causal(), o, queries, keys, some);
  };
  const Looks all = at({0, t.q_total}, {0, t.k_total});
  for (const auto& [queries, keys] :
       {std::pair{Interval{3, 70}, Interval{2, 350}}, std::pair{Interval{30, 31}, Interval{0, t.k_total}},
        std::pair{Interval{0, t.q_total}, Interval{280, 281}}, std::pair{Interval{5, 65}, Interval{0, 9}},
        std::pair{Interval{86, t.q_total}, Interval{586, t.k_total}}}) {
    const Looks part = at(queries, keys);
    const int64_t rows = queries.end - queries.begin, columns = keys.end - keys.begin;
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < rows; ++i) {
        const auto a = static_cast<size_t>(h * rows + i), b = static_cast<size_t>(h * t.q_total + queries.begin + i);
        ASSERT_TRUE(same_bits(part.weights.data() + a * static_cast<size_t>(columns),
                              all.weights.data() + b * static_cast<size_t>(t.k_total) + keys.begin, columns));
        ASSERT_EQ(bits(part.mass[a]), bits(all.mass[b]));
        ASSERT_EQ(bits(part.distance[a]), bits(all.distance[b]));
        ASSERT_EQ(part.largest_key[a], all.largest_key[b]);
        double mass = 0;
        for (size_t j = 0; j < set.size(); ++j)
          if (set[j] != 0) mass += static_cast<double>(all.weights[b * set.size() + j]);
        ASSERT_NEAR(part.mass[a], mass, 1e-6);
      }
      for (int64_t j = 0; j < t.k_total; ++j) {
        double sum = 0;
        for (int64_t i = queries.begin; i < queries.end; ++i)
          sum += static_cast<double>(all.weights[static_cast<size_t>((h * t.q_total + i) * t.k_total + j)]);
        ASSERT_EQ(bits(part.sums[static_cast<size_t>(h * t.k_total + j)]), bits(static_cast<float>(sum)));
      }
    }
  }
}

// Lists of positions are over all slots; here each sequence has its keys in falling order.
TEST(PackedLooks, FollowTheSlotsWhenPositionsAreGiven) {
  const Packed t = packed_example({.name = "alibi", .alibi = true});
  AttentionOptions o = t.options();
  const std::vector<float> lse = t.run(Mask::causal(), o).lse;
  const Looks plain(t.q_view(), t.k_view(), lse, Mask::causal(), o, {0, t.q_total}, {0, t.k_total}, {.mask = Mask::prefix(3)});
  std::vector<int64_t> at(static_cast<size_t>(t.k_total), 7), turned(at);
  std::vector<float> k = t.k;
  for (size_t s = 0; s < t.k_lengths.size(); ++s)
    for (int64_t j = 0; j < t.k_lengths[s]; ++j) {
      const int64_t here = t.k_offsets[s] + j, there = t.k_offsets[s + 1] - 1 - j;
      at[static_cast<size_t>(there)] = j;
      turned[static_cast<size_t>(here)] = there;
      for (int64_t g = 0; g < 2; ++g)
        std::copy_n(&t.k[static_cast<size_t>((g * t.k_total + here) * 16)], 16,
                    &k[static_cast<size_t>((g * t.k_total + there) * 16)]);
    }
  o.k_begin.clear();
  o.k_positions = TensorView<const int64_t>(at.data(), {t.k_total});
  const Looks got(t.q_view(), TensorView<const float>(k.data(), {1, 2, t.k_total, 16}), lse, Mask::causal(), o, {0, t.q_total},
                  {0, t.k_total}, {.mask = Mask::prefix(3)});
  for (size_t row = 0; row < plain.total.size(); ++row) {
    for (int64_t j = 0; j < t.k_offsets.back(); ++j)
      ASSERT_EQ(bits(got.weights[row * at.size() + static_cast<size_t>(turned[static_cast<size_t>(j)])]),
                bits(plain.weights[row * at.size() + static_cast<size_t>(j)]));
    for (const auto x : {&Looks::entropy, &Looks::distance, &Looks::mass})
      ASSERT_EQ(bits((got.*x)[row]), bits((plain.*x)[row]));
    ASSERT_EQ(got.largest_key[row],
              plain.largest_key[row] < 0 ? -1 : turned[static_cast<size_t>(plain.largest_key[row])]);
  }
}

// The keys [begin, end) of every sequence, as packed tensors of their own.
struct Part {
  std::vector<float> k, v;
  std::vector<int64_t> offsets = {0};
  int64_t longest = 0;
  Part(const Packed& t, int64_t begin, int64_t end) {
    for (const int64_t length : t.k_lengths) {
      const int64_t count = std::max<int64_t>(0, std::min(length, end) - begin);
      longest = std::max(longest, count);
      offsets.push_back(offsets.back() + count);
    }
    const Problem& p = t.padded.p;
    for (const auto& [from, to, dim] : {std::tuple{&t.k, &k, p.d}, std::tuple{&t.v, &v, p.dv}})
      for (int64_t g = 0; g < p.num_kv_heads; ++g)
        for (size_t s = 0; s < t.k_lengths.size(); ++s) {
          const float* first = from->data() + (g * t.k_total + t.k_offsets[s] + begin) * dim;
          to->insert(to->end(), first, first + (offsets[s + 1] - offsets[s]) * dim);
        }
  }
};

TEST(PackedPartials, WholeTilesInOrderHaveTheBitsOfOneCall) {
  for (Wanted wanted : wanted_terms()) {
    if (wanted.clamp == 0) continue;
    wanted.dropout = 0;  // refused, as for whole rows
    const Packed t = packed_example(wanted);
    const int64_t dv = t.padded.p.dv;
    for (const Mask& mask : {Mask::causal(), Mask::parse("causal & ~dilated(3)"), Mask::lengths({5, 4, 290, 9, 1, 17})}) {
      const AttentionOptions o = t.options();
      const Result whole = t.run(mask, o);
      PartialAttention running(1, kHeads, t.q_total, dv), folded(1, kHeads, t.q_total, dv);
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 256}, {256, 300}}) {
        const Part part(t, begin, end);
        AttentionOptions here = o;
        here.sink = {};
        here.k_offsets = part.offsets;
        here.k_begin = {begin};
        if (here.bias.rank == 4 && here.bias.shape[3] > 1)
          here.bias.data += begin * here.bias.strides[3], here.bias.shape[3] = part.longest;
        const TensorView<const float> k(part.k.data(), {1, 2, part.offsets.back(), t.padded.p.d}),
            v(part.v.data(), {1, 2, part.offsets.back(), dv});
        PartialAttention tile(1, kHeads, t.q_total, dv);
        attend_onto(running, t.q_view(), k, v, mask, here);
        attend_onto(tile, t.q_view(), k, v, mask, here);
        folded.fold(tile);
      }
      for (const PartialAttention* state : {&running, &folded}) {
        Result got(t.padded.p);
        got.out.assign(whole.out.size(), -7), got.lse.assign(whole.lse.size(), -7);
        state->finish(o.sink, {got.out.data(), {1, kHeads, t.q_total, dv}}, {got.lse.data(), {1, kHeads, t.q_total}});
        EXPECT_EQ(got, whole) << wanted.name << " under " << mask.text();
      }
    }
  }
}

TEST(PackedTalkingHeads, EqualAPaddedBatch) {
  const Packed t = packed_example({.name = "none"});
  const std::vector<float> before = gaussians(31, kHeads * 3), after = gaussians(32, 3 * 2);
  const TalkingHeads mix{.before = TensorView<const float>(before.data(), {kHeads, 3}),
                         .after = TensorView<const float>(after.data(), {3, 2})};
  const int64_t dv = t.padded.p.dv;
  for (const Mask& mask : {Mask::causal(), Mask::lengths({5, 4, 120, 257, 1, 9}),
                           Mask::parse("per_head(causal, window(10, 0), full)")}) {
    AttentionOptions o = t.options();
    const AttentionOptions padded = padded_options(t, o);
    std::vector<float> want(static_cast<size_t>(6 * 2 * 60 * dv)), got(static_cast<size_t>(2 * t.q_total * dv), -7);
    attend_talking_heads(q_view(t.padded.p), k_view(t.padded.p), v_view(t.padded.p), mix, mask, padded,
                         {want.data(), {6, 2, 60, dv}});
    std::vector<int64_t> at(static_cast<size_t>(t.k_total), 7);
    for (size_t s = 0; s < 6; ++s)
      for (int64_t j = 0; j < t.k_lengths[s]; ++j) at[static_cast<size_t>(t.k_offsets[s] + j)] = j;
    for (const bool listed : {false, true}) {
      if (listed) o.k_positions = TensorView<const int64_t>(at.data(), {t.k_total}), o.k_begin.clear();
      attend_talking_heads(t.q_view(), t.k_view(), t.v_view(), mix, mask, o, {got.data(), {1, 2, t.q_total, dv}});
      for (int64_t h = 0; h < 2; ++h) {
        for (size_t s = 0; s < 6; ++s)
          ASSERT_TRUE(same_bits(&got[static_cast<size_t>((h * t.q_total + t.q_offsets[s]) * dv)],
                                &want[static_cast<size_t>((static_cast<int64_t>(s) * 2 + h) * 60 * dv)], t.q_lengths[s] * dv))
              << mask.text() << ", sequence " << s;
        for (int64_t x = t.q_offsets.back() * dv; x < t.q_total * dv; ++x)
          ASSERT_EQ(bits(got[static_cast<size_t>(h * t.q_total * dv + x)]), 0u);
      }
    }
  }
}

TEST(Refusals, PackedLooksNameOffsetsThatDoNotFit) {
  const Packed t = packed_example({.name = "none"});
  std::vector<float> x(static_cast<size_t>(kHeads * t.q_total * 20), 0.0f);
  const TensorView<const float> lse(x.data(), {1, kHeads, t.q_total});
  AttentionOptions o = t.options();
  o.q_offsets[2] = 4;
  expect_refused(Code::kInvalidArgument, {"[attention_weights]", "q_offsets", "from 5 to 4"}, [&] {
    std::vector<float> w(kHeads);
    attention_weights(t.q_view(), t.k_view(), lse, Mask::causal(), o, {0, 1}, {0, 1}, {w.data(), {1, kHeads, 1, 1}});
  });
  PartialAttention state(1, kHeads, t.q_total, 20);
  expect_refused(Code::kInvalidArgument, {"[attend_onto]", "q_offsets", "from 5 to 4"},
                 [&] { attend_onto(state, t.q_view(), t.k_view(), t.v_view(), Mask::causal(), o); });
  expect_refused(Code::kInvalidArgument, {"[attend_talking_heads]", "q_offsets", "from 5 to 4"}, [&] {
    attend_talking_heads(t.q_view(), t.k_view(), t.v_view(), {}, Mask::causal(), o, {x.data(), {1, kHeads, t.q_total, 20}});
  });
  o = t.options();
  PartialAttention other(6, kHeads, 60, 20);
  expect_refused(Code::kInvalidArgument, {"[attend_onto]"},
                 [&] { attend_onto(other, t.q_view(), t.k_view(), t.v_view(), Mask::causal(), o); });
}

}  // namespace
}  // namespace regard
