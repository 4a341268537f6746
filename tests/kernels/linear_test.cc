// Panels and linear layers against the plain definitions in kernels/reference, compared as bits, on the instruction set in
// use. The definitions themselves are held to published vectors of the block formats.
#include "kernels/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/reference/linear.h"
#include "kernels/registry.h"
#include "support/cases.h"
#include "support/golden.h"
#include "support/random_weights.h"

namespace regard::kernels {
namespace {

using ::regard::test::kWeightTypes;
using ::regard::test::random_weights;

constexpr uint32_t kUntouched = 0x7FC0BEEF;  // a NaN that no arithmetic makes

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

struct Packed {
  AlignedBuffer<uint8_t> storage;
  Panels panels;
};

Packed pack(DType type, int64_t out, int64_t in, const std::vector<uint8_t>& bytes) {
  const int64_t panel = panel_bytes(type, in).value(), row = row_bytes(type, in).value();
  Packed p{AlignedBuffer<uint8_t>(static_cast<size_t>((out + 63) / 64 * panel)), {}};
  p.panels = {type, out, in, panel, p.storage.data()};
  for (int64_t n = 0; n < out; n += 64) {
    const int columns = static_cast<int>(std::min<int64_t>(64, out - n));
    EXPECT_EQ(pack_panel(type, bytes.data() + n * row, row, columns, in, p.storage.data() + n / 64 * panel), PackStatus::kPacked);
  }
  return p;
}

std::vector<float> decoded(DType type, int64_t out, int64_t in, const std::vector<uint8_t>& bytes) {
  std::vector<float> w(static_cast<size_t>(out * in));
  for (int64_t n = 0; n < out; ++n) reference::decode_row(type, bytes.data() + n * row_bytes(type, in).value(), in, w.data() + n * in);
  return w;
}

std::vector<float> reference_product(const std::vector<float>& x, const std::vector<float>& w, int64_t rows, int64_t in, int64_t out) {
  std::vector<float> y(static_cast<size_t>(rows * out));
  if (kernels().isa == Isa::kBaseline)
    reference::linear(x.data(), w.data(), rows, in, out, y.data(), reference::MultiplyThenAdd{});
  else
    reference::linear(x.data(), w.data(), rows, in, out, y.data(), reference::FusedMultiplyAdd{});
  return y;
}

// Gaussian-like values with a few zeros, negative zeros and denormals among them.
std::vector<float> inputs(int64_t n, uint32_t seed) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) {
    const uint64_t r = random_bits(seed, 77, i);
    x[i] = (static_cast<float>(r & 0xFFFF) + static_cast<float>(r >> 16 & 0xFFFF) - 65535.0f) / 20000.0f;
    if (r >> 56 == 1) x[i] = r & 1 ? -0.0f : 0.0f;
    if (r >> 56 == 2) x[i] *= 0x1p-130f;
  }
  return x;
}

// Runs the kernel over the columns of `part` into rows that are three elements longer than the result.
struct Output {
  std::vector<float> values;
  int64_t ld;
  Output(int64_t rows, int64_t out) : values(static_cast<size_t>(rows * (out + 3)), std::bit_cast<float>(kUntouched)), ld(out + 3) {}
};
void run(const Panels& w, const float* x, int64_t rows, Output& y, HalfPanels part) {
  static AlignedBuffer<float> scratch(kLinearScratch);
  kernels().linear->of(w.type)(w, x, w.in, rows, y.values.data(), y.ld, part, scratch.data());
}

void expect_bits(const Output& y, const std::vector<float>& want, int64_t rows, int64_t out, const char* what) {
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < out; ++n)
      ASSERT_EQ(bits(y.values[static_cast<size_t>(m * y.ld + n)]), bits(want[static_cast<size_t>(m * out + n)])) << what << " row " << m << " of " << rows << ", column " << n;
    for (int64_t n = out; n < y.ld; ++n) ASSERT_EQ(bits(y.values[static_cast<size_t>(m * y.ld + n)]), kUntouched) << what << ": wrote behind row " << m;
  }
}

struct Vector {
  DType type;
  double first, second, half, last, sum, weighted;
};

