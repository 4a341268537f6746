// The promises of the backward pass: masked data, empty rows, rows that do not know their company, threads, memory; and
// what it refuses.
#include <gtest/gtest.h>

#include "attention/backward_calls.h"
#include "support/process_memory.h"

namespace regard {
namespace {

using namespace testing_attention;
using test::peak_kib;

const float kPoisons[] = {NAN, INFINITY, -INFINITY};

TEST(BackwardPromises, ThreadsDoNotMatter) {
  Problem p;
  p.batch = 2, p.num_q_heads = 4, p.num_kv_heads = 2, p.q_len = p.kv_len = 600, p.d = 40, p.dv = 24;
  p.fill(20);
  for (const Mask& mask : {Mask::full(), Mask::causal(), masks()[3], masks()[4], masks()[5]}) {
    const Upstream up(run(p, mask), 1);
    const Gradients want = [&] {
      const Threads one(1);
      return run_backward(p, up, mask);
    }();
    for (int threads : {2, 3, 8}) {
      const Threads several(threads);
      ASSERT_EQ(run_backward(p, up, mask), want) << threads << " threads, " << mask.text();
    }
  }
}

// A row of dq alone, without the batch, the other heads and the other rows.
TEST(BackwardPromises, ARowOfDqIsARow) {
  Problem p;
  p.batch = 2, p.num_q_heads = 4, p.num_kv_heads = 2, p.q_len = p.kv_len = 400, p.d = 33, p.dv = 40;
  p.fill(21);
  for (const char* text : {"full", "causal", "causal & (window(31, 0) | sinks(4))", "causal & ~dilated(3)"}) {
    const Mask mask = Mask::parse(text);
    const Upstream up(run(p, mask), 2);
    const Gradients whole = run_backward(p, up, mask);
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t i : {0, 1, 95, 96, 257, 399}) {
          Problem alone = p;
          alone.batch = 1, alone.num_q_heads = alone.num_kv_heads = 1, alone.q_len = 1, alone.q_begin = i;
          alone.q.assign(p.query(b, h, i), p.query(b, h, i) + p.d);
          alone.k.assign(p.key(b, h / 2, 0), p.key(b, h / 2, 0) + p.kv_len * p.d);
          alone.v.assign(p.value(b, h / 2, 0), p.value(b, h / 2, 0) + p.kv_len * p.dv);
          Upstream row(Result(alone), 0);
          const int64_t at = (b * 4 + h) * p.q_len + i;
          std::copy_n(up.forward.out.data() + at * p.dv, p.dv, row.forward.out.data());
          std::copy_n(up.dout.data() + at * p.dv, p.dv, row.dout.data());
          row.forward.lse[0] = up.forward.lse[static_cast<size_t>(at)];
          row.dlse[0] = up.dlse[static_cast<size_t>(at)];
          ASSERT_TRUE(same_bits(run_backward(alone, row, mask).q.data(), whole.q.data() + at * p.d, p.d))
              << text << " row " << at;
        }
  }
}

// Every key and value that no row sees, and everything of rows that see nothing.
TEST(BackwardPromises, MaskedDataCannotMatter) {
  Problem p = with_lengths(130, 300, 33, 17);
  p.fill(22);
  std::vector<Mask> cases;
  for (const char* text :
       {"causal & window(40, 0) & ~window(4, 0)", "causal & lengths(150)", "causal & ~prefix(200)",
        "~causal & lengths(290)", "chunk(50) & ~chunk(25)", "per_head(none, causal, window(10, 0), none)"})
    cases.push_back(Mask::parse(text));
  for (const Mask& mask : cases) {
    const Upstream clean(run(p, mask), 3);
    const Gradients want = run_backward(p, clean, mask);
    for (float poison : kPoisons) {
      Problem dirty = p;
      Upstream up = clean;
      int64_t masked_keys = 0, empty_rows = 0;
      for (int64_t g = 0; g < 2; ++g)
        for (int64_t j = 0; j < p.kv_len; ++j) {
          bool seen = false;
          for (int64_t i = 0; i < p.q_len && !seen; ++i)
            seen = mask.allowed(0, 2 * g, p.q_begin + i, j) || mask.allowed(0, 2 * g + 1, p.q_begin + i, j);
          if (seen) continue;
          ++masked_keys;
          std::fill_n(dirty.key(0, g, j), p.d, poison);
          std::fill_n(dirty.value(0, g, j), p.dv, poison);
          for (int64_t x = 0; x < p.d; ++x)
            ASSERT_EQ(bits(want.k[static_cast<size_t>((g * p.kv_len + j) * p.d + x)]), 0u);
          for (int64_t x = 0; x < p.dv; ++x)
            ASSERT_EQ(bits(want.v[static_cast<size_t>((g * p.kv_len + j) * p.dv + x)]), 0u);
        }
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t i = 0; i < p.q_len; ++i) {
          bool sees = false;
          for (int64_t j = 0; j < p.kv_len && !sees; ++j) sees = mask.allowed(0, h, p.q_begin + i, j);
          if (sees) continue;
          ++empty_rows;
          const int64_t row = h * p.q_len + i;
          std::fill_n(dirty.query(0, h, i), p.d, poison);
          std::fill_n(up.dout.data() + row * p.dv, p.dv, poison);
          std::fill_n(up.forward.out.data() + row * p.dv, p.dv, poison);
          up.dlse[static_cast<size_t>(row)] = poison;
          for (int64_t x = 0; x < p.d; ++x) ASSERT_EQ(bits(want.q[static_cast<size_t>(row * p.d + x)]), 0u);
        }
      EXPECT_GT(masked_keys + empty_rows, 0) << mask.text();
      ASSERT_EQ(run_backward(dirty, up, mask), want) << mask.text();
    }
  }
}

