// regard::attend over whole tensors: against f64, on every shape, stride and input class that is promised.
#include "regard/attention.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "attention/merge.h"
#include "attention/testing.h"
#include "mask/plan.h"
#include "regard/error.h"
#include "runtime/thread_pool.h"

namespace regard {
namespace {

using namespace testing_attention;

TensorView<const float> q_view(const Problem& p) { return TensorView<const float>(p.q.data(), {p.batch, p.num_q_heads, p.q_len, p.d}); }
TensorView<const float> k_view(const Problem& p) { return TensorView<const float>(p.k.data(), {p.batch, p.num_kv_heads, p.kv_len, p.d}); }
TensorView<const float> v_view(const Problem& p) { return TensorView<const float>(p.v.data(), {p.batch, p.num_kv_heads, p.kv_len, p.dv}); }
TensorView<float> out_view(const Problem& p, Result& r) { return {r.out.data(), {p.batch, p.num_q_heads, p.q_len, p.dv}}; }
TensorView<float> lse_view(const Problem& p, Result& r) { return {r.lse.data(), {p.batch, p.num_q_heads, p.q_len}}; }

AttentionOptions options_of(const Problem& p) {
  AttentionOptions o;
  o.scale = p.scale;
  o.softcap = p.softcap;
  o.q_begin = {p.q_begin};
  o.k_begin = {p.k_begin};
  return o;
}

Result run(const Problem& p, const Mask& mask, const AttentionOptions& options) {
  Result r(p);
  attend(q_view(p), k_view(p), v_view(p), mask, options, out_view(p, r), lse_view(p, r));
  return r;
}
Result run(const Problem& p, const Mask& mask) { return run(p, mask, options_of(p)); }

std::vector<Mask> masks() {
  return {Mask::full(),
          Mask::causal(),
          Mask::window(100, 20),
          Mask::parse("causal & (window(31, 0) | sinks(4))"),
          Mask::parse("causal & ~dilated(3)"),
          Mask::parse("per_head(causal, window(10, *), full, none)"),
          Mask::parse("chunk(40) | prefix(3)")};
}

Problem with_lengths(int64_t q_len, int64_t kv_len, int64_t d, int64_t dv) {
  Problem p;
  p.num_q_heads = 4, p.num_kv_heads = 2;
  p.q_len = q_len, p.kv_len = kv_len, p.d = d, p.dv = dv;
  p.q_begin = std::max<int64_t>(0, kv_len - q_len);
  return p;
}

TEST(Attend, LengthsAndMasksAgainstF64AndTheDefinition) {
  for (int64_t kv_len : {0, 1, 63, 64, 255, 256, 257, 511, 512, 513, 777})
    for (int64_t q_len : {int64_t{1}, int64_t{9}}) {
      Problem p = with_lengths(q_len, kv_len, 64, 64);
      p.fill(static_cast<uint64_t>(kv_len * 10 + q_len));
      for (const Mask& mask : masks()) {
        const Result got = run(p, mask);
        ASSERT_EQ(got, by_spec(p, mask)) << mask.text() << " kv_len " << kv_len;
        expect_close(p, mask, got, mask.text());
      }
    }
}

TEST(Attend, HeadSizesAgainstF64AndTheDefinition) {
  for (const auto& [d, dv] : {std::pair{1, 1}, std::pair{8, 8}, std::pair{33, 33}, std::pair{40, 40}, std::pair{64, 64}, std::pair{72, 72}, std::pair{80, 80},
                              std::pair{96, 96}, std::pair{112, 112}, std::pair{128, 128}, std::pair{256, 256}, std::pair{512, 512}, std::pair{64, 17},
                              std::pair{24, 200}, std::pair{1, 512}, std::pair{512, 1}}) {
    Problem p = with_lengths(8, 300, d, dv);
    p.fill(static_cast<uint64_t>(d));
    for (const Mask& mask : {masks()[1], masks()[4]}) {
      const Result got = run(p, mask);
      ASSERT_EQ(got, by_spec(p, mask)) << d << " " << dv;
      expect_close(p, mask, got, mask.text() + " head_dim " + std::to_string(d));
    }
  }
}

// More queries than keys, keys that begin elsewhere, tiles cut at absolute multiples.
TEST(Attend, PlacementsAgainstTheDefinition) {
  for (const auto& [q_begin, k_begin] : {std::pair{0, 0}, std::pair{1000, 900}, std::pair{100, 255}, std::pair{300, 257}, std::pair{0, 5000}}) {
    Problem p = with_lengths(40, 500, 32, 32);
    p.q_begin = q_begin, p.k_begin = k_begin;
    p.fill(static_cast<uint64_t>(q_begin));
    for (const Mask& mask : masks()) ASSERT_EQ(run(p, mask), by_spec(p, mask)) << mask.text() << " " << q_begin << " " << k_begin;
  }
  Problem p = with_lengths(700, 30, 16, 16);
  p.fill(8);
  for (const Mask& mask : masks()) ASSERT_EQ(run(p, mask), by_spec(p, mask)) << mask.text();
}

TEST(Attend, InputClassesAgainstF64) {
  const Mask mask = Mask::causal();
  const auto each = [](std::vector<float>& x, auto&& f) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = f(i);
  };
  for (int64_t kv_len : {17, 300, 600}) {
    Problem p = with_lengths(9, kv_len, 64, 48);
    p.fill(1);
    const auto check = [&](const char* what) {
      const Result got = run(p, mask);
      ASSERT_EQ(got, by_spec(p, mask)) << what;
      expect_close(p, mask, got, what);
    };
    each(p.q, [](size_t) { return 0.5f; });
    check("constant queries");
    each(p.v, [](size_t) { return -3.0f; });
    check("constant values");
    p.fill(2);
    for (int64_t x = 0; x < p.d; ++x) p.key(0, 0, kv_len / 2)[x] = 20 * p.query(0, 0, 4)[x];
    check("one dominant key");
    p.fill(3, 1);
    for (int64_t j = 0; j < kv_len; ++j)
      for (int64_t x = 0; x < p.d; ++x) p.key(0, 1, j)[x] = (j % 2 == 0 ? 1.0f : -1.0f) * 1250.0f;  // scores of +-1e4 for queries of ones
    each(p.q, [](size_t) { return 1.0f; });
    check("scores of +-1e4");
    p.fill(4);
    each(p.v, [&](size_t i) { return static_cast<float>(1e-41 * (static_cast<double>(i % 7) - 3)); });
    check("denormal values");
    each(p.k, [&](size_t i) { return i % 2 == 0 ? 1e-42f : -1e-44f; });
    check("denormal keys");
    each(p.q, [](size_t i) { return i % 2 == 0 ? 0.0f : -0.0f; });
    each(p.v, [](size_t i) { return i % 3 == 0 ? 0.0f : -0.0f; });
    check("signed zeros");
    const Result zeros = run(p, mask);
    for (float x : zeros.out) ASSERT_EQ(bits(x), 0u) << "a zero is +0";
  }
}

TEST(Attend, SoftcapAndScaleAgainstF64) {
  for (double cap : {0.1, 2.0, 50.0, 1e4}) {
    Problem p = with_lengths(12, 300, 64, 64);
    p.softcap = cap;
    p.fill(5, 4);
    for (const Mask& mask : {masks()[1], masks()[3]}) {
      const Result got = run(p, mask);
      ASSERT_EQ(got, by_spec(p, mask));
      expect_close(p, mask, got, "softcap " + std::to_string(cap));
    }
  }
  for (double scale : {1.0, -0.3, 1e-3}) {
    Problem p = with_lengths(12, 300, 64, 64);
    p.scale = scale;
    p.fill(5, 0.5);
    expect_close(p, Mask::causal(), run(p, Mask::causal()), "scale " + std::to_string(scale));
  }
  Problem p = with_lengths(3, 5, 8, 8);
  p.fill(6);
  AttentionOptions o = options_of(p);
  o.scale = 0.0;
  const Result mean = run(p, Mask::full(), o);
  for (int64_t c = 0; c < 8; ++c) {
    double sum = 0;
    for (int64_t j = 0; j < 5; ++j) sum += p.value(0, 0, j)[c];
    EXPECT_NEAR(mean.out[static_cast<size_t>(c)], sum / 5, 1e-6) << "scale 0 weighs all keys alike";
  }
  o.scale.reset();
  p.scale = 1 / std::sqrt(8.0);
  EXPECT_EQ(run(p, Mask::full(), o), run(p, Mask::full())) << "the default scale is 1 / sqrt(head_dim)";
}

// M06. [batch, seq, heads, dim], reversed, broadcast and gathered axes give what dense tensors give.
TEST(Attend, StridesAreFree) {
  Problem p;
  p.batch = 2, p.num_q_heads = 4, p.num_kv_heads = 2, p.q_len = p.kv_len = 270, p.d = 24, p.dv = 20;
  p.fill(9);
  const Mask mask = Mask::causal();
  const Result want = run(p, mask);
  const auto axes_exchanged = [](std::vector<float>& storage, const std::vector<float>& dense, int64_t b, int64_t h, int64_t n, int64_t d, int64_t gap) {
    storage.assign(static_cast<size_t>(b * n * h * d * gap), NAN);
    TensorView<float> view(storage.data(), {b, h, n, d});
    view.strides = {n * h * d * gap, d * gap, h * d * gap, gap};
    for (int64_t i = 0; i < b; ++i)
      for (int64_t j = 0; j < h; ++j)
        for (int64_t k = 0; k < n; ++k)
          for (int64_t l = 0; l < d; ++l) *view.at(i, j, k, l) = dense[static_cast<size_t>(((i * h + j) * n + k) * d + l)];
    return view;
  };
  for (int64_t gap : {1, 3}) {
    std::vector<float> q, k, v, out, lse(want.lse.size());
    const std::vector<float> filler(want.out.size(), -7.0f);
    const auto out_tensor = axes_exchanged(out, filler, p.batch, p.num_q_heads, p.q_len, p.dv, gap);
    TensorView<float> lse_tensor(lse.data(), {p.batch, p.num_q_heads, p.q_len});
    lse_tensor.strides = {p.q_len * p.num_q_heads, 1, p.num_q_heads, 0};
    attend(axes_exchanged(q, p.q, p.batch, p.num_q_heads, p.q_len, p.d, gap), axes_exchanged(k, p.k, p.batch, p.num_kv_heads, p.kv_len, p.d, gap),
           axes_exchanged(v, p.v, p.batch, p.num_kv_heads, p.kv_len, p.dv, gap), mask, options_of(p), out_tensor, lse_tensor);
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t h = 0; h < p.num_q_heads; ++h)
        for (int64_t i = 0; i < p.q_len; ++i) {
          const int64_t row = (b * p.num_q_heads + h) * p.q_len + i;
          ASSERT_EQ(bits(*lse_tensor.at(b, h, i)), bits(want.lse[static_cast<size_t>(row)]));
          for (int64_t c = 0; c < p.dv; ++c) ASSERT_EQ(bits(*out_tensor.at(b, h, i, c)), bits(want.out[static_cast<size_t>(row * p.dv + c)]));
        }
    if (gap == 3) {
      EXPECT_TRUE(std::isnan(out[1])) << "what lies between the elements is not written";
    }
  }
  // One KV head broadcast over the batch by a stride of 0, queries from last to first by a negative one.
  Problem one = p;
  one.batch = 1, one.num_kv_heads = 1, one.fill(10);
  TensorView<const float> k = k_view(one), v = v_view(one), q = q_view(one);
  const Result single = run(one, Mask::full());
  k.shape[1] = v.shape[1] = 2;
  k.strides[1] = v.strides[1] = 0;
  q.data += (one.q_len - 1) * one.d;
  q.strides[2] = -one.d;
  Result reversed(one);
  attend(q, k, v, Mask::full(), options_of(one), out_view(one, reversed), lse_view(one, reversed));
  for (int64_t h = 0; h < 4; ++h)
    for (int64_t i = 0; i < one.q_len; ++i)
      ASSERT_TRUE(same_bits(reversed.out.data() + (h * one.q_len + i) * one.dv, single.out.data() + (h * one.q_len + one.q_len - 1 - i) * one.dv, one.dv));
}

