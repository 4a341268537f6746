// Promise 4 for every kind of cache: however the tokens came and wherever they lie, a row's bits are those of a cache
// of one piece, which sequences_test.cc compares with the scalar definition.
#include <gtest/gtest.h>

#include <cstdio>

#include "attention/caches.h"
#include "attention/through_caches.h"
#include "runtime/thread_pool.h"

namespace regard {
namespace {

using namespace testing_attention;

Problem problem(int64_t kv_heads, int64_t group, int64_t d, int64_t dv, int64_t length) {
  Problem p;
  p.batch = 2, p.num_kv_heads = kv_heads, p.num_q_heads = kv_heads * group, p.d = d, p.dv = dv,
  p.q_len = p.kv_len = length;
  p.fill(static_cast<uint64_t>(31 + group));
  return p;
}

TEST(Promise4, EveryKindOfCacheGivesTheSameBits) {
  constexpr int64_t kLength = 780;  // three tiles and a piece
  const Mask window = Mask::causal() & Mask::window(200, 0);
  int64_t compared = 0;
  for (const auto& [kv_heads, group, d, dv] : {std::tuple{2, 1, 64, 64}, std::tuple{1, 4, 40, 24}}) {
    const Problem p = problem(kv_heads, group, d, dv, kLength);
    ThreadPool one(1);
    for (const Mask& mask : {window, Mask::causal(), Mask::parse("causal & (dilated(3) | prefix(7))")}) {
      const Result whole = through_caches(p, mask, contiguous_kind(), kLength, one);
      std::vector<CacheKind> kinds = {paged_kind(1), paged_kind(16), paged_kind(64), paged_kind(128), paged_kind(192)};
      if (mask == window) kinds.insert(kinds.end(), {ring_kind(300), ring_kind(512), ring_kind(768)});
      for (const CacheKind& kind : kinds) {
        int turn = 0;
        for (int64_t chunk : {int64_t{64}, int64_t{7}, int64_t{1}, int64_t{200}}) {
          for (int threads : {1, 2, 3, 8}) {
            if (chunk < 64 && turn++ % 3 != 0) continue;  // the slow ones on some threads
            ThreadPool pool(threads);
            ASSERT_EQ(through_caches(p, mask, kind, chunk, pool), whole)
                << kind.name << ", " << mask.text() << ", threads " << threads << ", chunk " << chunk;
            compared += p.batch * p.num_q_heads * p.q_len;
          }
        }
      }
    }
  }
  std::printf(
      "compared on bits, %s kernels: %lld rows of pages of 1, 16, 64, 128, 192 in random order and rings of 512 "
      "and 768 x chunks 1, 7, 64, 200 x threads 1, 2, 3, 8\n",
      std::string(isa_name(kernels::kernels().isa)).c_str(), static_cast<long long>(compared));
}

// One step and chunks of every size over every place where the ring can be wrapped.
TEST(Promise4, ARingWrappedAnywhereGivesTheSameBits) {
  const Mask mask = Mask::causal() & Mask::window(100, 0);
  Problem p = problem(1, 1, 16, 16, 3 * 256 + 40);
  p.batch = 1;
  ThreadPool pool(2);
  const Result whole = through_caches(p, mask, contiguous_kind(), p.q_len, pool);
  for (int64_t chunk : {1, 3, 17, 64, 99, 155}) {
    ASSERT_EQ(through_caches(p, mask, ring_kind(256), chunk, pool), whole) << chunk;
    ASSERT_EQ(through_caches(p, mask, ring_kind(512), chunk, pool), whole) << chunk;
  }
  // From every slot on: positions are shifted by begin_at().
  const MaskPlan plan(mask, {}, 1, 1);
  AttentionWorkspace workspace;
  for (int64_t shift = 0; shift < 256; ++shift) {
    Problem moved = p;
    moved.q_begin = moved.k_begin = shift;
    moved.q_len = moved.kv_len = 300;
    RingKvCache ring({.geometry = geometry_of(p), .mask = Mask::none(), .capacity = 256});
    KvCache plain({.geometry = geometry_of(p)});
    ring.begin_at(shift, shift);
    Result a(moved), b(moved);
    const std::vector<float> zeros(static_cast<size_t>(shift * p.d), 0.0f);
    plain.append({.k = zeros.data(), .k_token_stride = p.d, .v = zeros.data(), .v_token_stride = p.dv}, shift);
    const Mask from_shift = mask & ~Mask::prefix(shift);
    const MaskPlan shifted(from_shift, {}, 1, 1);
    for (int64_t at = 0; at < 300; at += 60) {
      ring.append(rows_of(p, 0, at), 60);
      plain.append(rows_of(p, 0, at), 60);
      for (auto [cache, result] : {std::pair<const KvStore*, Result*>{&ring, &a}, {&plain, &b}}) {
        SequenceQueries s = queries(moved, 0, at, 60, *cache, *result);
        attend_sequences({&s, 1}, shape_of(p), shifted, workspace, pool);
      }
    }
    ASSERT_EQ(a, b) << shift;
  }
}

TEST(Promise2, SlotsWithoutATokenCannotMatter) {
  const Mask mask = Mask::causal() & Mask::window(200, 0);
  const Problem p = problem(2, 2, 33, 17, 600);
  ThreadPool pool(2);
  const Result whole = through_caches(p, mask, contiguous_kind(), p.q_len, pool);
  for (const CacheKind& kind :
       {contiguous_kind(), paged_kind(1), paged_kind(16), paged_kind(64), paged_kind(128), ring_kind(512)})
    for (float with : {NAN, INFINITY, -INFINITY})
      ASSERT_EQ(through_caches(p, mask, kind, 50, pool, with), whole) << kind.name << " " << with;
}

// A tree of forks as beam search makes it: every branch gives the bits of its own sequence computed alone.
TEST(Promise4, ForkedAndReorderedPagesGiveTheSameBits) {
  const Mask mask = Mask::causal();
  constexpr int64_t kPrompt = 300, kSteps = 6;
  ThreadPool pool(2);
  const MaskPlan plan(mask, {}, 1, 2);
  AttentionWorkspace workspace;
  for (int64_t page_keys : {1, 16, 64, 128, 256}) {
    // Problem b holds what beam slot b appends; histories say which row came from which.
    std::vector<Problem> sources;
    for (int b = 0; b < 3; ++b) {
      Problem p = problem(1, 2, 32, 32, kPrompt + kSteps);
      p.batch = 1;
      p.fill(static_cast<uint64_t>(50 + b));
      sources.push_back(p);
    }
    const KvGeometry g = geometry_of(sources[0]);
    PagedKvCache first(shuffled_pool(g, page_keys, 4 * (kPrompt + kSteps) / page_keys + 8));
    first.append(rows_of(sources[0], 0, 0), kPrompt);
    std::vector<PagedKvCache> beams;
    for (int b = 0; b < 3; ++b) beams.push_back(first.fork());
    std::vector<std::vector<int>> histories(3);
    for (int64_t step = 0; step < kSteps; ++step) {
      for (size_t b = 0; b < 3; ++b) {
        beams[b].append(rows_of(sources[b], 0, kPrompt + step), 1);
        histories[b].push_back(static_cast<int>(b));
      }
      const std::vector<int64_t> parents[] = {{1, 1, 0}, {2, 0, 2}, {0, 1, 2}, {2, 2, 2}, {1, 0, 1}, {0, 2, 1}};
      const auto& chosen = parents[step];
      reorder(beams, std::span<const int64_t>(chosen));
      std::vector<std::vector<int>> next;
      for (int64_t parent : chosen) next.push_back(histories[static_cast<size_t>(parent)]);
      histories = next;
      for (size_t b = 0; b < 3; ++b) {
        KvCache alone({.geometry = g});
        alone.append(rows_of(sources[0], 0, 0), kPrompt);
        for (int64_t s = 0; s <= step; ++s)
          alone.append(rows_of(sources[static_cast<size_t>(histories[b][static_cast<size_t>(s)])], 0, kPrompt + s), 1);
        Result got(sources[0]), want(sources[0]);
        for (auto [cache, result] : {std::pair<const KvStore*, Result*>{&beams[b], &got}, {&alone, &want}}) {
          const SequenceQueries s = queries(sources[0], 0, kPrompt + step, 1, *cache, *result);
          attend_sequences({&s, 1}, shape_of(sources[0]), plan, workspace, pool);
        }
        ASSERT_EQ(got, want) << "pages of " << page_keys << ", step " << step << ", beam " << b;
      }
    }
  }
}

}  // namespace
}  // namespace regard