// What one row may not see does not change its dq, although other rows do see it; and a row with NaN everywhere spoils
// the gradients of the keys it sees and no others.
TEST(BackwardPromises, PoisonReachesWhatSeesItAndNothingElse) {
  Problem p = with_lengths(40, 300, 20, 40);
  p.fill(23);
  for (const Mask& mask : masks()) {
    const Upstream up(run(p, mask), 4);
    const Gradients want = run_backward(p, up, mask);
    for (int64_t j : {3, 255, 256, 290}) {
      Problem dirty = p;
      std::fill_n(dirty.key(0, 0, j), p.d, NAN);
      const Gradients got = run_backward(dirty, up, mask);
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t i = 0; i < p.q_len; ++i) {
          const float* row = got.q.data() + (h * p.q_len + i) * p.d;
          if (h < 2 && mask.allowed(0, h, p.q_begin + i, j))
            ASSERT_TRUE(std::isnan(row[0])) << "a NaN that is seen comes through";
          else
            ASSERT_TRUE(same_bits(row, want.q.data() + (h * p.q_len + i) * p.d, p.d)) << mask.text();
        }
    }
    for (int64_t i : {0, 13, 39}) {
      Problem dirty = p;
      Upstream bad = up;
      std::fill_n(dirty.query(0, 1, i), p.d, NAN);
      std::fill_n(bad.dout.data() + (p.q_len + i) * p.dv, p.dv, NAN);
      const Gradients got = run_backward(dirty, bad, mask);
      for (int64_t g = 0; g < 2; ++g)
        for (int64_t j = 0; j < p.kv_len; ++j) {
          const int64_t key = (g * p.kv_len + j) * p.d, value = (g * p.kv_len + j) * p.dv;
          if (g == 0 && mask.allowed(0, 1, p.q_begin + i, j)) {
            ASSERT_TRUE(std::isnan(got.k[static_cast<size_t>(key)]) && std::isnan(got.v[static_cast<size_t>(value)]));
          } else {
            ASSERT_TRUE(same_bits(got.k.data() + key, want.k.data() + key, p.d)) << mask.text() << " key " << j;
            ASSERT_TRUE(same_bits(got.v.data() + value, want.v.data() + value, p.dv)) << mask.text() << " key " << j;
          }
        }
    }
  }
}