// M15: rows that begin anywhere; what lies before and behind is poisoned and stays.
TEST(Attend, AnyAlignment) {
  Problem p = with_lengths(5, 70, 33, 19);
  p.fill(11);
  const Result want = run(p, Mask::causal());
  for (size_t shift : {size_t{1}, size_t{3}, size_t{15}}) {
    const auto shifted = [&](const std::vector<float>& x) {
      std::vector<float> y(x.size() + 32, NAN);
      std::copy(x.begin(), x.end(), y.begin() + static_cast<std::ptrdiff_t>(shift));
      return y;
    };
    const std::vector<float> q = shifted(p.q), k = shifted(p.k), v = shifted(p.v);
    std::vector<float> out = shifted(want.out);
    std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(shift), want.out.size(), 7.0f);
    attend(TensorView<const float>(q.data() + shift, {1, 4, 5, 33}), TensorView<const float>(k.data() + shift, {1, 2, 70, 33}),
           TensorView<const float>(v.data() + shift, {1, 2, 70, 19}), Mask::causal(), options_of(p), {out.data() + shift, {1, 4, 5, 19}});
    ASSERT_TRUE(same_bits(out.data() + shift, want.out.data(), static_cast<int64_t>(want.out.size())));
    EXPECT_TRUE(std::isnan(out[shift - 1]) && std::isnan(out[shift + want.out.size()]));
  }
}

