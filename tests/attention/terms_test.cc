// Score terms in the public call: against the definition to the bit and against f64. The promises are in
// terms_promises_test.cc.
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/terms.h"

namespace regard {
namespace {

using namespace testing_attention;

TEST(Terms, EqualTheDefinitionAndF64) {
  for (const auto& [q_len, kv_len] :
       {std::pair{1, 1}, std::pair{7, 5}, std::pair{5, 300}, std::pair{3, 513}, std::pair{110, 70}})
    for (const Wanted& wanted : wanted_terms()) {
      const TermProblem t(small(q_len, kv_len), wanted);
      for (const Mask& mask : some_masks()) {
        const Result got = run(t.p, mask, t.options());
        const std::string what =
            std::string(wanted.name) + " under " + mask.text() + ", kv_len " + std::to_string(kv_len);
        ASSERT_EQ(got, by_spec(t.shifted(), mask, t.pairs())) << what;
        ASSERT_NO_FATAL_FAILURE(expect_close(t.shifted(), mask, got, what, t.pairs()));
      }
    }
}

TEST(Terms, HeadSizes) {
  for (const auto& [d, dv] : {std::pair{1, 1}, {8, 33}, {33, 8}, {64, 64}, {128, 40}, {512, 512}}) {
    Problem p = with_lengths(9, 270, d, dv);
    p.fill(static_cast<uint64_t>(d));
    const TermProblem t(p, wanted_terms().back());
    ASSERT_EQ(run(p, Mask::causal(), t.options()), by_spec(t.shifted(), Mask::causal(), t.pairs())) << d << " " << dv;
  }
}

TEST(Terms, SoftcapComesFirst) {
  for (const Wanted& wanted : wanted_terms()) {
    TermProblem t(small(9, 300), wanted);
    t.p.softcap = 0.5;
    const Result got = run(t.p, Mask::causal(), t.options());
    ASSERT_EQ(got, by_spec(t.shifted(), Mask::causal(), t.pairs())) << wanted.name;
    ASSERT_NO_FATAL_FAILURE(expect_close(t.shifted(), Mask::causal(), got, wanted.name, t.pairs()));
  }
}

TEST(Terms, PositionsInAnyOrder) {
  Problem p = small(6, 90);
  std::vector<int64_t> k_at, q_at = {250, 0, 700, -1, 260, 33};
  for (int64_t j = 0; j < 90; ++j) k_at.push_back(j % 11 == 5 ? -1 : (j * 37) % 90 * 8 + j % 8);
  for (const Wanted& wanted : wanted_terms()) {
    if (wanted.clamp == 0) continue;
    const TermProblem t(p, wanted);
    AttentionOptions o = t.options();
    o.q_begin.clear(), o.k_begin.clear();
    o.q_positions = TensorView<const int64_t>(q_at.data(), {6});
    o.k_positions = TensorView<const int64_t>(k_at.data(), {90});
    const Result got = run(p, Mask::causal(), o);

    // The same keys in the order of their positions, the others gone.
    std::vector<int64_t> order;
    for (int64_t j = 0; j < 90; ++j)
      if (k_at[static_cast<size_t>(j)] >= 0) order.push_back(j);
    std::sort(order.begin(), order.end(),
              [&](int64_t a, int64_t b) { return k_at[static_cast<size_t>(a)] < k_at[static_cast<size_t>(b)]; });
    const auto query_at = [&](int64_t i) { return q_at[static_cast<size_t>(i)]; };
    const auto key_at = [&](int64_t j) { return k_at[static_cast<size_t>(j)]; };
    const PairTerms pairs = t.pairs(query_at, key_at, query_at, key_at);
    const Problem shifted = t.shifted();
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t h = 0; h < p.num_q_heads; ++h)
        for (int64_t i = 0; i < p.q_len; ++i) {
          std::vector<double> out(static_cast<size_t>(p.dv));
          struct Row {
            const PairTerms& pairs;
            const std::vector<int64_t>& order;
            int64_t b, h, i;
            double keep_scale = 1, sink = -INFINITY;
            double bias(int64_t n) const { return pairs.bias(b, h, i, order[static_cast<size_t>(n)]); }
            bool keep(int64_t n) const { return !pairs.keep || pairs.keep(b, h, i, order[static_cast<size_t>(n)]); }
          } row{pairs, order, b, h, i, pairs.keep_scale};
          if (!pairs.sinks.empty()) row.sink = pairs.sinks[static_cast<size_t>(h)];
          const int64_t query = q_at[static_cast<size_t>(i)];
          const double lse = kernels::reference::attention_row<double>(
              [&](int64_t x) { return shifted.query(b, h, i)[x]; }, p.d, p.dv, 0, static_cast<int64_t>(order.size()),
              p.scale, 0.0, [&](int64_t n, int64_t x) { return p.key(b, h / 2, order[static_cast<size_t>(n)])[x]; },
              [&](int64_t n, int64_t c) { return p.value(b, h / 2, order[static_cast<size_t>(n)])[c]; },
              [&](int64_t n) {
                return query >= 0 && k_at[static_cast<size_t>(order[static_cast<size_t>(n)])] <= query;
              },
              out.data(), nullptr, row);
          const size_t at = static_cast<size_t>((b * p.num_q_heads + h) * p.q_len + i);
          if (std::isinf(lse))
            ASSERT_EQ(got.lse[at], -INFINITY);
          else
            ASSERT_NEAR(got.lse[at], lse, 2e-6 * (1 + std::fabs(lse))) << wanted.name << " row " << i;
          for (size_t c = 0; c < out.size(); ++c)
            ASSERT_NEAR(got.out[at * out.size() + c], out[c], 1e-5) << wanted.name << " row " << i;
        }
  }
}

// Distances come from encoding positions, the mask from positions.
TEST(Terms, EncodingPositionsServeTheBiasAlone) {
  Problem p = small(40, 280, 1);
  std::vector<int64_t> q_at, k_at, wild(280);
  for (int64_t i = 0; i < 40; ++i) q_at.push_back((p.q_begin + i) % 64);
  for (int64_t j = 0; j < 280; ++j) k_at.push_back(j % 64);
  for (size_t j = 0; j < 280; ++j) wild[j] = static_cast<int64_t>(j) << 40;
  for (const Wanted& wanted : wanted_terms())
    for (const std::vector<int64_t>& keys : {k_at, wild}) {
      if (wanted.clamp == 0) continue;
      const TermProblem t(p, wanted);
      AttentionOptions o = t.options();
      o.q_encoding_positions = TensorView<const int64_t>(q_at.data(), {40});
      o.k_encoding_positions = TensorView<const int64_t>(keys.data(), {280});
      const PairTerms pairs = t.pairs([&](int64_t i) { return q_at[static_cast<size_t>(i)]; },
                                      [&](int64_t j) { return keys[static_cast<size_t>(j)]; });
      for (const Mask& mask : {some_masks()[1], some_masks()[3]})
        ASSERT_EQ(run(p, mask, o), by_spec(t.shifted(), mask, pairs)) << wanted.name;
      // Queries alone, or given as what they are anyway.
      o.k_encoding_positions = {};
      ASSERT_EQ(run(p, Mask::full(), o),
                by_spec(t.shifted(), Mask::full(),
                        t.pairs([&](int64_t i) { return q_at[static_cast<size_t>(i)]; }, [](int64_t j) { return j; })));
      std::vector<int64_t> same(280);
      for (size_t j = 0; j < 280; ++j) same[j] = static_cast<int64_t>(j);
      o = t.options();
      o.k_encoding_positions = TensorView<const int64_t>(same.data(), {1, 280});
      ASSERT_EQ(run(p, Mask::causal(), o), run(p, Mask::causal(), t.options())) << wanted.name;
    }
}

TEST(Terms, DistantSlotsTakeNoMemory) {
  Problem p = small(2, 3, 1);
  const std::vector<int64_t> k_at = {0, int64_t{1} << 40, int64_t{1} << 61}, q_at = {int64_t{1} << 61, 5};
  for (const Wanted& wanted : wanted_terms()) {
    if (wanted.clamp == 0) continue;
    const TermProblem t(p, wanted);
    AttentionOptions o = t.options();
    o.q_begin.clear(), o.k_begin.clear();
    o.q_positions = TensorView<const int64_t>(q_at.data(), {2});
    o.k_positions = TensorView<const int64_t>(k_at.data(), {3});
    const Result got = run(p, Mask::causal(), o);
    for (float x : got.lse) ASSERT_FALSE(std::isnan(x)) << wanted.name;
    if (wanted.alibi) {  // the last key alone counts, or nearly
      const PairTerms pairs = t.pairs([&](int64_t i) { return q_at[static_cast<size_t>(i)]; },
                                      [&](int64_t j) { return k_at[static_cast<size_t>(j)]; });
      if (!wanted.sink && !wanted.dense && !wanted.xl) {
        ASSERT_TRUE(same_bits(got.out.data(), p.value(0, 0, 2), p.dv));
      }
      EXPECT_LT(pairs.bias(0, 0, 0, 0), -1e15f);
    }
  }
}

TEST(Terms, StridesOfABiasAreFree) {
  const TermProblem t(small(20, 300), {.name = "dense", .dense = true});
  const Problem& p = t.p;
  const Result want = run(p, Mask::causal(), t.options());
  // [batch, q, k, heads], keys reversed.
  std::vector<float> turned(t.dense.size());
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t i = 0; i < 20; ++i)
        for (int64_t j = 0; j < 300; ++j)
          turned[static_cast<size_t>(((b * 20 + i) * 300 + 299 - j) * 4 + h)] = t.dense[t.dense_index(b, h, i, j)];
  AttentionOptions o = t.options();
  o.bias.data = turned.data() + 299 * 4;
  o.bias.strides = {20 * 300 * 4, 1, 300 * 4, -4};
  EXPECT_EQ(run(p, Mask::causal(), o), want);
}

