// The three matrix products of a training step: bits against the chains of kernels/reference, values against f64, and that
// neither threads, nor strides, nor the cutting into rows or micro-batches changes a bit.
#include "nn/training/gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "kernels/reference/bf16.h"
#include "kernels/reference/gemm.h"
#include "kernels/registry.h"
#include "nn/linear.h"
#include "support/refusal.h"

namespace regard::nn::training {
namespace {

using ::regard::test::message_of;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

Floats uniform(int64_t n, uint32_t seed) {
  Floats x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(2 * random_uniform(seed, 1, i) - 1);
  return x;
}

ThreadPool& pool_of(int threads) {
  static std::unique_ptr<ThreadPool> pools[9];
  auto& pool = pools[static_cast<size_t>(threads)];
  if (!pool) pool = std::make_unique<ThreadPool>(threads);
  return *pool;
}

void expect_bits(const Floats& got, const Floats& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(bits(got[i]), bits(want[i])) << what << " element " << i << ": " << got[i] << " for " << want[i];
}

Floats transposed(const Floats& x, int64_t rows, int64_t columns) {
  Floats t(x.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) t[static_cast<size_t>(c * rows + r)] = x[static_cast<size_t>(r * columns + c)];
  return t;
}

template <class F>
void with_arithmetic(F f) {
  if (kernels::kernels().isa == Isa::kBaseline)
    f(kernels::reference::MultiplyThenAdd{});
  else
    f(kernels::reference::FusedMultiplyAdd{});
}

struct Bf16MultiplyAdd {
  float operator()(float a, float b, float sum) const {
    using namespace kernels::reference;
    return spec_add_product(sum, spec_bf16(a), spec_bf16(b));
  }
};

// Neighbours exchanged, which turns the order of a chain over pairs into a rising one; an odd last one stays.
Floats columns_exchanged(Floats x, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c + 1 < columns; c += 2) std::swap(x[static_cast<size_t>(r * columns + c)], x[static_cast<size_t>(r * columns + c + 1)]);
  return x;
}
Floats rows_exchanged(const Floats& x, int64_t rows, int64_t columns) {
  return transposed(columns_exchanged(transposed(x, rows, columns), columns, rows), columns, rows);
}

// Operands of a layer, weights as [out, in], and all results by the definition.
struct Case {
  int64_t rows, in, out;
  GemmPrecision precision;
  Floats x, w, dy, bias, dx0, dw0, db0;  // gradients begin at something
  Floats y, dx, dw, db;

  Case(int64_t r, int64_t i, int64_t o, GemmPrecision p = GemmPrecision::kF32) : rows(r), in(i), out(o), precision(p) {
    x = uniform(r * i, 1), w = uniform(o * i, 2), dy = uniform(r * o, 3), bias = uniform(o, 4);
    dx0 = uniform(r * i, 5), dw0 = uniform(o * i, 6), db0 = uniform(o, 7);
    y.resize(dy.size()), dx = dx0, dw = dw0, db = db0;
    with_arithmetic([&](auto multiply_add) {
      kernels::reference::linear(x.data(), w.data(), r, i, o, y.data(), multiply_add);
      kernels::reference::linear_backward_input(dy.data(), w.data(), r, i, o, dx.data(), multiply_add);
      kernels::reference::linear_backward_weight(x.data(), dy.data(), r, i, o, dw.data(), db.data(), multiply_add);
    });
    if (precision == GemmPrecision::kBF16) compute_in_bf16();
    for (int64_t m = 0; m < r; ++m)
      for (int64_t n = 0; n < o; ++n) y[static_cast<size_t>(m * o + n)] += bias[static_cast<size_t>(n)];
  }

  // All but the gradient of the bias, which is the same in both.
  void compute_in_bf16() {
    using namespace kernels::reference;
    const Bf16MultiplyAdd multiply_add;
    Floats unused = db0;
    dx = dx0, dw = dw0;
    linear(columns_exchanged(x, rows, in).data(), columns_exchanged(w, out, in).data(), rows, in, out, y.data(), multiply_add);
    linear_backward_input(columns_exchanged(dy, rows, out).data(), rows_exchanged(w, out, in).data(), rows, in, out, dx.data(), multiply_add);
    linear_backward_weight(rows_exchanged(x, rows, in).data(), rows_exchanged(dy, rows, out).data(), rows, in, out, dw.data(), unused.data(),
                           multiply_add);
  }
};

// A layer with its scratch, which is poisoned and exactly as large as promised.
struct Layer {
  TrainableLinearConfig config;
  ThreadPool& pool;
  TrainableLinear layer;
  AlignedBuffer<float> scratch;
  Floats weight;