TEST(Attend, EmptyExtents) {
  for (const auto& [batch, q_len, kv_len] : {std::tuple{0, 3, 3}, std::tuple{2, 0, 3}, std::tuple{2, 3, 0}}) {
    Problem p;
    p.batch = batch, p.q_len = q_len, p.kv_len = kv_len;
    p.fill(1);
    const Result got = run(p, Mask::causal());
    for (float x : got.out) EXPECT_EQ(bits(x), 0u);
    for (float x : got.lse) EXPECT_EQ(x, -INFINITY);
  }
}

// Explicit positions: any order, holes, unwritten slots; the result is that of the keys in order of position.
TEST(Attend, PositionsInAnyOrder) {
  Problem p = with_lengths(30, 600, 32, 32);
  p.q_begin = 570;
  p.fill(12);
  for (const Mask& mask : {masks()[0], masks()[1], masks()[3], masks()[4]}) {
    const Result want = run(p, mask);
    // Slots are a shuffle of the keys with unwritten ones, which hold NaN, in between.
    const int64_t slots = 640;
    std::vector<int64_t> position(static_cast<size_t>(slots), -1);
    std::vector<size_t> order(static_cast<size_t>(slots));
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_bits(5, 0, i) % i]);
    for (int64_t j = 0; j < 600; ++j) position[order[static_cast<size_t>(j)]] = j;
    Problem s = p;
    s.kv_len = slots;
    s.k.assign(static_cast<size_t>(2 * slots * 32), NAN);
    s.v = s.k;
    for (int64_t g = 0; g < 2; ++g)
      for (int64_t j = 0; j < 600; ++j) {
        std::copy_n(p.key(0, g, j), 32, s.key(0, g, static_cast<int64_t>(order[static_cast<size_t>(j)])));
        std::copy_n(p.value(0, g, j), 32, s.value(0, g, static_cast<int64_t>(order[static_cast<size_t>(j)])));
      }
    AttentionOptions o = options_of(p);
    o.k_begin.clear();
    o.k_positions = TensorView<const int64_t>(position.data(), {slots});
    ASSERT_EQ(run(s, mask, o), want) << mask.text();
    // Queries from last to first, with an unwritten one that holds NaN.
    std::vector<int64_t> q_position;
    for (int64_t i = 0; i < 30; ++i) q_position.push_back(599 - i);
    q_position[7] = -1;
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t i = 0; i < 30; ++i) std::copy_n(p.query(0, h, 29 - i), 32, s.query(0, h, i));
      std::fill_n(s.query(0, h, 7), 32, NAN);
    }
    o.q_begin.clear();
    o.q_positions = TensorView<const int64_t>(q_position.data(), {30});
    const Result reversed = run(s, mask, o);
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t i = 0; i < 30; ++i) {
        const float* got = reversed.out.data() + (h * 30 + i) * 32;
        if (i == 7) {
          for (int c = 0; c < 32; ++c) ASSERT_EQ(bits(got[c]), 0u);
          ASSERT_EQ(reversed.lse[static_cast<size_t>(h * 30 + i)], -INFINITY);
        } else {
          ASSERT_TRUE(same_bits(got, want.out.data() + (h * 30 + 29 - i) * 32, 32)) << mask.text() << i;
        }
      }
  }
}

