// The public bug reports about caches (see rows_and_masks_test.cc), each with every kind of cache that it could happen in.
#include <gtest/gtest.h>

#include "attention/caches.h"
#include "attention/probe.h"
#include "attention/sequences.h"
#include "regard/error.h"
#include "runtime/thread_pool.h"

namespace regard {
namespace {

using namespace testing_attention;

// Keys are 0 and value j is the j-th unit vector, so that a row's output is 1 / n at the n keys that it sees.
struct Probe {
  int64_t length, chunk;
  Sets seen(const CacheKind& kind, const Mask& mask) const {
    const int dim = static_cast<int>(length);
    const auto cache = kind.make(geometry(1, 2, dim), length, mask);
    std::vector<float> v(static_cast<size_t>(length * length), 0.0f), out(v);
    const std::vector<float> zeros(static_cast<size_t>(2 * length), 0.0f);
    for (int64_t j = 0; j < length; ++j) v[static_cast<size_t>(j * length + j)] = 1.0f;
    const MaskPlan plan(mask, {}, 1, 1);
    AttentionWorkspace workspace;
    ThreadPool pool(2);
    for (int64_t first = 0; first < length; first += chunk) {
      const int64_t n = std::min(chunk, length - first);
      cache->append({.k = zeros.data(), .k_token_stride = 2, .v = v.data() + first * length, .v_token_stride = length},
                    n);
      SequenceQueries s;
      s.q = zeros.data(), s.q_token_stride = 2;
      s.out = out.data() + first * length, s.out_token_stride = length;
      s.tokens = n, s.first_position = first, s.keys = cache->view();
      attend_sequences({&s, 1}, {1, 1, 2, dim, 1, 0}, plan, workspace, pool);
    }
    Sets sets;
    for (int64_t i = 0; i < length; ++i) {
      std::vector<int64_t> set;
      for (int64_t j = 0; j < length; ++j)
        if (out[static_cast<size_t>(i * length + j)] != 0) set.push_back(j);
      for (int64_t j : set)
        EXPECT_NEAR(out[static_cast<size_t>(i * length + j)], 1.0 / static_cast<double>(set.size()), 1e-6) << kind.name;
      sets.push_back(set);
    }
    return sets;
  }
};

std::vector<CacheKind> every_kind() {
  return {contiguous_kind(), paged_kind(1), paged_kind(16), paged_kind(64), paged_kind(128), ring_kind(256)};
}

TEST(BugCase12, NoKindOfCacheSwitchesTheMaskOff) {
  for (const CacheKind& kind : every_kind())
    for (int64_t chunk : {1, 4, 5})
      EXPECT_EQ((Probe{5, chunk}.seen(kind, Mask::causal())), (Sets{{0}, {0, 1}, {0, 1, 2}, range(0, 4), range(0, 5)}))
          << kind.name;
}

// The prompt of the report is longer than the ring; here the ring is one tile, so it is 300 tokens in chunks.
TEST(BugCase26, ARingIsReadByPositionNotBySlot) {
  Sets want;
  for (int64_t i = 0; i < 400; ++i) want.push_back(range(std::max<int64_t>(0, i - 3), i + 1));
  for (int64_t chunk : {1, 6, 100, 250})
    EXPECT_EQ((Probe{400, chunk}.seen(ring_kind(256), Mask::causal() & Mask::window(3, 0))), want) << chunk;
  RingKvCache ring({.geometry = geometry(1, 2, 2), .mask = Mask::causal() & Mask::window(3, 0), .capacity = 256});
  const std::vector<float> rows(600, 0.0f);
  EXPECT_THROW(ring.append({.k = rows.data(), .k_token_stride = 2, .v = rows.data(), .v_token_stride = 2}, 300), Error)
      << "its first tokens would be overwritten before they are seen";
}

TEST(BugCase27, ChunksOfEveryCacheHaveAWindowForEachRow) {
  for (const CacheKind& kind : every_kind())
    for (int64_t chunk : {1, 2, 3, 4})
      EXPECT_EQ((Probe{4, chunk}.seen(kind, Mask::causal() & Mask::window(1, 0))), (Sets{{0}, {0, 1}, {1, 2}, {2, 3}}))
          << kind.name;
}

// Pages of one token, handed out to two sequences in turns: the cells A0 B0 A1 B1 ... of the report.
TEST(BugCase28, CellsOfTwoSequencesInterleave) {
  const KvGeometry g = geometry(1, 2, 8);
  const auto pool = std::make_shared<PagePool>(PagePoolOptions{.geometry = g, .page_keys = 1});
  PagedKvCache a(pool), b(pool);
  const std::vector<float> key(2, 0.0f);
  for (size_t t = 0; t < 4; ++t)
    for (int of_b : {0, 1}) {
      std::vector<float> value(8, 0.0f);
      value[t + 4 * static_cast<size_t>(of_b)] = 1.0f;
      (of_b ? b : a).append({.k = key.data(), .v = value.data()}, 1);
    }
  EXPECT_EQ(a.page_table(), (std::vector<int64_t>{0, 2, 4, 6}));
  EXPECT_EQ(b.page_table(), (std::vector<int64_t>{1, 3, 5, 7}));
  std::vector<float> out(8);
  SequenceQueries s;
  s.q = key.data(), s.out = out.data(), s.tokens = 1, s.first_position = 3, s.keys = a.view();
  const MaskPlan plan(Mask::window(2, 0), {}, 1, 1);
  AttentionWorkspace workspace;
  ThreadPool threads(1);
  attend_sequences({&s, 1}, {1, 1, 2, 8, 1, 0}, plan, workspace, threads);
  EXPECT_EQ(out, (std::vector<float>{0, 1.0f / 3, 1.0f / 3, 1.0f / 3, 0, 0, 0, 0}));
}

// Stale tokens of the sequence's own (after truncate) and of another sequence (in a page that was freed).
TEST(BugCase37, StaleSlotsOfACacheAreNotKeys) {
  for (const CacheKind& kind : every_kind()) {
    const auto cache = kind.make(geometry(1, 2, 3), 100, Mask::causal());
    const std::vector<float> poison(300, NAN), zeros(6, 0.0f), unit = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    cache->append({.k = poison.data(), .k_token_stride = 2, .v = poison.data(), .v_token_stride = 3}, 60);
    cache->truncate(0);
    cache->append({.k = zeros.data(), .k_token_stride = 2, .v = unit.data(), .v_token_stride = 3}, 3);
    std::vector<float> out(3);
    SequenceQueries s;
    s.q = zeros.data(), s.out = out.data(), s.tokens = 1, s.first_position = 2, s.keys = cache->view();
    for (const Mask& mask : {Mask::causal(), Mask::full()}) {
      const MaskPlan plan(mask, {}, 1, 1);
      AttentionWorkspace workspace;
      ThreadPool threads(1);
      attend_sequences({&s, 1}, {1, 1, 2, 3, 1, 0}, plan, workspace, threads);
      EXPECT_EQ(out, std::vector<float>(3, 1.0f / 3)) << kind.name << " " << mask.text();
    }
  }
}

TEST(BugCase42, ReorderedPagesReadTheirOwnTokens) {
  const KvGeometry g = geometry(1, 1, 1);
  for (int64_t page_keys : {1, 16, 64, 128, 256})
    for (int64_t length : {3, 16, 64, 128, 300}) {
      const auto pool = std::make_shared<PagePool>(PagePoolOptions{.geometry = g, .page_keys = page_keys});
      std::vector<PagedKvCache> beams;
      for (int b = 0; b < 2; ++b) {
        const std::vector<float> rows(static_cast<size_t>(length), static_cast<float>(b));
        beams.emplace_back(pool);
        beams.back().append({.k = rows.data(), .k_token_stride = 1, .v = rows.data(), .v_token_stride = 1}, length);
      }
      const std::vector<int64_t> parents = {1, 1};
      reorder(beams, std::span<const int64_t>(parents));
      for (const PagedKvCache& beam : beams)
        for (int64_t p = 0; p < length; ++p) ASSERT_EQ(value_at(beam.view(), p, 0, 0), 1.0f);
      const float next[2] = {7, -1};
      for (size_t b = 0; b < 2; ++b) beams[b].append({.k = &next[b], .v = &next[b]}, 1);
      for (size_t b = 0; b < 2; ++b) {
        EXPECT_EQ(value_at(beams[b].view(), length, 0, 0), next[b]) << page_keys << " " << length;
        EXPECT_EQ(value_at(beams[b].view(), length - 1, 0, 0), 1.0f);
      }
    }
}

}  // namespace
}  // namespace regard
