// Caches in f16, bf16 and i8: what is stored is rounded as promised, and attention over it is the scalar definition
// applied to what is stored, bit for bit, in every kind of cache and however the tokens came.
#include <gtest/gtest.h>

#include <cstdio>

#include "attention/calls.h"
#include "attention/through_caches.h"
#include "regard/kv_cache.h"

namespace regard {
namespace {

using namespace testing_attention;
using kernels::reference::Rounding;

constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kI8};

std::string name_of(DType type) { return std::string(info(type).name); }

// The nearest f16 or bf16 number by looking at both neighbours, ties to the even one.
float nearest(float x, DType type) {
  const auto decode = [&](uint16_t bits) { return type == DType::kF16 ? half_to_float(bits) : bf16_to_float(bits); };
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  uint16_t below = 0;  // the largest magnitude that is not above |x|
  for (int bit = 14; bit >= 0; --bit) {
    const auto higher = static_cast<uint16_t>(below | (1 << bit));
    if (decode(higher) <= std::fabs(x)) below = higher;
  }
  const double down = static_cast<double>(std::fabs(x)) - static_cast<double>(decode(below)),
               up = static_cast<double>(decode(static_cast<uint16_t>(below + 1))) - static_cast<double>(std::fabs(x));
  const bool next = up < down || (up == down && (below & 1) != 0);
  return decode(static_cast<uint16_t>(sign | (below + (next ? 1 : 0))));
}

// A problem as it is stored: rounded numbers, or codes and their scales.
struct Stored {
  Problem numbers;
  std::vector<float> k_scales, v_scales;  // [batch][kv_heads][kv_len], of codes
  Stored(const Problem& p, DType type) : numbers(p) {
    if (type != DType::kI8) {
      for (float& x : numbers.k) x = nearest(x, type);
      for (float& x : numbers.v) x = nearest(x, type);
      return;
    }
    encode(numbers.k, p.d, k_scales);
    encode(numbers.v, p.dv, v_scales);
  }
  static void encode(std::vector<float>& x, int64_t dim, std::vector<float>& scales) {
    for (size_t row = 0; row < x.size(); row += static_cast<size_t>(dim)) {
      float most = 0;
      for (int64_t i = 0; i < dim; ++i) most = std::max(most, std::fabs(x[row + static_cast<size_t>(i)]));
      scales.push_back(most / 127);
      for (int64_t i = 0; i < dim; ++i) {
        float& number = x[row + static_cast<size_t>(i)];
        number = std::nearbyint(number / scales.back());
      }
    }
  }
  // The numbers that the codes stand for.
  Problem decoded() const {
    Problem p = numbers;
    for (size_t i = 0; i < k_scales.size(); ++i)
      for (int64_t x = 0; x < p.d; ++x) p.k[i * static_cast<size_t>(p.d) + static_cast<size_t>(x)] *= k_scales[i];
    for (size_t i = 0; i < v_scales.size(); ++i)
      for (int64_t x = 0; x < p.dv; ++x) p.v[i * static_cast<size_t>(p.dv) + static_cast<size_t>(x)] *= v_scales[i];
    return p;
  }
};

// Rows of codes as the scalar definition asks for them.
struct Codes {
  const float* row;
  int64_t dim;
  const float* scales;
  float operator()(int64_t j, int i) const { return row[j * dim + i]; }
  float scale(int64_t j) const { return scales[j]; }
};

template <Rounding R>
Result by_spec_of_codes(const Stored& s, const Mask& mask) {
  const Problem& p = s.numbers;
  Result result(p);
  const auto factor = static_cast<float>(p.scale * math::kLog2e), cap = static_cast<float>(p.softcap * math::kLog2e);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.num_q_heads; ++h)
      for (int64_t i = 0; i < p.q_len; ++i) {
        const int64_t row = (b * p.num_q_heads + h) * p.q_len + i, g = h / p.group();
        const int64_t first = (b * p.num_kv_heads + g) * p.kv_len;
        result.lse[static_cast<size_t>(row)] = kernels::reference::attention_row_spec<R>(
            p.query(b, h, i), static_cast<int>(p.d), static_cast<int>(p.dv), 0, p.kv_len, factor, cap,
            Codes{p.key(b, g, 0), p.d, s.k_scales.data() + first},
            Codes{p.value(b, g, 0), p.dv, s.v_scales.data() + first},
            [&](int64_t j) { return mask.allowed(b, h, p.q_begin + i, j); }, result.out.data() + row * p.dv);
      }
  return result;
}
Result definition(const Problem& p, DType type, const Mask& mask) {
  const Stored s(p, type);
  if (type != DType::kI8) return by_spec(s.numbers, mask);
  return kernels::kernels().isa == Isa::kBaseline ? by_spec_of_codes<Rounding::kSeparate>(s, mask)
                                                  : by_spec_of_codes<Rounding::kFused>(s, mask);
}