// Positions far apart and far from 0 take no memory in between.
TEST(Attend, DistantPositions) {
  Problem p;
  p.q_len = 4, p.kv_len = 6, p.d = p.dv = 8;
  p.fill(13);
  const int64_t far = int64_t{1} << 61;
  const std::vector<int64_t> k_position = {0, 5, 1'000'000'007, far - 1, far, far + 300}, q_position = {4, 1'000'000'007, far, far + 1000};
  AttentionOptions o = options_of(p);
  o.q_begin.clear(), o.k_begin.clear();
  o.q_positions = TensorView<const int64_t>(q_position.data(), {4});
  o.k_positions = TensorView<const int64_t>(k_position.data(), {6});
  const Result got = run(p, Mask::causal(), o);
  const int64_t seen[] = {1, 3, 5, 6};
  for (int64_t i = 0; i < 4; ++i) {
    Problem row = p;
    row.q_len = 1, row.kv_len = seen[i], row.q.assign(p.query(0, 0, i), p.query(0, 0, i) + 8);
    row.k.resize(static_cast<size_t>(8 * seen[i])), row.v.resize(static_cast<size_t>(8 * seen[i]));
    Result part(row);
    std::copy_n(got.out.data() + i * 8, 8, part.out.data());
    part.lse[0] = got.lse[static_cast<size_t>(i)];
    expect_close(row, Mask::full(), part, "row " + std::to_string(i));
  }
}

TEST(Attend, BatchRowsHavePlacementsAndLengthsOfTheirOwn) {
  Problem p;
  p.batch = 3, p.num_q_heads = 2, p.num_kv_heads = 1, p.q_len = 20, p.kv_len = 300, p.d = p.dv = 16;
  p.fill(14);
  AttentionOptions o;
  o.scale = p.scale;
  o.q_begin = {280, 100, 0};
  o.k_begin = {0, 7, 0};
  o.limits.key_lengths = {300, 90, 0};
  o.query_lengths = {20, 15, 20};
  const Result got = run(p, Mask::causal(), o);
  for (int64_t b = 0; b < 3; ++b) {
    Problem row = p;
    row.batch = 1, row.q_begin = o.q_begin[static_cast<size_t>(b)], row.k_begin = o.k_begin[static_cast<size_t>(b)];
    row.q.assign(p.query(b, 0, 0), p.query(b, 0, 0) + 2 * 20 * 16);
    row.k.assign(p.key(b, 0, 0), p.key(b, 0, 0) + 300 * 16);
    row.v.assign(p.value(b, 0, 0), p.value(b, 0, 0) + 300 * 16);
    const Result want = by_spec(row, Mask::causal() & Mask::prefix(o.limits.key_lengths[static_cast<size_t>(b)]));
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < 20; ++i) {
        const float* x = got.out.data() + ((b * 2 + h) * 20 + i) * 16;
        if (i < o.query_lengths[static_cast<size_t>(b)])
          ASSERT_TRUE(same_bits(x, want.out.data() + (h * 20 + i) * 16, 16)) << b << " " << i;
        else
          for (int c = 0; c < 16; ++c) ASSERT_EQ(bits(x[c]), 0u);
      }
  }
}

