// Score terms in the backward pass: bits of dq, dk and dv, values of the terms' own gradients, any number of threads,
// and what is masked.
#include <gtest/gtest.h>

#include "attention/backward_calls.h"
#include "attention/terms.h"

namespace regard {
namespace {

using namespace testing_attention;

// The gradients of the terms of a problem.
struct TermResult {
  std::vector<float> bias, table, sink, u, v, r;
  explicit TermResult(const TermProblem& t)
      : bias(t.wanted.dense ? t.dense.size() : 0, -7.0f),
        table(t.wanted.t5 ? t.table.size() : 0, -7.0f),
        sink(t.wanted.sink ? t.sinks.size() : 0, -7.0f),
        u(t.u.size(), -7.0f),
        v(t.v.size(), -7.0f),
        r(t.r.size(), -7.0f) {}
  ScoreTermGradients views(const TermProblem& t) {
    ScoreTermGradients g;
    const int64_t heads = t.p.num_q_heads;
    if (!bias.empty()) g.bias = {bias.data(), {t.dense_shape[0], t.dense_shape[1], t.dense_shape[2], t.dense_shape[3]}};
    if (!table.empty()) g.t5_table = {table.data(), {TermProblem::kBuckets, heads}};
    if (!sink.empty()) g.sink = {sink.data(), {heads}};
    if (!u.empty()) g.xl_u = {u.data(), {heads, t.p.d}};
    if (!v.empty()) g.xl_v = {v.data(), {heads, t.p.d}};
    if (!r.empty()) g.xl_r = {r.data(), {t.distances, heads, t.p.d}};
    return g;
  }
  friend bool operator==(const TermResult& a, const TermResult& b) {
    return same_bits(a.bias, b.bias) && same_bits(a.table, b.table) && same_bits(a.sink, b.sink) &&
           same_bits(a.u, b.u) && same_bits(a.v, b.v) && same_bits(a.r, b.r);
  }
};

// What Transformer-XL's r adds to dq, and the gradients of u, v and r, from those of all pairs, in f64.
struct RelativeGradients {
  std::vector<double> q, u, v, r;
  RelativeGradients(const TermProblem& t, const WideGradients& wide)
      : q(wide.q), u(t.u.size(), 0.0), v(t.v.size(), 0.0), r(t.r.size(), 0.0) {
    const Problem& p = t.p;
    size_t pair = 0, row = 0;
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t h = 0; h < p.num_q_heads; ++h)
        for (int64_t i = 0; i < p.q_len; ++i, ++row) {
          for (int64_t x = 0; x < p.d; ++x)
            u[static_cast<size_t>(h * p.d + x)] += wide.q[row * static_cast<size_t>(p.d) + static_cast<size_t>(x)];
          for (int64_t j = 0; j < p.kv_len; ++j, ++pair) {
            int64_t distance = p.q_begin + i - p.k_begin - j;
            if (t.wanted.clamp > 0) distance = std::clamp(distance, -t.wanted.clamp, t.wanted.clamp);
            for (int64_t x = 0; x < p.d; ++x) {
              const auto at = static_cast<size_t>(((distance - t.first_distance) * p.num_q_heads + h) * p.d + x);
              const auto in_head = static_cast<size_t>(h * p.d + x);
              const double change = wide.pairs[pair] * p.scale;
              q[row * static_cast<size_t>(p.d) + static_cast<size_t>(x)] += change * static_cast<double>(t.r[at]);
              v[in_head] += change * static_cast<double>(t.r[at]);
              r[at] += change * static_cast<double>(p.query(b, h, i)[x] + t.v[in_head]);
            }
          }
        }
  }
};

Gradients run_terms(const TermProblem& t, const Upstream& up, const Mask& mask, const AttentionOptions& options,
                    TermResult& terms) {
  const Problem& p = t.p;
  Gradients g(p);
  attend_backward(q_view(p), k_view(p), v_view(p), like_out(p, up.forward.out), like_lse(p, up.forward.lse),
                  like_out(p, up.dout), like_lse(p, up.dlse), mask, options, dq_view(p, g), dk_view(p, g),
                  dv_view(p, g), terms.views(t));
  return g;
}

std::vector<Wanted> more_terms() {
  std::vector<Wanted> all = wanted_terms();
  all.push_back({.name = "all but xl", .dense = true, .alibi = true, .t5 = true, .sink = true, .dropout = 0.5});
  all.push_back(
      {.name = "dense [1, 1, 1, k]", .dense = true, .all_batch = true, .all_heads = true, .all_queries = true});
  all.push_back({.name = "dense [b, h, q, 1]", .dense = true, .all_keys = true});
  all.push_back({.name = "dense [b, h, 1, 1]", .dense = true, .all_queries = true, .all_keys = true});
  all.push_back({.name = "dense [1, 1, 1, 1]",
                 .dense = true,
                 .all_batch = true,
                 .all_heads = true,
                 .all_queries = true,
                 .all_keys = true});
  all.push_back({.name = "dense [1, 1, q, 1]", .dense = true, .all_batch = true, .all_heads = true, .all_keys = true});
  return all;
}

TEST(BackwardTerms, BitsValuesAndThreads) {
  for (const auto& [q_len, kv_len] : {std::pair<int64_t, int64_t>{30, 300}, {100, 150}}) {
    Problem p;
    p.batch = 2, p.num_q_heads = 4, p.num_kv_heads = 2, p.d = 6, p.dv = 20;
    p.q_len = q_len, p.kv_len = kv_len, p.q_begin = kv_len - q_len;
    p.fill(50);
    for (const char* text : {"causal & window(99, 0)", "chunk(64) & ~dilated(3)"}) {
      const Mask mask = Mask::parse(text);
      for (const Wanted& wanted : more_terms()) {
        SCOPED_TRACE(std::string(text) + ", " + wanted.name);
        TermProblem t(p, wanted);
        t.p.softcap = wanted.alibi ? 1.0 : 0.0;
        const Upstream up(by_spec(t.shifted(), mask, t.pairs()), 51);
        TermResult terms(t);
        Threads threads(1);
        const Gradients got = run_terms(t, up, mask, t.options(), terms);
        const Gradients defined = backward_by_spec(t.shifted(), up, mask, t.pairs());
        ASSERT_TRUE(same_bits(got.k, defined.k));
        ASSERT_TRUE(same_bits(got.v, defined.v));
        if (!wanted.xl) {  // what comes from r is added to dq by an order of its own
          ASSERT_TRUE(same_bits(got.q, defined.q));
        }

        const WideGradients wide = backward_in_f64(t.shifted(), up.dout, up.dlse, mask, t.pairs());
        std::vector<double> bias(t.dense.size(), 0.0), table(t.table.size(), 0.0);
        size_t pair = 0;
        for (int64_t b = 0; b < p.batch; ++b)
          for (int64_t h = 0; h < p.num_q_heads; ++h)
            for (int64_t i = 0; i < p.q_len; ++i)
              for (int64_t j = 0; j < p.kv_len; ++j, ++pair) {
                bias[t.dense_index(b, h, i, j)] += wide.pairs[pair];
                const int64_t bucket =
                    t5_bucket(j - i - p.q_begin, TermProblem::kBuckets, TermProblem::kMaxDistance, wanted.direction);
                table[static_cast<size_t>(bucket * p.num_q_heads + h)] += wide.pairs[pair];
                if (wanted.dense && !mask.allowed(b, h, p.q_begin + i, j) && terms.bias.size() == wide.pairs.size()) {
                  ASSERT_EQ(bits(terms.bias[pair]), 0u) << "a masked pair";
                }
              }
        // Rows sum to nothing: what is added up over all keys is all rounding, so the size of what was added bounds it.
        const auto near = [&](const std::vector<float>& x, const std::vector<double>& want) {
          double top = 1;
          for (double y : want) top = std::max(top, std::fabs(y));
          for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], want[i], 1e-5 * top) << i;
        };
        near(terms.bias, bias), near(terms.table, table), near(terms.sink, wide.sink);
        if (wanted.xl) {
          const RelativeGradients relative(t, wide);
          near(got.q, relative.q), near(terms.u, relative.u), near(terms.v, relative.v), near(terms.r, relative.r);
        }

        for (int n : {2, 3, 8}) {
          Threads more(n);
          TermResult again(t);
          ASSERT_EQ(run_terms(t, up, mask, t.options(), again), got) << n << " threads";
          ASSERT_EQ(again, terms) << n << " threads";
        }
      }
    }
  }
}

