// Attention on bf16 dot products against its scalar definition, on bits; and that this instruction set is avx512 in all
// else. Skipped where the instruction set in use has no bf16 dot products.
#include "kernels/attention_bf16.h"

#include <gtest/gtest.h>

#include "kernels/attention_problems.h"
#include "kernels/masked_data.h"
#include "kernels/reference/spec_bf16.h"
#include "kernels/registry.h"

namespace regard::kernels {
namespace {

using namespace testing_kernels;

TEST(AttentionBf16InstructionSet, IsAvx512InAllElse) {
  if (!cpu_supports(Isa::kAvx512Bf16)) GTEST_SKIP() << "this machine has no avx512_bf16";
  const KernelSet &bf16 = kernel_set(Isa::kAvx512Bf16), &f32 = kernel_set(Isa::kAvx512);
  EXPECT_EQ(bf16.elementwise, f32.elementwise);
  EXPECT_EQ(bf16.linear, f32.linear);
  EXPECT_EQ(bf16.attention, f32.attention);
  EXPECT_EQ(bf16.attention_backward, f32.attention_backward);
  EXPECT_EQ(bf16.gemm, f32.gemm);
  EXPECT_EQ(bf16.training, f32.training);
  EXPECT_NE(bf16.attention_bf16, nullptr);
  EXPECT_EQ(f32.attention_bf16, nullptr);
}

class AttentionBf16 : public testing::Test {
 protected:
  void SetUp() override {
    if (kernels().attention_bf16 == nullptr) GTEST_SKIP() << isa_name(kernels().isa) << " has no bf16 dot products";
  }
};

Result by_spec(const Problem& p, const Sees& sees) {
  Result result{std::vector<float>(static_cast<size_t>(p.rows * p.dv)), {}};
  for (int r = 0; r < p.rows; ++r)
    result.lse.push_back(reference::attention_row_spec_bf16(
        &p.q[static_cast<size_t>(r * p.d)], p.d, p.dv, 0, p.kv_len, p.factor, p.softcap,
        [&](int64_t j, int i) { return p.key(j, i); }, [&](int64_t j, int c) { return p.value(j, c); },
        [&](int64_t j) { return sees(r, static_cast<int>(j)); }, &result.out[static_cast<size_t>(r * p.dv)],
        RowTerms(p, r)));
  return result;
}

// Keys and values as the kernel wants them; slots that were not written are NaN.
struct Packed {
  int tiles, key_dwords, value_dwords;  // of a panel and of a block
  AlignedBuffer<uint32_t> k, v;
  explicit Packed(const Problem& p)
      : tiles((p.kv_len + kTileKeys - 1) / kTileKeys),
        key_dwords(kPanelKeys * pairs(p.d)),
        value_dwords(pairs(kPanelKeys) * padded_dim(p.dv)),
        k(static_cast<size_t>(tiles * kPanelsPerTile * key_dwords)),
        v(static_cast<size_t>(tiles * kPanelsPerTile * value_dwords)) {
    for (uint32_t& x : k) x = ~0u;
    for (uint32_t& x : v) x = ~0u;
    for (int j = 0; j < p.kv_len;) {  // uneven portions: pairs are written whole and by halves
      const int n = std::min({p.kv_len - j, kPanelKeys - j % kPanelKeys, j % 3 == 0 ? 64 : 7});
      const int block = j / kPanelKeys, column = j % kPanelKeys;
      kernels().attention_bf16->pack_keys(&p.k[static_cast<size_t>(j * p.d)], p.d, n, p.d, k.data() + block * key_dwords,
                                          column);
      kernels().attention_bf16->pack_values(&p.v[static_cast<size_t>(j * p.dv)], p.dv, n, p.dv,
                                            v.data() + block * value_dwords, column);
      j += n;
    }
  }
};

enum class Split { kNone, kByTile };

Result by_kernel(const Problem& p, const NamedMask& mask, int block_rows, Split split = Split::kNone) {
  const AttentionKernels& f32 = *kernels().attention;
  const AttentionBf16Kernels& kernel = *kernels().attention_bf16;
  const Packed packed(p);
  const int dv = padded_dim(p.dv);
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
    AlignedBuffer<float> scores(kMaxMicroRows * kTileKeys);
    AlignedBuffer<uint32_t> q_pairs(static_cast<size_t>(rows * pairs(p.d))), weights(kMaxMicroRows * pairs(kTileKeys));
    for (uint32_t& x : weights) x = ~0u;
    AlignedBuffer<float> o(static_cast<size_t>(rows * dv)), m(static_cast<size_t>(rows + kLanes)),
        l(static_cast<size_t>(rows + kLanes));
    AlignedBuffer<float> o2(o.size()), m2(m.size()), l2(l.size());
    const AttentionState state{o.data(), m.data(), l.data()}, part{o2.data(), m2.data(), l2.data()};
    kernel.pack_queries(q.data(), rows, p.d, q_pairs.data());
    f32.reset(state, rows, dv);
    for (int t = 0; t < packed.tiles; ++t) {
      AttentionTile tile{};
      tile.rows = rows;
      tile.head_dim = p.d;
      tile.value_dim = dv;
      tile.softcap = p.softcap;
      for (int w = 0; w < kPanelsPerTile; ++w) {
        tile.k[w] = packed.k.data() + (t * kPanelsPerTile + w) * packed.key_dwords;
        tile.v[w] = packed.v.data() + (t * kPanelsPerTile + w) * packed.value_dwords;
      }
      const TileRows seen(p, mask, t, first, rows);
      seen.tell(tile);
      tile.scores = scores.data();
      if (split == Split::kByTile) f32.reset(part, rows, dv);
      kernel.tile(tile, {q_pairs.data(), p.factor, weights.data()}, split == Split::kByTile ? part : state);
      if (split == Split::kByTile) f32.fold(state, part, rows, dv);
    }
    if (!p.sinks.empty()) f32.fold_sink(state, &p.sinks[static_cast<size_t>(first)], rows, dv);
    f32.finish(state, rows, p.dv, out.data(), &result.lse[static_cast<size_t>(first)]);
  }
  return result;
}

TEST_F(AttentionBf16, EqualsTheScalarDefinition) {
  size_t turn = 0;
  for (const auto& [d, dv] : {std::pair{1, 1}, std::pair{8, 8}, std::pair{33, 33}, std::pair{64, 64}, std::pair{80, 80},
                              std::pair{128, 128}, std::pair{24, 7}, std::pair{5, 200}, std::pair{512, 40}})
    for (int kv_len : kLengths) {
      const int rows = std::min(std::max(kv_len, 1), 13);
      const Problem p = make(d, dv, kv_len, rows);
      const std::vector<NamedMask> all = masks(rows, kv_len);
      for (int n = 0; n < 2; ++n, ++turn) {  // two masks in turn for each length
        const NamedMask& mask = all[turn % all.size()];
        const Result want = by_spec(p, mask.sees);
        for (int block : {1, 2, 3, 4, 5, 6, 13})
          ASSERT_EQ(by_kernel(p, mask, block), want)
              << mask.name << " d " << d << " dv " << dv << " kv_len " << kv_len << " block " << block;
        ASSERT_EQ(by_kernel(p, mask, 4, Split::kByTile), want) << mask.name << " tile by tile, kv_len " << kv_len;
      }
    }
}

TEST_F(AttentionBf16, EveryMaskAtEveryLength) {
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

TEST_F(AttentionBf16, ScoreTermsComeInTheirOrder) {
  for (float cap : {0.0f, 0.3f, 50.0f})
    for (int kv_len : {1, 17, 300, 513}) {
      Problem p = make(40, 24, kv_len, std::min(kv_len, 9), 3.0f);
      p.softcap = cap;
      p.bias = gaussians(5, p.rows * kv_len, 1.0f);
      for (int i = 3; i < p.rows * kv_len; i += 7) p.bias[static_cast<size_t>(i)] = -INFINITY;
      p.drops = true;
      p.sinks.assign(static_cast<size_t>(p.rows), 0.25f);
      for (const NamedMask& mask : masks(p.rows, kv_len)) {
        Result want = by_spec(p, mask.sees);
        const Result got = by_kernel(p, mask, 9);
        for (size_t r = 0; r < want.lse.size(); ++r)  // the sink's own logit is the caller's to put in
          if (want.lse[r] == 0.25f) want.lse[r] = got.lse[r];
        ASSERT_EQ(got, want) << mask.name << " cap " << cap << " kv_len " << kv_len;
        ASSERT_EQ(by_kernel(p, mask, 4, Split::kByTile), got) << mask.name << " cap " << cap << " kv_len " << kv_len;
      }
    }
}

// 1e-20 makes the products of queries and keys small enough to meet the end of the range: the instruction takes what is
// below for 0, coming in and going out. 1e38: scores overflow.
TEST_F(AttentionBf16, ExtremeNumbers) {
  for (float spread : {0.0f, 1e-42f, 1e-38f, 1e-20f, 30.0f, 1e4f, 1e38f})
    for (float keys : {1.0f, 1e-18f, 1e-38f}) {
      Problem p = make(33, 20, 600, 10, spread);
      for (float& x : p.k) x *= keys;
      for (float& x : p.v) x *= keys;
      for (const NamedMask& mask : masks(p.rows, p.kv_len))
        ASSERT_EQ(by_kernel(p, mask, 10), by_spec(p, mask.sees)) << mask.name << " spread " << spread << " keys " << keys;
    }
}

// One key and one query: lse is the sum of their products. Magnitudes are chosen so that sums fall around the smallest normal
// number, from both sides.
TEST_F(AttentionBf16, SumsAtTheEndOfTheRange) {
  const NamedMask all{"full", [](int, int) { return true; }, NamedMask::kIntervals};
  int small = 0;
  for (int n = 0; n < 4000; ++n) {
    Problem p = make(2, 1, 1, 1);
    p.factor = 0x1p100f;
    const auto pick = [&](uint64_t stream, int from, int to) {
      const double u = random_uniform(3, stream, static_cast<uint64_t>(n));
      return static_cast<int>(std::floor(from + u * (to - from + 1)));
    };
    const auto number = [&](uint64_t stream, int exponent) {
      const int mantissa = pick(stream, 0, 2) == 0 ? pick(stream + 1, 0, 127) : 127 * pick(stream + 1, 0, 1);
      return static_cast<float>(std::ldexp(pick(stream + 2, 0, 1) == 0 ? 128 + mantissa : -128 - mantissa, exponent - 7));
    };
    const int first = pick(40, -90, -40), second = pick(41, -90, -40);
    p.q = {number(50, first), number(60, second)};
    p.k = {number(70, -126 - first - pick(42, 0, 26)), number(80, -126 - second - pick(43, -2, 2))};
    const Result want = by_spec(p, all.sees);
    ASSERT_EQ(by_kernel(p, all, 1), want) << p.q[0] << " " << p.k[0] << " " << p.q[1] << " " << p.k[1];
    small += want.lse[0] == 0.0f ? 1 : 0;
  }
  EXPECT_GT(small, 200) << "sums that are taken for 0";
  EXPECT_LT(small, 3800) << "and sums that are not";
}

Result by_blocks(const Problem& p, const NamedMask& mask) { return by_kernel(p, mask, 14); }

TEST_F(AttentionBf16, ForbiddenKeysAndValuesCannotMatter) { expect_forbidden_data_cannot_matter(by_blocks); }

TEST_F(AttentionBf16, VisibleNanComesThrough) { expect_visible_nan_comes_through(by_blocks); }

}  // namespace
}  // namespace regard::kernels
