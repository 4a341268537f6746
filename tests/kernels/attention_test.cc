// The attention kernels against their scalar definition, on bits, on the instruction set in use.
#include <gtest/gtest.h>

#include "kernels/attention_problems.h"
#include "kernels/masked_data.h"
#include "kernels/reference/spec.h"
#include "kernels/registry.h"

namespace regard::kernels {
namespace {

using namespace testing_kernels;
using reference::Rounding;

template <Rounding R>
Result by_spec(const Problem& p, const Sees& sees) {
  Result result{std::vector<float>(static_cast<size_t>(p.rows * p.dv)), {}};
  for (int r = 0; r < p.rows; ++r)
    result.lse.push_back(reference::attention_row_spec<R>(
        &p.q[static_cast<size_t>(r * p.d)], p.d, p.dv, 0, p.kv_len, p.factor, p.softcap,
        [&](int64_t j, int i) { return p.key(j, i); }, [&](int64_t j, int c) { return p.value(j, c); },
        [&](int64_t j) { return sees(r, static_cast<int>(j)); }, &result.out[static_cast<size_t>(r * p.dv)],
        RowTerms(p, r)));
  return result;
}
Result by_spec(const Problem& p, const Sees& sees) {
  return kernels().isa == Isa::kBaseline ? by_spec<Rounding::kSeparate>(p, sees) : by_spec<Rounding::kFused>(p, sees);
}

// Keys and values as the kernels want them; slots that were not written, and the padding of values, are NaN.
struct Packed {
  int tiles, dv;
  AlignedBuffer<float> k, v;
  explicit Packed(const Problem& p)
      : tiles((p.kv_len + kTileKeys - 1) / kTileKeys),
        dv(padded_dim(p.dv)),
        k(static_cast<size_t>(tiles * kTileKeys * p.d)),
        v(static_cast<size_t>(tiles * kTileKeys * dv)) {
    for (float& x : k) x = NAN;
    for (float& x : v) x = NAN;
    for (int j = 0; j < p.kv_len;) {  // uneven portions, so that both the fast and the single-key path run
      const int n = std::min({p.kv_len - j, kPanelKeys - j % kPanelKeys, j % 3 == 0 ? 64 : 7});
      kernels().attention->pack_keys(&p.k[static_cast<size_t>(j * p.d)], p.d, n, p.d,
                                     k.data() + j / kPanelKeys * kPanelKeys * p.d, j % kPanelKeys);
      j += n;
    }
    for (int j = 0; j < p.kv_len; ++j)
      for (int c = 0; c < p.dv; ++c) v[static_cast<size_t>(j * dv + c)] = p.value(j, c);
  }
};

enum class Split { kNone, kByTile };

Result by_kernel(const Problem& p, const NamedMask& mask, int block_rows, Split split = Split::kNone) {
  const AttentionKernels& kernel = *kernels().attention;
  const Packed packed(p);
  Result result{std::vector<float>(static_cast<size_t>(p.rows * p.dv), -7.0f),
                std::vector<float>(static_cast<size_t>(p.rows), -7.0f)};
  for (int first = 0; first < p.rows; first += block_rows) {
    const int rows = std::min(block_rows, p.rows - first);
    std::vector<const float*> q;
    std::vector<float*> out;
    for (int r = first; r < first + rows; ++r) {
      q.push_back(&p.q[static_cast<size_t>(r * p.d)]);
      out.push_back(&result.out[static_cast<size_t>(r * p.dv)]);
    }
    AlignedBuffer<float> scaled(static_cast<size_t>(rows * p.d)), scores(kMaxMicroRows * kTileKeys);
    AlignedBuffer<float> o(static_cast<size_t>(rows * packed.dv)), m(static_cast<size_t>(rows + kLanes)),
        l(static_cast<size_t>(rows + kLanes));
    AlignedBuffer<float> o2(o.size()), m2(m.size()), l2(l.size());
    const AttentionState state{o.data(), m.data(), l.data()}, part{o2.data(), m2.data(), l2.data()};
    kernel.scale_queries(q.data(), rows, p.d, p.factor, scaled.data());
    kernel.reset(state, rows, packed.dv);
    for (int t = 0; t < packed.tiles; ++t) {
      AttentionTile tile{};
      tile.q = scaled.data();
      tile.rows = rows;
      tile.head_dim = p.d;
      tile.value_dim = packed.dv;
      tile.softcap = p.softcap;
      for (int w = 0; w < kPanelsPerTile; ++w) {
        const int block = t * kPanelsPerTile + w;
        tile.k[w] = packed.k.data() + block * kPanelKeys * p.d;
        tile.v[w] = packed.v.data() + block * kPanelKeys * packed.dv;
        if (split == Split::kByTile)
          tile.next[w] = packed.k.data() + (block + 4) % (packed.tiles * 4) * kPanelKeys * p.d;
      }
      const TileRows seen(p, mask, t, first, rows);
      seen.tell(tile);
      tile.scores = scores.data();
      if (split == Split::kByTile) {
        kernel.reset(part, rows, packed.dv);
        kernel.tile(tile, part);
        kernel.fold(state, part, rows, packed.dv);
      } else {
        kernel.tile(tile, state);
      }
    }
    if (!p.sinks.empty()) kernel.fold_sink(state, &p.sinks[static_cast<size_t>(first)], rows, packed.dv);
    kernel.finish(state, rows, p.dv, out.data(), &result.lse[static_cast<size_t>(first)]);
  }
  return result;
}

class HeadDims : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(HeadDims, EqualTheScalarDefinition) {
  const auto [d, dv] = GetParam();
  size_t turn = static_cast<size_t>(d);
  for (int kv_len : kLengths) {
    const int rows = std::min(std::max(kv_len, 1), 13);
    const Problem p = make(d, dv, kv_len, rows);
    const std::vector<NamedMask> all = masks(rows, kv_len);
    for (int n = 0; n < 3; ++n, ++turn) {  // three masks in turn for each length; every mask meets every kind of length
      const NamedMask& mask = all[turn % all.size()];
      const Result want = by_spec(p, mask.sees);
      for (int block : {1, 2, 3, 4, 5, 6, 13})
        ASSERT_EQ(by_kernel(p, mask, block), want)
            << mask.name << " d " << d << " dv " << dv << " kv_len " << kv_len << " block " << block;
      ASSERT_EQ(by_kernel(p, mask, 13, Split::kByTile), want) << mask.name << " tile by tile, kv_len " << kv_len;
      ASSERT_EQ(by_kernel(p, mask, 4, Split::kByTile), want) << mask.name << " tile by tile, kv_len " << kv_len;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, HeadDims,
                         testing::Values(std::pair{1, 1}, std::pair{8, 8}, std::pair{33, 33}, std::pair{40, 40},
                                         std::pair{64, 64}, std::pair{72, 72}, std::pair{80, 80}, std::pair{96, 96},
                                         std::pair{112, 112}, std::pair{128, 128}, std::pair{256, 256},
                                         std::pair{64, 128}, std::pair{192, 128}, std::pair{24, 7}, std::pair{5, 200}),
                         [](const auto& param) {
                           return std::to_string(param.param.first) + "_" + std::to_string(param.param.second);
                         });

TEST(AttentionKernels, EveryMaskAtEveryLength) {
  for (int kv_len : kLengths) {
    const int rows = std::min(std::max(kv_len, 1), 20);
    const Problem p = make(64, 64, kv_len, rows);
    for (const NamedMask& mask : masks(rows, kv_len)) {
      const Result want = by_spec(p, mask.sees);
      for (int block : {1, 6, 20})
        ASSERT_EQ(by_kernel(p, mask, block), want) << mask.name << " kv_len " << kv_len << " block " << block;
    }
  }
}

TEST(AttentionKernels, SoftcapStandsBeforeTheMask) {
  for (float cap : {1e-30f, 0.3f, 2.0f, 50.0f, 1e30f})
    for (int kv_len : {1, 17, 300, 513}) {
      Problem p = make(64, 64, kv_len, std::min(kv_len, 9), 3.0f);
      p.softcap = cap;
      for (const NamedMask& mask : masks(p.rows, kv_len))
        ASSERT_EQ(by_kernel(p, mask, 9), by_spec(p, mask.sees)) << mask.name << " cap " << cap << " kv_len " << kv_len;
    }
}

TEST(AttentionKernels, BiasComesAfterTheSoftcap) {
  for (float cap : {0.0f, 2.0f})
    for (float spread : {1e-20f, 1.0f, 1e4f})
      for (int kv_len : {1, 17, 300, 513}) {
        Problem p = make(40, 24, kv_len, std::min(kv_len, 9));
        p.softcap = cap;
        p.bias = gaussians(5, p.rows * kv_len, spread);
        for (int i = 3; i < p.rows * kv_len; i += 7) p.bias[static_cast<size_t>(i)] = -INFINITY;
        for (const NamedMask& mask : masks(p.rows, kv_len)) {
          const Result want = by_spec(p, mask.sees);
          for (int block : {1, 4, 9}) ASSERT_EQ(by_kernel(p, mask, block), want) << mask.name << " kv_len " << kv_len;
          ASSERT_EQ(by_kernel(p, mask, 9, Split::kByTile), want) << mask.name << " kv_len " << kv_len;
        }
      }
}

TEST(AttentionKernels, ForbiddenBiasCannotMatter) {
  Problem p = make(40, 24, 530, 14);
  p.bias = gaussians(5, p.rows * p.kv_len, 1.0f);
  for (const NamedMask& mask : masks(p.rows, p.kv_len)) {
    const Result clean = by_kernel(p, mask, 14);
    for (float poison : {NAN, INFINITY, -INFINITY}) {
      Problem dirty = p;
      for (int r = 0; r < p.rows; ++r)
        for (int j = 0; j < p.kv_len; ++j)
          if (!mask.sees(r, j)) dirty.bias[static_cast<size_t>(r * p.kv_len + j)] = poison;
      ASSERT_EQ(by_kernel(dirty, mask, 14), clean) << mask.name << " poison " << poison;
    }
  }
}

// A visible bias of +inf or NaN makes its row NaN, -inf takes the key away.
TEST(AttentionKernels, VisibleBiasComesThrough) {
  Problem p = make(40, 24, 300, 6);
  p.bias = gaussians(5, p.rows * p.kv_len, 1.0f);
  for (const NamedMask& mask : masks(p.rows, p.kv_len))
    for (float x : {NAN, INFINITY, -INFINITY}) {
      Problem dirty = p;
      for (int r = 0; r < p.rows; ++r) dirty.bias[static_cast<size_t>(r * p.kv_len + 290 + r)] = x;
      const Result got = by_kernel(dirty, mask, 6), clean = by_kernel(p, mask, 6);
      ASSERT_EQ(got, by_spec(dirty, mask.sees)) << mask.name << " bias " << x;
      for (int r = 0; r < p.rows; ++r) {
        const size_t at = static_cast<size_t>(r * p.dv);
        ASSERT_EQ(std::isnan(got.out[at]), mask.sees(r, 290 + r) && x != -INFINITY) << mask.name << " row " << r;
        if (!mask.sees(r, 290 + r)) {
          ASSERT_EQ(std::bit_cast<uint32_t>(got.out[at]), std::bit_cast<uint32_t>(clean.out[at])) << mask.name;
        }
      }
    }
}

TEST(AttentionKernels, ASinkIsCountedOnce) {
  for (int kv_len : {1, 17, 300, 513}) {
    Problem p = make(40, 24, kv_len, std::min(kv_len, 20));
    for (float sink : {-INFINITY, -200.0f, -1.0f, 0.0f, 3.0f, 200.0f, INFINITY, NAN}) {
      p.sinks.assign(static_cast<size_t>(p.rows), sink);
      p.sinks[0] = 0.25f;
      for (const NamedMask& mask : masks(p.rows, kv_len)) {
        Result want = by_spec(p, mask.sees);
        const Result got = by_kernel(p, mask, 20);
        for (int r = 0; r < p.rows; ++r) {  // the sink's own logit is the caller's to put in
          bool nothing = true;
          for (int j = 0; j < kv_len; ++j) nothing = nothing && !mask.sees(r, j);
          if (nothing) want.lse[static_cast<size_t>(r)] = got.lse[static_cast<size_t>(r)];
        }
        ASSERT_EQ(got, want) << mask.name << " sink " << sink;
        ASSERT_EQ(by_kernel(p, mask, 3, Split::kByTile), got) << mask.name << " sink " << sink;
      }
    }
  }
}

TEST(AttentionKernels, DroppedKeysCountInTheSumAlone) {
  for (int kv_len : {1, 17, 300, 513}) {
    Problem p = make(40, 24, kv_len, std::min(kv_len, 13)), kept = p;
    p.drops = true;
    for (const NamedMask& mask : masks(p.rows, kv_len)) {
      const Result want = by_spec(p, mask.sees);
      for (int block : {1, 5, 13}) ASSERT_EQ(by_kernel(p, mask, block), want) << mask.name << " kv_len " << kv_len;
      ASSERT_EQ(by_kernel(p, mask, 13, Split::kByTile), want) << mask.name << " kv_len " << kv_len;
      ASSERT_TRUE(same_bits(want.lse, by_spec(kept, mask.sees).lse)) << "lse does not know dropout";
    }
  }
}

TEST(AttentionKernels, ExtremeScores) {
  for (float spread : {0.0f, 1e-42f, 1e-20f, 30.0f, 1e4f, 1e38f})  // 1e38: scores overflow
    for (int d : {33, 64}) {
      const Problem p = make(d, d, 600, 10, spread);
      for (const NamedMask& mask : masks(p.rows, p.kv_len))
        ASSERT_EQ(by_kernel(p, mask, 10), by_spec(p, mask.sees)) << mask.name << " spread " << spread;
    }
}

TEST(AttentionKernels, ForbiddenKeysAndValuesCannotMatter) {
  expect_forbidden_data_cannot_matter([](const Problem& p, const NamedMask& mask) { return by_kernel(p, mask, 14); });
}

TEST(AttentionKernels, VisibleNanComesThrough) {
  expect_visible_nan_comes_through([](const Problem& p, const NamedMask& mask) {
    const Result got = by_kernel(p, mask, 14);
    EXPECT_EQ(got, by_spec(p, mask.sees)) << mask.name;
    return got;
  });
}

// O is a denormal -x after tile 0, rounds to -0 when tile 1 brings a larger maximum, and then meets tile 2, which the
// first rows do not see: in company 0 is added, alone the tile is skipped. The sign of the zero must not tell.
TEST(AttentionKernels, SignOfZeroDoesNotTell) {
  Problem p = make(64, 64, 520, 20);
  for (auto* x : {&p.q, &p.k, &p.v}) std::fill(x->begin(), x->end(), 0.0f);
  for (int r = 0; r < p.rows; ++r) p.q[static_cast<size_t>(r * p.d)] = 8.0f;
  p.k[300 * 64] = 20.0f;
  std::fill_n(p.v.begin(), 256 * 64, -1e-45f);
  const NamedMask causal = masks(p.rows, p.kv_len)[1];
  const Result want = by_spec(p, causal.sees);
  for (int block : {1, 2, 6, 20}) EXPECT_EQ(by_kernel(p, causal, block), want);
  EXPECT_EQ(by_kernel(p, causal, 20, Split::kByTile), want);
}

// Weights against f64: each is exp(s - lse) to the accuracy of the scores, and exactly 0 where nothing is seen.
TEST(AttentionKernels, WeightsRebuildTheSoftmax) {
  for (int kv_len : {1, 17, 256})
    for (int d : {1, 40, 64}) {
      const Problem p = make(d, d, kv_len, std::min(kv_len, 9), 2.0f);
      const Packed packed(p);
      for (const NamedMask& mask : masks(p.rows, kv_len)) {
        const Result result = by_spec(p, mask.sees);
        std::vector<float> high, low, out(static_cast<size_t>(p.rows * kTileKeys), -7.0f),
            scaled(static_cast<size_t>(p.rows * d));
        std::vector<int32_t> lo, hi;
        std::vector<uint64_t> words(static_cast<size_t>(p.rows * kPanelsPerTile), 0);
        std::vector<const float*> q;
        for (int r = 0; r < p.rows; ++r) {
          q.push_back(&p.q[static_cast<size_t>(r * d)]);
          const double lse2 = result.lse[static_cast<size_t>(r)] * math::kLog2e;
          high.push_back(static_cast<float>(lse2));
          low.push_back(std::isinf(lse2) ? 0.0f : static_cast<float>(lse2 - high.back()));
          for (int j = 0; j < kv_len; ++j)
            if (mask.sees(r, j)) words[static_cast<size_t>(r * kPanelsPerTile + j / 64)] |= uint64_t{1} << (j % 64);
        }
        AlignedBuffer<float> scores(kMaxMicroRows * kTileKeys);
        kernels().attention->scale_queries(q.data(), p.rows, d, p.factor, scaled.data());
        AttentionTile tile{};
        tile.q = scaled.data(), tile.rows = p.rows, tile.head_dim = d, tile.value_dim = packed.dv,
        tile.scores = scores.data();
        for (int w = 0; w < kPanelsPerTile; ++w) tile.k[w] = packed.k.data() + w * kPanelKeys * d;
        tile.words = reinterpret_cast<const uint64_t(*)[kPanelsPerTile]>(words.data());
        kernels().attention->weights(tile, high.data(), low.data(), out.data());
        for (int r = 0; r < p.rows; ++r)
          for (int j = 0; j < kTileKeys; ++j) {
            const float got = out[static_cast<size_t>(r * kTileKeys + j)];
            if (j >= kv_len || !mask.sees(r, j)) {
              ASSERT_EQ(std::bit_cast<uint32_t>(got), 0u) << mask.name << " row " << r << " key " << j;
              continue;
            }
            double s = 0, size = 0;
            for (int i = 0; i < d; ++i) {
              const double product = double(p.q[static_cast<size_t>(r * d + i)]) * p.key(j, i) / std::sqrt(double(d));
              s += product;
              size += std::fabs(product);
            }
            const double want = std::exp(s - result.lse[static_cast<size_t>(r)]);
            ASSERT_NEAR(got, want,
                        0x1p-24 * (4 + (d + 4) * size + 2 * std::fabs(result.lse[static_cast<size_t>(r)])) * want)
                << mask.name;
          }
      }
    }
}

TEST(AttentionKernels, ScalarFunctionsOfTheDefinitionAreTheVectorOnes) {
  std::vector<float> x, y(4096), z(4096);
  for (int i = 0; i < 4090; ++i) x.push_back(-160.0f + 0.08f * static_cast<float>(i) * (i % 7 == 0 ? 0.01f : 1.0f));
  for (float special : {0.0f, -0.0f, -INFINITY, INFINITY, NAN, -1e30f}) x.push_back(special);
  kernels().elementwise->exp2(x.data(), 4096, y.data());
  kernels().elementwise->tanh(x.data(), 4096, z.data());
  const bool fused = kernels().isa != Isa::kBaseline;
  for (size_t i = 0; i < x.size(); ++i) {
    const float e =
        fused ? reference::spec_exp2<Rounding::kFused>(x[i]) : reference::spec_exp2<Rounding::kSeparate>(x[i]);
    const float t =
        fused ? reference::spec_tanh<Rounding::kFused>(x[i]) : reference::spec_tanh<Rounding::kSeparate>(x[i]);
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(y[i]) && std::isnan(e) && std::isnan(z[i]) && std::isnan(t));
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(e)) << x[i];
    ASSERT_EQ(std::bit_cast<uint32_t>(z[i]), std::bit_cast<uint32_t>(t)) << x[i];
  }
}

}  // namespace
}  // namespace regard::kernels