TEST(Weights, RebuildTheOutputWithTerms) {
  for (const Wanted& wanted : wanted_terms()) {
    TermProblem t(small(15, 300, 1), wanted);
    for (double cap : {0.0, 1.5})
      for (const Mask& mask : some_masks()) {
        t.p.softcap = cap;
        const PairTerms pairs = t.pairs();
        const Problem shifted = t.shifted();
        Result r = run(t.p, mask, t.options());
        std::vector<float> w(4 * 15 * 300, -7.0f);
        attention_weights(q_view(t.p), k_view(t.p), lse_view(t.p, r), mask, t.options(), {0, 15}, {0, 300},
                          {w.data(), {1, 4, 15, 300}});
        for (int64_t h = 0; h < 4; ++h)
          for (int64_t i = 0; i < 15; ++i) {
            std::vector<double> exact(300), out(20);
            const auto visible = [&](int64_t j) { return mask.allowed(0, h, t.p.q_begin + i, j); };
            kernels::reference::attention_row<double>([&](int64_t x) { return shifted.query(0, h, i)[x]; }, 24, 20, 0,
                                                      300, t.p.scale, cap,
                                                      [&](int64_t j, int64_t x) { return t.p.key(0, h / 2, j)[x]; },
                                                      [&](int64_t j, int64_t c) { return t.p.value(0, h / 2, j)[c]; },
                                                      visible, out.data(), exact.data(), RowTerms(pairs, t.p, 0, h, i));
            for (int64_t j = 0; j < 300; ++j) {
              const float got = w[static_cast<size_t>((h * 15 + i) * 300 + j)];
              const double size = 40 + 4 * std::fabs(pairs.bias(0, h, i, j));
              ASSERT_NEAR(got, exact[static_cast<size_t>(j)], size * 0x1p-24 * exact[static_cast<size_t>(j)] + 1e-44)
                  << wanted.name << " " << mask.text() << " " << h << " " << i << " " << j;
            }
          }
        std::vector<float> part(4 * 5 * 150);
        attention_weights(q_view(t.p), k_view(t.p), lse_view(t.p, r), mask, t.options(), {7, 12}, {100, 250},
                          {part.data(), {1, 4, 5, 150}});
        for (int64_t h = 0; h < 4; ++h)
          for (int64_t i = 0; i < 5; ++i)
            ASSERT_TRUE(same_bits(&part[static_cast<size_t>((h * 5 + i) * 150)],
                                  &w[static_cast<size_t>((h * 15 + 7 + i) * 300 + 100)], 150))
                << wanted.name;
      }
  }
}