// Biases of masked pairs may be anything, and so may everything of rows that see nothing but a sink, except their dlse.
TEST(BackwardTerms, MaskedBiasesAndEmptyRowsCannotMatter) {
  Problem p;
  p.num_q_heads = 2, p.q_len = 40, p.kv_len = 300, p.d = 8, p.dv = 8, p.q_begin = 260;
  p.fill(52);
  const Mask mask = Mask::parse("causal & window(50, 0) & ~prefix(280)");  // the first 20 rows see nothing
  const TermProblem clean(p, {.name = "all", .dense = true, .alibi = true, .t5 = true, .sink = true});
  const Upstream up(by_spec(p, mask, clean.pairs()), 53);
  TermResult want_terms(clean);
  const Gradients want = run_terms(clean, up, mask, clean.options(), want_terms);
  for (float poison : {NAN, INFINITY, -INFINITY}) {
    TermProblem dirty = clean;
    Upstream bad = up;
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < p.q_len; ++i) {
        for (int64_t j = 0; j < p.kv_len; ++j)
          if (!mask.allowed(0, h, p.q_begin + i, j)) dirty.dense[dirty.dense_index(0, h, i, j)] = poison;
        if (i >= 20) continue;
        std::fill_n(dirty.p.query(0, h, i), p.d, poison);
        std::fill_n(bad.dout.data() + (h * p.q_len + i) * p.dv, p.dv, poison);
      }
    TermResult terms(dirty);
    ASSERT_EQ(run_terms(dirty, bad, mask, dirty.options(), terms), want);
    ASSERT_EQ(terms, want_terms);
  }
  // Those rows are in the sink's gradient by their dlse; as padding they are not.
  double dlse = 0;
  for (int64_t i = 0; i < 20; ++i) dlse += static_cast<double>(up.dlse[static_cast<size_t>(i)]);
  std::vector<int64_t> positions(40, -1);
  for (int64_t i = 20; i < 40; ++i) positions[static_cast<size_t>(i)] = p.q_begin + i;
  AttentionOptions padded = clean.options();
  padded.q_begin = {};
  padded.q_positions = TensorView<const int64_t>(positions.data(), {40});
  TermResult terms(clean);
  ASSERT_EQ(run_terms(clean, up, mask, padded, terms), want);
  EXPECT_TRUE(same_bits(terms.bias, want_terms.bias));
  EXPECT_NEAR(want_terms.sink[0] - terms.sink[0], dlse, 1e-5 * (1 + std::fabs(dlse)));
  EXPECT_GT(std::fabs(dlse), 0.1) << "nothing was compared";
}

