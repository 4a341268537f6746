// Caches as bytes: what comes back is the same to the bit in any kind of cache, and wrong bytes are refused.
#include "attention/kv_save.h"

#include <gtest/gtest.h>

#include "attention/caches.h"
#include "attention/calls.h"
#include "regard/error.h"

namespace regard {
namespace {

using namespace testing_attention;

std::vector<CacheKind> kinds() {
  return {contiguous_kind(), paged_kind(1), paged_kind(16), paged_kind(64), paged_kind(128), ring_kind(768)};
}

TEST(SavedKv, ComesBackInAnyKindOfCache) {
  const Mask mask = Mask::causal() & Mask::window(99, 0);
  for (const auto& [heads, d, dv] : {std::tuple{2, 24, 8}, std::tuple{1, 1, 1}, std::tuple{3, 33, 40}}) {
    const KvGeometry g = geometry(heads, d, dv);
    Tokens tokens(1, 700, g);
    tokens.k[0] = std::bit_cast<float>(0x7FA12345u);  // a NaN with a payload, a denormal, -0
    tokens.k[1 % tokens.k.size()] = 1e-40f;
    tokens.v[0] = -0.0f;
    for (int64_t length : {0, 1, 64, 300, 600})
      for (const CacheKind& from : kinds()) {
        const auto saved = from.make(g, 700, mask);
        saved->append(tokens.rows(0), length);
        const std::vector<uint8_t> bytes = save_kv(*saved);
        EXPECT_EQ(bytes.size(), 56 + static_cast<size_t>(length * heads * (d + dv)) * sizeof(float));
        for (const CacheKind& to : kinds()) {
          const auto store = to.make(g, 700, mask);
          restore_kv(*store, bytes);
          ASSERT_EQ(store->size(), length);
          ASSERT_EQ(save_kv(*store), bytes) << from.name << " to " << to.name;
          store->append(tokens.rows(length), 100);
          if (length > 0) {
            EXPECT_EQ(bits(key_at(store->view(), 0, 0, 0)), 0x7FA12345u);
            EXPECT_EQ(bits(value_at(store->view(), 0, 0, 0)), 0x80000000u);
            expect_holds(*store, tokens, 1, length + 100);
          }
        }
      }
  }
}

TEST(SavedKv, ARingThatHasWrapped) {
  const KvGeometry g = geometry(2, 8, 8);
  const Tokens tokens(1, 1000, g);
  const Mask mask = Mask::causal() & Mask::window(99, 0);
  RingKvCache ring({.geometry = g, .mask = mask, .capacity = 256});
  for (int at = 0; at < 700; at += 100) ring.append(tokens.rows(at), 100);
  const std::vector<uint8_t> bytes = save_kv(ring);
  for (int64_t capacity : {256, 512}) {
    RingKvCache again({.geometry = g, .mask = mask, .capacity = capacity});
    restore_kv(again, bytes);
    EXPECT_EQ(again.begin(), 444);
    EXPECT_EQ(again.size(), 700);
    again.append(tokens.rows(700), 100);
    expect_holds(again, tokens, again.begin(), 800);
  }
  KvCache whole({.geometry = g});
  expect_refused(Code::kInvalidArgument, {"444"}, [&] { restore_kv(whole, bytes); });
  EXPECT_EQ(whole.size(), 0);
  RingKvCache wider({.geometry = g, .mask = Mask::causal() & Mask::window(300, 0), .capacity = 512});
  expect_refused(Code::kInvalidArgument, {"444", "400"}, [&] { restore_kv(wider, bytes); });
  EXPECT_EQ(wider.size(), 0);
}

TEST(SavedKv, EveryTruncationAndBitFlipIsRefused) {
  const KvGeometry g = geometry(2, 3, 2);
  const Tokens tokens(1, 7, g);
  KvCache cache({.geometry = g});
  cache.append(tokens.rows(0), 7);
  const std::vector<uint8_t> bytes = save_kv(cache);
  for (size_t n = 0; n < bytes.size(); ++n)
    ASSERT_FALSE(read_saved_kv({bytes.data(), n})) << n << " bytes of " << bytes.size();
  std::vector<uint8_t> longer = bytes;
  longer.push_back(0);
  EXPECT_FALSE(read_saved_kv(longer));
  for (size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<uint8_t> wrong = bytes;
      wrong[i] = static_cast<uint8_t>(wrong[i] ^ (1 << bit));
      ASSERT_FALSE(read_saved_kv(wrong)) << "bit " << bit << " of byte " << i;
      KvCache store({.geometry = g});
      ASSERT_THROW(restore_kv(store, wrong), Error);
      ASSERT_EQ(store.size(), 0);
    }
  EXPECT_TRUE(read_saved_kv(bytes));
}

TEST(SavedKv, NumbersThatPromiseTooMuchTakeNoMemory) {
  const KvGeometry g = geometry(1, 4, 4);
  KvCache cache({.geometry = g});
  const std::vector<uint8_t> bytes = save_kv(cache);
  for (size_t field : {16u, 20u, 24u, 32u, 40u})
    for (uint64_t number : {uint64_t{0}, uint64_t{0x7FFFFFFF}, uint64_t{0xFFFFFFFF}, ~uint64_t{0}}) {
      std::vector<uint8_t> wrong = bytes;
      std::memcpy(wrong.data() + field, &number, field < 32 ? 4 : 8);
      if (wrong == bytes) continue;
      const auto saved = read_saved_kv(wrong);
      ASSERT_FALSE(saved);
      EXPECT_EQ(saved.failure().code, Code::kCorruptData) << saved.failure().message;
    }
}

TEST(SavedKv, RefusesAnotherShapeOrAFullCache) {
  const KvGeometry g = geometry(2, 8, 8);
  const Tokens tokens(1, 100, g);
  KvCache cache({.geometry = g});
  cache.append(tokens.rows(0), 100);
  const std::vector<uint8_t> bytes = save_kv(cache);
  expect_refused(Code::kInvalidArgument, {"100 tokens", "truncate"}, [&] { restore_kv(cache, bytes); });
  expect_holds(cache, tokens, 0, 100);
  KvCache other({.geometry = geometry(2, 8, 9)});
  expect_refused(Code::kInvalidArgument, {"value_dim 8", "9"}, [&] { restore_kv(other, bytes); });
  KvCache few({.geometry = g, .max_tokens = 99});
  expect_refused(Code::kResourceExhausted, {"100", "99"}, [&] { restore_kv(few, bytes); });
  EXPECT_EQ(few.size(), 0);
  std::vector<uint8_t> newer = bytes;
  newer[8] = 2;
  KvCache empty({.geometry = g});
  expect_refused(Code::kUnsupported, {"version 2"}, [&] { restore_kv(empty, newer); });
}

TEST(SavedKv, EveryTypeComesBackToTheBit) {
  for (DType type : {DType::kF16, DType::kBF16, DType::kI8}) {
    const KvGeometry g = geometry(2, 33, 24, type);
    const Tokens tokens(1, 400, g);
    for (const CacheKind& from : {contiguous_kind(), paged_kind(16), paged_kind(64), ring_kind(512)}) {
      const auto saved = from.make(g, 400, Mask::causal());
      saved->append(tokens.rows(0), 300);
      const std::vector<uint8_t> bytes = save_kv(*saved);
      EXPECT_EQ(bytes.size(), 56u + 300 * 2 * (type == DType::kI8 ? 33 + 24 + 8 : 2 * (33 + 24)));
      for (const CacheKind& to : {contiguous_kind(), paged_kind(1), paged_kind(128), ring_kind(512)}) {
        const auto store = to.make(g, 1000, Mask::causal());
        restore_kv(*store, bytes);
        ASSERT_EQ(save_kv(*store), bytes) << info(type).name << " " << from.name << " to " << to.name;
        const std::unique_ptr<KvStore> fork = store->clone();
        store->append(tokens.rows(300), 100);
        fork->append(tokens.rows(300), 100);
        saved->truncate(300);
        saved->append(tokens.rows(300), 100);
        ASSERT_EQ(save_kv(*store), save_kv(*saved));
        ASSERT_EQ(save_kv(*fork), save_kv(*saved));
      }
      KvCache other({.geometry = geometry(2, 33, 24)});
      expect_refused(Code::kInvalidArgument, {info(type).name.data(), "f32"}, [&] { restore_kv(other, bytes); });
    }
  }
}

TEST(SavedKv, BlocksOfScalesComeBackToTheBit) {
  const KvGeometry g = geometry(2, 40, 24, DType::kI8, 16);
  const Tokens tokens(1, 400, g);
  for (const CacheKind& from : {contiguous_kind(), paged_kind(16), paged_kind(64), ring_kind(512)}) {
    const auto saved = from.make(g, 400, Mask::causal());
    saved->append(tokens.rows(0), 300);
    const std::vector<uint8_t> bytes = save_kv(*saved);
    EXPECT_EQ(bytes.size(), 56u + 300 * 2 * (40 + 24 + 4 * (3 + 2)));
    for (const CacheKind& to : {contiguous_kind(), paged_kind(1), paged_kind(128), ring_kind(512)}) {
      const auto store = to.make(g, 1000, Mask::causal());
      restore_kv(*store, bytes);
      ASSERT_EQ(save_kv(*store), bytes) << from.name << " to " << to.name;
      const std::unique_ptr<KvStore> fork = store->clone();
      store->append(tokens.rows(300), 100);
      fork->append(tokens.rows(300), 100);
      saved->truncate(300);
      saved->append(tokens.rows(300), 100);
      ASSERT_EQ(save_kv(*store), save_kv(*saved));
      ASSERT_EQ(save_kv(*fork), save_kv(*saved));
    }
    for (const int other : {0, 32}) {
      KvCache cache({.geometry = geometry(2, 40, 24, DType::kI8, other)});
      expect_refused(Code::kInvalidArgument, {"scale_block", "16", other == 0 ? "0" : "32"},
                     [&] { restore_kv(cache, bytes); });
    }
    for (const uint8_t odd : {uint8_t{48}, uint8_t{8}}) {
      std::vector<uint8_t> forged = bytes;
      forged[28] = odd;  // scale_block
      const auto read = read_saved_kv(forged);
      ASSERT_FALSE(read);
      EXPECT_EQ(read.failure().code, Code::kCorruptData);
      EXPECT_NE(read.failure().message.find(std::to_string(odd)), std::string::npos) << read.failure().message;
    }
  }
}

}  // namespace
}  // namespace regard
