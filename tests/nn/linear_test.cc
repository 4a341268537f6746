// nn::Linear: streaming, sharing out among threads, several layers at once, and what it refuses. Expected values are the chains of
// kernels/reference over the decoded file bytes, compared as bits.
#include "nn/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "kernels/reference/linear.h"
#include "kernels/registry.h"
#include "support/cases.h"
#include "support/random_weights.h"
#include "support/refusal.h"

namespace regard::nn {
namespace {

using ::regard::test::kWeightTypes;
using ::regard::test::message_of;
using ::regard::test::random_weights;
using ::testing::HasSubstr;

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

std::vector<float> inputs(int64_t n, uint32_t seed) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(4 * random_uniform(seed, 1, i) - 2);
  return x;
}

AlignedBuffer<float> biases(int64_t n) {
  AlignedBuffer<float> b(static_cast<size_t>(n));
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(random_uniform(5, 2, i) - 0.5);
  return b;
}

// A matrix, its layer, and what the layer has to give.
struct Case {
  DType type;
  int64_t out, in;
  std::vector<uint8_t> bytes;
  std::vector<float> weights;
  Linear layer;

  Case(DType t, int64_t o, int64_t i, uint32_t seed) : type(t), out(o), in(i), bytes(random_weights(t, o, i, seed)), weights(static_cast<size_t>(o * i)) {
    const int64_t row = kernels::row_bytes(t, i).value();
    for (int64_t n = 0; n < o; ++n) kernels::reference::decode_row(t, bytes.data() + n * row, i, weights.data() + n * i);
    layer = make_linear({.type = t, .out = o, .in = i}, bytes);
  }

