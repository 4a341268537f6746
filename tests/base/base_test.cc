// The small tools every room stands on: halves, checked integers, buffers, results, random numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/checked.h"
#include "base/half.h"
#include "base/result.h"
#include "base/rng.h"
#include "regard/dtype.h"
#include "regard/tensor.h"

namespace regard {
namespace {

TEST(Half, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const auto half = static_cast<uint16_t>(h);
    const float f = half_to_float(half);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(f))));
    } else {
      ASSERT_EQ(float_to_half(f), half) << h;
    }
  }
}

TEST(Half, NarrowingRoundsToNearestEven) {
  EXPECT_EQ(float_to_half(1.0f + 0x1p-11f), 0x3C00);            // a tie goes to the even neighbour
  EXPECT_EQ(float_to_half(1.0f + 3 * 0x1p-11f), 0x3C02);
  EXPECT_EQ(float_to_half(65519.99f), 0x7BFF);
  EXPECT_EQ(float_to_half(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_half(0x1p-25f), 0);                        // half of the smallest subnormal: tie to even
  EXPECT_EQ(float_to_half(0x1.000002p-25f), 1);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f), 0x3F80);
  EXPECT_EQ(float_to_bf16(1.0f + 3 * 0x1p-8f), 0x3F82);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7F800001u)))));
}

TEST(Checked, OverflowIsReported) {
  EXPECT_EQ(checked_add<uint64_t>(~0ull, 1), std::nullopt);
  EXPECT_EQ(checked_add<int32_t>(1, 2), 3);
  EXPECT_EQ(checked_mul<uint64_t>(1ull << 32, 1ull << 32), std::nullopt);
  EXPECT_EQ(checked_mul<int64_t>(1ll << 31, 1ll << 31), 1ll << 62);
  EXPECT_EQ(checked_round_up<uint64_t>(~0ull, 64), std::nullopt);
  EXPECT_EQ(checked_round_up<uint64_t>(65, 64), 128u);
  EXPECT_EQ((checked_cast<uint32_t, int64_t>(-1)), std::nullopt);
}

TEST(AlignedBuffer, IsAlignedAndRefusesTheImpossible) {
  AlignedBuffer<float> buffer(33);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kBufferAlignment, 0u);
  EXPECT_EQ(buffer.size(), 33u);
  try {
    AlignedBuffer<float> huge(size_t{1} << 62);
    FAIL() << "an impossible size was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kResourceExhausted);
  }
}

Result<int> half_of(int x) {
  if (x % 2 != 0) return corrupt("[half_of] {} is odd", x);
  return x / 2;
}
Result<int> quarter_of(int x) {
  REGARD_TRY(const int half, half_of(x));
  return half_of(half);
}

TEST(Result, CarriesTheFailureThrough) {
  EXPECT_EQ(*quarter_of(8), 2);
  ASSERT_FALSE(quarter_of(6));
  EXPECT_EQ(quarter_of(6).failure().message, "[half_of] 3 is odd");
  EXPECT_THROW(quarter_of(5).value_or_throw(), Error);
}

// Known answers of Philox-4x32-10 from the test vectors that its authors publish with Random123.
TEST(Philox, KnownAnswers) {
  EXPECT_THAT(philox({0, 0, 0, 0}, {0, 0}), testing::ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  EXPECT_THAT(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), testing::ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
              testing::ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

TEST(Tensor, DenseStrides) {
  float data[24] = {};
  TensorView<float> t(data, {2, 3, 4});
  EXPECT_EQ(t.size(), 24);
  EXPECT_EQ(t.at(1, 2, 3), data + 23);
  EXPECT_EQ(info(DType::kQ6_K).bytes, 210);
}

}  // namespace
}  // namespace regard