  Layer(const Case& c, WeightLayout layout, int threads)
      : config{.out = c.out, .in = c.in, .layout = layout, .precision = c.precision},
        pool(pool_of(threads)),
        layer(config),
        scratch(static_cast<size_t>(gemm_scratch(pool, config, c.rows))),
        weight(layout == WeightLayout::kOutIn ? c.w : transposed(c.w, c.out, c.in)) {
    std::fill(scratch.begin(), scratch.end(), NAN);
  }
  GemmContext context() { return {pool, {scratch.data(), scratch.size()}}; }
  // As [out, in], whatever the layout.
  Floats out_in(const Floats& w) const { return config.layout == WeightLayout::kOutIn ? w : transposed(w, config.in, config.out); }
  Floats stored(const Floats& w) const { return config.layout == WeightLayout::kOutIn ? w : transposed(w, config.out, config.in); }
};

void expect_case(const Case& c, WeightLayout layout, int threads) {
  const std::string what = std::to_string(c.rows) + " x " + std::to_string(c.in) + " -> " + std::to_string(c.out) + " on " + std::to_string(threads) +
                           " threads, layout " + std::to_string(static_cast<int>(layout));
  Layer l(c, layout, threads);
  Floats y(c.y.size(), NAN), dx = c.dx0, dw = l.stored(c.dw0), db = c.db0;
  l.layer.forward(l.context(), l.weight.data(), c.bias.data(), {c.x.data(), {c.rows, c.in}}, {y.data(), {c.rows, c.out}});
  l.layer.backward_input(l.context(), l.weight.data(), {c.dy.data(), {c.rows, c.out}}, {dx.data(), {c.rows, c.in}}, Accumulate::kAdd);
  l.layer.backward_weight(l.context(), {c.x.data(), {c.rows, c.in}}, {c.dy.data(), {c.rows, c.out}}, dw.data(), db.data());
  expect_bits(y, c.y, "forward " + what);
  expect_bits(dx, c.dx, "input gradient " + what);
  expect_bits(l.out_in(dw), c.dw, "weight gradient " + what);
  expect_bits(db, c.db, "bias gradient " + what);
}

TEST(TrainableLinear, EveryElementIsOneChain) {
  std::printf("kernels compared: %s\n", std::string(isa_name(kernels::kernels().isa)).c_str());
  const int64_t sizes[] = {0, 1, 5, 6, 7, 63, 64, 65, 130};
  for (int64_t rows : sizes)
    for (int64_t in : sizes)
      for (int64_t out : sizes) {
        const Case c(rows, in, out);
        expect_case(c, WeightLayout::kOutIn, 2);
        expect_case(c, WeightLayout::kInOut, 2);
        if (::testing::Test::HasFatalFailure()) return;
      }
}

// Beyond the length at which the inner dimension is cut, in each of the directions.
TEST(TrainableLinear, SameBitsOnAnyNumberOfThreads) {
  for (const auto& [rows, in, out] : {std::array<int64_t, 3>{40, 1700, 70}, {1601, 97, 130}, {70, 66, 1555}, {300, 200, 210}}) {
    const Case c(rows, in, out);
    for (int threads : {1, 2, 3, 8})
      for (WeightLayout layout : {WeightLayout::kOutIn, WeightLayout::kInOut}) expect_case(c, layout, threads);
  }
}

TEST(TrainableLinear, ForwardHasTheBitsOfLinear) {
  for (int64_t rows : {1, 7, 100}) {
    const Case c(rows, 900, 200);
    Linear linear = make_linear(c.out, c.in, c.w);
    AlignedBuffer<float> bias(c.bias.size());
    std::copy(c.bias.begin(), c.bias.end(), bias.begin());
    linear.set_bias(std::move(bias));
    Layer l(c, WeightLayout::kOutIn, 2);
    Floats y(c.y.size(), NAN), z(c.y.size(), NAN);
    linear.forward(l.pool, {c.x.data(), {rows, c.in}}, {z.data(), {rows, c.out}});
    l.layer.forward(l.context(), l.weight.data(), c.bias.data(), {c.x.data(), {rows, c.in}}, {y.data(), {rows, c.out}});
    expect_bits(y, z, "rows " + std::to_string(rows));
  }
}

// The chains themselves against f64, so that both sides of the comparisons above cannot be wrong together.
TEST(TrainableLinear, ValuesAreThoseOfTheFormulas) {
  const Case c(150, 90, 110);
  Layer l(c, WeightLayout::kInOut, 2);
  Floats y(c.y.size()), dx(c.dx.size(), NAN), dw(c.dw.size(), 0.0f), db(c.db.size(), 0.0f);
  l.layer.forward(l.context(), l.weight.data(), nullptr, {c.x.data(), {c.rows, c.in}}, {y.data(), {c.rows, c.out}});
  l.layer.backward_input(l.context(), l.weight.data(), {c.dy.data(), {c.rows, c.out}}, {dx.data(), {c.rows, c.in}});
  l.layer.backward_weight(l.context(), {c.x.data(), {c.rows, c.in}}, {c.dy.data(), {c.rows, c.out}}, dw.data(), db.data());
  const auto at = [](const Floats& v, int64_t r, int64_t columns, int64_t i) { return double{v[static_cast<size_t>(r * columns + i)]}; };
  const auto expect_near = [](float got, double want, double magnitude, int64_t terms) {
    ASSERT_NEAR(double{got}, want, 0x1p-24 * static_cast<double>(terms + 1) * magnitude);
  };
  for (int64_t m = 0; m < c.rows; ++m)
    for (int64_t n = 0; n < c.out; ++n) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < c.in; ++k) sum += at(c.x, m, c.in, k) * at(c.w, n, c.in, k), size += std::abs(at(c.x, m, c.in, k) * at(c.w, n, c.in, k));
      expect_near(y[static_cast<size_t>(m * c.out + n)], sum, size, c.in);
    }
  for (int64_t m = 0; m < c.rows; ++m)
    for (int64_t k = 0; k < c.in; ++k) {
      double sum = 0, size = 0;
      for (int64_t n = 0; n < c.out; ++n) sum += at(c.dy, m, c.out, n) * at(c.w, n, c.in, k), size += std::abs(at(c.dy, m, c.out, n) * at(c.w, n, c.in, k));
      expect_near(dx[static_cast<size_t>(m * c.in + k)], sum, size, c.out);
    }
  for (int64_t n = 0; n < c.out; ++n) {
    double column = 0, column_size = 0;
    for (int64_t m = 0; m < c.rows; ++m) column += at(c.dy, m, c.out, n), column_size += std::abs(at(c.dy, m, c.out, n));
    expect_near(db[static_cast<size_t>(n)], column, column_size, c.rows);
    for (int64_t k = 0; k < c.in; ++k) {
      double sum = 0, size = 0;
      for (int64_t m = 0; m < c.rows; ++m) sum += at(c.dy, m, c.out, n) * at(c.x, m, c.in, k), size += std::abs(at(c.dy, m, c.out, n) * at(c.x, m, c.in, k));
      expect_near(dw[static_cast<size_t>(k * c.out + n)], sum, size, c.rows);
    }
  }
}