  std::vector<float> product(const std::vector<float>& x, int64_t rows, const float* bias = nullptr) const {
    std::vector<float> y(static_cast<size_t>(rows * out));
    if (kernels::kernels().isa == Isa::kBaseline)
      kernels::reference::linear(x.data(), weights.data(), rows, in, out, y.data(), kernels::reference::MultiplyThenAdd{});
    else
      kernels::reference::linear(x.data(), weights.data(), rows, in, out, y.data(), kernels::reference::FusedMultiplyAdd{});
    for (int64_t m = 0; m < rows && bias != nullptr; ++m)
      for (int64_t n = 0; n < out; ++n) y[static_cast<size_t>(m * out + n)] += bias[n];
    return y;
  }
};

ThreadPool& pool_of(int threads) {
  static std::unique_ptr<ThreadPool> pools[9];
  auto& pool = pools[static_cast<size_t>(threads)];
  if (!pool) pool = std::make_unique<ThreadPool>(threads);
  return *pool;
}

void expect_bits(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(bits(got[i]), bits(want[i])) << what << " element " << i;
}

TEST(Linear, SameBitsOnAnyNumberOfThreadsForAnyNumberOfRows) {
  std::printf("kernels compared: %s, fused up to %d rows\n", std::string(isa_name(kernels::kernels().isa)).c_str(), kernels::kernels().linear->fused_rows);
  for (DType type : kWeightTypes) {
    const Case c(type, 9 * 64 - 5, 512, 3);  // nine panels do not divide among two threads
    const int64_t most = cases(300);
    const std::vector<float> x = inputs(most * c.in, 1);
    const std::vector<float> want = c.product(x, most);
    for (int threads : {1, 2, 3, 8})
      for (int64_t rows : {int64_t{1}, int64_t{2}, int64_t{4}, int64_t{5}, int64_t{8}, int64_t{9}, int64_t{31}, most}) {
        std::vector<float> y(static_cast<size_t>(rows * c.out), NAN);
        c.layer.forward(pool_of(threads), {x.data(), {rows, c.in}}, {y.data(), {rows, c.out}});
        expect_bits(y, {want.begin(), want.begin() + rows * c.out}, std::string(info(type).name) + " on " + std::to_string(threads) + " threads, rows " + std::to_string(rows));
        if (HasFatalFailure()) return;
      }
  }
}

TEST(Linear, AThousandRowsEqualOneRowAThousandTimes) {
  const Case c(DType::kQ4_1, 128, 64, 8);
  const std::vector<float> x = inputs(1000 * c.in, 2);
  std::vector<float> together(1000 * 128), apart(1000 * 128);
  c.layer.forward(pool_of(2), {x.data(), {1000, c.in}}, {together.data(), {1000, c.out}});
  for (int64_t m = 0; m < 1000; ++m) c.layer.forward(pool_of(2), {x.data() + m * c.in, {1, c.in}}, {apart.data() + m * c.out, {1, c.out}});
  expect_bits(together, apart, "rows");
  expect_bits(together, c.product(x, 1000), "reference");
}

TEST(Linear, BiasIsOneAdditionAfterTheChain) {
  for (int64_t rows : {1, 40}) {
    Case c(DType::kQ8_0, 200, 512, 3);
    const AlignedBuffer<float> bias = biases(c.out);
    c.layer.set_bias(biases(c.out));
    EXPECT_TRUE(c.layer.has_bias());
    const std::vector<float> x = inputs(rows * c.in, 1);
    std::vector<float> y(static_cast<size_t>(rows * c.out), NAN);
    c.layer.forward(pool_of(3), {x.data(), {rows, c.in}}, {y.data(), {rows, c.out}});
    expect_bits(y, c.product(x, rows, bias.data()), "bias");
  }
}

TEST(Linear, SeveralLayersInOneStep) {
  std::vector<Case> cases;
  cases.emplace_back(DType::kQ5_0, 256, 512, 1);
  cases.emplace_back(DType::kQ8_0, 70, 512, 2);
  cases.emplace_back(DType::kQ4_K, 64, 512, 3);
  cases.emplace_back(DType::kF16, 1, 512, 4);
  const AlignedBuffer<float> bias = biases(70);
  cases[1].layer.set_bias(biases(70));
  for (int threads : {1, 2, 3})
    for (int64_t rows : {1, 3, 7, 40, 150}) {
      const std::vector<float> x = inputs(rows * 512, 6);
      std::vector<std::vector<float>> y;
      std::vector<LinearOutput> outputs;
      for (const Case& c : cases) y.emplace_back(static_cast<size_t>(rows * c.out), NAN);
      for (size_t i = 0; i < cases.size(); ++i) outputs.push_back({&cases[i].layer, {y[i].data(), {rows, cases[i].out}}});
      forward_many(pool_of(threads), {x.data(), {rows, 512}}, outputs);
      for (size_t i = 0; i < cases.size(); ++i) expect_bits(y[i], cases[i].product(x, rows, i == 1 ? bias.data() : nullptr), "layer " + std::to_string(i));
    }
}

TEST(Linear, StridesAreKept) {
  const Case c(DType::kQ4_0, 130, 64, 3);
  for (int64_t rows : {2, 30, 130}) {
    const int64_t ldx = c.in + 5, ldy = c.out + 7;
    const std::vector<float> dense = inputs(rows * c.in, 1);
    std::vector<float> x(static_cast<size_t>(rows * ldx), NAN), y(static_cast<size_t>(rows * ldy), -7.0f);
    for (int64_t m = 0; m < rows; ++m) std::copy_n(dense.data() + m * c.in, c.in, x.data() + m * ldx);
    TensorView<const float> xv(x.data(), {rows, c.in});
    TensorView<float> yv(y.data(), {rows, c.out});
    xv.strides[0] = ldx;
    yv.strides[0] = ldy;
    c.layer.forward(pool_of(2), xv, yv);
    const std::vector<float> want = c.product(dense, rows);
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t n = 0; n < ldy; ++n) {
        const float got = y[static_cast<size_t>(m * ldy + n)];
        ASSERT_EQ(bits(got), bits(n < c.out ? want[static_cast<size_t>(m * c.out + n)] : -7.0f)) << m << " " << n;
      }
  }
}

// A loader hands over whatever its buffer held.
TEST(Linear, PacksFromPiecesOfAnySize) {
  for (DType type : {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ6_K}) {
    const Case c(type, 150, 256, 3);
    for (size_t piece : {size_t{1}, size_t{777}, size_t{20000}, size_t{60000}, c.bytes.size()}) {
      LinearPack pack({.type = type, .out = c.out, .in = c.in});
      EXPECT_EQ(pack.file_bytes(), static_cast<int64_t>(c.bytes.size()));
      for (size_t i = 0; i < c.bytes.size(); i += piece) ASSERT_TRUE(pack.add(std::span(c.bytes).subspan(i, std::min(piece, c.bytes.size() - i))));
      const Linear layer = pack.finish();
      ASSERT_EQ(layer.bytes(), c.layer.bytes());
      for (int64_t n = 0; n < c.out; ++n) {
        std::vector<float> row(256);
        layer.row(n, row.data());
        expect_bits(row, {c.weights.begin() + n * 256, c.weights.begin() + (n + 1) * 256}, "row " + std::to_string(n));
      }
    }
  }
}

