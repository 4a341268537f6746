// Score terms under the promises: empty rows, masked data, rows that do not know their company, memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/terms.h"
#include "runtime/thread_pool.h"
#include "support/cases.h"
#include "support/process_memory.h"

namespace regard {
namespace {

using namespace testing_attention;
using test::peak_kib;

// Whatever stands where a row may not look does not change a bit; what it does see comes through.
TEST(Promise2, MaskedBiasesCannotMatter) {
  const TermProblem clean(small(12, 520), {.name = "dense", .dense = true});
  for (const Mask& mask : some_masks()) {
    const Result want = run(clean.p, mask, clean.options());
    for (float poison : {NAN, INFINITY, -INFINITY}) {
      TermProblem dirty = clean;
      int64_t hidden = 0;
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t h = 0; h < 4; ++h)
          for (int64_t i = 0; i < 12; ++i)
            for (int64_t j = 0; j < 520; ++j)
              if (!mask.allowed(b, h, dirty.p.q_begin + i, j))
                dirty.dense[dirty.dense_index(b, h, i, j)] = poison, ++hidden;
      ASSERT_EQ(run(dirty.p, mask, dirty.options()), want) << mask.text() << " " << poison;
      ASSERT_TRUE(hidden > 0 || mask.text() == "full");
    }
  }
  TermProblem dirty = clean;
  dirty.dense[dirty.dense_index(1, 2, 3, 100)] = NAN;
  dirty.dense[dirty.dense_index(0, 1, 4, 100)] = INFINITY;
  dirty.dense[dirty.dense_index(0, 3, 5, 100)] = -INFINITY;
  const Result got = run(dirty.p, Mask::full(), dirty.options()), want = run(clean.p, Mask::full(), clean.options());
  for (int64_t row = 0; row < 2 * 4 * 12; ++row) {
    const float x = got.out[static_cast<size_t>(row * dirty.p.dv)];
    const bool nan = row == (4 + 2) * 12 + 3 || row == 12 + 4, less = row == 3 * 12 + 5;
    ASSERT_EQ(std::isnan(x), nan) << row;
    if (!nan && !less) {
      ASSERT_EQ(bits(x), bits(want.out[static_cast<size_t>(row * dirty.p.dv)]));
    }
  }
  ASSERT_EQ(got, by_spec(dirty.shifted(), Mask::full(), dirty.pairs()));
}

TEST(Promise1, RowsThatSeeNothingHaveTheirSink) {
  TermProblem t(small(20, 300), {.name = "sink", .sink = true});
  for (float& x : t.p.q) x = NAN;
  t.sinks = {0.1f, -3.7f, -INFINITY, 1234.5678f};
  const Result got = run(t.p, Mask::none(), t.options());
  for (float x : got.out) ASSERT_EQ(bits(x), 0u);
  for (int64_t row = 0; row < 2 * 4 * 20; ++row)
    ASSERT_EQ(bits(got.lse[static_cast<size_t>(row)]), bits(t.sinks[static_cast<size_t>(row / 20 % 4)]));
  // A bias of -inf everywhere makes an empty row, too.
  TermProblem minus(small(5, 300), {.name = "dense", .dense = true, .sink = true});
  std::fill(minus.dense.begin(), minus.dense.end(), -INFINITY);
  const Result empty = run(minus.p, Mask::full(), minus.options());
  for (float x : empty.out) ASSERT_EQ(bits(x), 0u);
  for (int64_t row = 0; row < 2 * 4 * 5; ++row)
    ASSERT_EQ(bits(empty.lse[static_cast<size_t>(row)]), bits(minus.sinks[static_cast<size_t>(row / 5 % 4)]));
}

TEST(Promise4, ThreadsBatchAndChunksDoNotMatterWithTerms) {
  Problem p = small(200, 520, 3);
  for (const Wanted& wanted : wanted_terms()) {
    const TermProblem t(p, wanted);
    for (const Mask& mask : {some_masks()[1], some_masks()[2], some_masks()[3]}) {
      set_default_pool_size(1);
      const Result want = run(t.p, mask, t.options());
      for (int threads : {2, 3, 8}) {
        set_default_pool_size(threads);
        ASSERT_EQ(run(t.p, mask, t.options()), want) << wanted.name << ", " << threads << " threads, " << mask.text();
      }
      // Rows 100 .. 101 + n of the last batch row alone, with only the keys that are there by then when the mask is
      // causal.
      for (int64_t n : {1, 7, 64}) {
        AttentionOptions o = t.options();
        o.q_begin = {p.q_begin + 100};
        TensorView<const float> q = q_view(t.p), k = k_view(t.p), v = v_view(t.p);
        const auto last = [](auto& view) { view.data += 2 * view.strides[0], view.shape[0] = 1; };
        last(q), last(k), last(v);
        q.data += 100 * q.strides[2], q.shape[2] = n;
        const int64_t keys = mask.text().starts_with("causal") ? p.q_begin + 100 + n : p.kv_len;
        k.shape[2] = v.shape[2] = keys;
        if (wanted.dense) {
          if (!wanted.all_batch) last(o.bias);
          if (!wanted.all_queries) o.bias.data += 100 * o.bias.strides[2], o.bias.shape[2] = n;
          if (!wanted.all_keys) o.bias.shape[3] = keys;
        }
        if (wanted.dropout > 0) continue;  // the batch row is part of what dropout counts by; see below
        std::vector<float> out(static_cast<size_t>(4 * n * p.dv)), lse(static_cast<size_t>(4 * n));
        attend(q, k, v, mask, o, {out.data(), {1, 4, n, p.dv}}, {lse.data(), {1, 4, n}});
        for (int64_t h = 0; h < 4; ++h) {
          ASSERT_TRUE(
              same_bits(out.data() + h * n * p.dv, want.out.data() + ((2 * 4 + h) * p.q_len + 100) * p.dv, n * p.dv))
              << wanted.name << " " << mask.text() << ", " << n << " rows alone";
          ASSERT_TRUE(same_bits(lse.data() + h * n, want.lse.data() + (2 * 4 + h) * p.q_len + 100, n));
        }
      }
    }
  }
  set_default_pool_size(2);
}

// The same rows in chunks drop the same weights; another seed, head, batch row or position drops others.
TEST(Promise4, DropoutCountsByPositionAlone) {
  const TermProblem t(small(80, 600, 2), {.name = "dropout", .dropout = 0.5});
  const Result want = run(t.p, Mask::causal(), t.options());
  for (int64_t n : {1, 7, 64}) {
    for (int64_t first = 0; first < 80; first += n) {
      const int64_t rows = std::min<int64_t>(n, 80 - first), keys = t.p.q_begin + first + rows;
      AttentionOptions o = t.options();
      o.q_begin = {t.p.q_begin + first};
      TensorView<const float> q = q_view(t.p), k = k_view(t.p), v = v_view(t.p);
      q.data += first * q.strides[2], q.shape[2] = rows;
      k.shape[2] = v.shape[2] = keys;
      std::vector<float> out(static_cast<size_t>(2 * 4 * rows * t.p.dv));
      attend(q, k, v, Mask::causal(), o, {out.data(), {2, 4, rows, t.p.dv}});
      for (int64_t bh = 0; bh < 8; ++bh)
        ASSERT_TRUE(
            same_bits(out.data() + bh * rows * t.p.dv, want.out.data() + (bh * 80 + first) * t.p.dv, rows * t.p.dv));
    }
  }
  AttentionOptions other = t.options();
  other.dropout->seed += uint64_t{1} << 32;
  EXPECT_FALSE(run(t.p, Mask::causal(), other) == want);
  other.dropout->seed = TermProblem::kSeed;
  EXPECT_EQ(run(t.p, Mask::causal(), other), want);
}

// A value whose weight is dropped does not matter, even if it is NaN.
TEST(Promise2, DroppedValuesCannotMatter) {
  TermProblem t(small(1, 300, 1), {.name = "dropout", .dropout = 0.5});
  t.p.num_q_heads = t.p.num_kv_heads = 1;
  t.p.fill(5);
  const Result want = run(t.p, Mask::full(), t.options());
  const PairTerms pairs = t.pairs();
  for (int64_t j = 0; j < 300; ++j)
    if (!pairs.keep(0, 0, 0, j)) std::fill_n(t.p.value(0, 0, j), t.p.dv, NAN);
  EXPECT_EQ(run(t.p, Mask::full(), t.options()), want);
}

// Vectors of distances that no row sees are not read into any.
TEST(Promise2, VectorsOfOtherDistancesCannotMatter) {
  const TermProblem clean(small(40, 300, 1), {.name = "xl", .xl = true, .clamp = 0});
  for (const Mask& mask : {Mask::causal(), Mask::window(17, 0), Mask::parse("causal & ~dilated(2)")}) {
    const Result want = run(clean.p, mask, clean.options());
    TermProblem dirty = clean;
    for (int64_t i = 0; i < dirty.distances; ++i) {
      const int64_t d = dirty.first_distance + i;
      const bool seen = d >= 0 && (mask.text() != "window(17, 0)" || d <= 17) &&
                        (mask.text().find("dilated") == std::string::npos || d % 2 != 0);
      if (!seen) std::fill_n(dirty.r.begin() + i * 4 * 24, 4 * 24, NAN);
    }
    ASSERT_EQ(run(dirty.p, mask, dirty.options()), want) << mask.text();
  }
}

// A bias of 2,048 x 65,536 numbers would take 512 MiB.
TEST(Promise6, MemoryOfTermsGrowsWithTheLengthAlone) {
  Problem p;
  // The weights of the fewest rows would still take ten times the bound.
  p.q_len = cases(2048), p.kv_len = 65536, p.d = 4, p.dv = 4, p.q_begin = p.kv_len - p.q_len;
  p.fill(21);
  const TermProblem t(p, {.name = "by distance", .alibi = true, .t5 = true, .sink = true, .xl = true, .dropout = 0.1});
  const AttentionOptions o = t.options();
  Result r(p);
  {
    std::ofstream reset("/proc/self/clear_refs");
    if (!(reset << "5" << std::flush)) GTEST_SKIP() << "the peak cannot be reset here";
  }
  const int64_t before = peak_kib();
  attend(q_view(p), k_view(p), v_view(p), Mask::window(1000, 0), o, out_view(p, r), lse_view(p, r));
  // Packed keys and values 5 MiB, vectors of distances 1 MiB, their biases 1/4 MiB; scratch below 1 MiB for each
  // thread.
  EXPECT_LT(peak_kib() - before, 7 * 1024 + 1024 * (default_pool().size() + 2));
}

}  // namespace
}  // namespace regard
