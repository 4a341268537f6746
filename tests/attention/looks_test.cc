// What queries look at: top keys, column sums and statistics of rows against weights in f64, under every mask and term.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "attention/calls.h"
#include "attention/terms.h"
#include "regard/attention_weights.h"
#include "regard/runtime.h"

namespace regard {
namespace {

using namespace testing_attention;

// Weights [batch][heads][q_len][kv_len] in f64, from the definition.
std::vector<double> exact_weights(const Problem& p, const Mask& mask, const PairTerms& terms) {
  std::vector<double> all(static_cast<size_t>(p.batch * p.num_q_heads * p.q_len * p.kv_len)),
      out(static_cast<size_t>(p.dv));
  double* row = all.data();
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.num_q_heads; ++h)
      for (int64_t i = 0; i < p.q_len; ++i, row += p.kv_len)
        kernels::reference::attention_row<double>(
            [&](int64_t x) { return p.query(b, h, i)[x]; }, p.d, p.dv, p.k_begin, p.k_begin + p.kv_len, p.scale,
            p.softcap, [&](int64_t j, int64_t x) { return p.key(b, h / p.group(), j - p.k_begin)[x]; },
            [&](int64_t j, int64_t c) { return p.value(b, h / p.group(), j - p.k_begin)[c]; },
            [&](int64_t j) { return mask.allowed(b, h, p.q_begin + i, j); }, out.data(), row,
            RowTerms(terms, p, b, h, i));
  return all;
}

struct Looks {
  std::vector<float> total, entropy, distance, mass, largest, sums, top_weights, dense;
  std::vector<int64_t> largest_key, top_keys;
};

Looks look(const Problem& p, const Mask& mask, const AttentionOptions& options, Result& r, Interval queries,
           const KeySet& set, int64_t n) {
  const int64_t rows = queries.end - queries.begin, count = p.batch * p.num_q_heads * rows;
  Looks l;
  for (auto* x : {&l.total, &l.entropy, &l.distance, &l.mass, &l.largest}) x->assign(static_cast<size_t>(count), -7.0f);
  l.largest_key.assign(static_cast<size_t>(count), -7);
  l.sums.assign(static_cast<size_t>(p.batch * p.num_q_heads * p.kv_len), -7.0f);
  l.top_keys.assign(static_cast<size_t>(count * n), -7);
  l.top_weights.assign(static_cast<size_t>(count * n), -7.0f);
  l.dense.assign(static_cast<size_t>(count * p.kv_len), -7.0f);
  const auto view = [&](std::vector<float>& x) { return TensorView<float>(x.data(), {p.batch, p.num_q_heads, rows}); };
  const TensorView<float> lse = lse_view(p, r);
  attention_statistics(q_view(p), k_view(p), lse, mask, options, queries, set,
                       {.total = view(l.total),
                        .entropy = view(l.entropy),
                        .distance = view(l.distance),
                        .mass = view(l.mass),
                        .largest = view(l.largest),
                        .largest_key = {l.largest_key.data(), {p.batch, p.num_q_heads, rows}}});
  attention_column_sums(q_view(p), k_view(p), lse, mask, options, queries,
                        {l.sums.data(), {p.batch, p.num_q_heads, p.kv_len}});
  attention_top_keys(q_view(p), k_view(p), lse, mask, options, queries,
                     {l.top_keys.data(), {p.batch, p.num_q_heads, rows, n}},
                     {l.top_weights.data(), {p.batch, p.num_q_heads, rows, n}});
  attention_weights(q_view(p), k_view(p), lse, mask, options, queries, {0, p.kv_len},
                    {l.dense.data(), {p.batch, p.num_q_heads, rows, p.kv_len}});
  return l;
}

// Compares with exact weights, and with the weights that attention_weights() gives.
void expect_looks(const Problem& p, const Looks& l, const std::vector<double>& exact, Interval queries,
                  const std::function<bool(int64_t b, int64_t h, int64_t i, int64_t j)>& in_set, int64_t n,
                  const std::string& what) {
  const int64_t rows = queries.end - queries.begin;
  std::vector<double> sums(l.sums.size());
  size_t at = 0;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.num_q_heads; ++h)
      for (int64_t i = queries.begin; i < queries.end; ++i, ++at) {
        const std::string where = what + " row " + std::to_string(at);
        const double* w = &exact[static_cast<size_t>(((b * p.num_q_heads + h) * p.q_len + i) * p.kv_len)];
        const float* dense = &l.dense[at * static_cast<size_t>(p.kv_len)];
        double total = 0, entropy = 0, distance = 0, mass = 0;
        for (int64_t j = 0; j < p.kv_len; ++j) {
          if (w[j] == 0) continue;
          total += w[j];
          entropy -= w[j] * std::log(w[j]);
          distance += w[j] * static_cast<double>(p.q_begin + i - p.k_begin - j);
          if (in_set(b, h, i, j)) mass += w[j];
          sums[static_cast<size_t>((b * p.num_q_heads + h) * p.kv_len + j)] += w[j];
        }
        constexpr double kClose = 3e-6;
        ASSERT_NEAR(l.total[at], total, kClose) << where;
        ASSERT_NEAR(l.entropy[at], entropy, kClose * (1 + entropy)) << where;
        ASSERT_NEAR(l.distance[at], total == 0 ? 0 : distance / total, kClose * static_cast<double>(p.kv_len)) << where;
        ASSERT_NEAR(l.mass[at], mass, kClose) << where;
        // Orders and ties are those of the f32 weights.
        std::vector<int64_t> order(static_cast<size_t>(p.kv_len));
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), [&](int64_t x, int64_t y) { return dense[x] > dense[y] || (dense[x] == dense[y] && x < y); });
        for (int64_t c = 0; c < n; ++c) {
          const int64_t key =
              c < p.kv_len && dense[order[static_cast<size_t>(c)]] > 0 ? order[static_cast<size_t>(c)] : -1;
          const size_t slot = at * static_cast<size_t>(n) + static_cast<size_t>(c);
          ASSERT_EQ(l.top_keys[slot], key) << where << " " << c;
          ASSERT_EQ(bits(l.top_weights[slot]), bits(key < 0 ? 0.0f : dense[key])) << where;
        }
        ASSERT_EQ(l.largest_key[at], l.top_keys[at * static_cast<size_t>(n)]) << where;
        ASSERT_EQ(bits(l.largest[at]), bits(l.top_weights[at * static_cast<size_t>(n)])) << where;
        if (l.largest_key[at] >= 0)
          ASSERT_NEAR(l.largest[at], *std::max_element(w, w + p.kv_len), kClose) << where;
        else
          ASSERT_EQ(total, 0) << where;
      }
  for (size_t j = 0; j < sums.size(); ++j) ASSERT_NEAR(l.sums[j], sums[j], 2e-6 * static_cast<double>(rows)) << what;
}

