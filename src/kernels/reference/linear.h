// Linear layers as mathematics: what a stored block means, and what a row of outputs is. Plain loops, never optimised; the
// kernels must equal them bit for bit where the scalar type is float. Start at decode_block().
//
// Block formats: ggml-org, "GGUF", 2023 and later. A block is `info(type).bytes` bytes and stands for `info(type).values`
// consecutive weights of a row; scales are little-endian f16.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "regard/dtype.h"

namespace regard::kernels::reference {

namespace detail {

inline float half_at(const uint8_t* p) { return half_to_float(static_cast<uint16_t>(p[0] | p[1] << 8)); }
// Bit i of a little-endian bit string.
inline int bit(const uint8_t* bytes, int i) { return bytes[i / 8] >> (i % 8) & 1; }

// The value of a symmetric format. A code in the middle with a negative scale would give -0; a weight of zero is +0 here.
inline float symmetric(int code, float scale) { return static_cast<float>(code) * scale + 0.0f; }

// Weight i of a block of 32 is in the low nibble of byte i or, from 16 on, in the high nibble of byte i - 16.
inline int nibble_of_32(const uint8_t* bytes, int i) { return i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4; }

// Sub-block j (0..7) of Q4_K and Q5_K has a 6-bit scale and a 6-bit minimum in 12 bytes s: for j < 4 the low six bits of s[j] and
// s[j + 4]; for j >= 4 a nibble of s[j + 4] each, below the two top bits of s[j - 4] and s[j].
inline int super_scale(const uint8_t* s, int j) { return j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4; }
inline int super_min(const uint8_t* s, int j) { return j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4; }

}  // namespace detail

/// The weights of one block, info(type).values floats. All formats: every product is exact in f32 (an f16 significand of 11
/// bits times integers of at most 14 bits together), so only the one addition rounds and the order of factors is free.
inline void decode_block(DType type, const uint8_t* b, float* y) {
  using namespace detail;
  switch (type) {
    case DType::kF32: std::memcpy(y, b, 4); return;
    case DType::kF16: *y = half_at(b); return;
    case DType::kBF16: *y = bf16_to_float(static_cast<uint16_t>(b[0] | b[1] << 8)); return;
    case DType::kQ8_0:  // d, 32 signed bytes
      for (int i = 0; i < 32; ++i) y[i] = symmetric(static_cast<int8_t>(b[2 + i]), half_at(b));
      return;
    case DType::kQ4_0:  // d, 16 bytes of nibbles
      for (int i = 0; i < 32; ++i) y[i] = symmetric(nibble_of_32(b + 2, i) - 8, half_at(b));
      return;
    case DType::kQ4_1:  // d, m, 16 bytes of nibbles
      for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(nibble_of_32(b + 4, i)) * half_at(b) + half_at(b + 2);
      return;
    case DType::kQ5_0:  // d, 32 fifth bits, 16 bytes of nibbles
      for (int i = 0; i < 32; ++i) y[i] = symmetric((nibble_of_32(b + 6, i) | bit(b + 2, i) << 4) - 16, half_at(b));
      return;
    case DType::kQ5_1:  // d, m, 32 fifth bits, 16 bytes of nibbles
      for (int i = 0; i < 32; ++i) {
        const int q = nibble_of_32(b + 8, i) | bit(b + 4, i) << 4;
        y[i] = static_cast<float>(q) * half_at(b) + half_at(b + 2);
      }
      return;
    case DType::kQ4_K:    // d, dmin, 12 bytes of scales, 128 bytes of nibbles
    case DType::kQ5_K: {  // d, dmin, 12 bytes of scales, 32 bytes of fifth bits, 128 bytes of nibbles
      const uint8_t *scales = b + 4, *fifth = b + 16, *low = type == DType::kQ5_K ? b + 48 : b + 16;
      for (int i = 0; i < 256; ++i) {
        const int j = i / 32, l = i % 32;  // sub-blocks 2k and 2k + 1 are the low and high nibbles of bytes 32k .. 32k + 31
        const uint8_t byte = low[32 * (j / 2) + l];
        int q = j % 2 == 0 ? byte & 15 : byte >> 4;
        if (type == DType::kQ5_K) q |= (fifth[l] >> j & 1) << 4;
        const float scale = half_at(b) * static_cast<float>(super_scale(scales, j));
        const float min = half_at(b + 2) * static_cast<float>(super_min(scales, j));
        y[i] = static_cast<float>(q) * scale - min;
      }
      return;
    }
    case DType::kQ6_K: {  // 128 bytes of nibbles, 64 bytes of two high bits, 16 signed scales, d
      const uint8_t *low = b, *high = b + 128, *scales = b + 192;
      for (int i = 0; i < 256; ++i) {
        const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
        const uint8_t byte = low[64 * half + 32 * (quarter % 2) + l];
        const int nibble = quarter < 2 ? byte & 15 : byte >> 4;
        const int q = nibble | (high[32 * half + l] >> (2 * quarter) & 3) << 4;
        const float scale = half_at(b + 208) * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
        y[i] = symmetric(q - 32, scale);
      }
      return;
    }
    default: return;
  }
}

/// Row `row` of a stored matrix whose rows have `in` weights, a multiple of the block length.
inline void decode_row(DType type, const uint8_t* row, int64_t in, float* y) {
  const DTypeInfo block = info(type);
  for (int64_t k = 0; k < in; k += block.values, row += block.bytes) decode_block(type, row, y + k);
}

/// How a product joins a sum: with one rounding, or with one each for the product and the sum.
struct FusedMultiplyAdd {
  float operator()(float a, float b, float c) const { return __builtin_fmaf(a, b, c); }
  double operator()(double a, double b, double c) const { return __builtin_fma(a, b, c); }
};
struct MultiplyThenAdd {
  template <class T>
  T operator()(T a, T b, T c) const {
    return a * b + c;
  }
};

/// y[m][n] = sum over k of x[m][k] * w[n][k], added to +0 in rising k. x is [rows, in], w is [out, in], y is [rows, out], all
/// dense. in = 0 gives +0.
template <class T, class MultiplyAdd = FusedMultiplyAdd>
void linear(const T* x, const T* w, int64_t rows, int64_t in, int64_t out, T* y, MultiplyAdd multiply_add = {}) {
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t n = 0; n < out; ++n) {
      T sum = 0;
      for (int64_t k = 0; k < in; ++k) sum = multiply_add(x[m * in + k], w[n * in + k], sum);
      y[m * out + n] = sum;
    }
}

}  // namespace regard::kernels::reference
