// Caches of i8 with a scale for each block of a row: the numbers that are stored are code * scale, rounded to f32, and
// attention has the bits of the scalar definition in f32 over these numbers.
#include <gtest/gtest.h>

#include "attention/calls.h"
#include "attention/through_caches.h"
#include "regard/kv_cache.h"

namespace regard {
namespace {

using namespace testing_attention;

// What a cache with blocks holds of rows of `dim` numbers.
std::vector<float> stored(std::vector<float> x, int64_t dim, int64_t block) {
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(dim))
    for (int64_t first = 0; first < dim; first += block) {
      float* numbers = &x[row + static_cast<size_t>(first)];
      const int64_t n = std::min(block, dim - first);
      float most = 0;
      for (int64_t i = 0; i < n; ++i) most = std::max(most, std::fabs(numbers[i]));
      const float scale = most / 127;
      for (int64_t i = 0; i < n; ++i) numbers[i] = std::nearbyint(numbers[i] / scale) * scale;
    }
  return x;
}
Problem stored(Problem p, int64_t block) {
  p.k = stored(p.k, p.d, block);
  p.v = stored(p.v, p.dv, block);
  return p;
}

Problem problem(int64_t kv_heads, int64_t group, int64_t d, int64_t dv, int64_t length, double softcap = 0) {
  Problem p;
  p.num_kv_heads = kv_heads, p.num_q_heads = kv_heads * group, p.d = d, p.dv = dv, p.q_len = p.kv_len = length;
  p.softcap = softcap;
  p.fill(static_cast<uint64_t>(5 * d + dv + group));
  // Blocks of different sizes: a scale that is taken from a neighbour shows.
  for (size_t i = 0; i < p.k.size(); ++i) p.k[i] *= std::exp2(-static_cast<float>(i % static_cast<size_t>(d) / 16 % 3));
  for (size_t i = 0; i < p.v.size(); ++i) p.v[i] *= std::exp2(static_cast<float>(i % static_cast<size_t>(dv) / 16 % 4));
  return p;
}

Result through(const Problem& p, const Mask& mask, const CacheKind& kind, int64_t chunk, ThreadPool& pool, int block,
               float poisoned = 0) {
  return through_caches(p, mask, kind, chunk, pool, poisoned, DType::kI8, block);
}

TEST(CacheBlocks, NumbersAreRoundedAsPromised) {
  for (const int block : {16, 32, 64, 128})
    for (const auto& [d, dv] : {std::pair{1, 33}, std::pair{64, 48}, std::pair{80, 128}, std::pair{200, 7}}) {
      const KvGeometry g = geometry(3, d, dv, DType::kI8, block);
      Tokens tokens(1, 300, g), want = tokens;
      want.k = stored(tokens.k, d, block);
      want.v = stored(tokens.v, dv, block);
      for (const CacheKind& kind : {contiguous_kind(), paged_kind(16), paged_kind(64), ring_kind(512)}) {
        const auto cache = kind.make(g, 300, Mask::causal());
        for (int at = 0; at < 300; at += 23) cache->append(tokens.rows(at), std::min(23, 300 - at));
        expect_holds(*cache, want, 0, 300);
        // Slots that were never written are NaN, in every block.
        for (const int i : {0, d - 1}) EXPECT_TRUE(std::isnan(key_at(cache->view(), 300, 1, i))) << kind.name;
        for (const int c : {0, dv - 1}) EXPECT_TRUE(std::isnan(value_at(cache->view(), 303, 2, c))) << kind.name;
      }
    }
  EXPECT_EQ(geometry(1, 64, 96, DType::kI8, 32).tile_bytes(), 256 * (64 + 96 + 4 * (2 + 3)));
}

TEST(CacheBlocks, EqualTheScalarDefinitionOverTheStoredNumbers) {
  const Mask masks[] = {Mask::causal(), Mask::causal() & Mask::window(70, 0),
                        Mask::parse("causal & (dilated(3) | prefix(7))")};
  ThreadPool pool(2);
  size_t turn = 0;
  for (const auto& [d, dv] : {std::pair{1, 1}, std::pair{33, 33}, std::pair{40, 24}, std::pair{64, 64}, std::pair{72, 80},
                              std::pair{128, 128}, std::pair{80, 208}})
    for (const int64_t group : {1, 2, 3, 5, 8}) {
      const Problem p = problem(1, group, d, dv, 270, group == 3 ? 5 : 0);
      const Mask& mask = masks[turn++ % 3];
      for (const int block : {16 << (turn % 2), 64 << (turn % 2)}) {
        const Result want = by_spec(stored(p, block), mask);
        ASSERT_EQ(through(p, mask, contiguous_kind(), 270, pool, block), want)
            << "block " << block << " d " << d << " dv " << dv << " group " << group << " " << mask.text();
        if (d != 64 && group != 1) continue;
        ASSERT_EQ(through(p, mask, paged_kind(64), 1, pool, block), want) << "decode, block " << block << " d " << d;
      }
    }
}

TEST(CacheBlocks, AWholeRowInOneBlockIsStoredAsWithAScaleForTheToken) {
  const Problem p = problem(2, 1, 32, 20, 100);
  KvCache with({.geometry = geometry_of(p, DType::kI8, 32)}), without({.geometry = geometry_of(p, DType::kI8)});
  for (KvCache* cache : {&with, &without}) cache->append(rows_of(p, 0, 0), 100);
  for (int64_t t = 0; t < 100; ++t)
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(key_at(with.view(), t, 1, i), key_at(without.view(), t, 1, i));
      ASSERT_EQ(value_at(with.view(), t, 1, i), value_at(without.view(), t, 1, i));
    }
}