// Every term of the algebra, and expressions.
std::vector<Mask> all_masks(int64_t q_end, int64_t kv_len) {
  std::vector<Mask> all = masks();
  const auto n = static_cast<size_t>(std::max(q_end, kv_len));
  std::vector<int64_t> ids, parents;
  std::vector<uint8_t> bytes(n * n);
  for (size_t i = 0; i < n; ++i) {
    ids.push_back(static_cast<int64_t>(i / 37));
    parents.push_back(i % 3 == 0 ? static_cast<int64_t>(i) - 1 : static_cast<int64_t>(i) / 2 - 1);
  }
  for (size_t i = 0; i < n * n; ++i) bytes[i] = (i * 2654435761u >> 7) % 3 == 0;
  const auto extent = static_cast<int64_t>(n);
  all.push_back(Mask::none());
  all.push_back(Mask::prefix(kv_len / 3));
  all.push_back(Mask::lengths({kv_len - 5}));
  all.push_back(Mask::documents(ids));
  all.push_back(Mask::blocks(50));
  all.push_back(Mask::dilated(7));
  all.push_back(Mask::tree(parents));
  all.push_back(Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(bytes.data(), {extent, extent})));
  all.push_back(Mask::documents(ids) & ~Mask::dilated(2) & Mask::causal());
  return all;
}