// The values that ggml decodes from a block whose byte i is 37 i + 11, with d = 0.5 and m or dmin = 0.25.
TEST(Linear, BlockDecodersGiveThePublishedValues) {
  const Vector vectors[] = {{DType::kQ4_0, -1.5, 1, -1.5, 0, -10.5, -259},
                            {DType::kQ4_1, 7.75, 2.25, 4.75, 6.25, 130.5, 2123.5},
                            {DType::kQ5_0, 4.5, -1, 7, 0.5, 7.5, 56},
                            {DType::kQ5_1, 9.75, 12.25, 9.75, 2.75, 260.5, 4082.5},
                            {DType::kQ8_0, 42.5, 61, -45.5, -24, -88, -4040},
                            {DType::kQ4_K, 157.75, -12.75, 211.5, 24.25, 27220, 3786420},
                            {DType::kQ5_K, 405.75, -12.75, 523.5, 54.25, 58108, 8013724},
                            {DType::kQ6_K, -715.5, 848, -175.5, -30, 2306, 392210}};
  for (const Vector& v : vectors) {
    const DTypeInfo block = info(v.type);
    std::vector<uint8_t> b(static_cast<size_t>(block.bytes));
    for (int i = 0; i < block.bytes; ++i) b[static_cast<size_t>(i)] = static_cast<uint8_t>(37 * i + 11);
    const size_t at = v.type == DType::kQ6_K ? 208 : 0;
    b[at] = 0x00, b[at + 1] = 0x38;
    if (v.type == DType::kQ4_1 || v.type == DType::kQ5_1 || v.type == DType::kQ4_K || v.type == DType::kQ5_K) b[2] = 0x00, b[3] = 0x34;
    std::vector<float> y(static_cast<size_t>(block.values));
    reference::decode_block(v.type, b.data(), y.data());
    double sum = 0, weighted = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      sum += double{y[i]};
      weighted += double{y[i]} * static_cast<double>(i + 1);
    }
    EXPECT_EQ(y[0], v.first) << block.name;
    EXPECT_EQ(y[1], v.second) << block.name;
    EXPECT_EQ(y[y.size() / 2], v.half) << block.name;
    EXPECT_EQ(y.back(), v.last) << block.name;
    EXPECT_EQ(sum, v.sum) << block.name;
    EXPECT_EQ(weighted, v.weighted) << block.name;
  }
}

// Random blocks and their values by another implementation, through the definition and through a panel. Where a symmetric format has
// -0 there, +0 stands here.
TEST(Linear, BlocksDecodeAsElsewhere) {
  for (DType type : kWeightTypes) {
    if (type == DType::kF32) continue;
    std::string name(info(type).name);
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const test::Array stored = test::read_array("blocks/" + name + ".bytes.npy");
    const std::vector<float> want = test::read_array("blocks/" + name + ".values.npy").floats();
    const std::vector<uint8_t> bytes(stored.values.begin(), stored.values.end());
    const int64_t blocks = stored.shape[0], values = info(type).values;
    ASSERT_EQ(stored.shape[1], info(type).bytes);
    ASSERT_EQ(static_cast<int64_t>(want.size()), blocks * values);
    const Packed p = pack(type, blocks, values, bytes);
    for (int64_t n = 0; n < blocks; ++n) {
      std::vector<float> plain(static_cast<size_t>(values)), packed(plain.size());
      reference::decode_block(type, bytes.data() + n * info(type).bytes, plain.data());
      decode_column(p.panels, n, packed.data());
      for (size_t i = 0; i < plain.size(); ++i) {
        float value = want[static_cast<size_t>(n * values) + i];
        if (values > 1) value += 0.0f;
        if (std::isnan(value)) {
          ASSERT_TRUE(std::isnan(plain[i]) && std::isnan(packed[i])) << name << " block " << n << " value " << i;
        } else {
          ASSERT_EQ(bits(plain[i]), bits(value)) << name << " block " << n << " value " << i;
          ASSERT_EQ(bits(packed[i]), bits(value)) << name << " block " << n << " value " << i;
        }
      }
    }
  }
}

