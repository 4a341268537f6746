// Slopes and buckets against the published rules, written out another way, and against transformers' buckets.
#include <gtest/gtest.h>

#include <cmath>

#include "regard/error.h"
#include "regard/score_terms.h"
#include "support/golden.h"

namespace regard {
namespace {

TEST(Alibi, PublishedSlopes) {
  EXPECT_EQ(alibi_slopes(1), (std::vector<float>{0x1p-8f}));
  EXPECT_EQ(alibi_slopes(2), (std::vector<float>{0x1p-4f, 0x1p-8f}));
  EXPECT_EQ(alibi_slopes(8), (std::vector<float>{0.5f, 0.25f, 0.125f, 0x1p-4f, 0x1p-5f, 0x1p-6f, 0x1p-7f, 0x1p-8f}));
  // 12 heads: 8, then the 1st, 3rd, 5th and 7th of 16.
  const std::vector<float> twelve = alibi_slopes(12);
  ASSERT_EQ(twelve.size(), 12u);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(twelve[static_cast<size_t>(i)], std::ldexp(1.0f, -(i + 1)));
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(twelve[static_cast<size_t>(8 + i)], static_cast<float>(std::pow(2.0, -0.5 * (2 * i + 1))));
  for (int64_t heads : {3, 7, 16, 20, 71, 112, 128}) {
    const std::vector<float> slopes = alibi_slopes(heads);
    ASSERT_EQ(static_cast<int64_t>(slopes.size()), heads);
    int64_t n = 1;
    while (2 * n <= heads) n *= 2;
    for (int64_t i = 0; i < heads; ++i) {
      const double want = i < n ? std::pow(2.0, -8.0 * static_cast<double>(i + 1) / static_cast<double>(n))
                                : std::pow(2.0, -4.0 * static_cast<double>(2 * (i - n) + 1) / static_cast<double>(n));
      ASSERT_EQ(slopes[static_cast<size_t>(i)], static_cast<float>(want)) << heads << " heads, " << i;
    }
  }
  EXPECT_THROW(alibi_slopes(0), Error);
  EXPECT_THROW(alibi_slopes(-1), Error);
  EXPECT_THROW(alibi_slopes(int64_t{1} << 40), Error);
}

TEST(T5, BucketsOfTransformers) {
  for (const auto& entry : test::read_json("terms/t5_buckets.json")) {
    const auto direction = entry["bidirectional"].get<bool>() ? T5Direction::kBidirectional : T5Direction::kCausal;
    const auto buckets = entry["buckets"].get<int64_t>(), far = entry["max_distance"].get<int64_t>();
    // Runs of [first distance, bucket], distances rising.
    const auto& runs = entry["runs"];
    for (size_t i = 0; i < runs.size(); ++i) {
      const int64_t first = runs[i][0].get<int64_t>(), end = i + 1 < runs.size() ? runs[i + 1][0].get<int64_t>() : 3000;
      for (int64_t d = first; d < end; ++d)
        ASSERT_EQ(t5_bucket(d, buckets, far, direction), runs[i][1].get<int64_t>())
            << buckets << " buckets, max_distance " << far << ", distance " << d;
    }
    EXPECT_EQ(t5_bucket(INT64_MIN, buckets, far, direction), runs[0][1].get<int64_t>());
    EXPECT_EQ(t5_bucket(INT64_MAX, buckets, far, direction), runs.back()[1].get<int64_t>());
  }
}

TEST(T5, RefusesWhatMakesNoBuckets) {
  for (const auto& [buckets, far, direction] : {std::tuple{int64_t{1}, int64_t{128}, T5Direction::kCausal},
                                                {0, 128, T5Direction::kCausal},
                                                {2, 128, T5Direction::kBidirectional},
                                                {31, 128, T5Direction::kBidirectional},
                                                {32, 8, T5Direction::kBidirectional},
                                                {32, 16, T5Direction::kCausal},
                                                {32, 0, T5Direction::kCausal},
                                                {-4, 128, T5Direction::kCausal}})
    EXPECT_THROW(t5_bucket(1, buckets, far, direction), Error) << buckets << " " << far;
}

}  // namespace
}  // namespace regard
