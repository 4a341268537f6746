// regard::attend over whole tensors: against f64, on every shape, stride and input class that is promised.
#include "regard/attention.h"
#include "regard/attention_merge.h"

#include <gtest/gtest.h>

#include <numeric>

#include "attention/calls.h"
#include "runtime/thread_pool.h"

namespace regard {
namespace {

using namespace testing_attention;

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
  for (const auto& [d, dv] :
       {std::pair{1, 1}, std::pair{8, 8}, std::pair{33, 33}, std::pair{40, 40}, std::pair{64, 64}, std::pair{72, 72},
        std::pair{80, 80}, std::pair{96, 96}, std::pair{112, 112}, std::pair{128, 128}, std::pair{256, 256},
        std::pair{512, 512}, std::pair{64, 17}, std::pair{24, 200}, std::pair{1, 512}, std::pair{512, 1}}) {
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
  for (const auto& [q_begin, k_begin] :
       {std::pair{0, 0}, std::pair{1000, 900}, std::pair{100, 255}, std::pair{300, 257}, std::pair{0, 5000}}) {
    Problem p = with_lengths(40, 500, 32, 32);
    p.q_begin = q_begin, p.k_begin = k_begin;
    p.fill(static_cast<uint64_t>(q_begin));
    for (const Mask& mask : masks())
      ASSERT_EQ(run(p, mask), by_spec(p, mask)) << mask.text() << " " << q_begin << " " << k_begin;
  }
  Problem p = with_lengths(700, 30, 16, 16);
  p.fill(8);
  for (const Mask& mask : masks()) ASSERT_EQ(run(p, mask), by_spec(p, mask)) << mask.text();
}

// Bits alone, with a head for each KV head, as well as several: rows whose bits are copied together, and one by one.
TEST(Attend, TablesAgainstTheDefinition) {
  for (int kv_heads : {4, 2}) {
    Problem p = with_lengths(210, 700, 24, 24);
    p.num_kv_heads = kv_heads;
    p.q_begin = 0;
    p.fill(77);
    for (const int64_t side : {1, 64}) {
      std::vector<uint8_t> bits;
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t q = 0; q < p.q_len; ++q)
          for (int64_t k = 0; k < p.kv_len; ++k)
            bits.push_back(random_uniform(5, static_cast<uint64_t>(h), static_cast<uint64_t>(q / side * p.kv_len + k / side)) < 0.5);
      const Mask by_head = Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(bits.data(), {4, p.q_len, p.kv_len}));
      const Mask one = Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(bits.data(), {p.q_len, p.kv_len}));
      for (const Mask& mask : {one, by_head, ~one, one & Mask::causal()})
        ASSERT_EQ(run(p, mask), by_spec(p, mask)) << mask.text() << " " << side << ", " << kv_heads << " KV heads";
    }
  }
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
      for (int64_t x = 0; x < p.d; ++x)
        p.key(0, 1, j)[x] = (j % 2 == 0 ? 1.0f : -1.0f) * 1250.0f;  // scores of +-1e4 for queries of ones
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
  const auto axes_exchanged = [](std::vector<float>& storage, const std::vector<float>& dense, int64_t b, int64_t h,
                                 int64_t n, int64_t d, int64_t gap) {
    storage.assign(static_cast<size_t>(b * n * h * d * gap), NAN);
    TensorView<float> view(storage.data(), {b, h, n, d});
    view.strides = {n * h * d * gap, d * gap, h * d * gap, gap};
    for (int64_t i = 0; i < b; ++i)
      for (int64_t j = 0; j < h; ++j)
        for (int64_t k = 0; k < n; ++k)
          for (int64_t l = 0; l < d; ++l)
            *view.at(i, j, k, l) = dense[static_cast<size_t>(((i * h + j) * n + k) * d + l)];
    return view;
  };
  for (int64_t gap : {1, 3}) {
    std::vector<float> q, k, v, out, lse(want.lse.size());
    const std::vector<float> filler(want.out.size(), -7.0f);
    const auto out_tensor = axes_exchanged(out, filler, p.batch, p.num_q_heads, p.q_len, p.dv, gap);
    TensorView<float> lse_tensor(lse.data(), {p.batch, p.num_q_heads, p.q_len});
    lse_tensor.strides = {p.q_len * p.num_q_heads, 1, p.num_q_heads, 0};
    attend(axes_exchanged(q, p.q, p.batch, p.num_q_heads, p.q_len, p.d, gap),
           axes_exchanged(k, p.k, p.batch, p.num_kv_heads, p.kv_len, p.d, gap),
           axes_exchanged(v, p.v, p.batch, p.num_kv_heads, p.kv_len, p.dv, gap), mask, options_of(p), out_tensor,
           lse_tensor);
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t h = 0; h < p.num_q_heads; ++h)
        for (int64_t i = 0; i < p.q_len; ++i) {
          const int64_t row = (b * p.num_q_heads + h) * p.q_len + i;
          ASSERT_EQ(bits(*lse_tensor.at(b, h, i)), bits(want.lse[static_cast<size_t>(row)]));
          for (int64_t c = 0; c < p.dv; ++c)
            ASSERT_EQ(bits(*out_tensor.at(b, h, i, c)), bits(want.out[static_cast<size_t>(row * p.dv + c)]));
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
      ASSERT_TRUE(same_bits(reversed.out.data() + (h * one.q_len + i) * one.dv,
                            single.out.data() + (h * one.q_len + one.q_len - 1 - i) * one.dv, one.dv));
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
    attend(TensorView<const float>(q.data() + shift, {1, 4, 5, 33}),
           TensorView<const float>(k.data() + shift, {1, 2, 70, 33}),
           TensorView<const float>(v.data() + shift, {1, 2, 70, 19}), Mask::causal(), options_of(p),
           {out.data() + shift, {1, 4, 5, 19}});
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
  const std::vector<int64_t> k_position = {0, 5, 1'000'000'007, far - 1, far, far + 300},
                             q_position = {4, 1'000'000'007, far, far + 1000};
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
        merge_attention(out_view(p, merged), lse_view(p, merged), out_view(p, halves[1 - first]),
                        lse_view(p, halves[1 - first]), out_view(p, merged), lse_view(p, merged));
        expect_close(p, mask, merged, "cut at " + std::to_string(cut));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Keys and values of more than 4 MiB: blocks of more rows, and tiles fetched ahead.
TEST(Attend, FarKeysAgainstTheDefinition) {
  Problem p = with_lengths(110, 4300, 128, 128);
  p.fill(24);
  for (const Mask& mask : {Mask::full(), Mask::causal(), Mask::window(700, 0), masks()[4]}) {
    const Result want = by_spec(p, mask);
    for (int threads : {1, 2}) {  // several threads get smaller blocks when there are few of them
      set_default_pool_size(threads);
      ASSERT_EQ(run(p, mask), want) << mask.text() << ", " << threads << " threads";
    }
  }
  set_default_pool_size(2);
}

// The mask decides tiles by reasoning; attention at great lengths evaluates no more than the rows it has.
TEST(Attend, LongKeysWithAnyExpressionRunOneRowOfTiles) {
  Problem p;
  p.q_len = 5, p.kv_len = 256 * 1024, p.d = 4, p.dv = 4, p.q_begin = 256 * 1024 - 5;
  p.fill(23);
  const Mask mask = Mask::parse("causal & (dilated(3) | ~tree(262139; -1, 0, 0, 1, 2))");
  EXPECT_EQ(run(p, mask), by_spec(p, mask));
}

}  // namespace
}  // namespace regard