TEST(Weights, BeforeOrAfterDropout) {
  const TermProblem t(small(15, 300, 1), {.name = "dropout", .alibi = true, .dropout = 0.4});
  const PairTerms pairs = t.pairs();
  Result r = run(t.p, Mask::causal(), t.options());
  std::vector<float> before(4 * 15 * 300), after(before.size());
  AttentionOptions o = t.options();
  attention_weights(q_view(t.p), k_view(t.p), lse_view(t.p, r), Mask::causal(), o, {0, 15}, {0, 300},
                    {before.data(), {1, 4, 15, 300}});
  o.dropout->weights = Dropout::Weights::kAfter;
  attention_weights(q_view(t.p), k_view(t.p), lse_view(t.p, r), Mask::causal(), o, {0, 15}, {0, 300},
                    {after.data(), {1, 4, 15, 300}});
  int64_t dropped = 0, kept = 0;
  for (int64_t h = 0; h < 4; ++h)
    for (int64_t i = 0; i < 15; ++i)
      for (int64_t j = 0; j < 300; ++j) {
        const auto at = static_cast<size_t>((h * 15 + i) * 300 + j);
        if (before[at] == 0) continue;
        const bool keep = pairs.keep(0, h, i, j);
        ++(keep ? kept : dropped);
        ASSERT_EQ(after[at], keep ? before[at] * static_cast<float>(1 / 0.6) : 0.0f);
      }
  EXPECT_NEAR(static_cast<double>(dropped) / static_cast<double>(dropped + kept), 0.4, 0.02);
}