TEST(Linear, SizesAreCheckedAndAsInTheFile) {
  EXPECT_EQ(row_bytes(DType::kQ4_1, 576), 576 / 32 * 20);
  EXPECT_EQ(row_bytes(DType::kQ6_K, 1024), 4 * 210);
  EXPECT_EQ(row_bytes(DType::kQ4_1, 0), 0);
  EXPECT_EQ(row_bytes(DType::kQ4_1, 31), std::nullopt);
  EXPECT_EQ(row_bytes(DType::kQ4_K, 128), std::nullopt);
  EXPECT_EQ(row_bytes(DType::kI32, 64), std::nullopt);
  EXPECT_EQ(row_bytes(DType::kF32, -1), std::nullopt);
  EXPECT_EQ(row_bytes(DType::kF32, INT64_MAX / 2), std::nullopt);
  EXPECT_EQ(panel_bytes(DType::kF16, INT64_MAX / 100), std::nullopt);
  EXPECT_EQ(panel_bytes(DType::kBF16, 3), 512);
  for (DType type : kWeightTypes) {
    const double ratio = static_cast<double>(panel_bytes(type, 1024).value()) / static_cast<double>(64 * row_bytes(type, 1024).value());
    EXPECT_GE(ratio, 1.0) << info(type).name;
    EXPECT_LE(ratio, type == DType::kQ4_K || type == DType::kQ5_K ? 1.03 : 1.0) << info(type).name;
    EXPECT_EQ(panel_bytes(type, 1024).value() % 64, 0);
  }
}

TEST(Linear, ColumnsComeBackAsTheFileDecodes) {
  for (DType type : kWeightTypes)
    for (int64_t out : {1, 63, 64, 65, 200})
      for (int64_t blocks : {0, 1, 3}) {
        const int64_t in = blocks * info(type).values;  // odd for plain types
        const std::vector<uint8_t> bytes = random_weights(type, out, in, 5);
        const Packed p = pack(type, out, in, bytes);
        const std::vector<float> want = decoded(type, out, in, bytes);
        for (int64_t n = 0; n < out; ++n) {
          std::vector<float> column(static_cast<size_t>(in) + 1, std::bit_cast<float>(kUntouched));
          decode_column(p.panels, n, column.data());
          for (int64_t k = 0; k < in; ++k)
            ASSERT_EQ(bits(column[static_cast<size_t>(k)]), bits(want[static_cast<size_t>(n * in + k)])) << info(type).name << " [" << n << "][" << k << "]";
          ASSERT_EQ(bits(column.back()), kUntouched);
        }
      }
}

std::vector<int64_t> inner_sizes(DType type) {
  switch (info(type).values) {
    case 1: return {0, 1, 2, 7, 255, 256, 257, 515};
    case 32: return {0, 32, 96, 256, 288, 576};
    default: return {0, 256, 512, 768};
  }
}

TEST(Linear, EveryOutputIsOneChainForAnyNumberOfRows) {
  constexpr int64_t kRows = 40;
  for (DType type : kWeightTypes)
    for (int64_t in : inner_sizes(type))
      for (int64_t out : {1, 31, 33, 63, 64, 65, 192}) {
        const std::vector<uint8_t> bytes = random_weights(type, out, in, 9);
        const Packed p = pack(type, out, in, bytes);
        const std::vector<float> x = inputs(kRows * in, 3);
        const std::vector<float> want = reference_product(x, decoded(type, out, in, bytes), kRows, in, out);
        // All that the kernels tell apart, and of the others one in four under a sanitizer.
        for (int64_t rows = 1; rows <= kRows; rows += rows < 9 ? 1 : kRows / cases(kRows)) {
          Output y(rows, out);
          run(p.panels, x.data(), rows, y, {0, 2 * p.panels.count()});
          expect_bits(y, want, rows, out, std::string(info(type).name).c_str());
        }
        if (HasFatalFailure()) return;
      }
}

TEST(Linear, WideLayers) {
  for (DType type : {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ6_K}) {
    const int64_t out = 576, in = 1536, rows = 13;
    const std::vector<uint8_t> bytes = random_weights(type, out, in, 2);
    const Packed p = pack(type, out, in, bytes);
    const std::vector<float> x = inputs(rows * in, 4);
    const std::vector<float> want = reference_product(x, decoded(type, out, in, bytes), rows, in, out);
    for (int64_t m : {int64_t{1}, rows}) {
      Output y(m, out);
      run(p.panels, x.data(), m, y, {0, 18});
      expect_bits(y, want, m, out, std::string(info(type).name).c_str());
    }
  }
}