Problem problem(int64_t kv_heads, int64_t group, int64_t d, int64_t dv, int64_t length, double softcap = 0) {
  Problem p;
  p.num_kv_heads = kv_heads, p.num_q_heads = kv_heads * group, p.d = d, p.dv = dv, p.q_len = p.kv_len = length;
  p.softcap = softcap;
  return p.fill(static_cast<uint64_t>(7 * d + dv + group));
}

TEST(CacheTypes, NumbersAreRoundedAsPromised) {
  for (DType type : kTypes) {
    for (const auto& [d, dv] : {std::pair{1, 1}, std::pair{33, 7}, std::pair{64, 48}, std::pair{40, 80}}) {
      const KvGeometry g = geometry(3, d, dv, type);
      Tokens tokens(1, 300, g), want = tokens;
      for (size_t i = 0; i < tokens.k.size(); ++i)
        tokens.k[i] *= std::exp2(static_cast<float>(i % 30) - 18);  // f16's denormals too
      for (auto [given, stored, dim] : {std::tuple{&tokens.k, &want.k, d}, std::tuple{&tokens.v, &want.v, dv}}) {
        std::vector<float> codes = *given, scales;
        if (type == DType::kI8) Stored::encode(codes, dim, scales);
        for (size_t i = 0; i < given->size(); ++i) {
          (*stored)[i] =
              type == DType::kI8 ? codes[i] * scales[i / static_cast<size_t>(dim)] : nearest((*given)[i], type);
          if (type != DType::kI8) continue;
          ASSERT_LE(std::fabs((*stored)[i] - (*given)[i]), 0.5001f * scales[i / static_cast<size_t>(dim)]);
        }
      }
      for (const CacheKind& kind : {contiguous_kind(), paged_kind(16), paged_kind(64), ring_kind(512)}) {
        const auto cache = kind.make(g, 300, Mask::causal());
        for (int at = 0; at < 300; at += 23) cache->append(tokens.rows(at), std::min(23, 300 - at));
        expect_holds(*cache, want, 0, 300);
        EXPECT_TRUE(std::isnan(key_at(cache->view(), 300, 0, 0))) << kind.name << " " << name_of(type);
        EXPECT_TRUE(std::isnan(value_at(cache->view(), 303, 2, 0)));
      }
    }
    EXPECT_EQ(geometry(1, 64, 64, type).tile_bytes(), type == DType::kI8 ? 256 * (64 + 4) * 2 : 256 * 64 * 2 * 2)
        << name_of(type);
  }
}

TEST(CacheTypes, EqualTheScalarDefinition) {
  const Mask masks[] = {Mask::causal(), Mask::causal() & Mask::window(70, 0),
                        Mask::parse("causal & (dilated(3) | prefix(7))")};
  ThreadPool pool(2);
  size_t turn = 0;
  for (DType type : kTypes)
    for (const auto& [d, dv] :
         {std::pair{1, 1}, std::pair{8, 8}, std::pair{33, 33}, std::pair{40, 24}, std::pair{64, 64}, std::pair{72, 80},
          std::pair{96, 112}, std::pair{128, 128}, std::pair{80, 208}})
      for (int64_t group : {1, 2, 3, 5, 8}) {
        const Problem p = problem(1, group, d, dv, 270, group == 3 ? 5 : 0);
        const Mask& mask = masks[turn++ % 3];
        const Result want = definition(p, type, mask);
        ASSERT_EQ(through_caches(p, mask, contiguous_kind(), 270, pool, 0, type), want)
            << name_of(type) << " d " << d << " dv " << dv << " group " << group << " " << mask.text();
        if (d != 64 && group != 1) continue;
        // Decode: one row, or one group of rows.
        ASSERT_EQ(through_caches(p, mask, paged_kind(64), 1, pool, 0, type), want) << name_of(type) << " d " << d;
      }
}

