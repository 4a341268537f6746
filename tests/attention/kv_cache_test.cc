// KV caches: what was appended is what is read, whatever was appended, truncated, forked or refused in between.
#include "attention/kv_cache.h"

#include <gtest/gtest.h>

#include <thread>

#include "attention/caches.h"
#include "regard/error.h"
#include "runtime/thread_pool.h"

namespace regard {
namespace {

using namespace testing_attention;
using kernels::kTileKeys;

KvCacheOptions options(int heads, int d, int dv) {
  KvCacheOptions o;
  o.geometry = geometry(heads, d, dv);
  return o;
}

TEST(KvCache, HoldsWhatWasAppendedInAnyPortions) {
  for (const auto& [d, dv] : {std::pair{1, 1}, std::pair{33, 7}, std::pair{64, 64}, std::pair{40, 48}}) {
    const Tokens tokens(1, 700, geometry(3, d, dv));
    for (int portion : {1, 3, 16, 63, 64, 65, 256, 700}) {
      KvCache cache(options(3, d, dv));
      for (int at = 0; at < 700; at += portion) cache.append(tokens.rows(at), std::min(portion, 700 - at));
      EXPECT_EQ(cache.size(), 700);
      EXPECT_EQ(cache.capacity(), 768);
      expect_holds(cache, tokens, 0, 700);
      EXPECT_TRUE(std::isnan(key_at(cache.view(), 700, 0, 0))) << "a slot that was never written is NaN";
      EXPECT_TRUE(std::isnan(value_at(cache.view(), 767, 2, 0)));
    }
  }
}

TEST(KvCache, GrowingMovesNoTile) {
  const Tokens tokens(1, 600, geometry(2, 16, 16));
  KvCache cache(options(2, 16, 16));
  cache.append(tokens.rows(0), 300);
  const std::byte* first = cache.view().keys(0, 0, 0);
  const std::byte* second = cache.view().keys(1, 0, 0);
  cache.append(tokens.rows(300), 300);
  EXPECT_EQ(cache.view().keys(0, 0, 0), first);
  EXPECT_EQ(cache.view().keys(1, 0, 0), second);
}

TEST(KvCache, TruncateThenAppendOverwrites) {
  const Tokens a(1, 600, geometry(2, 24, 24)), b(2, 600, geometry(2, 24, 24));
  for (int keep : {0, 1, 63, 64, 255, 256, 257, 511, 512, 599}) {
    KvCache cache(options(2, 24, 24));
    cache.append(a.rows(0), 600);
    cache.truncate(keep);
    EXPECT_EQ(cache.size(), keep);
    cache.append(b.rows(keep), 600 - keep);
    expect_holds(cache, a, 0, keep);
    expect_holds(cache, b, keep, 600);
  }
}

TEST(KvCache, ShrinkGivesBackWholeTiles) {
  const Tokens a(1, 600, geometry(2, 24, 24));
  KvCache cache(options(2, 24, 24));
  cache.append(a.rows(0), 600);
  cache.truncate(257);
  cache.shrink();
  EXPECT_EQ(cache.capacity(), 512);
  expect_holds(cache, a, 0, 257);
}

TEST(KvCache, ForksDoNotAlias) {
  const Tokens a(1, 900, geometry(2, 24, 8)), b(2, 900, geometry(2, 24, 8));
  for (int at : {0, 1, 100, 255, 256, 257, 512, 600}) {
    KvCache origin(options(2, 24, 8));
    origin.append(a.rows(0), at);
    KvCache fork = origin.fork();
    origin.append(a.rows(at), 900 - at);
    fork.append(b.rows(at), 900 - at);
    expect_holds(origin, a, 0, 900);
    expect_holds(fork, a, 0, at);
    expect_holds(fork, b, at, 900);
    if (at >= kTileKeys) {
      EXPECT_EQ(origin.view().keys(0, 0, 0), fork.view().keys(0, 0, 0)) << "full tiles are shared";
    }
  }
}

// From 8 MiB on tiles lie in larger pieces of memory, which live as long as a tile in them.
TEST(KvCache, LongOnesHoldTheSameInAnyPortionsAndForksOutliveThem) {
  constexpr int kLength = 2900;  // tiles of 2 MiB: whole pieces, and a part of one
  const Tokens a(1, kLength, geometry(2, 512, 512)), b(2, kLength, geometry(2, 512, 512));
  for (int portion : {100, 1500, kLength}) {
    auto origin = std::make_unique<KvCache>(options(2, 512, 512));
    for (int at = 0; at < kLength; at += portion) origin->append(a.rows(at), std::min(portion, kLength - at));
    expect_holds(*origin, a, 0, kLength);
    EXPECT_TRUE(std::isnan(key_at(origin->view(), kLength, 1, 511)));
    EXPECT_EQ(origin->bytes(), 12 * KvCache::tile_bytes(origin->geometry()));
    KvCache fork = origin->fork();
    origin.reset();
    fork.truncate(2600);
    fork.append(b.rows(2600), kLength - 2600);
    expect_holds(fork, a, 0, 2600);
    expect_holds(fork, b, 2600, kLength);
  }
}

TEST(KvCache, WritingIntoASharedTileCopiesItFirst) {
  const Tokens a(1, 600, geometry(2, 24, 8)), b(2, 600, geometry(2, 24, 8));
  for (int keep : {0, 100, 255, 256, 300, 511}) {
    KvCache origin(options(2, 24, 8));
    origin.append(a.rows(0), 512);
    KvCache fork = origin.fork();
    fork.truncate(keep);
    fork.append(b.rows(keep), 600 - keep);
    expect_holds(origin, a, 0, 512);
    expect_holds(fork, a, 0, keep);
    expect_holds(fork, b, keep, 600);
    origin.truncate(keep);
    origin.append(b.rows(keep), 600 - keep);
    expect_holds(origin, b, keep, 600);
    expect_holds(fork, b, keep, 600);
  }
}

TEST(KvCache, BudgetRefusesWithNumbersAndChangesNothing) {
  KvCacheOptions o = options(2, 16, 16);
  const int64_t tile = KvCache::tile_bytes(o.geometry);
  EXPECT_EQ(tile, 256 * 2 * (16 + 16) * 4);
  o.budget = std::make_shared<KvBudget>(3 * tile + 5);
  const Tokens a(1, 1200, geometry(2, 16, 16));
  KvCache cache(o);
  {
    KvCache other(o);
    other.append(a.rows(0), 256);
    cache.append(a.rows(0), 300);
    EXPECT_EQ(o.budget->used(), 3 * tile);
    try {
      cache.append(a.rows(300), 600);
      FAIL() << "the budget was exceeded";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kResourceExhausted);
      const std::string message = e.what();
      for (int64_t number : {int64_t{900}, tile, 3 * tile, 3 * tile + 5})
        EXPECT_NE(message.find(std::to_string(number)), std::string::npos) << message;
    }
    EXPECT_EQ(cache.size(), 300);
    EXPECT_EQ(cache.capacity(), 512);
    expect_holds(cache, a, 0, 300);
    EXPECT_THROW(other.append(a.rows(256), 1), Error);
    KvCache fork = other.fork();  // shares its only tile
    EXPECT_EQ(o.budget->used(), 3 * tile);
  }
  EXPECT_EQ(o.budget->used(), 2 * tile) << "tiles are given back when the last holder is gone";
  cache.append(a.rows(300), 468);
  expect_holds(cache, a, 0, 768);
}

TEST(KvCache, RefusesWhatMakesNoSense) {
  EXPECT_THROW(KvCache(options(0, 16, 16)), Error);
  EXPECT_THROW(KvCache(options(1, 0, 16)), Error);
  EXPECT_THROW(KvCache(options(1, 513, 16)), Error);
  KvCacheOptions half = options(1, 16, 16);
  half.geometry.type = DType::kF64;
  EXPECT_THROW(KvCache{half}, Error);
  KvCacheOptions small = options(1, 16, 16);
  small.max_tokens = 10;
  KvCache cache(small);
  const Tokens a(1, 20, geometry(1, 16, 16));
  cache.append(a.rows(0), 10);
  EXPECT_THROW(cache.append(a.rows(10), 1), Error);
  EXPECT_THROW(cache.append(a.rows(10), -1), Error);
  EXPECT_THROW(cache.truncate(11), Error);
  EXPECT_EQ(cache.size(), 10);
}

TEST(KvCache, AppendingABatchIsAllOrNothing) {
  ThreadPool pool(3);
  const Tokens a(1, 900, geometry(2, 32, 32));
  KvCacheOptions o = options(2, 32, 32);
  o.budget = std::make_shared<KvBudget>(6 * KvCache::tile_bytes(o.geometry));
  std::vector<KvCache> caches;
  for (int i = 0; i < 3; ++i) caches.emplace_back(o);
  caches[1].append(a.rows(0), 70);
  std::vector<KvAppend> appends = {
      {&caches[0], a.rows(0), 300}, {&caches[1], a.rows(70), 500}, {&caches[2], a.rows(0), 1}};
  append_all(appends.data(), 3, pool);
  expect_holds(caches[0], a, 0, 300);
  expect_holds(caches[1], a, 0, 570);
  expect_holds(caches[2], a, 0, 1);
  appends = {{&caches[0], a.rows(300), 10}, {&caches[1], a.rows(570), 300}, {&caches[2], a.rows(1), 1}};
  EXPECT_THROW(append_all(appends.data(), 3, pool), Error);
  EXPECT_EQ(caches[0].size(), 300);
  EXPECT_EQ(caches[1].size(), 570);
  EXPECT_EQ(caches[2].size(), 1);
}

// For the thread sanitizer: forks of one cache read, grow and go away on several threads at once.
TEST(KvCache, ForksOnSeveralThreads) {
  const Tokens a(1, 700, geometry(1, 8, 8));
  KvCache origin(options(1, 8, 8));
  origin.append(a.rows(0), 512);
  std::vector<KvCache> forks;
  for (int i = 0; i < 4; ++i) forks.push_back(origin.fork());
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&a, cache = std::move(forks[static_cast<size_t>(i)]), i]() mutable {
      cache.truncate(300 + i);
      cache.append(a.rows(300 + i), 400 - i);
      expect_holds(cache, a, 0, 700);
    });
  origin.truncate(400);
  origin.append(a.rows(400), 300);
  threads.clear();
  expect_holds(origin, a, 0, 700);
}

}  // namespace
}  // namespace regard