// Keys in another order, with holes and encoding positions of their own: every gradient goes to its slot.
TEST(BackwardTerms, SlotsAndEncodingPositions) {
  Problem p;
  p.num_q_heads = 2, p.q_len = 30, p.kv_len = 90, p.d = 8, p.dv = 8, p.q_begin = 60;
  p.fill(54);
  const Mask mask = Mask::causal();
  const TermProblem t(p, {.name = "all", .dense = true, .alibi = true, .t5 = true, .sink = true});
  const Upstream up(by_spec(p, mask, t.pairs()), 55);
  TermResult want_terms(t);
  const Gradients want = run_terms(t, up, mask, t.options(), want_terms);

  TermProblem other = t;
  other.p.kv_len = 100;
  other.dense_shape[3] = 100;
  other.p.k.assign(static_cast<size_t>(100 * p.d), NAN);
  other.p.v.assign(static_cast<size_t>(100 * p.dv), NAN);
  other.dense.assign(static_cast<size_t>(2 * 30 * 100), NAN);
  std::vector<int64_t> positions(100, -1), encodings(100, 123456), q_encodings;
  for (int64_t i = 0; i < 30; ++i) q_encodings.push_back(1000 + p.q_begin + i);
  for (int64_t j = 0; j < 90; ++j) {
    const int64_t slot = j < 45 ? 99 - j : j - 45;
    positions[static_cast<size_t>(slot)] = j;
    encodings[static_cast<size_t>(slot)] = 1000 + j;
    std::copy_n(p.key(0, 0, j), p.d, other.p.key(0, 0, slot));
    std::copy_n(p.value(0, 0, j), p.dv, other.p.value(0, 0, slot));
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < 30; ++i)
        other.dense[other.dense_index(0, h, i, slot)] = t.dense[t.dense_index(0, h, i, j)];
  }
  AttentionOptions o = other.options();
  o.k_begin = {};
  o.k_positions = TensorView<const int64_t>(positions.data(), {100});
  o.q_encoding_positions = TensorView<const int64_t>(q_encodings.data(), {30});
  o.k_encoding_positions = TensorView<const int64_t>(encodings.data(), {100});
  TermResult terms(other);
  const Gradients got = run_terms(other, up, mask, o, terms);
  EXPECT_TRUE(same_bits(got.q, want.q));
  EXPECT_TRUE(same_bits(terms.sink, want_terms.sink));
  EXPECT_TRUE(same_bits(terms.table, want_terms.table));
  for (int64_t slot = 0; slot < 100; ++slot)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < 30; ++i) {
        const int64_t j = positions[static_cast<size_t>(slot)];
        ASSERT_EQ(bits(terms.bias[other.dense_index(0, h, i, slot)]),
                  j < 0 ? 0u : bits(want_terms.bias[t.dense_index(0, h, i, j)]));
      }
}

