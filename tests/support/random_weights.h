// Random weight matrices in every storage format, as a file has them: arbitrary codes, finite scales of both signs.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "regard/dtype.h"

namespace regard::test {

inline constexpr DType kWeightTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
                                         DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

/// `out` rows of `in` weights between 1e-3 and 4 or so, or 0. The same seed gives the same bytes.
inline std::vector<uint8_t> random_weights(DType type, int64_t out, int64_t in, uint32_t seed) {
  uint64_t index = 0;
  const auto next = [&] { return random_bits(seed, static_cast<uint64_t>(type), index++); };
  const DTypeInfo block = info(type);
  std::vector<uint8_t> bytes(static_cast<size_t>(out * in / block.values * block.bytes));
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(next() >> 40);
  const auto put_half = [&next](uint8_t* p, int low, int high) {
    const uint64_t r = next();
    const auto exponent = static_cast<uint32_t>(low + static_cast<int>((r >> 20) % static_cast<uint64_t>(high - low + 1)));
    const auto half = static_cast<uint16_t>((r & 0x83FFu) | exponent << 10);
    std::memcpy(p, &half, 2);
  };
  for (uint8_t* p = bytes.data(); p < bytes.data() + bytes.size(); p += block.bytes) {
    switch (type) {
      case DType::kF32: {
        const float value = (static_cast<float>(next() >> 40) - 0x1p23f) * 0x1p-24f;
        std::memcpy(p, &value, 4);
        break;
      }
      case DType::kF16: put_half(p, 0, 14); break;  // subnormals included
      case DType::kBF16: p[1] = static_cast<uint8_t>((p[1] & 0x80) | 0x3C | (p[1] & 1)); break;
      case DType::kQ4_K:
      case DType::kQ5_K: put_half(p, 0, 5), put_half(p + 2, 0, 6); break;
      case DType::kQ6_K: put_half(p + 208, 0, 4); break;
      case DType::kQ4_1:
      case DType::kQ5_1: put_half(p, 0, 10), put_half(p + 2, 4, 12); break;
      default: put_half(p, 0, 10); break;
    }
  }
  return bytes;
}

}  // namespace regard::test