TEST(Linear, EmptySizes) {
  ThreadPool& pool = pool_of(2);
  const Linear nothing_in = make_linear(70, 0, {});
  std::vector<float> y(140, NAN);
  nothing_in.forward(pool, {y.data(), {2, 0}}, {y.data(), {2, 70}});
  for (float v : y) EXPECT_EQ(bits(v), 0u);
  const Linear nothing_out = make_linear(0, 64, {});
  const std::vector<float> x(64, 1.0f);
  nothing_out.forward(pool, {x.data(), {1, 64}}, {y.data(), {1, 0}});
  const Linear small = make_linear(1, 1, std::vector<float>{3.0f});
  small.forward(pool, {x.data(), {0, 1}}, {y.data(), {0, 1}});
  small.forward(pool, {x.data(), {1, 1}}, {y.data(), {1, 1}});
  EXPECT_EQ(y[0], 3.0f);
  EXPECT_EQ(y[1], 0.0f);
}

TEST(Linear, RefusalsNameTheNumbers) {
  ThreadPool& pool = pool_of(1);
  Linear layer = make_linear(3, 2, std::vector<float>(6, 1.0f));
  std::vector<float> x(100), y(100);
  EXPECT_THAT(message_of([&] { layer.forward(pool, {x.data(), {4, 5}}, {y.data(), {4, 3}}); }), HasSubstr("x is [4, 5] but the layer takes rows of 2"));
  EXPECT_THAT(message_of([&] { layer.forward(pool, {x.data(), {4, 2}}, {y.data(), {5, 3}}); }), HasSubstr("y is [5, 3] with 2 axes; expected [4, 3]"));
  EXPECT_THAT(message_of([&] { layer.forward(pool, {x.data(), {4}}, {y.data(), {4, 3}}); }), HasSubstr("1 axes"));
  TensorView<float> apart(y.data(), {4, 3});
  apart.strides[1] = 2;
  EXPECT_THAT(message_of([&] { layer.forward(pool, {x.data(), {4, 2}}, apart); }), HasSubstr("2 apart"));
  TensorView<float> overlapping(y.data(), {4, 3});
  overlapping.strides[0] = 2;
  EXPECT_THAT(message_of([&] { layer.forward(pool, {x.data(), {4, 2}}, overlapping); }), HasSubstr("overlap"));
  EXPECT_THAT(message_of([&] { layer.row(3, y.data()); }), HasSubstr("row 3 of a matrix with 3"));
  EXPECT_THAT(message_of([&] { layer.row(-1, y.data()); }), HasSubstr("row -1"));
  EXPECT_THAT(message_of([&] { layer.set_bias(AlignedBuffer<float>(2)); }), HasSubstr("2 biases for 3 outputs"));
  EXPECT_THAT(message_of([&] { LinearPack({.type = DType::kQ4_K, .out = 1, .in = 128}); }), HasSubstr("128"));
  EXPECT_THAT(message_of([&] { LinearPack({.type = DType::kI32, .out = 1, .in = 128}); }), HasSubstr("i32"));
  EXPECT_THAT(message_of([&] { LinearPack({.out = -1, .in = 128}); }), HasSubstr("-1"));
  EXPECT_THAT(message_of([&] { LinearPack({.out = INT64_MAX / 4, .in = 128}); }, Code::kResourceExhausted), HasSubstr("128"));
  LinearPack pack({.out = 1, .in = 2});
  EXPECT_THAT(message_of([&] { static_cast<void>(pack.add(std::vector<uint8_t>(9))); }), HasSubstr("9 more bytes where 8 are left"));
  ASSERT_TRUE(pack.add(std::vector<uint8_t>(7)));
  EXPECT_THAT(message_of([&] { pack.finish(); }), HasSubstr("0 of 1 rows"));
  const std::vector<LinearOutput> many(9, LinearOutput{&layer, {y.data(), {1, 3}}});
  EXPECT_THAT(message_of([&] { forward_many(pool, {x.data(), {1, 2}}, many); }), HasSubstr("9 layers at once; at most 8"));
}

TEST(Linear, NonFiniteScalesAreCorruptData) {
  std::vector<uint8_t> bytes = random_weights(DType::kQ8_0, 100, 32, 1);
  bytes[80 * 34 + 1] = 0x7C;
  bytes[80 * 34] = 0;
  LinearPack pack({.type = DType::kQ8_0, .out = 100, .in = 32});
  const Result<Done> done = pack.add(bytes);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.failure().code, Code::kCorruptData);
  EXPECT_THAT(done.failure().message, HasSubstr("rows 64 to 99"));
}

TEST(Linear, StopsOnRequest) {
  const Case c(DType::kQ8_0, 64, 64, 1);
  StopToken stop;
  stop.request_stop();
  const std::vector<float> x(64 * 64, 1.0f);
  std::vector<float> y(64 * 64);
  for (int64_t rows : {1, 64})
    message_of([&] { c.layer.forward(pool_of(2), {x.data(), {rows, 64}}, {y.data(), {rows, 64}}, &stop); }, Code::kCancelled);
}

}  // namespace
}  // namespace regard::nn