TEST(Looks, EqualExactWeightsOnEveryMask) {
  for (const auto& [kv_len, cap] : {std::pair{30, 0.0}, std::pair{300, 1.5}, std::pair{600, 0.0}}) {
    Problem p = with_lengths(25, kv_len, 24, 8);
    p.softcap = cap;
    p.fill(static_cast<uint64_t>(kv_len));
    const Mask set = Mask::prefix(4) | Mask::window(0, 0);
    for (const Mask& mask : all_masks(p.q_begin + p.q_len, kv_len)) {
      Result r = run(p, mask);
      const Result before = r;
      const Interval queries{3, 25};
      const Looks l = look(p, mask, options_of(p), r, queries, {.mask = set}, 5);
      expect_looks(
          p, l, exact_weights(p, mask, {}), queries,
          [&](int64_t b, int64_t h, int64_t i, int64_t j) { return set.allowed(b, h, p.q_begin + i, j); }, 5,
          mask.text().substr(0, 60));
      EXPECT_EQ(before, r);
      EXPECT_EQ(before, run(p, mask)) << "looking changed the output";
    }
  }
}

TEST(Looks, EqualExactWeightsUnderEveryTerm) {
  for (const Wanted& wanted : wanted_terms()) {
    Problem p = with_lengths(9, 290, 16, 8);
    p.batch = 2, p.softcap = 4;
    p.fill(5);
    const TermProblem t(p, wanted);
    std::vector<uint8_t> set(static_cast<size_t>(p.batch * p.kv_len));
    for (size_t i = 0; i < set.size(); ++i) set[i] = i % 7 == 2;
    Result r = run(p, Mask::causal(), t.options());
    const Looks l = look(p, Mask::causal(), t.options(), r, {0, 9},
                         {.bits = TensorView<const uint8_t>(set.data(), {p.batch, p.kv_len})}, 3);
    expect_looks(
        p, l, exact_weights(t.shifted(), Mask::causal(), t.pairs()), {0, 9},
        [&](int64_t b, int64_t, int64_t, int64_t j) { return set[static_cast<size_t>(b * p.kv_len + j)] != 0; }, 3,
        wanted.name);
    if (wanted.sink) {
      EXPECT_LT(l.total[0], 0.9995f);
    }
  }
}

TEST(Looks, WeightsTimesValuesAreTheOutput) {
  constexpr double kEps = 0x1p-23;  // lse stays below 8, whose rounding is 2 of the 4
  for (const int64_t kv_len : {30, 600}) {
    Problem p = with_lengths(25, kv_len, 64, 16);
    p.fill(static_cast<uint64_t>(kv_len) + 1);
    for (const Mask& mask : all_masks(p.q_begin + p.q_len, kv_len)) {
      Result r = run(p, mask);
      std::vector<float> w(static_cast<size_t>(4 * 25 * kv_len));
      attention_weights(q_view(p), k_view(p), lse_view(p, r), mask, options_of(p), {0, 25}, {0, kv_len},
                        {w.data(), {1, 4, 25, kv_len}});
      for (int64_t row = 0; row < 100; ++row)
        for (int64_t c = 0; c < 16; ++c) {
          double sum = 0, size = 0;
          for (int64_t j = 0; j < kv_len; ++j) {
            const double x = static_cast<double>(w[static_cast<size_t>(row * kv_len + j)]) * p.value(0, row / 50, j)[c];
            sum += x;
            size += std::fabs(x);
          }
          ASSERT_NEAR(r.out[static_cast<size_t>(row * 16 + c)], sum, 4 * kEps * size) << mask.text().substr(0, 60);
        }
    }
  }
}

