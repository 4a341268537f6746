// attend_sequences(): promise 4 on bits. However a sequence is cut into calls, batched, threaded or cached, a row's
// result is that of the scalar definition.
#include <gtest/gtest.h>

#include <cstdio>

#include "attention/kv_cache.h"
#include "attention/sequences.h"
#include "regard/error.h"
#include "runtime/thread_pool.h"

namespace regard {
namespace {

using namespace testing_attention;

KvCache cache_of(const Problem& p) {
  KvCacheOptions o;
  o.geometry = {.num_kv_heads = static_cast<int>(p.num_kv_heads),
                .head_dim = static_cast<int>(p.d),
                .value_dim = static_cast<int>(p.dv)};
  return KvCache(o);
}

std::vector<Mask> masks() {
  return {Mask::causal(), Mask::causal() & Mask::window(200, 0), Mask::parse("causal & (window(127, 0) | sinks(4))"),
          Mask::parse("causal & (dilated(3) | prefix(7))"), Mask::parse("causal & blocks(48) | chunk(16)")};
}

// How often each way through the code was taken.
struct Paths {
  int64_t calls = 0, with_shared_tiles = 0;
};

// A prompt in portions through a cache, each portion's keys appended before its queries look.
Result by_chunks(const Problem& p, const Mask& mask, int64_t chunk, ThreadPool& pool, Paths* paths = nullptr) {
  Result result(p);
  const MaskPlan plan(mask, {}, p.batch, p.num_q_heads);
  AttentionWorkspace workspace;
  std::vector<KvCache> caches;
  for (int64_t b = 0; b < p.batch; ++b) caches.push_back(cache_of(p));
  for (int64_t at = 0; at < p.q_len; at += chunk) {
    const int64_t n = std::min(chunk, p.q_len - at);
    std::vector<SequenceQueries> sequences;
    for (int64_t b = 0; b < p.batch; ++b) {
      caches[static_cast<size_t>(b)].append(rows_of(p, b, at), n);
      sequences.push_back(queries(p, b, at, n, caches[static_cast<size_t>(b)], result));
    }
    attend_sequences(sequences, shape_of(p), plan, workspace, pool);
    if (paths == nullptr) continue;
    ++paths->calls;
    if (workspace.shared_blocks() > 0) ++paths->with_shared_tiles;
  }
  return result;
}

// Chunks see only what is cached so far, so the comparison needs masks within causal.
TEST(Promise4, ChunksStepsThreadsAndBatchesGiveTheSameBits) {
  constexpr int64_t kLength = 780;  // three tiles and a piece
  int64_t compared = 0;
  Paths paths;
  for (const auto& [group, kv_heads, d, dv] :
       {std::tuple{1, 2, 64, 64}, std::tuple{3, 1, 64, 64}, std::tuple{4, 2, 40, 24}, std::tuple{8, 1, 128, 128}}) {
    Problem p;
    p.batch = 2, p.num_kv_heads = kv_heads, p.num_q_heads = kv_heads * group, p.d = d, p.dv = dv,
    p.q_len = p.kv_len = kLength;
    p.fill(static_cast<uint64_t>(7 + group));
    size_t turn = 0;
    for (const Mask& mask : {masks()[0], masks()[1], masks()[2], masks()[3]}) {
      ThreadPool one(1);
      const Result whole = by_chunks(p, mask, kLength, one);
      // The first rows of the definition are enough: all others are compared with the whole.
      Problem head = p;
      head.batch = 1, head.q_len = 12, head.q.clear();
      for (int64_t h = 0; h < p.num_q_heads; ++h)
        for (int64_t i = 0; i < 12; ++i)
          head.q.insert(head.q.end(), p.query(0, h, 700 + i), p.query(0, h, 700 + i) + p.d);
      head.q_begin = 700;
      const Result definition = by_spec(head, mask);
      for (int64_t h = 0; h < p.num_q_heads; ++h)
        for (int64_t i = 0; i < 12; ++i)
          ASSERT_TRUE(same_bits(definition.out.data() + (h * 12 + i) * p.dv,
                                whole.out.data() + (h * p.q_len + 700 + i) * p.dv, p.dv))
              << mask.text() << " head " << h << " row " << 700 + i;
      for (int threads : {1, 2, 3, 8}) {
        ThreadPool pool(threads);
        for (int64_t chunk : {int64_t{1}, int64_t{7}, int64_t{64}, int64_t{512}, kLength}) {
          if (chunk < 64 && turn % 4 != static_cast<size_t>(threads) % 4)
            continue;  // the slow ones: each mask on some threads
          ASSERT_EQ(by_chunks(p, mask, chunk, pool, &paths), whole)
              << mask.text() << " threads " << threads << " chunk " << chunk << " group " << group;
          compared += p.batch * p.num_q_heads * p.q_len;
        }
      }
      ++turn;
    }
  }
  EXPECT_GT(paths.with_shared_tiles, 0);
  EXPECT_GT(paths.calls, paths.with_shared_tiles);
  std::printf(
      "compared on bits, %s kernels: %lld rows of chunks 1, 7, 64, 512, whole x threads 1, 2, 3, 8 x groups 1, 3, 4, "
      "8; %lld calls by "
      "blocks of rows, %lld with the tiles of a row shared out\n",
      std::string(isa_name(kernels::kernels().isa)).c_str(), static_cast<long long>(compared),
      static_cast<long long>(paths.calls - paths.with_shared_tiles), static_cast<long long>(paths.with_shared_tiles));
}

// Any company: sequences of other lengths and stages beside it, in any slot.
TEST(Promise4, CompanyInTheBatchDoesNotMatter) {
  Problem p;
  p.num_kv_heads = 2, p.num_q_heads = 6, p.q_len = p.kv_len = 600;
  p.fill(3);
  const Mask mask = Mask::causal();
  ThreadPool one(1);
  const Result whole = by_chunks(p, mask, 600, one);
  for (int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (int64_t slot : {0, 1, 2}) {
      const MaskPlan plan(mask, {}, 3, p.num_q_heads);
      AttentionWorkspace workspace;
      KvCache cache = cache_of(p), beside = cache_of(p);
      cache.append(rows_of(p, 0, 0), 600);
      beside.append(rows_of(p, 0, 0), 77);
      Result result(p), unused(p);
      std::vector<SequenceQueries> sequences;
      for (int64_t b = 0; b < 3; ++b) {
        sequences.push_back(b == slot ? queries(p, 0, 520, 80, cache, result)
                                      : queries(p, 0, b == 0 ? 76 : 20, b == 0 ? 1 : 57, beside, unused));
        sequences.back().batch_row = b;
      }
      attend_sequences(sequences, shape_of(p), plan, workspace, pool);
      for (int64_t h = 0; h < p.num_q_heads; ++h)
        ASSERT_TRUE(
            same_bits(result.out.data() + (h * 600 + 520) * p.dv, whole.out.data() + (h * 600 + 520) * p.dv, 80 * p.dv))
            << slot;
    }
  }
}

TEST(Sequences, ForkedAndTruncatedCachesGiveTheSameBits) {
  Problem p;
  p.num_kv_heads = 1, p.num_q_heads = 2, p.q_len = p.kv_len = 700;
  p.fill(5);
  ThreadPool pool(2);
  const Result whole = by_chunks(p, Mask::causal(), 700, pool);
  const MaskPlan plan(Mask::causal(), {}, 1, p.num_q_heads);
  AttentionWorkspace workspace;
  KvCache cache = cache_of(p);
  const std::vector<float> other = gaussians(77, 700 * p.d);
  cache.append(rows_of(p, 0, 0), 400);
  KvCache fork = cache.fork();
  cache.append({.k = other.data(),
                .k_token_stride = p.d,
                .k_head_stride = 0,
                .v = other.data(),
                .v_token_stride = p.dv,
                .v_head_stride = 0},
               300);
  cache.truncate(513);  // stale keys behind the end must not matter
  fork.append(rows_of(p, 0, 400), 300);
  Result result(p);
  const SequenceQueries s = queries(p, 0, 650, 50, fork, result);
  attend_sequences({&s, 1}, shape_of(p), plan, workspace, pool);
  for (int64_t h = 0; h < 2; ++h)
    ASSERT_TRUE(
        same_bits(result.out.data() + (h * 700 + 650) * p.dv, whole.out.data() + (h * 700 + 650) * p.dv, 50 * p.dv));
}

TEST(Sequences, StopEndsTheCall) {
  Problem p;
  p.q_len = p.kv_len = 600;
  p.fill(5);
  ThreadPool pool(2);
  StopToken stop;
  stop.request_stop();
  const MaskPlan plan(Mask::causal(), {}, 1, 1);
  AttentionWorkspace workspace;
  KvCache cache = cache_of(p);
  cache.append(rows_of(p, 0, 0), 600);
  Result result(p);
  const SequenceQueries s = queries(p, 0, 0, 600, cache, result);
  try {
    attend_sequences({&s, 1}, shape_of(p), plan, workspace, pool, &stop);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kCancelled);
  }
  stop.reset();
  attend_sequences({&s, 1}, shape_of(p), plan, workspace, pool, &stop);
  EXPECT_EQ(result, by_chunks(p, Mask::causal(), 600, pool)) << "the workspace serves again after a stop";
}

TEST(Sequences, WorkspaceIsKept) {
  Problem p;
  p.num_kv_heads = 2, p.num_q_heads = 4, p.q_len = p.kv_len = 2000;
  p.fill(5);
  ThreadPool pool(2);
  const MaskPlan plan(Mask::causal(), {}, 1, 4);
  AttentionWorkspace workspace;
  KvCache cache = cache_of(p);
  cache.append(rows_of(p, 0, 0), 1999);
  Result result(p);
  SequenceQueries s = queries(p, 0, 1998, 1, cache, result);
  attend_sequences({&s, 1}, shape_of(p), plan, workspace, pool);
  const size_t bytes = workspace.total_bytes();
  cache.append(rows_of(p, 0, 1999), 1);
  s = queries(p, 0, 1999, 1, cache, result);
  attend_sequences({&s, 1}, shape_of(p), plan, workspace, pool);
  EXPECT_EQ(workspace.total_bytes(), bytes);
}

}  // namespace
}  // namespace regard