TEST(Promise4, BlocksOfScalesGiveTheSameBitsInEveryCache) {
  constexpr int64_t kLength = 600;
  const Mask window = Mask::causal() & Mask::window(200, 0);
  const Problem p = problem(2, 2, 72, 40, kLength);
  ThreadPool one(1);
  for (const Mask& mask : {window, Mask::causal()}) {
    const Result whole = through(p, mask, contiguous_kind(), kLength, one, 32);
    ASSERT_EQ(whole, by_spec(stored(p, 32), mask));
    std::vector<CacheKind> kinds = {contiguous_kind(), paged_kind(1), paged_kind(16), paged_kind(64), paged_kind(128)};
    if (mask == window) kinds.push_back(ring_kind(512));
    int turn = 0;
    for (const CacheKind& kind : kinds)
      for (const int64_t chunk : {64, 7, 1, 200})
        for (const int threads : {1, 2, 3, 8}) {
          if (turn++ % (chunk < 64 ? 5 : 2) != 0) continue;
          ThreadPool pool(threads);
          ASSERT_EQ(through(p, mask, kind, chunk, pool, 32, chunk == 200 ? NAN : 0), whole)
              << kind.name << ", " << mask.text() << ", threads " << threads << ", chunk " << chunk;
        }
  }
}

TEST(Promise2, MaskedTokensInBlocksCannotMatter) {
  ThreadPool pool(2);
  for (const Mask& mask : {Mask::causal() & Mask::window(30, 0), Mask::parse("causal & ~dilated(3)")}) {
    const Problem p = problem(1, 2, 33, 50, 300);
    const Result clean = through(p, mask, contiguous_kind(), 100, pool, 16);
    for (const int64_t i : {0, 50, 255, 256, 299})
      for (const float with : {NAN, INFINITY}) {
        Problem dirty = p;
        for (int64_t j = 0; j < p.kv_len; ++j)
          if (!mask.allowed(0, 0, i, j)) dirty.key(0, 0, j)[j % 33] = dirty.value(0, 0, j)[j % 50] = with;
        const Result got = through(dirty, mask, contiguous_kind(), 100, pool, 16);
        for (int64_t h = 0; h < 2; ++h)
          ASSERT_TRUE(same_bits(&got.out[static_cast<size_t>((h * 300 + i) * 50)],
                                &clean.out[static_cast<size_t>((h * 300 + i) * 50)], 50))
              << mask.text() << " row " << i;
      }
  }
}

TEST(CacheBlocks, ANanStaysInItsBlock) {
  ThreadPool pool(1);
  Problem p = problem(1, 1, 32, 50, 40);
  const Result clean = through(p, Mask::causal(), contiguous_kind(), 40, pool, 16);
  p.value(0, 0, 20)[17] = NAN;  // columns 16 to 31
  const Result got = through(p, Mask::causal(), contiguous_kind(), 40, pool, 16);
  for (int64_t i = 0; i < 40; ++i)
    for (int64_t c = 0; c < 50; ++c) {
      const auto at = static_cast<size_t>(i * 50 + c);
      if (i >= 20 && c >= 16 && c < 32)
        ASSERT_TRUE(std::isnan(got.out[at])) << i << " " << c;
      else
        ASSERT_EQ(bits(got.out[at]), bits(clean.out[at])) << i << " " << c;
    }
}