// Visible scores that are all -inf make an empty row, forward and backward.
TEST(BackwardPromises, ARowOfMinusInfinityIsEmpty) {
  Problem p = with_lengths(3, 5, 4, 4);
  p.fill(24);
  std::fill_n(p.query(0, 0, 1), p.d, 1.0f);
  std::fill_n(p.query(0, 1, 1), p.d, 1.0f);
  for (int64_t j = 0; j < p.kv_len; ++j) p.key(0, 0, j)[0] = j < 4 ? -INFINITY : p.key(0, 0, j)[0];
  for (int64_t i : {0, 2})
    for (int64_t h : {0, 1}) p.query(0, h, i)[0] = 0.25f;
  const Mask mask = Mask::lengths({4});
  const Upstream up(run(p, mask), 5);
  for (int64_t i = 0; i < 6; ++i) ASSERT_EQ(up.forward.lse[static_cast<size_t>(i)], -INFINITY);
  const Gradients got = run_backward(p, up, mask);
  for (int64_t x = 0; x < 6 * p.d; ++x) EXPECT_EQ(bits(got.q[static_cast<size_t>(x)]), 0u);
  for (int64_t x = 0; x < p.kv_len * p.dv; ++x) EXPECT_EQ(bits(got.v[static_cast<size_t>(x)]), 0u);
}

// Slots in any order, holes, padding by lengths and by positions, against the same numbers in order.
TEST(BackwardPromises, PositionsAndPadding) {
  Problem p;
  p.num_q_heads = 2, p.num_kv_heads = 1, p.q_len = 300, p.kv_len = 300, p.d = 24, p.dv = 16;
  p.fill(25);
  const Mask mask = Mask::parse("causal & window(90, 0)");
  const Upstream up(run(p, mask), 6);
  const Gradients want = run_backward(p, up, mask);

  // Keys turned round, with NaN in slots that were never written and positions that start elsewhere.
  constexpr int64_t kFirst = 777;
  Problem turned = p;
  turned.kv_len = 320;
  turned.k.assign(static_cast<size_t>(turned.kv_len * p.d), NAN);
  turned.v.assign(static_cast<size_t>(turned.kv_len * p.dv), NAN);
  std::vector<int64_t> k_positions(320, -1);
  for (int64_t j = 0; j < 300; ++j) {
    const int64_t slot = j < 100 ? 99 - j : j < 200 ? j + 15 : 319 - (j - 200);
    k_positions[static_cast<size_t>(slot)] = kFirst + j;
    std::copy_n(p.key(0, 0, j), p.d, turned.key(0, 0, slot));
    std::copy_n(p.value(0, 0, j), p.dv, turned.value(0, 0, slot));
  }
  AttentionOptions o = options_of(p);
  o.q_begin = {kFirst};
  o.k_begin = {};
  o.k_positions = TensorView<const int64_t>(k_positions.data(), {320});
  const Gradients got = run_backward(turned, up, mask, o);
  EXPECT_TRUE(same_bits(got.q, want.q));
  for (int64_t slot = 0; slot < 320; ++slot) {
    const int64_t j = k_positions[static_cast<size_t>(slot)] - kFirst;
    for (int64_t x = 0; x < p.d; ++x)
      ASSERT_EQ(bits(got.k[static_cast<size_t>(slot * p.d + x)]),
                j < 0 ? 0u : bits(want.k[static_cast<size_t>(j * p.d + x)]));
    for (int64_t x = 0; x < p.dv; ++x)
      ASSERT_EQ(bits(got.v[static_cast<size_t>(slot * p.dv + x)]),
                j < 0 ? 0u : bits(want.v[static_cast<size_t>(j * p.dv + x)]));
  }

  // Queries from 200 on are padding, whatever they hold: as a call without them.
  Problem shorter = p;
  shorter.q_len = 200;
  shorter.q.clear();
  Upstream cut = up;
  cut.forward.out.clear(), cut.forward.lse.clear(), cut.dout.clear(), cut.dlse.clear();
  for (int64_t h = 0; h < 2; ++h) {
    shorter.q.insert(shorter.q.end(), p.query(0, h, 0), p.query(0, h, 200));
    const auto rows = [&](std::vector<float>& to, const std::vector<float>& from, int64_t dim) {
      to.insert(to.end(), from.begin() + h * 300 * dim, from.begin() + (h * 300 + 200) * dim);
    };
    rows(cut.forward.out, up.forward.out, p.dv), rows(cut.forward.lse, up.forward.lse, 1);
    rows(cut.dout, up.dout, p.dv), rows(cut.dlse, up.dlse, 1);
  }
  const Gradients small = run_backward(shorter, cut, mask);
  Problem padded = p;
  Upstream spoilt = up;
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t i = 200; i < 300; ++i) {
      std::fill_n(padded.query(0, h, i), p.d, NAN);
      std::fill_n(spoilt.dout.data() + (h * 300 + i) * p.dv, p.dv, NAN);
      std::fill_n(spoilt.forward.out.data() + (h * 300 + i) * p.dv, p.dv, NAN);
      spoilt.forward.lse[static_cast<size_t>(h * 300 + i)] = NAN;
      spoilt.dlse[static_cast<size_t>(h * 300 + i)] = NAN;
    }
  AttentionOptions by_length = options_of(p), by_position = options_of(p);
  by_length.query_lengths = {200};
  std::vector<int64_t> q_positions(300, -1);
  for (int64_t i = 0; i < 200; ++i) q_positions[static_cast<size_t>(i)] = i;
  by_position.q_begin = {};
  by_position.q_positions = TensorView<const int64_t>(q_positions.data(), {300});
  for (const AttentionOptions& options : {by_length, by_position}) {
    const Gradients g = run_backward(padded, spoilt, mask, options);
    EXPECT_TRUE(same_bits(g.k, small.k));
    EXPECT_TRUE(same_bits(g.v, small.v));
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < 300; ++i)
        for (int64_t x = 0; x < p.d; ++x)
          ASSERT_EQ(bits(g.q[static_cast<size_t>((h * 300 + i) * p.d + x)]),
                    i < 200 ? bits(small.q[static_cast<size_t>((h * 200 + i) * p.d + x)]) : 0u);
  }
}