// A view whose rows lie `gap` elements further apart, over poisoned memory.
struct Apart {
  Floats memory;
  TensorView<float> view;
  Apart(const Floats& dense, int64_t rows, int64_t columns, int64_t gap) : memory(static_cast<size_t>(rows * (columns + gap)), NAN) {
    view = {memory.data(), {rows, columns}};
    view.strides[0] = columns + gap;
    for (int64_t r = 0; r < rows; ++r) std::copy_n(dense.data() + r * columns, columns, memory.data() + r * (columns + gap));
  }
  Floats dense() const {
    Floats d;
    for (int64_t r = 0; r < view.shape[0]; ++r) d.insert(d.end(), view.at(r), view.at(r) + view.shape[1]);
    return d;
  }
  void expect_gaps_untouched() const {
    for (int64_t r = 0; r < view.shape[0]; ++r)
      for (int64_t i = view.shape[1]; i < view.strides[0]; ++i) ASSERT_TRUE(std::isnan(view.data[r * view.strides[0] + i]));
  }
};

void expect_strides_kept(const Case& c) {
  for (WeightLayout layout : {WeightLayout::kOutIn, WeightLayout::kInOut}) {
    Layer l(c, layout, 2);
    Apart x(c.x, c.rows, c.in, 5), dy(c.dy, c.rows, c.out, 9), y(Floats(c.y.size(), NAN), c.rows, c.out, 3), dx(c.dx0, c.rows, c.in, 7);
    Floats dw = l.stored(c.dw0), db = c.db0;
    l.layer.forward(l.context(), l.weight.data(), c.bias.data(), x.view, y.view);
    l.layer.backward_input(l.context(), l.weight.data(), dy.view, dx.view, Accumulate::kAdd);
    l.layer.backward_weight(l.context(), x.view, dy.view, dw.data(), db.data());
    expect_bits(y.dense(), c.y, "forward");
    expect_bits(dx.dense(), c.dx, "input gradient");
    expect_bits(l.out_in(dw), c.dw, "weight gradient");
    expect_bits(db, c.db, "bias gradient");
    y.expect_gaps_untouched();
    dx.expect_gaps_untouched();
  }
}

