// Talking heads against the formula in f64.
#include "regard/talking_heads.h"

#include <gtest/gtest.h>

#include "attention/calls.h"

namespace regard {
namespace {

using namespace testing_attention;

constexpr int64_t kSoftmaxHeads = 3, kValueHeads = 4;

struct Mixed {
  Problem p;  // 4 query heads over 2 KV heads; v has 2 heads too
  std::vector<float> before = gaussians(31, 4 * kSoftmaxHeads), after = gaussians(32, kSoftmaxHeads* kValueHeads);

  TalkingHeads mix() const {
    return {.before = TensorView<const float>(before.data(), {4, kSoftmaxHeads}),
            .after = TensorView<const float>(after.data(), {kSoftmaxHeads, kValueHeads})};
  }
  std::vector<float> run(const Mask& mask, const AttentionOptions& o) const {
    std::vector<float> out(static_cast<size_t>(p.batch * kValueHeads * p.q_len * p.dv), -7.0f);
    attend_talking_heads(q_view(p), k_view(p), v_view(p), mix(), mask, o,
                         {out.data(), {p.batch, kValueHeads, p.q_len, p.dv}});
    return out;
  }
  // Pairs where no softmax head looks are not touched.
  std::vector<double> exact(const Mask& mask) const {
    std::vector<double> out(static_cast<size_t>(p.batch * kValueHeads * p.q_len * p.dv));
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t i = 0; i < p.q_len; ++i) {
        std::vector<std::vector<double>> w(kSoftmaxHeads, std::vector<double>(static_cast<size_t>(p.kv_len)));
        for (int64_t h = 0; h < kSoftmaxHeads; ++h) {
          double total = 0;
          for (int64_t j = 0; j < p.kv_len; ++j) {
            if (!mask.allowed(b, h, p.q_begin + i, p.k_begin + j)) continue;
            double mixed = 0;
            for (int64_t g = 0; g < 4; ++g) {
              double s = 0;
              for (int64_t x = 0; x < p.d; ++x) s += static_cast<double>(p.query(b, g, i)[x]) * p.key(b, g / 2, j)[x];
              s *= p.scale;
              if (p.softcap != 0) s = p.softcap * std::tanh(s / p.softcap);
              mixed += s * before[static_cast<size_t>(g * kSoftmaxHeads + h)];
            }
            total += w[static_cast<size_t>(h)][static_cast<size_t>(j)] = std::exp(mixed);
          }
          for (double& x : w[static_cast<size_t>(h)]) x = total == 0 ? 0 : x / total;
        }
        for (int64_t o = 0; o < kValueHeads; ++o)
          for (int64_t j = 0; j < p.kv_len; ++j) {
            double weight = 0;
            for (int64_t h = 0; h < kSoftmaxHeads; ++h)
              weight +=
                  w[static_cast<size_t>(h)][static_cast<size_t>(j)] * after[static_cast<size_t>(h * kValueHeads + o)];
            for (int64_t c = 0; weight != 0 && c < p.dv; ++c)
              out[static_cast<size_t>(((b * kValueHeads + o) * p.q_len + i) * p.dv + c)] +=
                  weight * p.value(b, o / 2, j)[c];
          }
      }
    return out;
  }
};

Mixed mixed(int64_t q_len, int64_t kv_len, double softcap = 0) {
  Mixed m;
  m.p = with_lengths(q_len, kv_len, 12, 6);
  m.p.batch = 2, m.p.softcap = softcap;
  m.p.fill(17);
  return m;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 2e-6 * (1 + std::fabs(want[i]))) << what << " " << i;
}

TEST(TalkingHeads, EqualTheFormula) {
  for (const double softcap : {0.0, 0.8})
    for (const char* text : {"full", "causal", "causal & window(20, 0) & ~prefix(3)",
                             "per_head(causal, window(10, 0), none)", "~dilated(2) | prefix(70)", "none"}) {
      const Mixed m = mixed(9, 140, softcap);
      const Mask mask = Mask::parse(text);
      expect_near(m.run(mask, options_of(m.p)), m.exact(mask), text);
    }
}

TEST(TalkingHeads, WithoutMatricesAreAttention) {
  Problem p = with_lengths(5, 30, 12, 6);
  p.fill(3);
  Result r(p);
  attend_talking_heads(q_view(p), k_view(p), v_view(p), {}, Mask::causal(), options_of(p), out_view(p, r));
  r.lse = run(p, Mask::causal()).lse;
  expect_close(p, Mask::causal(), r, "no mix");
}

