// Public bug reports about attention libraries, each as a named test with the case and the right value. They are
// numbered 1 to 51; the numbers that are missing here are about gradients, biases, sinks, positions and parsers and
// stand with those. Cases 1 to 25 are in rows_and_masks_test.cc.
#include <gtest/gtest.h>

#include <array>

#include "attention/merge.h"
#include "attention/probe.h"
#include "regard/error.h"

namespace regard {
namespace {

using namespace testing_attention;

TEST(BugCase26, SlotsOfARingCarryTheirPositions) {
  const Mask mask = Mask::window(3, 0);
  EXPECT_EQ(seen(mask, 6), (Sets{{0}, {0, 1}, {0, 1, 2}, range(0, 4), range(1, 5), range(2, 6)}));
  const std::vector<int64_t> slots = {4, 5, 6, 3};  // positions 4, 5, 2, 3 after the call; 6 overwrites 2
  AttentionOptions o;
  o.q_begin = {6};
  o.k_positions = TensorView<const int64_t>(slots.data(), {4});
  EXPECT_EQ(seen(mask, 1, 4, o), (Sets{{0, 1, 2, 3}}));
  o.q_begin = {5};
  EXPECT_EQ(seen(mask, 1, 4, o), (Sets{{0, 1, 3}})) << "position 6 is not seen from 5";
}

TEST(BugCase27, ChunksHaveAWindowForEachRow) {
  for (int64_t chunk : {1, 2, 3, 4})
    EXPECT_EQ(seen_through_cache(Mask::window(1, 0), 4, chunk), (Sets{{0}, {0, 1}, {1, 2}, {2, 3}}));
}

TEST(BugCase28, CellsOfOtherSequencesAreNotCounted) {
  const std::vector<int64_t> cells = {0, -1, 1, -1, 2, -1, 3, -1};  // A0, B0, A1, B1, ... as sequence A has them
  AttentionOptions o;
  o.q_begin = {3};
  o.k_positions = TensorView<const int64_t>(cells.data(), {8});
  EXPECT_EQ(seen(Mask::window(2, 0), 1, 8, o), (Sets{{2, 4, 6}}));
}

TEST(BugCase29, OrderOfAndAndOr) {
  const Mask image = Mask::documents({0, 1, 1, 1, 1, 2}) & ~Mask::prefix(1) & keys_below(5), near = Mask::window(1, 1),
             causal = Mask::causal();
  EXPECT_EQ(seen((causal | image) & near, 6), (Sets{{0}, {0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4}, {4, 5}}));
  EXPECT_EQ(seen((causal & near) | image, 6), (Sets{{0}, range(0, 5), range(1, 5), range(1, 5), range(1, 5), {4, 5}}));
  EXPECT_EQ(seen(Mask::full() & keys_below(3), 4), (Sets{range(0, 3), range(0, 3), range(0, 3), range(0, 3)}));
  EXPECT_EQ(seen(Mask::full() | keys_below(3), 4), (Sets{range(0, 4), range(0, 4), range(0, 4), range(0, 4)}));
}

TEST(BugCase30, PrefixCountsItsKeys) {
  EXPECT_EQ(seen(Mask::causal() | Mask::prefix(3), 5),
            (Sets{range(0, 3), range(0, 3), range(0, 3), range(0, 4), range(0, 5)}));
  EXPECT_EQ(seen(Mask::causal() | Mask::prefix(0), 5), seen(Mask::causal(), 5));
  EXPECT_EQ(seen(Mask::causal() | Mask::prefix(1), 5), seen(Mask::causal(), 5));
  EXPECT_EQ(seen(Mask::causal() | Mask::prefix(5), 5), seen(Mask::full(), 5));
}

TEST(BugCase31, ChunksCountFromThePositionNotTheSlot) {
  const std::vector<int64_t> positions = {-1, 0, 1, 2, 3, 4};  // one pad on the left
  AttentionOptions o;
  o.q_positions = o.k_positions = TensorView<const int64_t>(positions.data(), {6});
  EXPECT_EQ(seen(Mask::causal() & Mask::chunk(3), 6, 6, o), (Sets{{}, {1}, {1, 2}, {1, 2, 3}, {4}, {4, 5}}));
}

TEST(BugCase32, ANeutralMaskIsNeutral) {
  const Sets want = {{0}, {0, 1}, {0, 1, 2}, {3}, {3, 4}};
  const Mask packed = Mask::causal() & Mask::documents({0, 0, 0, 1, 1});
  EXPECT_EQ(seen(packed, 5), want);
  EXPECT_EQ(seen(packed & keys_below(5), 5), want);
  AttentionOptions o = at(0);
  o.limits.documents = DocumentLimit{{0, 0, 0, 1, 1}, {0, 0, 0, 1, 1}};
  EXPECT_EQ(seen(Mask::causal(), 5, 5, o), want);
}

TEST(BugCase33, DocumentsAreIsolatedToTheBit) {
  const Mask mask = Mask::causal() & Mask::documents({0, 0, 1, 1, 1});
  EXPECT_EQ(seen(mask, 5), (Sets{{0}, {0, 1}, {2}, {2, 3}, {2, 3, 4}}));
  Problem p;
  p.q_len = p.kv_len = 5;
  p.fill(33);
  std::vector<float> clean(5 * 64), dirty(5 * 64);
  const auto run = [&](std::vector<float>& out) {
    attend(TensorView<const float>(p.q.data(), {1, 1, 5, 64}), TensorView<const float>(p.k.data(), {1, 1, 5, 64}),
           TensorView<const float>(p.v.data(), {1, 1, 5, 64}), mask, {}, {out.data(), {1, 1, 5, 64}});
  };
  run(clean);
  for (int i = 0; i < 2 * 64; ++i) p.k[static_cast<size_t>(i)] += 1, p.v[static_cast<size_t>(i)] = NAN;
  run(dirty);
  EXPECT_TRUE(same_bits(clean.data() + 2 * 64, dirty.data() + 2 * 64, 3 * 64));
  EXPECT_TRUE(std::isnan(dirty[0]));
}

TEST(BugCase34, RowsBehindTheLastSequence) {
  Problem p;
  p.q_len = p.kv_len = 8;
  p.fill(34);
  for (int64_t i = 5 * 64; i < 8 * 64; ++i)
    p.q[static_cast<size_t>(i)] = p.k[static_cast<size_t>(i)] = p.v[static_cast<size_t>(i)] = NAN;
  std::vector<float> out(8 * 64, NAN);
  AttentionOptions o = at(0);
  o.limits.key_lengths = {5};
  o.query_lengths = {5};
  attend(TensorView<const float>(p.q.data(), {1, 1, 8, 64}), TensorView<const float>(p.k.data(), {1, 1, 8, 64}),
         TensorView<const float>(p.v.data(), {1, 1, 8, 64}), Mask::documents({0, 0, 0, 1, 1, 2, 2, 2}), o,
         {out.data(), {1, 1, 8, 64}});
  for (int64_t i = 0; i < 8 * 64; ++i) {
    const float x = out[static_cast<size_t>(i)];
    if (i < 5 * 64)
      EXPECT_TRUE(std::isfinite(x));
    else
      EXPECT_EQ(bits(x), 0u);
  }
}

TEST(BugCase35, StridedIsLocalOrStride) {
  EXPECT_EQ(seen(Mask::causal() & Mask::dilated(2), 6), (Sets{{0}, {1}, {0, 2}, {1, 3}, {0, 2, 4}, {1, 3, 5}}));
  EXPECT_EQ(seen(Mask::parse("causal & (window(1, 0) | dilated(2))"), 6),
            (Sets{{0}, {0, 1}, {0, 1, 2}, {1, 2, 3}, {0, 2, 3, 4}, {1, 3, 4, 5}}));
  EXPECT_EQ(seen(Mask::parse("causal & (window(2, 0) | dilated(3))"), 1, 8, at(7)), (Sets{{1, 4, 5, 6, 7}}));
}

TEST(BugCase36, ATreeAcrossATileEdge) {
  for (int64_t base : {0, 3, 62, 253, 254, 255}) {
    const Mask mask = Mask::tree({base}, {-1, 0, 0, 1, 2});
    const Sets tree = {{0}, {0, 1}, {0, 2}, {0, 1, 3}, {0, 2, 4}};
    Sets want;
    for (const std::vector<int64_t>& nodes : tree) {
      want.push_back(range(0, base));
      for (int64_t node : nodes) want.back().push_back(base + node);
    }
    EXPECT_EQ(seen(mask, 5, base + 5, at(base)), want) << base;
  }
}

TEST(BugCase37, UnwrittenSlotsAreNotKeys) {
  const std::vector<int64_t> positions = {0, 1, 2, -1, -1, -1};
  Problem p;
  p.q_len = 1, p.kv_len = 6, p.d = 8, p.dv = 6;
  p.fill(37, 0);
  for (int64_t j = 0; j < 6; ++j)
    for (int64_t c = 0; c < 6; ++c) p.value(0, 0, j)[c] = j >= 3 ? NAN : j == c ? 1.0f : 0.0f;
  std::fill_n(p.key(0, 0, 3), 3 * 8, NAN);
  std::vector<float> out(6);
  AttentionOptions o;
  o.q_begin = {2};
  o.k_positions = TensorView<const int64_t>(positions.data(), {6});
  attend(TensorView<const float>(p.q.data(), {1, 1, 1, 8}), TensorView<const float>(p.k.data(), {1, 1, 6, 8}),
         TensorView<const float>(p.v.data(), {1, 1, 6, 6}), Mask::causal(), o, {out.data(), {1, 1, 1, 6}});
  EXPECT_EQ(out, (std::vector<float>{1.0f / 3, 1.0f / 3, 1.0f / 3, 0, 0, 0}));
}

TEST(BugCase42, ReorderedBeamsReadTheirOwnCache) {
  KvCacheOptions options;
  options.geometry = {.num_kv_heads = 1, .head_dim = 1, .value_dim = 1};
  ThreadPool pool(1);
  for (int64_t length : {3, 256, 300}) {
    std::vector<KvCache> beams;
    for (int b = 0; b < 2; ++b) {
      beams.emplace_back(options);
      const std::vector<float> rows(static_cast<size_t>(length), static_cast<float>(b));
      beams.back().append({.k = rows.data(),
                           .k_token_stride = 1,
                           .k_head_stride = 0,
                           .v = rows.data(),
                           .v_token_stride = 1,
                           .v_head_stride = 0},
                          length);
    }
    std::vector<KvCache> chosen;
    chosen.push_back(beams[1].fork());
    chosen.push_back(beams[1].fork());
    beams.clear();
    const MaskPlan plan(Mask::causal(), {}, 2, 1);
    AttentionWorkspace workspace;
    const AttentionShape shape{1, 1, 1, 1, 1, 0};
    const float q = 0;
    float out[2];
    const auto read = [&] {
      std::vector<SequenceQueries> s(2);
      for (size_t b = 0; b < 2; ++b) {
        s[b].q = &q, s[b].out = &out[b], s[b].tokens = 1, s[b].batch_row = static_cast<int64_t>(b);
        s[b].keys = chosen[b].view(), s[b].first_position = chosen[b].size() - 1;
      }
      attend_sequences(s, shape, plan, workspace, pool);
    };
    read();
    EXPECT_EQ(out[0], 1.0f);
    EXPECT_EQ(out[1], 1.0f);
    const float next[2] = {static_cast<float>(length) * 2 + 3, -1};
    for (size_t b = 0; b < 2; ++b)
      chosen[b].append(
          {.k = &q, .k_token_stride = 1, .k_head_stride = 0, .v = &next[b], .v_token_stride = 1, .v_head_stride = 0},
          1);
    read();
    EXPECT_FLOAT_EQ(out[0], 3.0f) << "(length + 2 length + 3) / (length + 1)";
    EXPECT_FLOAT_EQ(out[1], static_cast<float>(length - 1) / static_cast<float>(length + 1));
  }
}

TEST(BugCase43, SoftcapComesBeforeTheMask) {
  EXPECT_EQ(weights_of({0.0f, 0.0f}, Mask::prefix(1), 1.0), (std::vector<float>{1.0f, 0.0f}));
  EXPECT_EQ(weights_of({0.0f, 0.0f},
                       Mask::table("t", BitTable::from_array(
                                            Polarity::kKeep,
                                            TensorView<const uint8_t>(std::array<uint8_t, 2>{1, 0}.data(), {1, 2}))),
                       1.0),
            (std::vector<float>{1.0f, 0.0f}));
}

TEST(BugCase44, SoftcapIsApplied) {
  const std::vector<float> w = weights_of({4.0f, 1.0f}, Mask::full(), 2.0),
                           plain = weights_of({4.0f, 1.0f}, Mask::full());
  EXPECT_NEAR(w[0], 0.731809, 1e-6);
  EXPECT_NEAR(w[1], 0.268191, 1e-6);
  EXPECT_NEAR(plain[0], 0.952574, 1e-6);
  EXPECT_NEAR(plain[1], 0.047426, 1e-6);
}

TEST(BugCase47, GroupedHeadsAreRepeatedNotTiled) {
  const std::vector<float> q(4, 0.5f), k = {1, 1}, v = {0, 1};
  std::vector<float> out(4);
  attend(TensorView<const float>(q.data(), {1, 4, 1, 1}), TensorView<const float>(k.data(), {1, 2, 1, 1}),
         TensorView<const float>(v.data(), {1, 2, 1, 1}), Mask::full(), {}, {out.data(), {1, 4, 1, 1}});
  EXPECT_EQ(out, (std::vector<float>{0, 0, 1, 1}));
}

TEST(BugCase49, AMaskServesEveryLength) {
  const Mask mask = Mask::causal();
  EXPECT_EQ(seen(mask, 6).size(), 6u);
  EXPECT_EQ(seen(mask, 2, 4, at(2)), (Sets{range(0, 3), range(0, 4)}));
}

TEST(BugCase50, ATableThatIsTooSmallIsRefused) {
  const auto table = [](int64_t q, int64_t k) {
    const std::vector<uint8_t> ones(static_cast<size_t>(q * k), 1);
    return Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(ones.data(), {q, k}));
  };
  EXPECT_EQ(seen(table(10, 20), 10, 20, at(0))[9], range(0, 20));
  EXPECT_THROW(seen(table(9, 20), 10, 20, at(0)), Error) << "no query beyond the table";
  EXPECT_EQ(seen(table(10, 15), 10, 20, at(0))[0], range(0, 15))
      << "keys beyond the table are not seen, and no bit is read there";
  // Where a shape must fit, BitTable's importer is told it and names both; see the mask tests.
}

TEST(BugCase51, NoIndexIsNarrow) {
  const int64_t n = 65538;
  Problem p;
  p.q_len = p.kv_len = n, p.d = p.dv = 1;
  p.q.assign(static_cast<size_t>(n), 0.0f);
  p.k = p.q;
  for (int64_t j = 0; j < n; ++j) p.v.push_back(static_cast<float>(j % 97));
  std::vector<float> out(static_cast<size_t>(n));
  attend(TensorView<const float>(p.q.data(), {1, 1, n, 1}), TensorView<const float>(p.k.data(), {1, 1, n, 1}),
         TensorView<const float>(p.v.data(), {1, 1, n, 1}), Mask::window(1, 0), {}, {out.data(), {1, 1, n, 1}});
  for (int64_t i :
       {int64_t{1}, int64_t{32767}, int64_t{32768}, int64_t{32769}, int64_t{65535}, int64_t{65536}, int64_t{65537}})
    EXPECT_EQ(out[static_cast<size_t>(i)], static_cast<float>((i - 1) % 97 + i % 97) / 2) << i;
  // M13: tile numbers beyond 2^31 and positions around the ends of 32 bits.
  for (int64_t base : {(int64_t{1} << 31) - 3, (int64_t{1} << 32) - 3, (int64_t{1} << 40) - 3}) {
    EXPECT_EQ(seen(Mask::causal() & Mask::window(2, 0), 6, 6, at(base, base)),
              (Sets{{0}, {0, 1}, {0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4, 5}}));
    EXPECT_EQ(seen(Mask::causal(), 2, 4, at(base + 2, base)), (Sets{{0, 1, 2}, {0, 1, 2, 3}}));
  }
}

}  // namespace
}  // namespace regard