// M12. Keys split anywhere, both halves merged in either order, against the whole.
TEST(Attend, SplittingKeysAnywhereAndMergingChangesNothing) {
  Problem p = with_lengths(6, 530, 32, 32);
  p.fill(15);
  for (const Mask& mask : {masks()[1], masks()[4]}) {
    for (int64_t cut = 0; cut <= p.kv_len; cut += cut < 20 || cut > 510 ? 1 : 31) {
      Result halves[2] = {Result(p), Result(p)};
      for (int side = 0; side < 2; ++side) {
        AttentionOptions o = options_of(p);
        TensorView<const float> k = k_view(p), v = v_view(p);
        k.shape[2] = v.shape[2] = side == 0 ? cut : p.kv_len - cut;
        if (side == 1) k.data += cut * p.d, v.data += cut * p.dv, o.k_begin = {cut};
        attend(q_view(p), k, v, mask, o, out_view(p, halves[side]), lse_view(p, halves[side]));
      }
      for (int first : {0, 1}) {
        Result merged = halves[first];
        for (size_t row = 0; row < merged.lse.size(); ++row)
          merge_partials(merged.out.data() + row * 32, merged.lse[row], halves[1 - first].out.data() + row * 32, halves[1 - first].lse[row], 32);
        expect_close(p, mask, merged, "cut at " + std::to_string(cut));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// ---- promises -----------------------------------------------------------------------------------------------------------

TEST(Promise1, RowsThatSeeNothing) {
  Problem p = with_lengths(20, 600, 40, 40);
  p.fill(16);
  for (float& x : p.q) x = NAN;  // whatever the query holds
  for (const Mask& mask : {Mask::none(), Mask::causal() & ~Mask::causal(), Mask::window(0, 0) & ~Mask::prefix(1000)}) {
    const Result got = run(p, mask);
    for (float x : got.out) ASSERT_EQ(bits(x), 0u) << mask.text();
    for (float x : got.lse) ASSERT_EQ(x, -INFINITY) << mask.text();
  }
  // Visible scores that are all -inf make an empty row too; one +inf makes NaN.
  p.fill(17);
  std::fill_n(p.query(0, 0, 3), p.d, 1.0f);
  std::fill_n(p.query(0, 1, 3), p.d, -1.0f);
  for (int64_t j = 0; j < p.kv_len; ++j) p.key(0, 0, j)[0] = -INFINITY;
  const Result got = run(p, Mask::full());
  for (int64_t c = 0; c < p.dv; ++c) {
    EXPECT_EQ(bits(got.out[static_cast<size_t>((0 * 20 + 3) * p.dv + c)]), 0u);
    EXPECT_TRUE(std::isnan(got.out[static_cast<size_t>((1 * 20 + 3) * p.dv + c)]));
  }
  EXPECT_EQ(got.lse[3], -INFINITY);
  EXPECT_TRUE(std::isnan(got.lse[20 + 3]));
}

TEST(Promise2, MaskedDataCannotMatter) {
  Problem p = with_lengths(12, 520, 33, 17);
  p.fill(18);
  for (const Mask& mask : masks()) {
    const Result clean = run(p, mask);
    for (int64_t h = 0; h < p.num_q_heads; ++h)
      for (int64_t i = 0; i < p.q_len; i += 5)
        for (float poison : {NAN, INFINITY, -INFINITY}) {
          Problem dirty = p;
          for (int64_t j = 0; j < p.kv_len; ++j)
            if (!mask.allowed(0, h, p.q_begin + i, j)) {
              std::fill_n(dirty.key(0, h / 2, j), p.d, poison);
              std::fill_n(dirty.value(0, h / 2, j), p.dv, poison);
            }
          const Result got = run(dirty, mask);
          const int64_t row = h * p.q_len + i;
          ASSERT_TRUE(same_bits(got.out.data() + row * p.dv, clean.out.data() + row * p.dv, p.dv)) << mask.text() << " row " << row;
          ASSERT_EQ(bits(got.lse[static_cast<size_t>(row)]), bits(clean.lse[static_cast<size_t>(row)]));
        }
  }
}

TEST(Promise2, VisibleNanComesThrough) {
  Problem p = with_lengths(12, 300, 16, 16);
  p.fill(19);
  const Mask mask = Mask::window(50, 0);
  Problem dirty = p;
  dirty.key(0, 1, 270)[3] = NAN;
  dirty.value(0, 0, 270)[5] = NAN;
  const Result clean = run(p, mask), got = run(dirty, mask);
  for (int64_t h = 0; h < 4; ++h)
    for (int64_t i = 0; i < 12; ++i)
      for (int64_t c = 0; c < 16; ++c) {
        const auto at = static_cast<size_t>((h * 12 + i) * 16 + c);
        const bool hit = mask.allowed(0, h, p.q_begin + i, 270) && (h >= 2 || c == 5);
        ASSERT_EQ(std::isnan(got.out[at]), hit);
        if (!hit) {
          ASSERT_EQ(bits(got.out[at]), bits(clean.out[at]));
        }
      }
}

TEST(Promise4, ThreadsAndBatchDoNotMatterInPublicCalls) {
  Problem p;
  p.batch = 3, p.num_q_heads = 4, p.num_kv_heads = 2, p.q_len = p.kv_len = 600, p.d = 40, p.dv = 40;
  p.fill(20);
  for (const Mask& mask : {Mask::full(), Mask::causal(), masks()[3], masks()[4], masks()[5]}) {
    set_default_pool_size(1);
    const Result want = run(p, mask);
    for (int threads : {2, 3, 8}) {
      set_default_pool_size(threads);
      ASSERT_EQ(run(p, mask), want) << threads << " threads, " << mask.text();
      Problem alone = p;
      alone.batch = 1, alone.num_kv_heads = 2, alone.q_len = 1, alone.q_begin = 599;
      alone.q.clear();
      for (int64_t h = 0; h < 4; ++h) alone.q.insert(alone.q.end(), p.query(2, h, 599), p.query(2, h, 599) + p.d);
      alone.k.assign(p.key(2, 0, 0), p.key(2, 0, 0) + 2 * 600 * p.d);
      alone.v.assign(p.value(2, 0, 0), p.value(2, 0, 0) + 2 * 600 * p.dv);
      const Result got = run(alone, mask);
      for (int64_t h = 0; h < 4; ++h)
        ASSERT_TRUE(same_bits(got.out.data() + h * p.dv, want.out.data() + ((2 * 4 + h) * 600 + 599) * p.dv, p.dv)) << "the last row alone";
    }
  }
  set_default_pool_size(2);
}

int64_t peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmHWM:") {
      status >> word;
      return std::stoll(word);
    }
  return -1;
}

// 2,048 x 65,536 weights would take 512 MiB, and their bits 16 MiB.
TEST(Promise6, MemoryGrowsWithTheLengthAlone) {
  Problem p;
  p.q_len = 2048, p.kv_len = 65536, p.d = 4, p.dv = 4, p.q_begin = 65536 - 2048;
  p.fill(21);
  Result r(p);
  {
    std::ofstream reset("/proc/self/clear_refs");
    if (!(reset << "5" << std::flush)) GTEST_SKIP() << "the peak cannot be reset here";
  }
  for (const Mask& mask : {Mask::causal(), Mask::parse("causal & ~dilated(7)")}) {
    const int64_t before = peak_kib();
    attend(q_view(p), k_view(p), v_view(p), mask, options_of(p), out_view(p, r), lse_view(p, r));
    const int64_t grown = peak_kib() - before;
    // The packed copy is 65,536 x (4 + 16) floats = 5 MiB; scratch is below 1 MiB for each thread.
    EXPECT_LT(grown, 5 * 1024 + 1024 * (default_pool().size() + 2)) << mask.text();
  }
}

// ---- weights ------------------------------------------------------------------------------------------------------------

TEST(Weights, RebuildTheOutput) {
  for (const auto& [kv_len, cap] : {std::pair{30, 0.0}, std::pair{600, 0.0}, std::pair{300, 1.5}}) {
    Problem p = with_lengths(15, kv_len, 40, 24);
    p.softcap = cap;
    p.fill(static_cast<uint64_t>(kv_len));
    for (const Mask& mask : masks()) {
      Result r = run(p, mask);
      std::vector<float> w(static_cast<size_t>(4 * 15 * kv_len), -7.0f);
      attention_weights(q_view(p), k_view(p), lse_view(p, r), mask, options_of(p), {0, 15}, {0, kv_len}, {w.data(), {1, 4, 15, kv_len}});
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t i = 0; i < 15; ++i) {
          std::vector<double> exact(static_cast<size_t>(kv_len)), out(24);
          const auto visible = [&](int64_t j) { return mask.allowed(0, h, p.q_begin + i, j); };
          kernels::reference::attention_row<double>([&](int64_t x) { return p.query(0, h, i)[x]; }, 40, 24, 0, kv_len, p.scale, p.softcap,
                                                    [&](int64_t j, int64_t x) { return p.key(0, h / 2, j)[x]; },
                                                    [&](int64_t j, int64_t c) { return p.value(0, h / 2, j)[c]; }, visible, out.data(), exact.data());
          for (int64_t j = 0; j < kv_len; ++j) {
            const float got = w[static_cast<size_t>((h * 15 + i) * kv_len + j)];
            if (!visible(j))
              ASSERT_EQ(bits(got), 0u) << mask.text();
            else
              ASSERT_NEAR(got, exact[static_cast<size_t>(j)], 40 * 0x1p-24 * exact[static_cast<size_t>(j)]) << mask.text() << " " << h << " " << i << " " << j;
          }
        }
      // Any rectangle of it is the same numbers.
      std::vector<float> part(static_cast<size_t>(4 * 5 * (kv_len / 2)));
      attention_weights(q_view(p), k_view(p), lse_view(p, r), mask, options_of(p), {7, 12}, {kv_len / 3, kv_len / 3 + kv_len / 2},
                        {part.data(), {1, 4, 5, kv_len / 2}});
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t i = 0; i < 5; ++i)
          ASSERT_TRUE(same_bits(&part[static_cast<size_t>((h * 5 + i) * (kv_len / 2))], &w[static_cast<size_t>((h * 15 + 7 + i) * kv_len + kv_len / 3)],
                                kv_len / 2));
    }
  }
}