TEST(TrainableLinear, StridesAreKept) { expect_strides_kept(Case(75, 70, 133)); }

// Sums over the outputs of a large vocabulary: chains of at most 768, from 0, added in order.
TEST(TrainableLinear, LongSumsOfAnInputGradientAreMadeInParts) {
  constexpr int64_t kRows = 70, kIn = 67, kOut = 8193, kParts = 11;
  const Case c(kRows, kIn, kOut);
  Floats want = c.dx0, zeros(want.size());
  for (int64_t i = 0; i < kParts; ++i) {
    const int64_t n0 = kOut * i / kParts, n1 = kOut * (i + 1) / kParts;
    Floats dy, part(want.size());
    for (int64_t m = 0; m < kRows; ++m) dy.insert(dy.end(), c.dy.begin() + m * kOut + n0, c.dy.begin() + m * kOut + n1);
    with_arithmetic([&](auto multiply_add) {
      kernels::reference::linear_backward_input(dy.data(), c.w.data() + n0 * kIn, kRows, kIn, n1 - n0, part.data(), multiply_add);
    });
    for (size_t e = 0; e < want.size(); ++e) want[e] += part[e], zeros[e] += part[e];
  }
  for (const int threads : {1, 3}) {
    Layer l(c, WeightLayout::kOutIn, threads);
    Floats added = c.dx0, written(want.size(), NAN);
    l.layer.backward_input(l.context(), l.weight.data(), {c.dy.data(), {kRows, kOut}}, {added.data(), {kRows, kIn}}, Accumulate::kAdd);
    l.layer.backward_input(l.context(), l.weight.data(), {c.dy.data(), {kRows, kOut}}, {written.data(), {kRows, kIn}});
    expect_bits(added, want, "added");
    expect_bits(written, zeros, "written");
  }
}

void expect_bits_of_the_whole(const Case& c) {
  Layer l(c, WeightLayout::kOutIn, 3);
  Floats dw = c.dw0, db = c.db0;
  for (int64_t begin = 0, next; begin < c.rows; begin = next) {
    next = std::min(c.rows, begin * 2 + (c.precision == GemmPrecision::kF32 ? 7 : 6));
    l.layer.backward_weight(l.context(), {c.x.data() + begin * c.in, {next - begin, c.in}}, {c.dy.data() + begin * c.out, {next - begin, c.out}},
                            dw.data(), db.data());
  }
  expect_bits(dw, c.dw, "weight gradient");
  expect_bits(db, c.db, "bias gradient");
}
TEST(TrainableLinear, MicroBatchesGiveTheBitsOfTheWhole) { expect_bits_of_the_whole(Case(1000, 40, 50)); }

void expect_nan_in_its_row(Case c) {
  Layer l(c, WeightLayout::kOutIn, 2);
  c.x[3 * 70 + 5] = NAN, c.dy[49 * 80 + 1] = INFINITY;
  Floats y(c.y.size()), dx = c.dx0;
  l.layer.forward(l.context(), l.weight.data(), c.bias.data(), {c.x.data(), {c.rows, c.in}}, {y.data(), {c.rows, c.out}});
  l.layer.backward_input(l.context(), l.weight.data(), {c.dy.data(), {c.rows, c.out}}, {dx.data(), {c.rows, c.in}}, Accumulate::kAdd);
  for (int64_t m = 0; m < c.rows; ++m) {
    for (int64_t n = 0; n < c.out; ++n) ASSERT_EQ(std::isnan(y[static_cast<size_t>(m * c.out + n)]), m == 3);
    for (int64_t k = 0; k < c.in; ++k) ASSERT_EQ(std::isfinite(dx[static_cast<size_t>(m * c.in + k)]), m != 49);
  }
}