TEST(TalkingHeads, WhatNoHeadSeesCannotMatter) {
  for (const char* text : {"causal & ~prefix(7)", "per_head(causal & ~prefix(7), window(3, 0) & ~prefix(7), none)"}) {
    Mixed m = mixed(6, 40);
    const Mask mask = Mask::parse(text);
    const std::vector<float> clean = m.run(mask, options_of(m.p));
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t g = 0; g < 2; ++g)
        for (int64_t j = 0; j < 7; ++j)
          for (float* x : {m.p.key(b, g, j), m.p.value(b, g, j)}) std::fill_n(x, 6, j % 2 == 0 ? NAN : INFINITY);
    EXPECT_TRUE(same_bits(m.run(mask, options_of(m.p)), clean)) << text;
    m.p.key(0, 0, 39)[0] = NAN;  // the last query sees it
    EXPECT_TRUE(std::isnan(m.run(mask, options_of(m.p))[static_cast<size_t>(5 * m.p.dv)]));
  }
}

TEST(TalkingHeads, ARowIsARow) {
  const Mixed m = mixed(9, 140);
  const std::vector<float> all = m.run(Mask::causal(), options_of(m.p));
  // Slots in another order, one of them unwritten: the same keys by rising position.
  Mixed turned = m;
  std::vector<int64_t> positions;
  for (int64_t j = 0; j < 140; ++j) {
    positions.push_back(139 - j);
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t g = 0; g < 2; ++g) {
        std::copy_n(m.p.key(b, g, 139 - j), m.p.d, turned.p.key(b, g, j));
        std::copy_n(m.p.value(b, g, 139 - j), m.p.dv, turned.p.value(b, g, j));
      }
  }
  AttentionOptions o = options_of(m.p);
  o.k_begin.clear();
  o.k_positions = TensorView<const int64_t>(positions.data(), {140});
  EXPECT_TRUE(same_bits(turned.run(Mask::causal(), o), all));
  o.query_lengths = {4};
  const std::vector<float> padded = turned.run(Mask::causal(), o);
  for (int64_t head = 0; head < 2 * kValueHeads; ++head) {
    EXPECT_TRUE(same_bits(&padded[static_cast<size_t>(head * 9 * 6)], &all[static_cast<size_t>(head * 9 * 6)], 4 * 6));
    for (int64_t x = 4 * 6; x < 9 * 6; ++x) EXPECT_EQ(bits(padded[static_cast<size_t>(head * 9 * 6 + x)]), 0u);
  }
}

TEST(Refusals, TalkingHeadsNameWhatTheyCannotDo) {
  const Mixed m = mixed(3, 5);
  std::vector<float> out(1000), numbers(100);
  const auto call = [&](const AttentionOptions& o, const TalkingHeads& mix) {
    attend_talking_heads(q_view(m.p), k_view(m.p), v_view(m.p), mix, Mask::causal(), o,
                         {out.data(), {2, kValueHeads, 3, 6}});
  };
  call(options_of(m.p), m.mix());
  AttentionOptions o = options_of(m.p);
  o.alibi = Alibi{{1, 1, 1, 1}};
  expect_refused(Code::kUnsupported, {"alibi"}, [&] { call(o, m.mix()); });
  o = options_of(m.p);
  o.sink = TensorView<const float>(numbers.data(), {4});
  expect_refused(Code::kUnsupported, {"sink"}, [&] { call(o, m.mix()); });
  o = options_of(m.p);
  o.bias = TensorView<const float>(numbers.data(), {1, 1, 1, 5});
  expect_refused(Code::kUnsupported, {"bias"}, [&] { call(o, m.mix()); });
  TalkingHeads mix = m.mix();
  mix.before.shape[0] = 3;
  expect_refused(Code::kInvalidArgument, {"mix.before", "[3, 3]", "[4, heads]"}, [&] { call(options_of(m.p), mix); });
  mix = m.mix();
  mix.after = TensorView<const float>(numbers.data(), {3, 3});
  expect_refused(Code::kInvalidArgument, {"3 value heads", "2 heads"}, [&] { call(options_of(m.p), mix); });
}

}  // namespace
}  // namespace regard