TEST(Weights, FollowTheSlotsWhenPositionsAreGiven) {
  Problem p;
  p.q_len = 2, p.kv_len = 5, p.d = p.dv = 8;
  p.fill(22);
  const std::vector<int64_t> k_position = {300, -1, 2, 700, 1}, q_position = {300, -1};
  AttentionOptions o = options_of(p);
  o.q_begin.clear(), o.k_begin.clear();
  o.q_positions = TensorView<const int64_t>(q_position.data(), {2});
  o.k_positions = TensorView<const int64_t>(k_position.data(), {5});
  Result r = run(p, Mask::causal(), o);
  std::vector<float> w(10, -7.0f);
  attention_weights(q_view(p), k_view(p), lse_view(p, r), Mask::causal(), o, {0, 2}, {0, 5}, {w.data(), {1, 1, 2, 5}});
  EXPECT_NEAR(w[0] + w[2] + w[4], 1, 1e-6);
  EXPECT_GT(std::min({w[0], w[2], w[4]}), 0.0f);
  EXPECT_EQ(w[1], 0.0f);
  EXPECT_EQ(w[3], 0.0f);
  for (int64_t c = 0; c < 8; ++c)
    EXPECT_NEAR(r.out[static_cast<size_t>(c)], w[0] * p.value(0, 0, 0)[c] + w[2] * p.value(0, 0, 2)[c] + w[4] * p.value(0, 0, 4)[c], 1e-6);
  for (int j = 5; j < 10; ++j) EXPECT_EQ(bits(w[static_cast<size_t>(j)]), 0u);
}

