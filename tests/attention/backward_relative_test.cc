// Transformer-XL's term in the backward pass: the bits of dq and of the gradient of r by a scalar definition, wherever
// queries and keys stand; a row alone; what is masked.
#include <gtest/gtest.h>

#include "attention/backward_calls.h"
#include "attention/terms.h"

namespace regard {
namespace {

using namespace testing_attention;
using kernels::reference::Rounding;

// Positions of the queries and encoding positions of queries and keys; none: they follow each other, and are the
// positions.
struct Placement {
  std::vector<int64_t> queries, query_encodings, key_encodings;
  int64_t query(const Problem& p, int64_t i) const {
    return queries.empty() ? p.q_begin + i : queries[static_cast<size_t>(i)];
  }
  int64_t distance(const Problem& p, int64_t i, int64_t j) const {
    const int64_t q = query_encodings.empty() ? query(p, i) : query_encodings[static_cast<size_t>(i)];
    return q - (key_encodings.empty() ? p.k_begin + j : key_encodings[static_cast<size_t>(j)]);
  }
  AttentionOptions apply(AttentionOptions o, const Problem& p) const {
    if (!queries.empty()) {
      o.q_begin = {};
      o.q_positions = TensorView<const int64_t>(queries.data(), {p.q_len});
    }
    if (!query_encodings.empty()) o.q_encoding_positions = TensorView<const int64_t>(query_encodings.data(), {p.q_len});
    if (!key_encodings.empty()) o.k_encoding_positions = TensorView<const int64_t>(key_encodings.data(), {p.kv_len});
    return o;
  }
};

struct RelativeResult {
  Gradients all;
  std::vector<float> u, v, r;
  explicit RelativeResult(const TermProblem& t) : all(t.p), u(t.u.size()), v(t.v.size()), r(t.r.size()) {}
  friend bool operator==(const RelativeResult& a, const RelativeResult& b) {
    return a.all == b.all && same_bits(a.u, b.u) && same_bits(a.v, b.v) && same_bits(a.r, b.r);
  }
};

RelativeResult run_relative(const TermProblem& t, const Upstream& up, const Mask& mask, const AttentionOptions& o) {
  const Problem& p = t.p;
  RelativeResult g(t);
  attend_backward(
      q_view(p), k_view(p), v_view(p), like_out(p, up.forward.out), like_lse(p, up.forward.lse), like_out(p, up.dout),
      like_lse(p, up.dlse), mask, o, dq_view(p, g.all), dk_view(p, g.all), dv_view(p, g.all),
      {.xl_u = {g.u.data(), {p.num_q_heads, p.d}},
       .xl_v = {g.v.data(), {p.num_q_heads, p.d}},
       .xl_r = {g.r.data(), {t.distances, p.num_q_heads, p.d}}});
  return g;
}

// The definition. Keys go by blocks of 256, and in these by runs whose vectors lie in the same 256 columns, where column 0
// is the farthest distance; one run is all that there is unless keys stand in disorder or the table's tile ends. A row
// has one number per vector for each run, the sum of its keys' gradients, and takes the vectors by rising column. What r
// gets is added up over the rows of a block of keys and KV head, and these sums by block, batch row and head.
template <Rounding R>
RelativeResult by_definition(const TermProblem& t, const Upstream& up, const Mask& mask, const Placement& placement) {
  using namespace kernels::reference;
  const Problem& p = t.p;
  const Problem shifted = t.shifted();
  constexpr int64_t kBlock = 256;
  const auto scale = static_cast<float>(p.scale), factor = static_cast<float>(p.scale * math::kLog2e);
  const auto cap = static_cast<float>(p.softcap * math::kLog2e);
  const int64_t first_block = p.k_begin / kBlock, blocks = (p.k_begin + p.kv_len - 1) / kBlock - first_block + 1;
  const PairTerms pairs = t.pairs([&](int64_t i) { return placement.distance(p, i, 0); },
                                  [&](int64_t j) { return placement.distance(p, 0, 0) - placement.distance(p, 0, j); });
  RelativeResult g(t);
  g.all = Gradients(p, 0.0f);
  std::vector<std::vector<float>> parts(static_cast<size_t>(blocks * p.batch * p.num_kv_heads),
                                        std::vector<float>(t.r.size()));
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t kv = 0; kv < p.num_kv_heads; ++kv)
      for (int64_t i = 0; i < p.q_len; ++i)
        for (int64_t h = kv * p.group(); h < (kv + 1) * p.group(); ++h) {
          const int64_t row = (b * p.num_q_heads + h) * p.q_len + i;
          float* dq = g.all.q.data() + row * p.d;
          std::vector<std::pair<int64_t, float>> seen;  // key and the gradient of its term
          attention_backward_row_spec<R>(
              shifted.query(b, h, i), up.forward.out.data() + row * p.dv, up.dout.data() + row * p.dv,
              up.forward.lse[static_cast<size_t>(row)], up.dlse[static_cast<size_t>(row)], static_cast<int>(p.d),
              static_cast<int>(p.dv), p.k_begin, p.k_begin + p.kv_len, 1.0f, factor, cap,
              [&](int64_t j, int x) { return p.key(b, kv, j - p.k_begin)[x]; },
              [&](int64_t j, int c) { return p.value(b, kv, j - p.k_begin)[c]; },
              [&](int64_t j) { return mask.allowed(b, h, placement.query(p, i), j); }, dq,
              [&](int64_t j) { return g.all.k.data() + ((b * p.num_kv_heads + kv) * p.kv_len + j - p.k_begin) * p.d; },
              [&](int64_t j) { return g.all.v.data() + ((b * p.num_kv_heads + kv) * p.kv_len + j - p.k_begin) * p.dv; },
              [&](int64_t j, float db) { seen.emplace_back(j, db); }, RowTerms(pairs, p, b, h, i));
          std::vector<float> relative(static_cast<size_t>(p.d));
          for (size_t next = 0; next < seen.size();) {
            const auto vector_of = [&](int64_t key) {
              int64_t distance = placement.distance(p, i, key - p.k_begin);
              if (t.wanted.clamp > 0) distance = std::clamp(distance, -t.wanted.clamp, t.wanted.clamp);
              return distance - t.first_distance;
            };
            const auto run_of = [&](int64_t key) {
              return std::pair{key / kBlock, (t.distances - 1 - vector_of(key)) / kBlock};
            };
            const auto run = run_of(seen[next].first);
            const int64_t block = run.first;
            std::vector<float> sums(static_cast<size_t>(t.distances));
            std::vector<bool> have(static_cast<size_t>(t.distances));
            for (; next < seen.size() && run_of(seen[next].first) == run; ++next) {
              const auto at = static_cast<size_t>(vector_of(seen[next].first));
              sums[at] = have[at] ? sums[at] + seen[next].second : seen[next].second;
              have[at] = true;
            }
            float* part = parts[static_cast<size_t>(((block - first_block) * p.batch + b) * p.num_kv_heads + kv)].data();
            for (auto at = static_cast<size_t>(t.distances); at-- > 0;)
              for (int64_t x = 0; x < p.d && have[at]; ++x) {
                const auto in_r = static_cast<size_t>((static_cast<int64_t>(at) * p.num_q_heads + h) * p.d + x);
                const float position = (p.query(b, h, i)[x] + t.v[static_cast<size_t>(h * p.d + x)]) * scale;
                float& sum = relative[static_cast<size_t>(x)];
                sum = spec_fma<R>(sums[at], t.r[in_r], sum);
                part[in_r] = spec_fma<R>(sums[at], position, part[in_r]);
              }
          }
          for (int64_t x = 0; x < p.d; ++x) dq[x] = spec_finish(dq[x] + relative[static_cast<size_t>(x)], scale);
        }
  for (float& x : g.all.k) x = spec_finish(x, static_cast<float>(math::kLn2));
  for (float& x : g.all.v) x = spec_finish(x, 1.0f);
  for (const std::vector<float>& part : parts)
    for (size_t i = 0; i < part.size(); ++i) g.r[i] += part[i];
  return g;
}
RelativeResult by_definition(const TermProblem& t, const Upstream& up, const Mask& mask, const Placement& placement) {
  return kernels::kernels().isa == Isa::kBaseline ? by_definition<Rounding::kSeparate>(t, up, mask, placement)
                                                  : by_definition<Rounding::kFused>(t, up, mask, placement);
}

void expect_bits(const TermProblem& t, const Mask& mask, const Placement& placement,
                 std::initializer_list<int> threads_used = {1, 3}) {
  const AttentionOptions o = placement.apply(t.options(), t.p);
  const Upstream up(run(t.p, mask, o), 51);
  const RelativeResult want = by_definition(t, up, mask, placement);
  std::optional<RelativeResult> first;
  for (int n : threads_used) {
    Threads threads(n);
    const RelativeResult got = run_relative(t, up, mask, o);
    ASSERT_TRUE(same_bits(got.all.q, want.all.q)) << n << " threads";
    ASSERT_TRUE(same_bits(got.all.k, want.all.k));
    ASSERT_TRUE(same_bits(got.all.v, want.all.v));
    ASSERT_TRUE(same_bits(got.r, want.r)) << n << " threads";
    if (!first) first = got;
    ASSERT_EQ(got, *first) << n << " threads";
  }
}

Problem problem(int64_t q_len, int64_t kv_len, int64_t num_q_heads, int64_t num_kv_heads, int64_t d) {
  Problem p;
  p.num_q_heads = num_q_heads, p.num_kv_heads = num_kv_heads, p.q_len = q_len, p.kv_len = kv_len, p.d = d, p.dv = 9;
  p.q_begin = kv_len - q_len;
  return p.fill(static_cast<uint64_t>(q_len + 7 * kv_len + d));
}

Wanted relative(int64_t clamp) { return {.name = "xl", .xl = true, .clamp = clamp}; }

TEST(BackwardRelative, BitsOfTheDefinition) {
  const Problem problems[] = {problem(110, 600, 1, 1, 5), problem(50, 280, 6, 2, 3), problem(20, 530, 3, 1, 17),
                              problem(3, 5, 2, 1, 1)};
  for (const Problem& p : problems)
    for (int64_t clamp : {0, 1, 20, 300})
      for (const char* text : {"full", "window(150, 40)", "causal & ~dilated(3)"}) {
        SCOPED_TRACE(std::to_string(p.q_len) + " x " + std::to_string(p.kv_len) + ", clamp " + std::to_string(clamp) +
                     ", " + text);
        expect_bits(TermProblem(p, relative(clamp)), Mask::parse(text), {});
      }
}

TEST(BackwardRelative, BitsWithSoftcapBatchAndMasksByHead) {
  Problem p = problem(60, 300, 4, 2, 12);
  p.batch = 2, p.k_begin = 1000, p.q_begin = 1240, p.softcap = 1.5;
  p.fill(90);
  for (int64_t clamp : {0, 30})
    expect_bits(TermProblem(p, relative(clamp)), Mask::parse("per_head(causal, window(100, *), full, none)"), {},
                {1, 2, 3, 8});
}

// Queries anywhere and in any order, some of them padding; keys whose encodings follow each other, and others.
TEST(BackwardRelative, BitsForSlotsThatStandAnywhere) {
  const Problem p = problem(105, 290, 2, 1, 5);
  Placement scattered;
  for (int64_t i = 0; i < p.q_len; ++i) scattered.queries.push_back(i % 11 == 5 ? -1 : 170 + i * 7 % p.q_len);
  Placement shifted = scattered, halved = scattered;
  for (int64_t i = 0; i < p.q_len; ++i) {
    shifted.query_encodings.push_back(1000 + 160 + i * 3 % 130);
    halved.query_encodings.push_back((170 + i * 7 % p.q_len) / 2);
  }
  for (int64_t j = 0; j < p.kv_len; ++j) {
    shifted.key_encodings.push_back(1000 + j);
    halved.key_encodings.push_back(j * 31 % p.kv_len / 2);
  }
  for (int64_t clamp : {0, 25})
    for (const char* text : {"full", "causal & ~dilated(5)"}) {
      const Mask mask = Mask::parse(text);
      SCOPED_TRACE(std::string(text) + ", clamp " + std::to_string(clamp));
      const TermProblem t(p, relative(clamp));
      {
        SCOPED_TRACE("scattered");
        expect_bits(t, mask, scattered);
      }
      {
        SCOPED_TRACE("encodings that follow each other");
        expect_bits(t, mask, shifted);
      }
      {
        SCOPED_TRACE("encodings that do not");
        expect_bits(t, mask, halved);
      }
    }
}

TEST(BackwardRelative, ARowAloneHasTheSameBits) {
  const Problem p = problem(110, 400, 4, 2, 16);
  for (int64_t clamp : {0, 50}) {
    const TermProblem t(p, relative(clamp));
    const Mask mask = Mask::parse("causal & ~dilated(3)");
    const Upstream up(run(p, mask, t.options()), 51);
    const RelativeResult all = run_relative(t, up, mask, t.options());
    for (int64_t i : {0, 1, 5, 6, 47, 95, 96, 109}) {
      TermProblem one = t;
      one.p.q_len = 1, one.p.q_begin = p.q_begin + i;
      Upstream alone = up;
      const auto cut = [&](std::vector<float>& x, int64_t dim) {
        std::vector<float> row;
        for (int64_t h = 0; h < p.num_q_heads; ++h)
          row.insert(row.end(), x.begin() + (h * p.q_len + i) * dim, x.begin() + (h * p.q_len + i + 1) * dim);
        x = row;
      };
      std::vector<float> want = all.all.q;
      cut(one.p.q, p.d), cut(want, p.d), cut(alone.dout, p.dv), cut(alone.dlse, 1), cut(alone.forward.out, p.dv),
          cut(alone.forward.lse, 1);
      ASSERT_TRUE(same_bits(run_relative(one, alone, mask, one.options()).all.q, want)) << "row " << i;
    }
  }
}

// Vectors of distances that no row sees may be anything, and so may masked keys and rows that see nothing.
TEST(BackwardRelative, WhatIsMaskedCannotMatter) {
  const Problem p = problem(60, 300, 2, 1, 12);
  const Mask mask = Mask::parse("window(90, 0) & ~dilated(4) & ~prefix(260)");  // the first 20 rows see nothing
  const TermProblem t(p, relative(0));
  const Upstream up(run(p, mask, t.options()), 51);
  const RelativeResult want = run_relative(t, up, mask, t.options());
  std::vector<bool> seen(static_cast<size_t>(t.distances));
  for (int64_t i = 0; i < p.q_len; ++i)
    for (int64_t j = 0; j < p.kv_len; ++j)
      if (mask.allowed(0, 0, p.q_begin + i, j)) seen[static_cast<size_t>(p.q_begin + i - j - t.first_distance)] = true;
  for (float poison : {NAN, INFINITY}) {
    TermProblem dirty = t;
    Upstream bad = up;
    for (int64_t at = 0; at < t.distances; ++at)
      if (!seen[static_cast<size_t>(at)])
        std::fill_n(dirty.r.data() + at * p.num_q_heads * p.d, p.num_q_heads * p.d, poison);
    for (int64_t j = 0; j < 260; ++j) std::fill_n(dirty.p.key(0, 0, j), p.d, poison);
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < 20; ++i) {
        std::fill_n(dirty.p.query(0, h, i), p.d, poison);
        std::fill_n(bad.dout.data() + (h * p.q_len + i) * p.dv, p.dv, poison);
      }
    ASSERT_EQ(run_relative(dirty, bad, mask, dirty.options()), want);
  }
  for (int64_t at = 0; at < t.distances; ++at)
    for (int64_t x = 0; x < p.num_q_heads * p.d && !seen[static_cast<size_t>(at)]; ++x)
      ASSERT_EQ(bits(want.r[static_cast<size_t>(at * p.num_q_heads * p.d + x)]), 0u);
  EXPECT_GT(std::count(seen.begin(), seen.end(), true), 20);
}