TEST(Refusals, DistancesWithoutAVector) {
  const TermProblem t(small(3, 5), {.name = "xl", .xl = true, .clamp = 0});
  AttentionOptions o = t.options();  // vectors for the distances -5 .. 4
  run(t.p, Mask::full(), o);
  o.xl->r.data += 5 * o.xl->r.strides[0];
  o.xl->r.shape[0] = 5;
  o.xl->first_distance = 0;
  EXPECT_EQ(run(t.p, Mask::causal(), o), by_spec(t.shifted(), Mask::causal(), t.pairs())) << "later keys need none";
  expect_refused(Code::kInvalidArgument, {"[attend]", "xl.r", "distance -"}, [&] { run(t.p, Mask::full(), o); });
  o.xl->r.shape[0] = 4;
  expect_refused(Code::kInvalidArgument, {"xl.r", "distance 4"}, [&] { run(t.p, Mask::causal(), o); });
  run(t.p, Mask::window(3, 0), o);
  const std::vector<int64_t> same = {0, 1, 2, 3, 4};
  o.k_encoding_positions = TensorView<const int64_t>(same.data(), {5});
  expect_refused(Code::kInvalidArgument, {"xl.r", "distance 4"}, [&] { run(t.p, Mask::causal(), o); });
  std::vector<float> w(2 * 4 * 3 * 5), lse(2 * 4 * 3);
  expect_refused(Code::kInvalidArgument, {"[attention_weights]", "xl.r", "distance 4"}, [&] {
    attention_weights(q_view(t.p), k_view(t.p), TensorView<const float>(lse.data(), {2, 4, 3}), Mask::causal(), o,
                      {0, 3}, {0, 5}, {w.data(), {2, 4, 3, 5}});
  });
}