// ---- refusals -----------------------------------------------------------------------------------------------------------

// The call must be refused with this code, and its message must name these.
template <class F>
void expect_refused(Code code, std::initializer_list<const char*> words, F&& call) {
  try {
    call();
    ADD_FAILURE() << "not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    for (const char* word : words) EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << "\"" << word << "\" is missing in: " << e.what();
  }
}

TEST(Refusals, ShapesNumbersAndMemory) {
  Problem p = with_lengths(3, 5, 8, 8);
  p.fill(1);
  Result r(p);
  const AttentionOptions o = options_of(p);
  const Mask mask = Mask::causal();
  const auto with = [&](auto&& change, std::initializer_list<const char*> words, Code code = Code::kInvalidArgument) {
    TensorView<const float> q = q_view(p), k = k_view(p), v = v_view(p);
    TensorView<float> out = out_view(p, r), lse = lse_view(p, r);
    AttentionOptions options = o;
    change(q, k, v, out, lse, options);
    expect_refused(code, words, [&] { attend(q, k, v, mask, options, out, lse); });
  };
#define CHANGE(...) [&]([[maybe_unused]] auto& q, [[maybe_unused]] auto& k, [[maybe_unused]] auto& v, [[maybe_unused]] auto& out, \
                             [[maybe_unused]] auto& lse, [[maybe_unused]] auto& options) { __VA_ARGS__; }
  with(CHANGE(q.shape[1] = 3; out.shape[1] = 3; lse.shape[1] = 3), {"[attend]", "3 query heads", "2 KV heads", "multiple"});  // M09
  with(CHANGE(k.shape[3] = 7), {"head_dim", "8", "7"});
  with(CHANGE(k.shape[0] = 2), {"batch", "1 and 2"});
  with(CHANGE(v.shape[2] = 4), {"[1, 2, 5, 8]", "[1, 2, 4, 8]"});
  with(CHANGE(out.shape[2] = 2), {"out", "[1, 4, 2, 8]", "[1, 4, 3, 8]"});
  with(CHANGE(lse.shape[2] = 4), {"lse", "[1, 4, 4]", "[1, 4, 3]"});
  with(CHANGE(q.rank = 3), {"q", "3 axes", "4"});
  with(CHANGE(q.data = nullptr), {"q", "no data"});
  with(CHANGE(q.shape[2] = -1), {"negative"});
  with(CHANGE(k.shape[3] = q.shape[3] = 0), {"head_dim is 0"});
  with(CHANGE(k.shape[3] = q.shape[3] = 513; q.strides = {0, 0, 0, 0}; k.strides = {0, 0, 0, 0}), {"513", "512"}, Code::kUnsupported);
  with(CHANGE(out.strides[2] = 0), {"out", "overlaps itself"});  // M06
  with(CHANGE(out.strides[2] = 7), {"out", "overlaps itself", "7"});
  with(CHANGE(out.data = p.q.data()), {"out", "overlaps", "its own"});
  with(CHANGE(lse.data = r.out.data()), {"lse", "overlaps"});
  with(CHANGE(q.strides[0] = INT64_MAX; q.shape[0] = k.shape[0] = v.shape[0] = out.shape[0] = lse.shape[0] = 3), {"strides", "out of memory"});
  with(CHANGE(q.data = reinterpret_cast<const float*>(reinterpret_cast<const char*>(q.data) + 1)), {"address"});  // M15
  with(CHANGE(options.scale = NAN), {"scale", "nan"});  // M08
  with(CHANGE(options.scale = INFINITY), {"scale", "inf"});
  with(CHANGE(options.softcap = -1), {"softcap", "-1"});
  with(CHANGE(options.softcap = NAN), {"softcap", "nan"});
  with(CHANGE(options.softcap = 1e-300), {"softcap", "1e-300"});
  with(CHANGE(options.q_begin = {}; options.k_begin = {}), {"3 queries", "5 keys", "causal", "not stated", "q_begin"});
  with(CHANGE(options.q_begin = (std::vector<int64_t>{1, 2})), {"q_begin", "2 numbers", "1 batch"});
  with(CHANGE(options.q_begin = {-2}), {"q_begin", "-2"});
  with(CHANGE(options.query_lengths = {4}), {"query_lengths", "4", "3"});
  const std::vector<int64_t> twice = {1, 2, 3, 2, 0}, negative = {0, 1, -2, 3, 4};
  with(CHANGE(options.k_begin = {}; options.k_positions = TensorView<const int64_t>(twice.data(), {5})), {"keys 1 and 3", "position 2", "unique"});
  with(CHANGE(options.k_begin = {}; options.k_positions = TensorView<const int64_t>(negative.data(), {5})), {"k_positions", "-2"});
  with(CHANGE(options.k_begin = {}; options.k_positions = TensorView<const int64_t>(twice.data(), {4})), {"k_positions", "[4]", "[5]"});
  with(CHANGE(options.k_positions = TensorView<const int64_t>(twice.data(), {5})), {"both k_begin and k_positions"});