// Sequences behind each other in one row, one of them empty, with slack at the end: the gradients of calls of their
// own.
TEST(BackwardTerms, PackedSequencesAreCallsOfTheirOwn) {
  constexpr int64_t kHeads = 2, kTotal = 210;
  const std::vector<int64_t> offsets = {0, 70, 70, 190};
  Problem packed;
  packed.num_q_heads = packed.num_kv_heads = kHeads, packed.q_len = packed.kv_len = kTotal, packed.d = 9,
  packed.dv = 12;
  packed.fill(60);
  const Mask mask = Mask::parse("causal & window(60, 0)");
  const std::vector<float> sinks = {0.5f, -0.25f};
  AttentionOptions o;
  o.alibi = Alibi{{0.125f, 0.25f}};
  o.sink = TensorView<const float>(sinks.data(), {kHeads});
  Upstream up(Result(packed), 61);
  AttentionOptions all = o;
  all.q_offsets = offsets;
  attend(q_view(packed), k_view(packed), v_view(packed), mask, all, out_view(packed, up.forward),
         lse_view(packed, up.forward));
  // What lies behind the last sequence does not matter.
  for (int64_t h = 0; h < kHeads; ++h)
    for (int64_t i = 190; i < kTotal; ++i) {
      std::fill_n(packed.query(0, h, i), packed.d, NAN);
      std::fill_n(packed.key(0, h, i), packed.d, NAN);
      std::fill_n(packed.value(0, h, i), packed.dv, NAN);
      std::fill_n(up.dout.data() + (h * kTotal + i) * packed.dv, packed.dv, NAN);
      up.dlse[static_cast<size_t>(h * kTotal + i)] = NAN;
    }
  Gradients got(packed);
  std::vector<float> sink(kHeads), wanted_sink(kHeads, 0.0f);
  const auto backward = [&](const Problem& p, const Upstream& upstream, const AttentionOptions& options, Gradients& g,
                            std::vector<float>& dsink) {
    attend_backward(q_view(p), k_view(p), v_view(p), like_out(p, upstream.forward.out),
                    like_lse(p, upstream.forward.lse), like_out(p, upstream.dout), like_lse(p, upstream.dlse), mask,
                    options, dq_view(p, g), dk_view(p, g), dv_view(p, g), {.sink = {dsink.data(), {kHeads}}});
  };
  backward(packed, up, all, got, sink);
  const auto part = [&](const std::vector<float>& x, int64_t begin, int64_t end) {
    const int64_t dim = static_cast<int64_t>(x.size()) / (kHeads * kTotal);
    std::vector<float> y;
    for (int64_t h = 0; h < kHeads; ++h)
      y.insert(y.end(), x.begin() + (h * kTotal + begin) * dim, x.begin() + (h * kTotal + end) * dim);
    return y;
  };
  for (size_t s = 0; s < 3; ++s) {
    const int64_t begin = offsets[s], end = offsets[s + 1];
    Problem p = packed;
    p.q_len = p.kv_len = end - begin;
    p.q = part(packed.q, begin, end), p.k = part(packed.k, begin, end), p.v = part(packed.v, begin, end);
    Upstream alone(Result(p), 0);
    alone.forward.out = part(up.forward.out, begin, end), alone.forward.lse = part(up.forward.lse, begin, end);
    alone.dout = part(up.dout, begin, end), alone.dlse = part(up.dlse, begin, end);
    Gradients want(p);
    std::vector<float> some(kHeads);
    backward(p, alone, o, want, some);
    EXPECT_TRUE(same_bits(part(got.q, begin, end), want.q)) << "sequence " << s;
    EXPECT_TRUE(same_bits(part(got.k, begin, end), want.k)) << "sequence " << s;
    EXPECT_TRUE(same_bits(part(got.v, begin, end), want.v)) << "sequence " << s;
    for (size_t h = 0; h < kHeads; ++h) wanted_sink[h] += some[h];
  }
  for (size_t h = 0; h < kHeads; ++h) EXPECT_NEAR(sink[h], wanted_sink[h], 1e-5 * (1 + std::fabs(wanted_sink[h])));
  for (const std::vector<float>* x : {&got.q, &got.k, &got.v})
    for (float y : part(*x, 190, kTotal)) ASSERT_EQ(bits(y), 0u) << "slack";
}