// [batch, seq, heads, dim] tensors, rows that are not contiguous, and gradients that are not wanted.
TEST(BackwardPromises, StridesAndMissingGradients) {
  Problem p = with_lengths(70, 100, 12, 20);
  p.fill(26);
  const Mask mask = Mask::causal();
  const Upstream up(run(p, mask), 7);
  const Gradients want = run_backward(p, up, mask);
  const auto spread = [](const std::vector<float>& x) {  // every element followed by a NaN
    std::vector<float> y;
    for (float e : x) y.push_back(e), y.push_back(NAN);
    return y;
  };
  const auto doubled = [](auto view, auto* data) {
    view.data = data;
    for (int64_t& stride : view.strides) stride *= 2;
    return view;
  };
  const std::vector<float> q = spread(p.q), k = spread(p.k), v = spread(p.v), out = spread(up.forward.out),
                           lse = spread(up.forward.lse), dout = spread(up.dout), dlse = spread(up.dlse);
  Gradients g(p);
  std::vector<float> dq = spread(g.q), dk = spread(g.k), dv = spread(g.v);
  attend_backward(doubled(q_view(p), q.data()), doubled(k_view(p), k.data()), doubled(v_view(p), v.data()),
                  doubled(like_out(p, up.forward.out), out.data()), doubled(like_lse(p, up.forward.lse), lse.data()),
                  doubled(like_out(p, up.dout), dout.data()), doubled(like_lse(p, up.dlse), dlse.data()), mask,
                  options_of(p), doubled(dq_view(p, g), dq.data()), doubled(dk_view(p, g), dk.data()),
                  doubled(dv_view(p, g), dv.data()));
  const auto check = [](const std::vector<float>& got, const std::vector<float>& expected) {
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(bits(got[2 * i]), bits(expected[i]));
      ASSERT_TRUE(std::isnan(got[2 * i + 1])) << "written between the elements";
    }
  };
  check(dq, want.q), check(dk, want.k), check(dv, want.v);

  for (int wanted = 1; wanted < 8; ++wanted) {
    Gradients some(p);
    attend_backward(
        q_view(p), k_view(p), v_view(p), like_out(p, up.forward.out), like_lse(p, up.forward.lse), like_out(p, up.dout),
        like_lse(p, up.dlse), mask, options_of(p), wanted & 1 ? dq_view(p, some) : TensorView<float>{},
        wanted & 2 ? dk_view(p, some) : TensorView<float>{}, wanted & 4 ? dv_view(p, some) : TensorView<float>{});
    const Gradients untouched(p);
    EXPECT_TRUE(same_bits(some.q, wanted & 1 ? want.q : untouched.q));
    EXPECT_TRUE(same_bits(some.k, wanted & 2 ? want.k : untouched.k));
    EXPECT_TRUE(same_bits(some.v, wanted & 4 ? want.v : untouched.v));
  }
}