#undef CHANGE
  for (float x : r.out) EXPECT_EQ(x, -7.0f) << "a refused call writes nothing";
}

TEST(Refusals, WeightsCheckTheirRectangle) {
  Problem p = with_lengths(3, 5, 8, 8);
  p.fill(1);
  Result r = run(p, Mask::causal());
  std::vector<float> w(100);
  const auto call = [&](Interval queries, Interval keys, int64_t rows, int64_t columns) {
    attention_weights(q_view(p), k_view(p), lse_view(p, r), Mask::causal(), options_of(p), queries, keys, {w.data(), {1, 4, rows, columns}});
  };
  call({0, 3}, {0, 5}, 3, 5);
  call({1, 1}, {0, 5}, 0, 5);
  expect_refused(Code::kInvalidArgument, {"queries 0 to 4", "3"}, [&] { call({0, 4}, {0, 5}, 4, 5); });
  expect_refused(Code::kInvalidArgument, {"keys -1 to 5"}, [&] { call({0, 3}, {-1, 5}, 3, 6); });
  expect_refused(Code::kInvalidArgument, {"[1, 4, 3, 4]", "[1, 4, 3, 5]"}, [&] { call({0, 3}, {0, 5}, 3, 4); });
}

// The mask decides tiles by reasoning; attention at great lengths evaluates no more than the rows it has.
TEST(Attend, LongKeysWithAnyExpressionRunOneRowOfTiles) {
  Problem p;
  p.q_len = 5, p.kv_len = 256 * 1024, p.d = 4, p.dv = 4, p.q_begin = 256 * 1024 - 5;
  p.fill(23);
  const Mask mask = Mask::parse("causal & (dilated(3) | ~tree(262139; -1, 0, 0, 1, 2))");
  EXPECT_EQ(run(p, mask), by_spec(p, mask));
}

TEST(Attend, StopTokenEndsTheCall) {
  Problem p = with_lengths(600, 600, 16, 16);
  p.fill(1);
  StopToken stop;
  stop.request_stop();
  AttentionOptions o = options_of(p);
  o.stop = &stop;
  expect_refused(Code::kCancelled, {}, [&] { run(p, Mask::causal(), o); });
}

}  // namespace
}  // namespace regard
