// AttentionOptions::arithmetic: bf16 dot products against their scalar definition on bits, the promises in that arithmetic,
// its error, and what refuses it. Skipped where the instruction set in use has none.
#include <gtest/gtest.h>

#include "attention/backward_calls.h"
#include "attention/calls.h"
#include "attention/masked_data.h"
#include "kernels/reference/spec_bf16.h"
#include "regard/attention_merge.h"
#include "regard/attention_weights.h"
#include "regard/talking_heads.h"

namespace regard {
namespace {

using namespace testing_attention;

class Bf16Dots : public testing::Test {
 protected:
  void SetUp() override {
    if (kernels::kernels().attention_bf16 == nullptr)
      GTEST_SKIP() << isa_name(kernels::kernels().isa) << " has no bf16 dot products";
  }
};

AttentionOptions bf16_options(const Problem& p) {
  AttentionOptions o = options_of(p);
  o.arithmetic = AttentionArithmetic::kBf16Dots;
  return o;
}

Result run_bf16(const Problem& p, const Mask& mask) { return run(p, mask, bf16_options(p)); }

Result by_spec_bf16(const Problem& p, const Mask& mask, const PairTerms& terms = {}) {
  Result result(p);
  const auto factor = static_cast<float>(p.scale * math::kLog2e), cap = static_cast<float>(p.softcap * math::kLog2e);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.num_q_heads; ++h)
      for (int64_t i = 0; i < p.q_len; ++i) {
        const int64_t row = (b * p.num_q_heads + h) * p.q_len + i, g = h / p.group();
        result.lse[static_cast<size_t>(row)] = kernels::reference::attention_row_spec_bf16(
            p.query(b, h, i), static_cast<int>(p.d), static_cast<int>(p.dv), p.k_begin, p.k_begin + p.kv_len, factor,
            cap, [&](int64_t j, int x) { return p.key(b, g, j - p.k_begin)[x]; },
            [&](int64_t j, int c) { return p.value(b, g, j - p.k_begin)[c]; },
            [&](int64_t j) { return mask.allowed(b, h, p.q_begin + i, j); }, result.out.data() + row * p.dv,
            RowTerms(terms, p, b, h, i));
      }
  return result;
}

TEST_F(Bf16Dots, LengthsMasksAndHeadSizesEqualTheDefinition) {
  for (int64_t kv_len : {0, 1, 63, 64, 255, 256, 257, 513, 777}) {
    Problem p = with_lengths(9, kv_len, 64, 64);
    p.fill(static_cast<uint64_t>(kv_len));
    for (const Mask& mask : masks())
      ASSERT_EQ(run_bf16(p, mask), by_spec_bf16(p, mask)) << mask.text() << " kv_len " << kv_len;
  }
  for (const auto& [d, dv] : {std::pair{1, 1}, std::pair{8, 33}, std::pair{33, 8}, std::pair{80, 80}, std::pair{128, 128},
                              std::pair{256, 17}, std::pair{1, 512}, std::pair{512, 1}}) {
    Problem p = with_lengths(8, 300, d, dv);
    p.fill(static_cast<uint64_t>(d));
    for (const Mask& mask : {masks()[1], masks()[4]})
      ASSERT_EQ(run_bf16(p, mask), by_spec_bf16(p, mask)) << mask.text() << " " << d << " " << dv;
  }
}

// Pairs of keys are pairs of positions, wherever the first key stands.
TEST_F(Bf16Dots, PlacementsAndScoreTermsEqualTheDefinition) {
  for (const auto& [q_begin, k_begin] : {std::pair{0, 0}, std::pair{1000, 901}, std::pair{100, 255}, std::pair{300, 257}}) {
    Problem p = with_lengths(40, 500, 32, 32);
    p.q_begin = q_begin, p.k_begin = k_begin, p.softcap = 3;
    p.fill(static_cast<uint64_t>(q_begin));
    const std::vector<float> sinks = {0.5f, -1.0f, 2.0f, -INFINITY}, bias = gaussians(5, 40 * 500);
    AttentionOptions o = bf16_options(p);
    o.bias = {bias.data(), {1, 1, 40, 500}};
    o.sink = {sinks.data(), {4}};
    const PairTerms terms{.bias = [&](int64_t, int64_t, int64_t i, int64_t j) { return bias[static_cast<size_t>(i * 500 + j)]; },
                          .keep = {},
                          .sinks = sinks};
    for (const Mask& mask : masks()) {
      const Result got = run(p, mask, o), want = by_spec_bf16(p, mask, terms);
      ASSERT_TRUE(same_bits(got.out, want.out) && same_bits(got.lse, want.lse)) << mask.text() << " " << q_begin << " " << k_begin;
    }
  }
}

// Promise 4: neither the threads nor the batch, the padding, the chunk or the order of the slots can be told from a row.
TEST_F(Bf16Dots, ARowIsARow) {
  Problem p;
  p.batch = 3, p.num_q_heads = 4, p.num_kv_heads = 2, p.q_len = p.kv_len = 600, p.d = 40, p.dv = 40;
  p.fill(20);
  for (const Mask& mask : {Mask::full(), Mask::causal(), masks()[3], masks()[4], masks()[5]}) {
    const Result want = run_bf16(p, mask);
    const auto expect_rows = [&](const Result& got, int64_t b, int64_t first, int64_t count, const char* what) {
      for (int64_t h = 0; h < 4; ++h)
        ASSERT_TRUE(same_bits(got.out.data() + h * count * p.dv, want.out.data() + ((b * 4 + h) * 600 + first) * p.dv, count * p.dv))
            << what << ", rows from " << first << ", " << mask.text();
    };
    for (int threads : {1, 2, 3, 8}) {
      const Threads pool(threads);
      ASSERT_EQ(run_bf16(p, mask), want) << threads << " threads, " << mask.text();
      Problem part = p;
      part.batch = 1;
      part.k.assign(p.key(2, 0, 0), p.key(2, 0, 0) + 2 * 600 * p.d);
      part.v.assign(p.value(2, 0, 0), p.value(2, 0, 0) + 2 * 600 * p.dv);
      for (const auto& [first, count] : {std::pair{599, 1}, std::pair{255, 2}, std::pair{100, 7}, std::pair{301, 130}}) {
        part.q_len = count, part.q_begin = first;
        part.q.clear();
        for (int64_t h = 0; h < 4; ++h)
          part.q.insert(part.q.end(), p.query(2, h, first), p.query(2, h, first) + count * p.d);
        expect_rows(run_bf16(part, mask), 2, first, count, "a part of the queries");
      }
    }
    // The slots of one batch row in another order, and two that were never written.
    Problem mixed = p;
    mixed.batch = 1, mixed.kv_len = 602;
    mixed.q.assign(p.query(1, 0, 0), p.query(1, 0, 0) + 4 * 600 * p.d);
    mixed.k.assign(static_cast<size_t>(2 * 602 * p.d), NAN);
    mixed.v.assign(static_cast<size_t>(2 * 602 * p.dv), NAN);
    std::vector<int64_t> positions(602, -1);
    for (int64_t j = 0; j < 600; ++j) {
      const int64_t slot = 1 + j * 7 % 600;
      positions[static_cast<size_t>(slot)] = j;
      for (int64_t g = 0; g < 2; ++g) {
        std::copy_n(p.key(1, g, j), p.d, mixed.key(0, g, slot));
        std::copy_n(p.value(1, g, j), p.dv, mixed.value(0, g, slot));
      }
    }
    AttentionOptions o = bf16_options(mixed);
    o.k_begin = {};
    o.k_positions = {positions.data(), {602}};
    expect_rows(run(mixed, mask, o), 1, 0, 600, "slots in another order");
  }
}

// Parts that are whole tiles, folded in their order, are the call in one piece.
TEST_F(Bf16Dots, PartsOfTheKeys) {
  Problem p = with_lengths(30, 700, 64, 48);
  p.fill(3);
  for (const Mask& mask : masks()) {
    PartialAttention state(1, 4, 30, 48);
    for (int64_t begin = 0; begin < 700; begin += 256) {
      const int64_t end = std::min<int64_t>(700, begin + 256);
      TensorView<const float> k = k_view(p), v = v_view(p);
      k.data += begin * p.d, v.data += begin * p.dv;
      k.shape[2] = v.shape[2] = end - begin;
      AttentionOptions o = bf16_options(p);
      o.k_begin = {begin};
      attend_onto(state, q_view(p), k, v, mask, o);
    }
    Result r(p);
    state.finish({}, out_view(p, r), lse_view(p, r));
    ASSERT_EQ(r, run_bf16(p, mask)) << mask.text();
  }
}

TEST_F(Bf16Dots, MaskedDataCannotMatter) {
  expect_masked_data_cannot_matter(run_bf16);
  Problem p = with_lengths(12, 520, 33, 17);
  p.fill(18);
  const Result nothing = run_bf16(p, Mask::none());
  for (float x : nothing.out) ASSERT_EQ(bits(x), 0u);
  for (float x : nothing.lse) ASSERT_EQ(x, -INFINITY);
}

// The root of the mean square of what `got` is off attention in f64 by.
double error_of(const Problem& p, const Mask& mask, const Result& got) {
  std::vector<double> want(static_cast<size_t>(p.dv));
  double sum = 0;
  for (int64_t h = 0; h < p.num_q_heads; ++h)
    for (int64_t i = 0; i < p.q_len; ++i) {
      kernels::reference::attention_row<double>(
          [&](int64_t x) { return p.query(0, h, i)[x]; }, p.d, p.dv, 0, p.kv_len, p.scale, 0.0,
          [&](int64_t j, int64_t x) { return p.key(0, h / p.group(), j)[x]; },
          [&](int64_t j, int64_t c) { return p.value(0, h / p.group(), j)[c]; },
          [&](int64_t j) { return mask.allowed(0, h, p.q_begin + i, j); }, want.data());
      for (int64_t c = 0; c < p.dv; ++c) {
        const double off = got.out[static_cast<size_t>((h * p.q_len + i) * p.dv + c)] - want[static_cast<size_t>(c)];
        sum += off * off;
      }
    }
  return std::sqrt(sum / static_cast<double>(got.out.size()));
}

TEST_F(Bf16Dots, ErrorIsAboutThatOfRoundingTheInputs) {
  for (int64_t d : {64, 128})
    for (double spread : {0.3, 1.0, 3.0})
      for (const float shift : {0.0f, 2.0f})  // of the values: a mean that the weights must not lose
        for (const Mask& mask : {Mask::full(), Mask::causal(), Mask::window(100, 0)}) {
          Problem p = with_lengths(12, 1024, d, d);
          p.fill(static_cast<uint64_t>(d), spread);
          for (float& x : p.v) x += shift;
          Problem rounded = p;
          for (std::vector<float>* x : {&rounded.q, &rounded.k, &rounded.v})
            for (float& y : *x) y = kernels::reference::spec_bf16(y);
          const double of_inputs = error_of(p, mask, run(rounded, mask)), of_bf16 = error_of(p, mask, run_bf16(p, mask));
          EXPECT_LE(of_bf16, 1.5 * of_inputs) << "d " << d << " spread " << spread << " shift " << shift << " " << mask.text();
          EXPECT_GT(of_bf16, 0.5 * of_inputs) << "or it was not computed in bf16";
        }
}

TEST_F(Bf16Dots, Refusals) {
  Problem p = with_lengths(8, 8, 4, 4);
  p.fill(1);
  Result r = run(p, Mask::causal());
  AttentionOptions o = bf16_options(p);
  const auto attend_with = [&](const AttentionOptions& options) { run(p, Mask::causal(), options); };
  std::vector<float> distances(15 * 4 * 4);
  AttentionOptions relative = o;
  relative.xl = TransformerXl{.u = {}, .v = {}, .r = {distances.data(), {15, 4, 4}}, .first_distance = -7};
  expect_refused(Code::kUnsupported, {"[attend]", "xl", "bf16"}, [&] { attend_with(relative); });
  expect_refused(Code::kUnsupported, {"[attend_backward]", "arithmetic", "bf16"}, [&] {
    std::vector<float> dq(p.q.size());
    attend_backward(q_view(p), k_view(p), v_view(p), out_view(p, r), lse_view(p, r), out_view(p, r), {}, Mask::causal(), o,
                    {dq.data(), {1, 4, 8, 4}}, {}, {});
  });
  const kernels::ForcedIsa forced(Isa::kAvx512);
  expect_refused(Code::kUnsupported, {"[attend]", "arithmetic", "avx512,", "avx512_bf16"}, [&] { attend_with(o); });
}

TEST(Bf16DotsElsewhere, AreRefusedByName) {
  if (kernels::kernels().attention_bf16 != nullptr) GTEST_SKIP() << "they are here";
  Problem p = with_lengths(8, 8, 4, 4);
  p.fill(1);
  expect_refused(Code::kUnsupported, {"[attend]", "arithmetic", "avx512_bf16"}, [&] { run_bf16(p, Mask::causal()); });
}

}  // namespace
}  // namespace regard