// What they are for: one large number in a row coarsens its block alone.
TEST(CacheBlocks, AnOutlierCoarsensItsBlockAlone) {
  ThreadPool pool(1);
  Problem p = problem(1, 1, 64, 64, 200);
  for (int64_t j = 0; j < 200; ++j) p.value(0, 0, j)[3] = 2000;
  const Result exact = through_caches(p, Mask::causal(), contiguous_kind(), 200, pool);
  const auto error = [&](int block) {
    const Result got = through(p, Mask::causal(), contiguous_kind(), 200, pool, block);
    double sum = 0;
    for (size_t i = 0; i < got.out.size(); ++i)
      if (i % 64 >= 32) sum += std::pow(static_cast<double>(got.out[i]) - static_cast<double>(exact.out[i]), 2);
    return std::sqrt(sum);
  };
  EXPECT_LT(error(32), error(0) / 4);
}

TEST(CacheBlocks, ThePublicCachesTakeThem) {
  const Problem p = problem(2, 2, 40, 24, 300);
  const CacheShape shape{.num_kv_heads = 2, .head_dim = 40, .value_dim = 24, .type = DType::kI8, .scale_block = 32};
  std::vector<AttentionCache> caches;
  caches.push_back(AttentionCache::contiguous(shape));
  caches.push_back(AttentionCache::ring(shape, Mask::window(400, 0), 512));
  caches.push_back(CachePool(shape, 64).cache());
  const Result want = by_spec(stored(p, 32), Mask::causal());
  for (size_t i = 0; i < caches.size(); ++i) {
    AttentionCache& cache = caches[i];
    EXPECT_EQ(cache.shape().scale_block, 32);
    cache.append(TensorView<const float>(p.k.data(), {2, 300, 40}), TensorView<const float>(p.v.data(), {2, 300, 24}));
    const Mask mask = i == 1 ? Mask::causal() & Mask::window(400, 0) : Mask::causal();
    Result got(p);
    cache.attend(TensorView<const float>(p.q.data(), {4, 300, 40}), 0, mask, {.scale = p.scale},
                 {got.out.data(), {4, 300, 24}}, {got.lse.data(), {4, 300}});
    EXPECT_EQ(got, want) << i;
  }
  const auto refused = [&](DType type, int64_t block, const char* word) {
    expect_refused(Code::kInvalidArgument, {"scale_block", word}, [&] {
      AttentionCache::contiguous({.head_dim = 40, .type = type, .scale_block = block});
    });
  };
  refused(DType::kI8, 48, "48");
  refused(DType::kI8, 8, "8");
  refused(DType::kI8, -32, "-32");
  refused(DType::kI8, 1024, "1024");
  refused(DType::kF16, 32, "f16");
}

TEST(CacheBlocks, WeightsAreThoseOfTheStoredKeys) {
  const Problem p = problem(1, 1, 40, 8, 256);
  const Problem numbers = stored(p, 16);
  KvCache cache({.geometry = geometry_of(p, DType::kI8, 16)});
  cache.append(rows_of(p, 0, 0), 256);
  const KvView view = cache.view();
  std::vector<float> q(40), scores(6 * 256), out(256);
  const auto factor = static_cast<float>(p.scale * math::kLog2e);
  for (size_t i = 0; i < 40; ++i) q[i] = p.q[i] * factor;
  kernels::AttentionTile tile{};
  tile.q = q.data(), tile.rows = 1, tile.head_dim = 40, tile.value_dim = 16, tile.scores = scores.data();
  tile.type = DType::kI8, tile.scale_block = 16;
  for (int w = 0; w < 4; ++w) tile.k[w] = view.keys(0, w, 0), tile.scales[w] = view.scales(0, w, 0);
  std::vector<double> s(256);
  double sum = 0;
  for (int64_t j = 0; j < 256; ++j) {
    double& score = s[static_cast<size_t>(j)];
    for (int64_t i = 0; i < 40; ++i)
      score += static_cast<double>(p.q[static_cast<size_t>(i)]) * numbers.key(0, 0, j)[i] * p.scale;
    sum += std::exp(score);
  }
  const double lse2 = std::log2(sum);
  const auto high = static_cast<float>(lse2), low = static_cast<float>(lse2 - static_cast<double>(high));
  kernels::kernels().attention->weights(tile, &high, &low, out.data());
  for (size_t j = 0; j < 256; ++j) ASSERT_NEAR(out[j], std::exp(s[j]) / sum, 2e-6 * std::exp(s[j]) / sum) << j;
}

}  // namespace
}  // namespace regard