TEST(Refusals, TermsThatDoNotFit) {
  const TermProblem t(
      small(3, 5), {.name = "all", .dense = true, .alibi = true, .t5 = true, .sink = true, .xl = true, .dropout = 0.1});
  const auto with = [&](auto&& change, std::initializer_list<const char*> words) {
    AttentionOptions o = t.options();
    change(o);
    expect_refused(Code::kInvalidArgument, words, [&] { run(t.p, Mask::causal(), o); });
  };
  run(t.p, Mask::causal(), t.options());
  with([](auto& o) { o.bias.shape[3] = 4; }, {"[attend]", "bias", "[2, 4, 3, 4]", "[2, 4, 3, 5]"});
  with([](auto& o) { o.bias.shape[0] = 3; }, {"bias", "[3, 4, 3, 5]", "[2, 4, 3, 5]"});
  with([](auto& o) { o.bias.rank = 3; }, {"bias", "3 axes"});
  with([](auto& o) { o.bias.data = nullptr; }, {"bias", "no data"});
  with([](auto& o) { o.alibi->slopes.pop_back(); }, {"alibi", "3 slopes", "4 query heads"});
  with([](auto& o) { o.t5->table.shape[1] = 3; }, {"t5.table", "[16, 3]", "[buckets, 4]"});
  with([](auto& o) { o.t5->table.shape[0] = 15; }, {"t5.table", "15 buckets", "even"});
  with([](auto& o) { o.t5->table.shape[0] = 2; }, {"t5.table", "2 buckets"});
  with([](auto& o) { o.t5->max_distance = 4; }, {"t5.max_distance", "4"});
  with([](auto& o) { o.t5->max_distance = INT64_MAX; }, {"t5.max_distance"});
  with([](auto& o) { o.sink.shape[0] = 2; }, {"sink", "[2]", "[4]"});
  with([](auto& o) { o.sink.rank = 2; }, {"sink", "2 axes"});
  with([](auto& o) { o.xl->u.shape[1] = 23; }, {"xl.u", "[4, 23]", "[4, 24]"});
  with([](auto& o) { o.xl->v.rank = 1; }, {"xl.v", "1 axes"});
  with([](auto& o) { o.xl->r.shape[1] = 3; }, {"xl.r", "[81, 3, 24]", "[distances, 4, 24]"});
  with([](auto& o) { o.xl->clamp = -1; }, {"xl.clamp", "-1"});
  with([](auto& o) { o.xl->first_distance = INT64_MIN; }, {"xl.first_distance"});
  with([](auto& o) { o.dropout->rate = 1; }, {"dropout.rate", "1"});
  with([](auto& o) { o.dropout->rate = -0.1; }, {"dropout.rate", "-0.1"});
  with([](auto& o) { o.dropout->rate = NAN; }, {"dropout.rate", "nan"});
  const std::vector<int64_t> four(4, 0);
  with([&](auto& o) { o.k_encoding_positions = TensorView<const int64_t>(four.data(), {4}); },
       {"k_encoding_positions", "[4]", "[5]"});
  // A result never lies in the memory of a bias.
  AttentionOptions o = t.options();
  Result r(t.p);
  o.bias = TensorView<const float>(r.out.data(), {1, 1, 3, 5});
  expect_refused(Code::kInvalidArgument, {"out", "overlaps"},
                 [&] { attend(q_view(t.p), k_view(t.p), v_view(t.p), Mask::causal(), o, out_view(t.p, r)); });
}

}  // namespace
}  // namespace regard