TEST(Looks, UniformRowsAndTies) {
  Problem p;
  p.q_len = p.kv_len = 300, p.d = p.dv = 4;
  p.fill(1);
  std::fill(p.q.begin(), p.q.end(), 0.0f);
  Result r = run(p, Mask::causal());
  const Looks l = look(p, Mask::causal(), options_of(p), r, {0, 300}, {.mask = Mask::prefix(1)}, 4);
  for (int64_t i = 0; i < 300; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_NEAR(l.entropy[at], std::log(static_cast<double>(i + 1)), 3e-6);
    EXPECT_NEAR(l.distance[at], static_cast<double>(i) / 2, 1e-4);
    EXPECT_NEAR(l.mass[at], 1.0 / static_cast<double>(i + 1), 1e-6);
    EXPECT_EQ(l.largest_key[at], 0);
    for (int64_t c = 0; c < 4; ++c) EXPECT_EQ(l.top_keys[at * 4 + static_cast<size_t>(c)], c <= i ? c : -1);
  }
  EXPECT_EQ(bits(l.entropy[0]), 0u);
  EXPECT_EQ(l.top_weights[1], 0.0f);
}

TEST(Looks, FollowTheSlotsWhenPositionsAreGiven) {
  Problem p;
  p.q_len = 3, p.kv_len = 5, p.d = p.dv = 8;
  p.fill(22);
  std::fill(p.q.begin(), p.q.end(), 0.0f);
  const std::vector<int64_t> k_position = {300, -1, 2, 700, 1}, q_position = {300, -1, 701};
  AttentionOptions o = options_of(p);
  o.q_begin.clear(), o.k_begin.clear();
  o.q_positions = TensorView<const int64_t>(q_position.data(), {3});
  o.k_positions = TensorView<const int64_t>(k_position.data(), {5});
  Result r = run(p, Mask::causal(), o);
  const uint8_t set[5] = {0, 1, 1, 1, 0};
  const Looks l = look(p, Mask::causal(), o, r, {0, 3}, {.bits = TensorView<const uint8_t>(set, {5})}, 5);
  EXPECT_EQ(l.top_keys, (std::vector<int64_t>{0, 2, 4, -1, -1, -1, -1, -1, -1, -1, 0, 2, 3, 4, -1}));
  EXPECT_NEAR(l.distance[0], (0 + 298 + 299) / 3.0, 1e-4);
  EXPECT_NEAR(l.distance[2], (401 + 699 + 1 + 700) / 4.0, 1e-4);
  EXPECT_NEAR(l.mass[0], 1 / 3.0, 1e-6);
  EXPECT_NEAR(l.mass[2], 2 / 4.0, 1e-6);
  for (const auto* x : {&l.total, &l.entropy, &l.distance, &l.mass, &l.largest}) EXPECT_EQ(bits((*x)[1]), 0u);
  EXPECT_EQ(l.largest_key[1], -1);
  const double want[5] = {1 / 3.0 + 0.25, 0, 1 / 3.0 + 0.25, 0.25, 1 / 3.0 + 0.25};
  for (size_t j = 0; j < 5; ++j) EXPECT_NEAR(l.sums[j], want[j], 1e-6);
}

TEST(Looks, ANanThatIsSeenShowsAndAHiddenOneDoesNot) {
  Problem p = with_lengths(3, 3, 8, 8);
  p.fill(3);
  const Looks clean = [&] {
    Result r = run(p, Mask::causal());
    return look(p, Mask::causal(), options_of(p), r, {0, 3}, {.mask = Mask::full()}, 2);
  }();
  for (int64_t g = 0; g < 2; ++g) p.key(0, g, 2)[1] = NAN;
  Result r = run(p, Mask::causal());
  const Looks l = look(p, Mask::causal(), options_of(p), r, {0, 3}, {.mask = Mask::full()}, 2);
  for (size_t h = 0; h < 4; ++h) {
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(bits(l.entropy[h * 3 + i]), bits(clean.entropy[h * 3 + i]));
      EXPECT_EQ(bits(l.distance[h * 3 + i]), bits(clean.distance[h * 3 + i]));
      EXPECT_EQ(l.largest_key[h * 3 + i], clean.largest_key[h * 3 + i]);
    }
    for (const auto* x : {&l.total, &l.entropy, &l.distance, &l.mass, &l.largest})
      EXPECT_TRUE(std::isnan((*x)[h * 3 + 2]));
    EXPECT_EQ(l.largest_key[h * 3 + 2], -1);
    EXPECT_EQ(l.top_keys[(h * 3 + 2) * 2], -1);
  }
}