// A missing vector is refused when a row sees its key, and only then.
TEST(BackwardRelative, MissingVectors) {
  const Problem p = problem(40, 300, 2, 1, 12);
  for (int64_t clamp : {0, 60}) {
    TermProblem t(p, relative(clamp));
    const Mask mask = Mask::parse("window(50, 0) & ~prefix(3)");
    const Upstream up(run(p, mask, t.options()), 51);
    const RelativeResult want = run_relative(t, up, mask, t.options());
    const int64_t stride = p.num_q_heads * p.d;
    TermProblem fewer = t;  // the distances 0 ... 50 alone
    fewer.r.assign(t.r.begin() - t.first_distance * stride, t.r.begin() + (51 - t.first_distance) * stride);
    fewer.first_distance = 0, fewer.distances = 51;
    const RelativeResult got = run_relative(fewer, up, mask, fewer.options());
    EXPECT_EQ(got.all, want.all);
    EXPECT_TRUE(same_bits(got.r.data(), want.r.data() - t.first_distance * stride, 51 * stride));
    expect_refused(Code::kInvalidArgument, {"[attend_backward]", "xl.r"},
                   [&] { run_relative(fewer, up, Mask::parse("window(51, 0)"), fewer.options()); });
    expect_refused(Code::kInvalidArgument, {"[attend_backward]", "xl.r"},
                   [&] { run_relative(fewer, up, Mask::parse("window(50, 1)"), fewer.options()); });
    // Seen in part: the hull of each row has distances without a vector, the row does not see them.
    expect_refused(Code::kInvalidArgument, {"[attend_backward]", "xl.r"}, [&] {
      run_relative(fewer, up, Mask::parse("window(50, 0) | sinks(1)"), fewer.options());
    });
    const Mask gaps = Mask::parse("window(50, 0) & ~prefix(3) | sinks(1) & ~prefix(1)");
    EXPECT_EQ(run_relative(fewer, up, gaps, fewer.options()).all, want.all);
  }
}

}  // namespace
}  // namespace regard
