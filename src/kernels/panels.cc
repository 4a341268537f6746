#include "kernels/panels.h"

#include <bit>
#include <cstring>

#include "base/checked.h"
#include "base/half.h"

namespace regard::kernels {
namespace {

static_assert(std::endian::native == std::endian::little, "panels and the files they come from are little-endian");

template <class T>
T load_as(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Calls f.template operator()<Layout<...>>() for a run-time type; a type that holds no weights calls nothing.
template <class F>
void with_layout(DType type, F&& f) {
  switch (type) {
    case DType::kF32: return f.template operator()<Layout<DType::kF32>>();
    case DType::kF16: return f.template operator()<Layout<DType::kF16>>();
    case DType::kBF16: return f.template operator()<Layout<DType::kBF16>>();
    case DType::kQ8_0: return f.template operator()<Layout<DType::kQ8_0>>();
    case DType::kQ4_0: return f.template operator()<Layout<DType::kQ4_0>>();
    case DType::kQ4_1: return f.template operator()<Layout<DType::kQ4_1>>();
    case DType::kQ5_0: return f.template operator()<Layout<DType::kQ5_0>>();
    case DType::kQ5_1: return f.template operator()<Layout<DType::kQ5_1>>();
    case DType::kQ4_K: return f.template operator()<Layout<DType::kQ4_K>>();
    case DType::kQ5_K: return f.template operator()<Layout<DType::kQ5_K>>();
    case DType::kQ6_K: return f.template operator()<Layout<DType::kQ6_K>>();
    default: return;
  }
}

bool is_finite_half(const uint8_t* p) { return (load_as<uint16_t>(p) & 0x7C00u) != 0x7C00u; }

// Where a block keeps its scales: d, and m or dmin behind it where the format has one.
template <class L>
constexpr int kScaleOffset = L::kType == DType::kQ6_K ? 208 : 0;
template <class L>
constexpr bool kHasSecondScale = L::kScales == Scales::kAffine || L::kScales == Scales::kSuperAffine;

// The 6-bit scale and minimum of sub-block j of Q4_K and Q5_K, packed crosswise into 12 bytes.
struct ScaleAndMin {
  uint8_t scale, min;
};
ScaleAndMin super_scale(const uint8_t* s, int j) {
  if (j < 4) return {static_cast<uint8_t>(s[j] & 63), static_cast<uint8_t>(s[j + 4] & 63)};
  return {static_cast<uint8_t>((s[j + 4] & 15) | (s[j - 4] >> 6) << 4), static_cast<uint8_t>((s[j + 4] >> 4) | (s[j] >> 6) << 4)};
}

// The unsigned codes of one file block, k rising.
template <DType T>
void block_codes(const uint8_t* b, uint8_t* q) {
  if constexpr (T == DType::kQ8_0) {
    for (int i = 0; i < 32; ++i) q[i] = static_cast<uint8_t>(b[2 + i] ^ 0x80);  // signed value + 128
  } else if constexpr (T == DType::kQ4_0 || T == DType::kQ4_1) {
    const uint8_t* nibbles = b + (T == DType::kQ4_0 ? 2 : 4);
    for (int i = 0; i < 16; ++i) {
      q[i] = nibbles[i] & 15;
      q[i + 16] = nibbles[i] >> 4;
    }
  } else if constexpr (T == DType::kQ5_0 || T == DType::kQ5_1) {
    const uint8_t* fifths = b + (T == DType::kQ5_0 ? 2 : 4);
    const uint8_t* nibbles = fifths + 4;
    const auto high = load_as<uint32_t>(fifths);
    for (int i = 0; i < 16; ++i) {
      q[i] = static_cast<uint8_t>((nibbles[i] & 15) | ((high >> i) & 1) << 4);
      q[i + 16] = static_cast<uint8_t>((nibbles[i] >> 4) | ((high >> (i + 16)) & 1) << 4);
    }
  } else if constexpr (T == DType::kQ4_K || T == DType::kQ5_K) {
    constexpr bool kFive = T == DType::kQ5_K;
    const uint8_t *high = b + 16, *low = b + (kFive ? 48 : 16);
    for (int k = 0; k < 4; ++k)
      for (int l = 0; l < 32; ++l) {
        const int bits = kFive ? high[l] >> (2 * k) : 0;
        q[64 * k + l] = static_cast<uint8_t>((low[32 * k + l] & 15) | (bits & 1) << 4);
        q[64 * k + 32 + l] = static_cast<uint8_t>((low[32 * k + l] >> 4) | (bits >> 1 & 1) << 4);
      }
  } else {
    static_assert(T == DType::kQ6_K);
    for (int half = 0; half < 2; ++half) {
      const uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half;
      uint8_t* out = q + 128 * half;
      for (int l = 0; l < 32; ++l) {
        out[l] = static_cast<uint8_t>((low[l] & 15) | (high[l] & 3) << 4);
        out[l + 32] = static_cast<uint8_t>((low[l + 32] & 15) | (high[l] >> 2 & 3) << 4);
        out[l + 64] = static_cast<uint8_t>((low[l] >> 4) | (high[l] >> 4 & 3) << 4);
        out[l + 96] = static_cast<uint8_t>((low[l + 32] >> 4) | (high[l] >> 6) << 4);
      }
    }
  }
}

// One value in the spare bits 30 and 31: two bits in row `a`, two in row `b`, the rest in row 2 from `bit` on.
void put_rest(uint32_t* words, uint32_t q, int a, int b, int bit) {
  words[a] |= (q & 3) << 30;
  words[b] |= (q >> 2 & 3) << 30;
  words[2] |= (q >> 4) << bit;
}

// The kDwords words of one column of a tile from its kTileK codes.
template <class L>
void code_words(const uint8_t* q, uint32_t* words) {
  for (int j = 0; j < L::kDwords; ++j) {
    words[j] = 0;
    for (int i = 0; i < L::kFields; ++i) words[j] |= uint32_t{q[L::kDwords * i + j]} << (L::kBits * i);
  }
  if constexpr (L::kBits == 6) {
    put_rest(words, q[15], 0, 1, 30);
  } else if constexpr (L::kBits == 5) {
    put_rest(words, q[30], 0, 1, 30);
    put_rest(words, q[31], 3, 4, 31);
  }
}

// One super tile of column c from the one file block that it was stored as.
template <class L>
PackStatus pack_block(const uint8_t* block, int c, uint8_t* super) {
  const uint8_t* scales = block + kScaleOffset<L>;
  if (!is_finite_half(scales) || (kHasSecondScale<L> && !is_finite_half(scales + 2))) return PackStatus::kNonFiniteScale;
  uint8_t q[L::kSuperK];
  block_codes<L::kType>(block, q);
  // In the header of a super tile or at the start of a tile: the first bytes either way.
  std::memcpy(super + 2 * c, scales, 2);
  if constexpr (kHasSecondScale<L>) std::memcpy(super + 128 + 2 * c, scales + 2, 2);
  for (int t = 0; t < L::kTilesPerSuper; ++t) {
    uint8_t* tile = super + L::kHeaderBytes + t * L::kTileBytes;
    if constexpr (L::kScales == Scales::kSuperAffine) {
      const ScaleAndMin s = super_scale(block + 4, t);
      tile[c] = s.scale;
      tile[64 + c] = s.min;
    } else if constexpr (L::kScales == Scales::kSuperSymmetric) {
      tile[c] = block[192 + t];
    }
    uint32_t words[8];
    code_words<L>(q + t * L::kTileK, words);
    for (int j = 0; j < L::kDwords; ++j) std::memcpy(tile + L::kScaleBytes + 256 * j + 4 * c, &words[j], 4);
  }
  return PackStatus::kPacked;
}

// Plain numbers change places only. Short stretches of k keep the part of the panel that is being written in the cache.
template <class L>
void pack_plain(const uint8_t* rows, int64_t row_stride, int columns, int64_t in, uint8_t* dst) {
  constexpr int kStretch = 64;
  for (int64_t k0 = 0; k0 < in; k0 += kStretch) {
    const int64_t k1 = k0 + kStretch < in ? k0 + kStretch : in;
    for (int c = 0; c < columns; ++c) {
      const uint8_t* row = rows + c * row_stride;
      for (int64_t k = k0; k < k1; ++k) {
        if constexpr (L::kType == DType::kF32)
          std::memcpy(dst + 256 * k + 4 * c, row + 4 * k, 4);
        else if constexpr (L::kType == DType::kF16)
          std::memcpy(dst + 128 * k + 2 * c, row + 2 * k, 2);
        else
          std::memcpy(dst + 256 * (k / 2) + 4 * c + 2 * (k % 2), row + 2 * k, 2);
      }
    }
  }
}

template <class L>
PackStatus pack_rows(const uint8_t* rows, int64_t row_stride, int columns, int64_t in, uint8_t* dst) {
  if constexpr (L::kScales == Scales::kNone) {
    pack_plain<L>(rows, row_stride, columns, in, dst);
  } else {
    const DTypeInfo block = info(L::kType);
    static_assert(L::kSuperK == 32 || L::kSuperK == 256);
    for (int c = 0; c < columns; ++c) {
      const uint8_t* b = rows + c * row_stride;
      uint8_t* super = dst;
      for (int64_t k = 0; k < in; k += L::kSuperK, b += block.bytes, super += L::kSuperBytes)
        if (pack_block<L>(b, c, super) != PackStatus::kPacked) return PackStatus::kNonFiniteScale;
    }
  }
  return PackStatus::kPacked;
}

// One column of one tile. The products are exact in f32, so that a product and a sum round as the kernels' fma does.
template <class L>
void decode_tile_column(const uint8_t* super, const uint8_t* tile, int c, float* out) {
  float d, offset;
  if constexpr (L::kIsSuper) {
    d = half_to_float(load_as<uint16_t>(super + 2 * c));
    if constexpr (L::kScales == Scales::kSuperAffine) {
      d *= static_cast<float>(tile[c]);
      offset = -(half_to_float(load_as<uint16_t>(super + 128 + 2 * c)) * static_cast<float>(tile[64 + c]));
    } else {
      d *= static_cast<float>(static_cast<int8_t>(tile[c]));
      offset = d * static_cast<float>(-L::kBias);
    }
  } else {
    d = half_to_float(load_as<uint16_t>(tile + 2 * c));
    if constexpr (L::kScales == Scales::kAffine)
      offset = half_to_float(load_as<uint16_t>(tile + 128 + 2 * c));
    else
      offset = d * static_cast<float>(-L::kBias);
  }
  uint32_t words[L::kDwords];
  for (int j = 0; j < L::kDwords; ++j) words[j] = load_as<uint32_t>(tile + L::kScaleBytes + 256 * j + 4 * c);
  for (int i = 0; i < L::kFields; ++i)
    for (int j = 0; j < L::kDwords; ++j) {
      const uint32_t q = words[j] >> (L::kBits * i) & ((1u << L::kBits) - 1);
      out[L::kDwords * i + j] = static_cast<float>(static_cast<int32_t>(q)) * d + offset;
    }
  for (int r = 0; r < L::kRest; ++r) {
    const uint32_t high = L::kBits == 6 ? words[2] >> 30 : words[2] >> (30 + r) & 1;
    const uint32_t q = words[r == 0 ? 0 : 3] >> 30 | words[r == 0 ? 1 : 4] >> 30 << 2 | high << 4;
    out[L::kFields * L::kDwords + r] = static_cast<float>(static_cast<int32_t>(q)) * d + offset;
  }
}

template <class L>
void decode_layout_column(const uint8_t* panel, int c, int64_t in, float* out) {
  if constexpr (L::kType == DType::kF32) {
    for (int64_t k = 0; k < in; ++k) out[k] = load_as<float>(panel + 256 * k + 4 * c);
  } else if constexpr (L::kType == DType::kF16) {
    for (int64_t k = 0; k < in; ++k) out[k] = half_to_float(load_as<uint16_t>(panel + 128 * k + 2 * c));
  } else if constexpr (L::kType == DType::kBF16) {
    for (int64_t k = 0; k < in; ++k) out[k] = bf16_to_float(load_as<uint16_t>(panel + 256 * (k / 2) + 4 * c + 2 * (k % 2)));
  } else {
    for (int64_t k = 0; k < in; k += L::kSuperK, panel += L::kSuperBytes)
      for (int t = 0; t < L::kTilesPerSuper; ++t)
        decode_tile_column<L>(panel, panel + L::kHeaderBytes + t * L::kTileBytes, c, out + k + t * L::kTileK);
  }
}

}  // namespace

std::optional<int64_t> row_bytes(DType type, int64_t in) noexcept {
  if (!is_weight_type(type) || in < 0) return std::nullopt;
  const DTypeInfo block = info(type);
  if (in % block.values != 0) return std::nullopt;
  return checked_mul<int64_t>(in / block.values, block.bytes);
}

std::optional<int64_t> panel_bytes(DType type, int64_t in) noexcept {
  std::optional<int64_t> bytes;
  if (!row_bytes(type, in)) return bytes;
  with_layout(type, [&]<class L>() { bytes = checked_mul<int64_t>(in / L::kSuperK + (in % L::kSuperK != 0), L::kSuperBytes); });
  return bytes;
}

PackStatus pack_panel(DType type, const uint8_t* rows, int64_t row_stride, int columns, int64_t in, uint8_t* dst) noexcept {
  PackStatus status = PackStatus::kPacked;
  with_layout(type, [&]<class L>() {
    // Absent columns, and the second half of the last dword of an odd BF16 row, hold zeros.
    if (columns < kPanelColumns || in % L::kSuperK != 0)
      std::memset(dst, 0, static_cast<size_t>((in / L::kSuperK + (in % L::kSuperK != 0)) * L::kSuperBytes));
    status = pack_rows<L>(rows, row_stride, columns, in, dst);
  });
  return status;
}

void decode_column(const Panels& weights, int64_t n, float* out) noexcept {
  with_layout(weights.type, [&]<class L>() {
    decode_layout_column<L>(weights.panel(n / kPanelColumns), static_cast<int>(n % kPanelColumns), weights.in, out);
  });
}

}  // namespace regard::kernels
