// The layout of weights at rest, as compile-time constants: what panels.cc writes and the kernels read. Start with panels.h
// for what a panel is.
//
// A panel holds 64 output columns as one contiguous stream of tiles in rising k. A tile covers kTileK inner positions of
// columns that share one scale each:
//
//   [scales of the tile]  [codes: kDwords rows of 64 dwords, lane c = column c]
//
// Codes of B bits lie in the dwords so that field i (bits B*i .. B*i+B-1) of row j is k = kDwords * i + j, for the
// kFields = 32 / B fields of a dword. One `and` isolates a field of 16 columns, each in its own lane, and running over i,
// then over j, visits k in rising order. With B = 5 or 6 two bits of each dword are over; they carry the last kRest values,
// cut into pieces of 2 + 2 + 1 (or 2) bits, so that nothing is wasted:
//
//   bits B  kTileK  rows  fields  rest
//      4      32      4     8      0      Q4_0, Q4_1, Q4_K
//      5      32      5     6      2      Q5_0, Q5_1, Q5_K
//      6      16      3     5      1      Q6_K
//      8      32      8     4      0      Q8_0 (code = value + 128)
//
// Scales per tile and column: symmetric f16 d; affine f16 d and f16 m; the K formats have u8 (or i8) multipliers per tile
// behind a header of f16 d (and f16 dmin) once per 256 k, a "super tile". Plain types have no scales: F32 rows of 64 floats,
// F16 rows of 64 halves, BF16 rows of 64 dwords with the even k in the low half.
//
// Every size is a multiple of 64 bytes and nothing here depends on the instruction set.
#pragma once

#include <cstdint>

#include "regard/dtype.h"

namespace regard::kernels {

inline constexpr int kPanelColumns = 64;

/// How a weight is made of its code q: kSymmetric (q - bias) * d; kAffine q * d + m; kSuperAffine q * (d * sc) - dmin * mn;
/// kSuperSymmetric (q - bias) * (d * sc); kNone: the number itself.
enum class Scales { kNone, kSymmetric, kAffine, kSuperAffine, kSuperSymmetric };

template <DType T, int B, int TileK, Scales S, int Bias>
struct BlockLayout {
  static constexpr DType kType = T;
  static constexpr Scales kScales = S;
  static constexpr int kBits = B, kTileK = TileK, kBias = Bias;
  static constexpr int kFields = 32 / B, kDwords = TileK * B / 32, kRest = TileK - kFields * kDwords;
  static constexpr bool kIsSuper = S == Scales::kSuperAffine || S == Scales::kSuperSymmetric;
  static constexpr int kSuperK = kIsSuper ? 256 : TileK;
  static constexpr int kTilesPerSuper = kSuperK / TileK;
  static constexpr int kHeaderBytes = S == Scales::kSuperAffine ? 256 : S == Scales::kSuperSymmetric ? 128 : 0;
  static constexpr int kScaleBytes = S == Scales::kAffine ? 256 : S == Scales::kSuperSymmetric ? 64 : 128;
  static constexpr int kTileBytes = kScaleBytes + 256 * kDwords;
  static constexpr int kSuperBytes = kHeaderBytes + kTilesPerSuper * kTileBytes;
};

template <DType T, int TileK>
struct PlainLayout {
  static constexpr DType kType = T;
  static constexpr Scales kScales = Scales::kNone;
  static constexpr int kTileK = TileK, kSuperK = TileK, kTilesPerSuper = 1, kHeaderBytes = 0;
  static constexpr int kTileBytes = T == DType::kF16 ? 128 : 256, kSuperBytes = kTileBytes;
};

template <DType T>
struct Layout;
template <> struct Layout<DType::kF32> : PlainLayout<DType::kF32, 1> {};
template <> struct Layout<DType::kF16> : PlainLayout<DType::kF16, 1> {};
template <> struct Layout<DType::kBF16> : PlainLayout<DType::kBF16, 2> {};
template <> struct Layout<DType::kQ4_0> : BlockLayout<DType::kQ4_0, 4, 32, Scales::kSymmetric, 8> {};
template <> struct Layout<DType::kQ4_1> : BlockLayout<DType::kQ4_1, 4, 32, Scales::kAffine, 0> {};
template <> struct Layout<DType::kQ5_0> : BlockLayout<DType::kQ5_0, 5, 32, Scales::kSymmetric, 16> {};
template <> struct Layout<DType::kQ5_1> : BlockLayout<DType::kQ5_1, 5, 32, Scales::kAffine, 0> {};
template <> struct Layout<DType::kQ8_0> : BlockLayout<DType::kQ8_0, 8, 32, Scales::kSymmetric, 128> {};
template <> struct Layout<DType::kQ4_K> : BlockLayout<DType::kQ4_K, 4, 32, Scales::kSuperAffine, 0> {};
template <> struct Layout<DType::kQ5_K> : BlockLayout<DType::kQ5_K, 5, 32, Scales::kSuperAffine, 0> {};
template <> struct Layout<DType::kQ6_K> : BlockLayout<DType::kQ6_K, 6, 16, Scales::kSuperSymmetric, 32> {};

}  // namespace regard::kernels