TEST(BackwardTerms, RefusalsNameTheTerm) {
  Problem p;
  p.num_q_heads = 2, p.q_len = p.kv_len = 5, p.d = 4, p.dv = 4;
  p.fill(56);
  const TermProblem t(p, {.name = "all", .dense = true, .t5 = true, .sink = true});
  const Upstream up(by_spec(p, Mask::causal(), t.pairs()), 57);
  Gradients g(p);
  TermResult r(t);
  const auto refused = [&](auto change, std::initializer_list<const char*> words) {
    AttentionOptions o = t.options();
    ScoreTermGradients terms = r.views(t);
    change(o, terms);
    expect_refused(Code::kInvalidArgument, words, [&] {
      attend_backward(q_view(p), k_view(p), v_view(p), like_out(p, up.forward.out), like_lse(p, up.forward.lse),
                      like_out(p, up.dout), {}, Mask::causal(), o, dq_view(p, g), {}, {}, terms);
    });
  };
  refused([](auto& o, auto&) { o.bias = {}; }, {"[attend_backward]", "terms.bias", "no such term"});
  refused([](auto& o, auto&) { o.t5.reset(); }, {"terms.t5_table", "no such term"});
  refused([](auto& o, auto&) { o.sink = {}; }, {"terms.sink", "no such term"});
  refused([](auto&, auto& terms) { terms.bias.shape[3] = 1; }, {"terms.bias", "[1, 2, 5, 1]", "[1, 2, 5, 5]"});
  refused([](auto&, auto& terms) { terms.sink.shape[0] = 1; }, {"terms.sink", "[1]", "[2]"});
  refused([&](auto&, auto& terms) { terms.sink.data = g.q.data(); }, {"terms.sink", "overlaps", "dq"});
  refused([&](auto&, auto& terms) { terms.bias.data = const_cast<float*>(t.dense.data()); },
          {"terms.bias", "overlaps", "score term"});
  refused([](auto& o, auto&) { o.bias.shape[2] = 4; }, {"[attend_backward]", "bias", "[1, 2, 4, 5]"});
}

}  // namespace
}  // namespace regard