TEST(CacheTypes, AreWithinTheBoundOfTheRoundedNumbers) {
  ThreadPool pool(1);
  for (DType type : kTypes)
    for (const Mask& mask : {Mask::causal(), Mask::causal() & Mask::window(100, 0)}) {
      const Problem p = problem(2, 2, 64, 40, 520, 0);
      const Result got = through_caches(p, mask, contiguous_kind(), 520, pool, 0, type);
      expect_close(Stored(p, type).decoded(), mask, got, name_of(type));
    }
}

TEST(Promise4, EveryTypeOfCacheGivesTheSameBits) {
  constexpr int64_t kLength = 600;
  const Mask window = Mask::causal() & Mask::window(200, 0);
  int64_t compared = 0;
  for (DType type : kTypes)
    for (const auto& [kv_heads, group, d, dv] : {std::tuple{2, 1, 64, 64}, std::tuple{1, 4, 40, 24}}) {
      const Problem p = problem(kv_heads, group, d, dv, kLength);
      ThreadPool one(1);
      for (const Mask& mask : {window, Mask::causal()}) {
        const Result whole = through_caches(p, mask, contiguous_kind(), kLength, one, 0, type);
        std::vector<CacheKind> kinds = {contiguous_kind(), paged_kind(1), paged_kind(16), paged_kind(64),
                                        paged_kind(128)};
        if (mask == window) kinds.push_back(ring_kind(512));
        int turn = 0;
        for (const CacheKind& kind : kinds)
          for (int64_t chunk : {64, 7, 1, 200})
            for (int threads : {1, 2, 3, 8}) {
              if (turn++ % (chunk < 64 ? 5 : 2) != 0) continue;
              ThreadPool pool(threads);
              ASSERT_EQ(through_caches(p, mask, kind, chunk, pool, chunk == 200 ? NAN : 0, type), whole)
                  << name_of(type) << ", " << kind.name << ", " << mask.text() << ", threads " << threads << ", chunk "
                  << chunk;
              compared += p.num_q_heads * p.q_len;
            }
      }
    }
  std::printf(
      "compared on bits, %s kernels: %lld rows of caches in f16, bf16 and i8 of every kind x chunks 1, 7, 64, 200 "
      "x threads 1, 2, 3, 8\n",
      std::string(isa_name(kernels::kernels().isa)).c_str(), static_cast<long long>(compared));
}

TEST(Promise2, MaskedTokensOfEveryTypeCannotMatter) {
  ThreadPool pool(2);
  for (DType type : kTypes)
    for (const Mask& mask : {Mask::causal() & Mask::window(30, 0), Mask::parse("causal & ~dilated(3)")}) {
      const Problem p = problem(1, 2, 33, 17, 300);
      const Result clean = through_caches(p, mask, contiguous_kind(), 100, pool, 0, type);
      for (int64_t i : {0, 50, 255, 256, 299})
        for (float with : {NAN, INFINITY, -INFINITY}) {
          Problem dirty = p;
          for (int64_t j = 0; j < p.kv_len; ++j)
            if (!mask.allowed(0, 0, i, j)) {
              std::fill_n(dirty.key(0, 0, j), p.d, with);
              std::fill_n(dirty.value(0, 0, j), p.dv, with);
            }
          const Result got = through_caches(dirty, mask, contiguous_kind(), 100, pool, 0, type);
          for (int64_t h = 0; h < 2; ++h)
            ASSERT_TRUE(same_bits(got.out.data() + (h * 300 + i) * p.dv, clean.out.data() + (h * 300 + i) * p.dv, p.dv))
                << name_of(type) << " " << mask.text() << " row " << i;
        }
    }
}

