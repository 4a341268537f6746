// Rings: the last tokens at their own positions, and never less than the mask shows.
#include "attention/ring_kv_cache.h"

#include <gtest/gtest.h>

#include "attention/caches.h"
#include "attention/calls.h"
#include "regard/error.h"

namespace regard {
namespace {

using namespace testing_attention;
using kernels::kTileKeys;

RingKvCacheOptions options(const Mask& mask, int64_t capacity, const KvGeometry& g = geometry(2, 8, 8)) {
  return {.geometry = g, .mask = mask, .capacity = capacity};
}
Mask window(int64_t left) { return Mask::causal() & Mask::window(left, 0); }

TEST(RingKvCache, HoldsTheLastTokensAtTheirPositions) {
  const KvGeometry g = geometry(2, 8, 8);
  const Tokens tokens(1, 2000, g);
  for (int64_t capacity : {256, 512, 700}) {
    RingKvCache ring(options(window(100), capacity));
    const int64_t whole = (capacity + 255) / 256 * 256;
    EXPECT_EQ(ring.capacity(), whole);
    for (int portion : {1, 7, 64, 130, 155}) {
      ring.truncate(0);
      for (int at = 0; at < 2000; at += portion) {
        const int count = std::min(portion, 2000 - at);
        ring.append(tokens.rows(at), count);
        ASSERT_EQ(ring.size(), at + count);
        ASSERT_EQ(ring.begin(), std::max<int64_t>(0, at + count - whole));
        if (at % 10 == 0 || portion > 7) expect_holds(ring, tokens, ring.begin(), ring.size());
      }
      EXPECT_EQ(ring.bytes(), whole / kTileKeys * KvTile::bytes(g));
    }
  }
}

TEST(RingKvCache, TilesStandInRisingOrderOfPosition) {
  const KvGeometry g = geometry(1, 4, 4);
  const Tokens tokens(1, 1300, g);
  RingKvCache ring(options(window(50), 512, g));
  for (int at = 0; at < 1300; at += 100) ring.append(tokens.rows(at), 100);
  const KvView view = ring.view();
  EXPECT_EQ(view.begin, 788);
  EXPECT_EQ(view.end, 1300);
  EXPECT_EQ(view.first_tile, 3);
  EXPECT_EQ(view.num_tiles, 3) << "788..1023 is partly overwritten by 1280..1299, in the same memory";
  EXPECT_EQ(view.keys(0, 0, 0), view.keys(2, 0, 0));
}

TEST(RingKvCache, RefusesToLoseAKeyThatIsStillSeen) {
  const KvGeometry g = geometry(2, 8, 8);
  const Tokens tokens(1, 1000, g);
  RingKvCache ring(options(window(99), 256));
  ring.append(tokens.rows(0), 256);
  // The next query stands at 256 and sees the keys from 157 on: 157 tokens fit, 158 do not.
  expect_refused(
      Code::kInvalidArgument,
      {"[RingKvCache::append] 158 tokens after 256", "158", "256", "from 157 on", "window(99, 0)", "at most 157"},
      [&] { ring.append(tokens.rows(256), 158); });
  EXPECT_EQ(ring.size(), 256);
  expect_holds(ring, tokens, 0, 256);
  ring.append(tokens.rows(256), 157);
  expect_holds(ring, tokens, 157, 413);
  expect_refused(Code::kInvalidArgument, {"257", "256"}, [&] { ring.append(tokens.rows(413), 257); });

  // What is seen for ever cannot be kept by a ring that has wrapped.
  for (const char* mask : {"causal", "causal & (window(20, 0) | prefix(4))", "causal & dilated(7)", "full",
                           "blocks(64)", "causal & ~window(20, 0)"}) {
    RingKvCache all(options(Mask::parse(mask), 256));
    all.append(tokens.rows(0), 256);
    expect_refused(Code::kInvalidArgument, {mask}, [&] { all.append(tokens.rows(256), 1); });
    EXPECT_EQ(all.size(), 256) << mask;
  }
  // And what never is may go.
  for (const char* mask : {"causal & chunk(64)", "window(255, 0)", "window(100, 30) & ~prefix(8)", "none"}) {
    RingKvCache some(options(Mask::parse(mask), 256));
    for (int at = 0; at < 1000; ++at) ASSERT_NO_THROW(some.append(tokens.rows(at), 1)) << mask << " " << at;
  }
  RingKvCache too_wide(options(window(256), 256));
  too_wide.append(tokens.rows(0), 256);
  expect_refused(Code::kInvalidArgument, {"at most 0"}, [&] { too_wide.append(tokens.rows(256), 1); });
}

TEST(RingKvCache, HeadsWithMasksOfTheirOwn) {
  const KvGeometry g = geometry(1, 8, 8);
  const Tokens tokens(1, 600, g);
  RingKvCacheOptions o = options(Mask::parse("per_head(window(10, 0), window(200, 0))"), 256, g);
  o.num_q_heads = 2;
  RingKvCache ring(o);
  ring.append(tokens.rows(0), 256);
  EXPECT_THROW(ring.append(tokens.rows(256), 57), Error) << "the wider head decides";
  ring.append(tokens.rows(256), 56);
  o.num_q_heads = 3;
  EXPECT_THROW(RingKvCache{o}, Error);
}

TEST(RingKvCache, TruncateAsFarBackAsNothingIsMissed) {
  const KvGeometry g = geometry(2, 8, 8);
  const Tokens a(1, 1000, g), b(2, 1000, g);
  RingKvCache ring(options(window(99), 512));
  for (int at = 0; at < 900; at += 100) ring.append(a.rows(at), 100);
  EXPECT_EQ(ring.begin(), 388);
  expect_refused(Code::kInvalidArgument, {"truncate", "486", "388", "387"}, [&] { ring.truncate(486); });
  EXPECT_EQ(ring.size(), 900);
  ring.truncate(487);
  EXPECT_EQ(ring.begin(), 388);
  ring.append(b.rows(487), 13);
  expect_holds(ring, a, 388, 487);
  expect_holds(ring, b, 487, 500);
  EXPECT_THROW(ring.truncate(100), Error);
  EXPECT_THROW(ring.truncate(501), Error);
  ring.truncate(0);
  EXPECT_EQ(ring.begin(), 0);
  ring.append(b.rows(0), 50);
  expect_holds(ring, b, 0, 50);
}

TEST(RingKvCache, ForksDoNotAlias) {
  const KvGeometry g = geometry(2, 8, 8);
  const Tokens a(1, 1200, g), b(2, 1200, g);
  for (int at : {100, 256, 300, 512, 700, 1000}) {
    RingKvCache origin(options(window(99), 512));
    for (int p = 0; p < at; p += 100) origin.append(a.rows(p), std::min(100, at - p));
    RingKvCache fork = origin.fork();
    for (int p = at; p < 1200; p += 50) {
      const int n = std::min(50, 1200 - p);
      origin.append(a.rows(p), n);
      fork.append(b.rows(p), n);
      expect_holds(origin, a, origin.begin(), p + n);
      if (fork.begin() < at) expect_holds(fork, a, fork.begin(), at);
      expect_holds(fork, b, std::max<int64_t>(at, fork.begin()), p + n);
    }
  }
}

TEST(RingKvCache, BudgetAndLimits) {
  const KvGeometry g = geometry(2, 8, 8);
  const Tokens a(1, 1000, g);
  RingKvCacheOptions o = options(window(99), 768);
  o.budget = std::make_shared<KvBudget>(2 * KvTile::bytes(g));
  RingKvCache ring(o);
  EXPECT_EQ(o.budget->used(), 0) << "tiles come when they are written";
  ring.append(a.rows(0), 512);
  expect_refused(Code::kResourceExhausted, {"[RingKvCache]", "513", std::to_string(2 * KvTile::bytes(g)).c_str()},
                 [&] { ring.append(a.rows(512), 1); });
  expect_holds(ring, a, 0, 512);
  expect_refused(Code::kInvalidArgument, {"capacity", "0"}, [&] { RingKvCache none(options(window(3), 0)); });
  expect_refused(Code::kInvalidArgument, {"-2"}, [&] { ring.append(a.rows(0), -2); });
}

}  // namespace
}  // namespace regard
