// Pages: what was appended is what is read, nothing is copied that need not be, nothing is left behind.
#include "attention/paged_kv_cache.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "attention/caches.h"
#include "attention/calls.h"
#include "regard/error.h"

namespace regard {
namespace {

using namespace testing_attention;

std::shared_ptr<PagePool> pool_of(const KvGeometry& g, int64_t page_keys, int64_t max_pages = 1000) {
  return std::make_shared<PagePool>(PagePoolOptions{.geometry = g, .page_keys = page_keys, .max_pages = max_pages});
}

TEST(PagedKvCache, HoldsWhatWasAppendedInAnyPortions) {
  for (const auto& [d, dv] : {std::pair{1, 1}, std::pair{33, 7}, std::pair{64, 64}}) {
    const KvGeometry g = geometry(3, d, dv);
    const Tokens tokens(1, 700, g);
    for (int64_t page_keys : {1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 320, 1024})
      for (int portion : {1, 63, 65, 700}) {
        if (portion == 1 && page_keys % 64 != 0 && page_keys != 16) continue;
        PagedKvCache cache(shuffled_pool(g, page_keys, 700 / page_keys + 3));
        for (int at = 0; at < 700; at += portion) cache.append(tokens.rows(at), std::min(portion, 700 - at));
        EXPECT_EQ(cache.size(), 700);
        EXPECT_EQ(static_cast<int64_t>(cache.page_table().size()), (700 + page_keys - 1) / page_keys);
        expect_holds(cache, tokens, 0, 700);
        EXPECT_TRUE(std::isnan(key_at(cache.view(), 703, 0, 0))) << "a slot that was never written is NaN";
        EXPECT_TRUE(std::isnan(value_at(cache.view(), 703, 2, 0)));
      }
  }
}

TEST(PagedKvCache, PagesStandInAnyOrder) {
  const KvGeometry g = geometry(1, 8, 8);
  PagedKvCache cache(shuffled_pool(g, 64, 20));
  const Tokens tokens(1, 1000, g);
  cache.append(tokens.rows(0), 1000);
  const std::vector<int64_t> table = cache.page_table();
  EXPECT_FALSE(std::is_sorted(table.begin(), table.end()));
  EXPECT_EQ(std::set<int64_t>(table.begin(), table.end()).size(), table.size());
  expect_holds(cache, tokens, 0, 1000);
}

TEST(PagedKvCache, TruncateGivesPagesBackAndAppendOverwrites) {
  const KvGeometry g = geometry(2, 24, 8);
  const Tokens a(1, 600, g), b(2, 600, g);
  for (int64_t page_keys : {1, 16, 64, 128, 256})
    for (int keep : {0, 1, 63, 64, 65, 127, 128, 256, 599}) {
      const auto pool = pool_of(g, page_keys);
      PagedKvCache cache(pool);
      cache.append(a.rows(0), 600);
      expect_holds(cache, a, 0, 600);  // what was gathered for this must not be read again
      cache.truncate(keep);
      EXPECT_EQ(pool->pages_in_use(), (keep + page_keys - 1) / page_keys);
      cache.append(b.rows(keep), 600 - keep);
      expect_holds(cache, a, 0, keep);
      expect_holds(cache, b, keep, 600);
    }
}

TEST(PagedKvCache, ForksShareAllPagesAndCopyTheLastOneOnly) {
  const KvGeometry g = geometry(2, 24, 8);
  const Tokens a(1, 900, g), b(2, 900, g);
  for (int64_t page_keys : {1, 16, 64, 128, 256})
    for (int at : {0, 1, 100, 128, 255, 256, 257, 600}) {
      const auto pool = pool_of(g, page_keys, 4000);
      PagedKvCache origin(pool);
      origin.append(a.rows(0), at);
      const int64_t before = pool->pages_in_use();
      PagedKvCache fork = origin.fork();
      EXPECT_EQ(pool->pages_in_use(), before) << "a fork takes no page";
      EXPECT_EQ(fork.page_table(), origin.page_table());
      fork.append(b.rows(at), 1);
      EXPECT_EQ(pool->pages_in_use(), before + 1) << "one page: a copy of the last, or a new one";
      origin.append(a.rows(at), 900 - at);
      fork.append(b.rows(at + 1), 899 - at);
      expect_holds(origin, a, 0, 900);
      expect_holds(fork, a, 0, at);
      expect_holds(fork, b, at, 900);
      const std::vector<int64_t> one = origin.page_table(), other = fork.page_table();
      for (int64_t i = 0; i < static_cast<int64_t>(one.size()); ++i)
        EXPECT_EQ(one[static_cast<size_t>(i)] == other[static_cast<size_t>(i)], (i + 1) * page_keys <= at) << i;
    }
}

TEST(PagedKvCache, SequencesShareACommonPrefix) {
  const KvGeometry g = geometry(1, 16, 16);
  const Tokens a(1, 500, g), b(2, 500, g);
  const auto pool = pool_of(g, 64);
  std::vector<PagedKvCache> users;
  {
    PagedKvCache prompt(pool);
    prompt.append(a.rows(0), 300);
    for (int i = 0; i < 10; ++i) users.push_back(prompt.fork(256));
  }
  EXPECT_EQ(pool->pages_in_use(), 4) << "256 tokens, once for all";
  for (PagedKvCache& user : users) user.append(b.rows(256), 10);
  EXPECT_EQ(pool->pages_in_use(), 14);
  for (const PagedKvCache& user : users) {
    expect_holds(user, a, 0, 256);
    expect_holds(user, b, 256, 266);
  }
  users.clear();
  EXPECT_EQ(pool->pages_in_use(), 0);
}

TEST(PagedKvCache, AFreedPageKeepsNothingOfItsOwner) {
  const KvGeometry g = geometry(2, 4, 4);
  for (int64_t page_keys : {16, 64}) {
    const auto pool = pool_of(g, page_keys, 64 / page_keys);
    const Tokens a(1, 64, g);
    {
      PagedKvCache cache(pool);
      cache.append(a.rows(0), 64);
    }
    PagedKvCache cache(pool);
    cache.append(a.rows(0), 1);
    for (int h = 0; h < 2; ++h) {
      const KvSlots first = cache.slots(0, h);
      for (int j = 1; j < first.count; ++j) {
        const auto* keys = reinterpret_cast<const float*>(first.run);
        const auto* values = reinterpret_cast<const float*>(first.run + pool->geometry().value_at(0));
        EXPECT_TRUE(std::isnan(keys[first.column + j]));
        EXPECT_TRUE(std::isnan(values[(first.column + j) * 16]));
      }
    }
  }
}

TEST(PagedKvCache, BeamsAreReorderedWithoutCopies) {
  const KvGeometry g = geometry(1, 8, 8);
  const Tokens a(1, 200, g), b(2, 200, g), c(3, 200, g);
  const auto pool = pool_of(g, 64);
  std::vector<PagedKvCache> beams;
  for (const Tokens* tokens : {&a, &b, &c}) {
    beams.emplace_back(pool);
    beams.back().append(tokens->rows(0), 100);
  }
  const std::vector<int64_t> kept = beams[1].page_table();
  const std::vector<int64_t> parents = {1, 1, 0};
  reorder(beams, std::span<const int64_t>(parents));
  EXPECT_EQ(pool->pages_in_use(), 4) << "beam 2 is gone, beam 1 is there twice in the same pages";
  EXPECT_EQ(beams[0].page_table(), kept);
  EXPECT_EQ(beams[1].page_table(), kept);
  beams[0].append(a.rows(100), 1);
  beams[1].append(c.rows(100), 1);
  expect_holds(beams[0], b, 0, 100);
  expect_holds(beams[0], a, 100, 101);
  expect_holds(beams[1], b, 0, 100);
  expect_holds(beams[1], c, 100, 101);
  expect_holds(beams[2], a, 0, 100);
  expect_refused(Code::kInvalidArgument, {"[reorder]", "3"}, [&] {
    const std::vector<int64_t> wrong = {0, 3, 1};
    reorder(beams, std::span<const int64_t>(wrong));
  });
  expect_holds(beams[2], a, 0, 100);
}

TEST(PagedKvCache, RefusalsGiveNumbersAndChangeNothing) {
  const KvGeometry g = geometry(2, 16, 16);
  const Tokens a(1, 500, g);
  const auto pool = pool_of(g, 64, 5);
  PagedKvCache cache(pool), other(pool);
  cache.append(a.rows(0), 250);
  other.append(a.rows(0), 1);
  expect_refused(Code::kResourceExhausted, {"[PagePool]", "257 tokens", "64 keys", "all 5 pages"},
                 [&] { cache.append(a.rows(250), 7); });
  EXPECT_EQ(cache.size(), 250);
  cache.append(a.rows(250), 6);
  expect_holds(cache, a, 0, 256);
  // A copy of a shared page is refused just so.
  PagedKvCache fork = other.fork();
  expect_refused(Code::kResourceExhausted, {"2 tokens"}, [&] { fork.append(a.rows(1), 1); });
  expect_holds(fork, a, 0, 1);
  cache.truncate(0);
  fork.append(a.rows(1), 1);
  expect_holds(fork, a, 0, 2);

  const auto budget = std::make_shared<KvBudget>(2 * KvTile::bytes(g) + 5);
  const auto small = std::make_shared<PagePool>(PagePoolOptions{.geometry = g, .budget = budget});
  PagedKvCache bounded(small);
  bounded.append(a.rows(0), 400);
  EXPECT_EQ(budget->used(), 2 * KvTile::bytes(g));
  expect_refused(
      Code::kResourceExhausted,
      {"[PagePool]", "513", std::to_string(KvTile::bytes(g)).c_str(), std::to_string(budget->limit()).c_str()},
      [&] { bounded.append(a.rows(0), 113); });
  expect_holds(bounded, a, 0, 400);

  expect_refused(Code::kInvalidArgument, {"48", "64"}, [&] { pool_of(g, 48); });
  expect_refused(Code::kInvalidArgument, {"0"}, [&] { pool_of(g, 0); });
  expect_refused(Code::kInvalidArgument, {"truncate", "401", "400"}, [&] { bounded.truncate(401); });
  expect_refused(Code::kInvalidArgument, {"fork", "401", "400"}, [&] { bounded.fork(401); });
  expect_refused(Code::kInvalidArgument, {"-1"}, [&] { bounded.append(a.rows(0), -1); });
  expect_refused(Code::kInvalidArgument, {"no pool"}, [] { PagedKvCache none(nullptr); });
  PagedKvCache few(small, 10);
  expect_refused(Code::kResourceExhausted, {"11", "10"}, [&] { few.append(a.rows(0), 11); });
}

// For the thread sanitizer: forks that share their last page read, copy, grow and go away on several threads at once.
TEST(PagedKvCache, ForksOnSeveralThreads) {
  const KvGeometry g = geometry(1, 8, 8);
  const Tokens a(1, 400, g);
  for (int64_t page_keys : {16, 64}) {
    PagedKvCache origin(pool_of(g, page_keys));
    origin.append(a.rows(0), 202);
    std::vector<PagedKvCache> forks;
    for (int i = 0; i < 4; ++i) forks.push_back(origin.fork());
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&a, cache = std::move(forks[static_cast<size_t>(i)]), i]() mutable {
        cache.truncate(200 - i);
        cache.append(a.rows(200 - i), 200 + i);
        expect_holds(cache, a, 0, 400);
      });
    origin.append(a.rows(202), 198);
    threads.clear();
    expect_holds(origin, a, 0, 400);
  }
}

}  // namespace
}  // namespace regard