TEST(CacheTypes, VisibleNanComesThroughAndZeroIsZero) {
  ThreadPool pool(1);
  for (DType type : kTypes) {
    Problem p = problem(1, 1, 8, 8, 40);
    p.key(0, 0, 20)[3] = NAN;
    const Result got = through_caches(p, Mask::causal(), contiguous_kind(), 40, pool, 0, type);
    for (int64_t i = 0; i < 40; ++i)
      for (int64_t c = 0; c < 8; ++c) EXPECT_EQ(std::isnan(got.out[static_cast<size_t>(i * 8 + c)]), i >= 20) << i;
    // Tokens of zeros, and of numbers too small for their scale: all scores are 0, all values too.
    for (float small : {0.0f, 1e-45f}) {
      std::fill(p.k.begin(), p.k.end(), small);
      std::fill(p.v.begin(), p.v.end(), small);
      const Result zero = through_caches(p, Mask::causal(), contiguous_kind(), 40, pool, 0, type);
      for (int64_t i = 0; i < 40; ++i) {
        EXPECT_NEAR(zero.lse[static_cast<size_t>(i)], std::log(static_cast<double>(i + 1)), 1e-5);
        EXPECT_EQ(zero.out[static_cast<size_t>(i * 8)], 0.0f);
      }
    }
  }
}

TEST(CacheTypes, WeightsAreThoseOfTheStoredKeys) {
  const Problem p = problem(1, 1, 40, 8, 256);
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    const Problem stored = type == DType::kF32 ? p : Stored(p, type).decoded();
    KvCache cache({.geometry = geometry_of(p, type)});
    cache.append(rows_of(p, 0, 0), 256);
    const KvView view = cache.view();
    std::vector<float> q(40), scores(6 * 256), out(256);
    const auto factor = static_cast<float>(p.scale * math::kLog2e);
    for (size_t i = 0; i < 40; ++i) q[i] = p.q[i] * factor;
    kernels::AttentionTile tile{};
    tile.q = q.data(), tile.rows = 1, tile.head_dim = 40, tile.value_dim = 16, tile.scores = scores.data();
    tile.type = type;
    for (int w = 0; w < 4; ++w) tile.k[w] = view.keys(0, w, 0), tile.scales[w] = view.scales(0, w, 0);
    std::vector<double> s(256);
    double sum = 0;
    for (int64_t j = 0; j < 256; ++j) {
      for (int64_t i = 0; i < 40; ++i)
        s[static_cast<size_t>(j)] +=
            static_cast<double>(p.q[static_cast<size_t>(i)]) * stored.key(0, 0, j)[i] * p.scale;
      sum += std::exp(s[static_cast<size_t>(j)]);
    }
    const double lse2 = std::log2(sum);
    const auto high = static_cast<float>(lse2), low = static_cast<float>(lse2 - static_cast<double>(high));
    kernels::kernels().attention->weights(tile, &high, &low, out.data());
    for (size_t j = 0; j < 256; ++j)
      ASSERT_NEAR(out[j], std::exp(s[j]) / sum, 2e-6 * std::exp(s[j]) / sum) << name_of(type) << " " << j;
  }
}

TEST(CacheTypes, ThePublicCachesTakeThem) {
  const Problem p = problem(2, 2, 40, 24, 300);
  for (DType type : kTypes) {
    const CacheShape shape{.num_kv_heads = 2, .head_dim = 40, .value_dim = 24, .type = type};
    std::vector<AttentionCache> caches;
    caches.push_back(AttentionCache::contiguous(shape));
    caches.push_back(CachePool(shape, 64).cache());
    for (AttentionCache& cache : caches) {
      EXPECT_EQ(cache.shape().type, type);
      cache.append(TensorView<const float>(p.k.data(), {2, 300, 40}),
                   TensorView<const float>(p.v.data(), {2, 300, 24}));
      Result got(p);
      cache.attend(TensorView<const float>(p.q.data(), {4, 300, 40}), 0, Mask::causal(), {.scale = p.scale},
                   {got.out.data(), {4, 300, 24}}, {got.lse.data(), {4, 300}});
      EXPECT_EQ(got, definition(p, type, Mask::causal())) << name_of(type);
    }
  }
}

}  // namespace
}  // namespace regard