TEST(Linear, AnyPartOfTheColumnsIsThatPartOfTheResult) {
  for (DType type : kWeightTypes) {
    const int64_t in = info(type).values * 2, out = 150;
    const std::vector<uint8_t> bytes = random_weights(type, out, in, 9);
    const Packed p = pack(type, out, in, bytes);
    for (int64_t rows : {1, 2, 3, 4, 5, 8, 9, 33}) {
      const std::vector<float> x = inputs(rows * in, 8);
      const std::vector<float> want = reference_product(x, decoded(type, out, in, bytes), rows, in, out);
      const int64_t step = rows <= kernels().linear->fused_rows ? 1 : 2;
      for (int64_t begin = 0; begin <= 6; begin += step)
        for (int64_t end = begin; end <= 6; end += step) {
          Output y(rows, out);
          run(p.panels, x.data(), rows, y, {begin, end});
          for (int64_t m = 0; m < rows; ++m)
            for (int64_t n = 0; n < out; ++n) {
              const bool inside = n >= 32 * begin && n < 32 * end;
              ASSERT_EQ(bits(y.values[static_cast<size_t>(m * y.ld + n)]), inside ? bits(want[static_cast<size_t>(m * out + n)]) : kUntouched)
                  << info(type).name << " rows " << rows << " part " << begin << ".." << end << " at [" << m << "][" << n << "]";
            }
        }
    }
  }
}

// Rows of the identity pick single weights, so this compares the kernels' decoders, both ways they run, with every finite
// scale that a file can hold.
TEST(Linear, EveryScaleDecodesExactly) {
  for (DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    const int64_t in = info(type).values, rows = 32;
    std::vector<float> x(static_cast<size_t>(rows * in), 0.0f);
    const int64_t step = in / rows;  // all positions of the short blocks, every eighth of the long ones
    for (int64_t m = 0; m < rows; ++m) x[static_cast<size_t>(m * in + m * step + m % step)] = 1.0f;
    const size_t at = type == DType::kQ6_K ? 208 : 0;
    std::vector<uint8_t> bytes = random_weights(type, 64, in, 1);
    const size_t row = bytes.size() / 64;
    for (uint32_t d = 0; d < 0x10000; d += 64) {
      if ((d & 0x7C00) == 0x7C00) continue;
      for (size_t c = 0; c < 64; ++c) {
        bytes[c * row + at] = static_cast<uint8_t>(d + c);
        bytes[c * row + at + 1] = static_cast<uint8_t>(d >> 8);
      }
      const Packed p = pack(type, 64, in, bytes);
      const std::vector<float> w = decoded(type, 64, in, bytes);
      Output scratch(rows, 64), fused(rows, 64);
      run(p.panels, x.data(), rows, scratch, {0, 2});
      const int64_t group = kernels().linear->fused_rows;
      for (int64_t m = 0; m < rows; m += group) {
        Output part(group, 64);
        run(p.panels, x.data() + m * in, group, part, {0, 2});
        std::copy(part.values.begin(), part.values.end(), fused.values.begin() + m * fused.ld);
      }
      for (int64_t m = 0; m < rows; ++m)
        for (int64_t c = 0; c < 64; ++c) {
          const float want = w[static_cast<size_t>(c * in + m * step + m % step)] + 0.0f;
          ASSERT_EQ(bits(scratch.values[static_cast<size_t>(m * scratch.ld + c)]), bits(want)) << info(type).name << " d " << d + static_cast<uint32_t>(c);
          ASSERT_EQ(bits(fused.values[static_cast<size_t>(m * fused.ld + c)]), bits(want)) << info(type).name << " d " << d + static_cast<uint32_t>(c);
        }
    }
  }
}

// Every f16 there is, subnormals, infinities and NaN included, as a weight under a one.
TEST(Linear, EveryHalfIsWidenedExactly) {
  const float one = 1.0f;
  std::vector<uint8_t> bytes(2 * 65536);
  for (uint32_t h = 0; h < 65536; ++h) {
    bytes[2 * h] = static_cast<uint8_t>(h);
    bytes[2 * h + 1] = static_cast<uint8_t>(h >> 8);
  }
  const Packed p = pack(DType::kF16, 65536, 1, bytes);
  Output y(1, 65536);
  run(p.panels, &one, 1, y, {0, 2048});
  for (uint32_t h = 0; h < 65536; ++h) {
    const double mantissa = h & 1023, sign = h & 0x8000 ? -1.0 : 1.0;
    const int exponent = static_cast<int>(h >> 10 & 31);
    const double want = exponent == 31 ? (mantissa != 0 ? NAN : sign * INFINITY) : sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25));
    if (std::isnan(want))
      ASSERT_TRUE(std::isnan(y.values[h])) << h;
    else
      ASSERT_EQ(double{y.values[h]}, want) << h;
  }
}