// 2,048 x 65,536 weights would take 512 MiB.
// Gradients of outputs are read where they lie when they are whole vectors: in [batch, seq, heads, dim], with gaps of NaN
// behind each head's row.
TEST(BackwardPromises, OutputGradientsLieAnywhere) {
  for (const int64_t dv : {16, 64, 24})
    for (const int64_t group : {1, 2}) {
      Problem p;
      p.batch = 2, p.num_kv_heads = 2, p.num_q_heads = 2 * group, p.q_len = p.kv_len = 300, p.d = 32, p.dv = dv;
      p.fill(30);
      for (const char* text : {"full", "causal", "causal & ~prefix(40)"}) {
        const Mask mask = Mask::parse(text);
        const Upstream up(run(p, mask), 5);
        const Gradients want = run_backward(p, up, mask);
        const int64_t step = dv + 5;
        std::vector<float> apart(static_cast<size_t>(p.batch * p.q_len * p.num_q_heads * step), NAN);
        TensorView<const float> view = like_out(p, up.dout);
        view.strides = {p.q_len * p.num_q_heads * step, step, p.num_q_heads * step, 1};
        for (int64_t b = 0; b < p.batch; ++b)
          for (int64_t h = 0; h < p.num_q_heads; ++h)
            for (int64_t i = 0; i < p.q_len; ++i)
              std::copy_n(up.dout.data() + ((b * p.num_q_heads + h) * p.q_len + i) * dv, dv,
                          apart.data() + b * view.strides[0] + h * view.strides[1] + i * view.strides[2]);
        view.data = apart.data();
        Gradients got(p);
        attend_backward(q_view(p), k_view(p), v_view(p), like_out(p, up.forward.out), like_lse(p, up.forward.lse), view,
                        like_lse(p, up.dlse), mask, options_of(p), dq_view(p, got), dk_view(p, got), dv_view(p, got));
        ASSERT_EQ(got, want) << text << " value_dim " << dv << " group " << group;
      }
    }
}

TEST(BackwardPromises, MemoryGrowsWithTheLengthAlone) {
  Problem p;
  p.q_len = 2048, p.kv_len = 65536, p.d = 4, p.dv = 4, p.q_begin = 65536 - 2048;
  p.fill(27);
  const Mask mask = Mask::causal();
  const Upstream up(run(p, mask), 8);
  Gradients g(p);
  {
    std::ofstream reset("/proc/self/clear_refs");
    if (!(reset << "5" << std::flush)) GTEST_SKIP() << "the peak cannot be reset here";
  }
  const int64_t before = peak_kib();
  attend_backward(q_view(p), k_view(p), v_view(p), like_out(p, up.forward.out), like_lse(p, up.forward.lse),
                  like_out(p, up.dout), like_lse(p, up.dlse), mask, options_of(p), dq_view(p, g), dk_view(p, g),
                  dv_view(p, g));
  EXPECT_LT(peak_kib() - before, 1024 * (default_pool().size() + 1));
}