TEST(TrainableLinear, NanStaysInItsRow) { expect_nan_in_its_row(Case(50, 70, 80)); }

void expect_packed_once(const Case& a) {
  Layer l(a, WeightLayout::kOutIn, 1);
  const auto forward = [&] {
    Floats y(a.y.size());
    l.layer.forward(l.context(), l.weight.data(), nullptr, {a.x.data(), {a.rows, a.in}}, {y.data(), {a.rows, a.out}});
    return y;
  };
  const auto backward = [&] {
    Floats dx(a.dx.size());
    l.layer.backward_input(l.context(), l.weight.data(), {a.dy.data(), {a.rows, a.out}}, {dx.data(), {a.rows, a.in}});
    return dx;
  };
  const Floats y = forward(), dx = backward();
  for (float& w : l.weight) w *= 2;  // every product doubles exactly
  EXPECT_EQ(forward(), y);
  EXPECT_EQ(backward(), dx);
  l.layer.weights_changed();
  Floats y2 = y, dx2 = dx;
  for (float& v : y2) v *= 2;
  for (float& v : dx2) v *= 2;
  EXPECT_EQ(forward(), y2);
  EXPECT_EQ(backward(), dx2);
}
TEST(TrainableLinear, ChangedWeightsArePackedOnce) { expect_packed_once(Case(20, 30, 40)); }

TEST(TrainableLinear, RefusalsNameTheNumbers) {
  const Case c(4, 3, 5);
  Layer l(c, WeightLayout::kOutIn, 1);
  Floats out(100);
  const auto x = [&](int64_t rows, int64_t n) { return TensorView<const float>(c.x.data(), {rows, n}); };
  const auto y = [&](int64_t rows, int64_t n) { return TensorView<float>(out.data(), {rows, n}); };
  const float* w = l.weight.data();
  EXPECT_THAT(message_of([&] { l.layer.forward(l.context(), w, nullptr, x(4, 2), y(4, 5)); }), HasSubstr("forward] x is [4, 2] with 2 axes; expected [4, 3]"));
  EXPECT_THAT(message_of([&] { l.layer.forward(l.context(), w, nullptr, x(4, 3), y(3, 5)); }), HasSubstr("y is [3, 5] with 2 axes; expected [4, 5]"));
  EXPECT_THAT(message_of([&] { l.layer.backward_input(l.context(), w, x(4, 3), y(4, 3)); }), HasSubstr("dy is [4, 3]"));
  EXPECT_THAT(message_of([&] { l.layer.backward_weight(l.context(), x(4, 3), x(2, 5), out.data(), nullptr); }), HasSubstr("dy is [2, 5]"));
  TensorView<float> overlapping = y(4, 5);
  overlapping.strides[0] = 4;
  EXPECT_THAT(message_of([&] { l.layer.forward(l.context(), w, nullptr, x(4, 3), overlapping); }), HasSubstr("4 apart and overlap; expected at least 5"));
  GemmContext small = l.context();
  small.scratch = small.scratch.first(small.scratch.size() - 1);
  EXPECT_THAT(message_of([&] { l.layer.backward_weight(small, x(4, 3), x(4, 5), out.data(), nullptr); }), HasSubstr("floats of scratch"));
  EXPECT_THAT(message_of([&] { TrainableLinear({.out = -1, .in = 2}); }), HasSubstr("[-1, 2]"));
  EXPECT_THAT(message_of([&] { TrainableLinear({.out = INT64_MAX / 2, .in = 3}); }, Code::kResourceExhausted), HasSubstr("does not fit"));
}

TEST(TrainableLinear, Bf16WithoutDotProductsIsRefused) {
  if (kernels::kernels().gemm_bf16 != nullptr) GTEST_SKIP() << "they are here";
  EXPECT_THAT(message_of([&] { TrainableLinear({.out = 1, .in = 2, .precision = GemmPrecision::kBF16}); }, Code::kUnsupported),
              HasSubstr("no bf16 dot products (avx512_bf16"));
}

// ---- on bf16 dot products

class Bf16TrainableLinear : public testing::Test {
 protected:
  void SetUp() override {
    if (kernels::kernels().gemm_bf16 == nullptr) GTEST_SKIP() << isa_name(kernels::kernels().isa) << " has no bf16 dot products";
  }
};