TEST(Linear, NanAndInfinityStayInTheirRow) {
  const int64_t in = 512, out = 70;
  for (DType type : kWeightTypes) {
    const Packed p = pack(type, out, in, random_weights(type, out, in, 6));
    for (int64_t rows : {2, 4, 8, 20}) {
      std::vector<float> x = inputs(rows * in, 12);
      Output clean(rows, out), planted(rows, out);
      run(p.panels, x.data(), rows, clean, {0, 4});
      x[static_cast<size_t>(in + 300)] = NAN;
      if (rows > 2) x[static_cast<size_t>(3 * in)] = INFINITY;
      run(p.panels, x.data(), rows, planted, {0, 4});
      for (int64_t m = 0; m < rows; ++m)
        for (int64_t n = 0; n < out; ++n) {
          const float a = clean.values[static_cast<size_t>(m * clean.ld + n)], b = planted.values[static_cast<size_t>(m * clean.ld + n)];
          if (m == 1)
            ASSERT_TRUE(std::isnan(b));
          else if (m == 3)
            ASSERT_FALSE(std::isfinite(b));
          else
            ASSERT_EQ(bits(a), bits(b)) << info(type).name << " row " << m;
        }
    }
  }
}

TEST(Linear, ChainsBeginAtPlusZero) {
  const int64_t in = 256, out = 64;
  for (DType type : kWeightTypes) {
    const Packed p = pack(type, out, in, random_weights(type, out, in, 6));
    for (int64_t rows : {1, 12}) {
      const std::vector<float> x(static_cast<size_t>(rows * in), -0.0f);
      Output y(rows, out);
      run(p.panels, x.data(), rows, y, {0, 2});
      expect_bits(y, std::vector<float>(static_cast<size_t>(rows * out), 0.0f), rows, out, "negative zeros");
    }
  }
}

// A weight of zero under a negative scale is -0 as a product; it is +0 here, or the sign of a sum could tell.
TEST(Linear, ZeroWeightsArePositive) {
  std::vector<uint8_t> block(18, 0x88);  // all codes 8
  block[0] = 0x00, block[1] = 0xB8;      // d = -0.5
  const Packed p = pack(DType::kQ4_0, 1, 32, block);
  std::vector<float> column(32), want(32);
  decode_column(p.panels, 0, column.data());
  reference::decode_block(DType::kQ4_0, block.data(), want.data());
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(bits(column[i]), 0u);
    EXPECT_EQ(bits(want[i]), 0u);
  }
}

TEST(Linear, NonFiniteScalesAreRefused) {
  for (DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    const int64_t in = 2 * info(type).values, out = 3;
    const std::vector<uint8_t> good = random_weights(type, out, in, 4);
    const int64_t row = row_bytes(type, in).value();
    AlignedBuffer<uint8_t> panel(static_cast<size_t>(panel_bytes(type, in).value()));
    ASSERT_EQ(pack_panel(type, good.data(), row, 3, in, panel.data()), PackStatus::kPacked);
    const bool two = type == DType::kQ4_1 || type == DType::kQ5_1 || type == DType::kQ4_K || type == DType::kQ5_K;
    for (size_t scale = 0; scale < (two ? 2u : 1u); ++scale)
      for (const uint16_t bad : std::initializer_list<uint16_t>{0x7C00, 0xFC00, 0x7E00, 0xFFFF, 0x7C01}) {
        std::vector<uint8_t> bytes = good;
        const size_t at = bytes.size() - static_cast<size_t>(info(type).bytes) + (type == DType::kQ6_K ? 208 : 0) + 2 * scale;  // last block of the last row
        std::memcpy(&bytes[at], &bad, 2);
        EXPECT_EQ(pack_panel(type, bytes.data(), row, 3, in, panel.data()), PackStatus::kNonFiniteScale) << info(type).name << " " << bad;
      }
  }
}

TEST(Linear, NoRowsNoColumnsNothingWritten) {
  const Packed p = pack(DType::kQ8_0, 64, 32, random_weights(DType::kQ8_0, 64, 32, 1));
  const std::vector<float> x = inputs(64, 1);
  Output y(2, 64);
  run(p.panels, x.data(), 0, y, {0, 2});
  run(p.panels, x.data(), 2, y, {1, 1});
  for (float v : y.values) EXPECT_EQ(bits(v), kUntouched);
}

}  // namespace
}  // namespace regard::kernels