TEST(BackwardPromises, RefusalsNameWhatIsWrong) {
  Problem p = with_lengths(3, 5, 8, 6);
  p.fill(1);
  const Mask mask = Mask::causal();
  const Upstream up(run(p, mask), 9);
  Gradients g(p);
  std::vector<float> small(3);
  const auto with = [&](auto&& change, std::initializer_list<const char*> words) {
    TensorView<const float> out = like_out(p, up.forward.out), lse = like_lse(p, up.forward.lse),
                            dout = like_out(p, up.dout), dlse = like_lse(p, up.dlse), k = k_view(p);
    TensorView<float> dq = dq_view(p, g), dk = dk_view(p, g), dv = dv_view(p, g);
    AttentionOptions options = options_of(p);
    change(out, lse, dout, dlse, k, dq, dk, dv, options);
    expect_refused(Code::kInvalidArgument, words,
                   [&] { attend_backward(q_view(p), k, v_view(p), out, lse, dout, dlse, mask, options, dq, dk, dv); });
  };
#define CHANGE(...)                                                                                                \
  [&]([[maybe_unused]] auto& out, [[maybe_unused]] auto& lse, [[maybe_unused]] auto& dout,                         \
      [[maybe_unused]] auto& dlse, [[maybe_unused]] auto& k, [[maybe_unused]] auto& dq, [[maybe_unused]] auto& dk, \
      [[maybe_unused]] auto& dv, [[maybe_unused]] auto& options) { __VA_ARGS__; }
  with(CHANGE(k.shape[3] = 7), {"[attend_backward]", "head_dim", "8", "7"});
  with(CHANGE(out.shape[3] = 8), {"[attend_backward]", "out", "[1, 4, 3, 8]", "[1, 4, 3, 6]"});
  with(CHANGE(dout.shape[2] = 2), {"dout", "[1, 4, 2, 6]"});
  with(CHANGE(lse.shape[2] = 2), {"lse", "[1, 4, 2]", "[1, 4, 3]"});
  with(CHANGE(lse = {}), {"lse", "0 axes", "3"});
  with(CHANGE(dlse.shape[1] = 3), {"dlse", "[1, 3, 3]"});
  with(CHANGE(dq.shape[2] = 2), {"dq", "[1, 4, 2, 8]", "[1, 4, 3, 8]"});
  with(CHANGE(dk.shape[1] = 4), {"dk", "[1, 4, 5, 8]", "[1, 2, 5, 8]"});
  with(CHANGE(dv.shape[3] = 8), {"dv", "[1, 2, 5, 8]", "[1, 2, 5, 6]"});
  with(CHANGE(dv.data = g.k.data()), {"dv", "overlaps", "dk"});
  with(CHANGE(dq.data = p.q.data()), {"dq", "overlaps", "q"});
  with(CHANGE(dk.strides[2] = 0), {"dk", "overlaps itself"});
  with(CHANGE(dq = {}; dk = {}; dv = {}), {"no gradient", "dq, dk, dv"});
  with(CHANGE(options.q_begin = {}; options.k_begin = {}), {"3 queries", "5 keys", "not stated"});
  with(CHANGE(options.scale = NAN), {"scale", "nan"});
#undef CHANGE
  for (float x : g.q) EXPECT_EQ(x, -7.0f) << "a refused call writes nothing";
}

TEST(BackwardPromises, StopTokenEndsTheCall) {
  Problem p = with_lengths(600, 600, 16, 16);
  p.fill(1);
  const Upstream up(run(p, Mask::causal()), 9);
  StopToken stop;
  stop.request_stop();
  AttentionOptions o = options_of(p);
  o.stop = &stop;
  for (int threads : {1, 3}) {
    const Threads guard(threads);
    expect_refused(Code::kCancelled, {}, [&] { run_backward(p, up, Mask::causal(), o); });
  }
}

}  // namespace
}  // namespace regard