TEST_F(Bf16TrainableLinear, EveryElementIsOneChainOverPairs) {
  const int64_t sizes[] = {0, 1, 5, 6, 7, 63, 64, 65, 130};
  for (int64_t rows : sizes)
    for (int64_t in : sizes)
      for (int64_t out : sizes) {
        const Case c(rows, in, out, GemmPrecision::kBF16);
        expect_case(c, WeightLayout::kOutIn, 2);
        expect_case(c, WeightLayout::kInOut, 2);
        if (::testing::Test::HasFatalFailure()) return;
      }
}

TEST_F(Bf16TrainableLinear, SameBitsOnAnyNumberOfThreads) {
  for (const auto& [rows, in, out] : {std::array<int64_t, 3>{40, 1701, 70}, {1601, 97, 130}, {70, 66, 1555}, {300, 200, 210}}) {
    const Case c(rows, in, out, GemmPrecision::kBF16);
    for (int threads : {1, 2, 3, 8})
      for (WeightLayout layout : {WeightLayout::kOutIn, WeightLayout::kInOut}) expect_case(c, layout, threads);
  }
}

TEST_F(Bf16TrainableLinear, KeepsStridesRowsAndPanels) {
  expect_strides_kept(Case(75, 70, 133, GemmPrecision::kBF16));
  expect_bits_of_the_whole(Case(1000, 40, 50, GemmPrecision::kBF16));
  expect_nan_in_its_row(Case(50, 70, 80, GemmPrecision::kBF16));
  expect_packed_once(Case(20, 30, 40, GemmPrecision::kBF16));
}

// Against f64 on the operands as they are: what rounding both of them may do, 2^-8 of each product.
TEST_F(Bf16TrainableLinear, ValuesAreThoseOfTheFormulas) {
  const Case c(150, 90, 110, GemmPrecision::kBF16);
  Layer l(c, WeightLayout::kInOut, 2);
  Floats y(c.y.size()), dw(c.dw.size(), 0.0f), db(c.db.size());
  l.layer.forward(l.context(), l.weight.data(), nullptr, {c.x.data(), {c.rows, c.in}}, {y.data(), {c.rows, c.out}});
  l.layer.backward_weight(l.context(), {c.x.data(), {c.rows, c.in}}, {c.dy.data(), {c.rows, c.out}}, dw.data(), db.data());
  double off = 0;
  const auto expect_close = [&](float got, double want, double size) {
    ASSERT_NEAR(double{got}, want, 0x1.02p-8 * size);
    off += std::fabs(got - want) / size;
  };
  for (int64_t m = 0; m < c.rows; ++m)
    for (int64_t n = 0; n < c.out; ++n) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < c.in; ++k) {
        const double product = double{c.x[static_cast<size_t>(m * c.in + k)]} * c.w[static_cast<size_t>(n * c.in + k)];
        sum += product, size += std::fabs(product);
      }
      expect_close(y[static_cast<size_t>(m * c.out + n)], sum, size);
    }
  for (int64_t k = 0; k < c.in; ++k)
    for (int64_t n = 0; n < c.out; ++n) {
      double sum = 0, size = 0;
      for (int64_t m = 0; m < c.rows; ++m) {
        const double product = double{c.x[static_cast<size_t>(m * c.in + k)]} * c.dy[static_cast<size_t>(m * c.out + n)];
        sum += product, size += std::fabs(product);
      }
      expect_close(dw[static_cast<size_t>(k * c.out + n)], sum, size);
    }
  EXPECT_GT(off / static_cast<double>(y.size() + dw.size()), 0x1p-15) << "operands are rounded";
}

TEST(TrainableLinear, StopsOnRequest) {
  const Case c(64, 64, 64);
  Layer l(c, WeightLayout::kOutIn, 2);
  StopToken stop;
  stop.request_stop();
  GemmContext context = l.context();
  context.stop = &stop;
  Floats y(c.y.size()), dw(c.dw.size());
  message_of([&] { l.layer.forward(context, l.weight.data(), nullptr, {c.x.data(), {64, 64}}, {y.data(), {64, 64}}); }, Code::kCancelled);
  message_of([&] { l.layer.backward_weight(context, {c.x.data(), {64, 64}}, {c.dy.data(), {64, 64}}, dw.data(), nullptr); }, Code::kCancelled);
}

}  // namespace
}  // namespace regard::nn::training