TEST(Looks, AreTheSameBitsOnAnyNumberOfThreads) {
  Problem p = with_lengths(200, 700, 16, 8);
  p.fill(8);
  Result r = run(p, Mask::causal());
  const int threads = num_threads();
  std::vector<Looks> all;
  for (const int n : {1, 3}) {
    set_num_threads(n);
    all.push_back(look(p, Mask::causal(), options_of(p), r, {0, 200}, {.mask = Mask::prefix(2)}, 4));
  }
  set_num_threads(threads);
  EXPECT_TRUE(same_bits(all[0].sums, all[1].sums));
  EXPECT_TRUE(same_bits(all[0].entropy, all[1].entropy));
  EXPECT_EQ(all[0].top_keys, all[1].top_keys);
}

TEST(Refusals, LooksNameWhatIsWrong) {
  Problem p = with_lengths(3, 5, 8, 8);
  p.fill(1);
  Result r = run(p, Mask::causal());
  std::vector<float> x(100);
  std::vector<int64_t> keys(100);
  const uint8_t set[5] = {};
  const auto statistics = [&](const KeySet& key_set, int64_t rows) {
    attention_statistics(q_view(p), k_view(p), lse_view(p, r), Mask::causal(), options_of(p), {0, 3}, key_set,
                         {.mass = {x.data(), {1, 4, rows}}});
  };
  expect_refused(Code::kInvalidArgument, {"mass is wanted"}, [&] { statistics({}, 3); });
  expect_refused(Code::kInvalidArgument, {"as a mask and as bits"},
                 [&] { statistics({.mask = Mask::full(), .bits = TensorView<const uint8_t>(set, {5})}, 3); });
  expect_refused(Code::kInvalidArgument, {"set's bits", "[4]", "[5]"},
                 [&] { statistics({.bits = TensorView<const uint8_t>(set, {4})}, 3); });
  expect_refused(Code::kInvalidArgument, {"mass", "[1, 4, 2]", "[1, 4, 3]"},
                 [&] { statistics({.mask = Mask::full()}, 2); });
  expect_refused(Code::kInvalidArgument, {"attention_top_keys", "queries 0 to 4"}, [&] {
    attention_top_keys(q_view(p), k_view(p), lse_view(p, r), Mask::causal(), options_of(p), {0, 4},
                       {keys.data(), {1, 4, 4, 2}}, {x.data(), {1, 4, 4, 2}});
  });
  const TermProblem xl(p, {.name = "xl", .xl = true, .clamp = 0});
  AttentionOptions o = xl.options();
  o.xl->first_distance = 0;
  expect_refused(Code::kInvalidArgument, {"attention_statistics", "xl.r", "distance -"}, [&] {
    attention_statistics(q_view(p), k_view(p), lse_view(p, r), Mask::full(), o, {0, 3}, {},
                         {.total = {x.data(), {1, 4, 3}}});
  });
  expect_refused(Code::kInvalidArgument, {"sums", "[1, 4, 4]", "[1, 4, 5]"}, [&] {
    attention_column_sums(q_view(p), k_view(p), lse_view(p, r), Mask::causal(), options_of(p), {0, 3},
                          {x.data(), {1, 4, 4}});
  });
}

}  // namespace
}  // namespace regard
