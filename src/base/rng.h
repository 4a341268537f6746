// Random numbers as a function of a key and a counter: value = f(key, counter). Nothing is stored between calls, so the
// numbers do not depend on the order in which threads, rows or batches ask for them.
//
// Source: Salmon, Moraes, Dror, Shaw, 2011, "Parallel random numbers: as easy as 1, 2, 3", Philox-4x32 with 10 rounds.
#pragma once

#include <array>
#include <cstdint>

namespace regard {

using PhiloxBlock = std::array<uint32_t, 4>;

/// Four independent 32-bit values for `counter` under `key`.
constexpr PhiloxBlock philox(PhiloxBlock counter, std::array<uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// 64 random bits for (seed, stream, index).
constexpr uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) noexcept {
  const PhiloxBlock x = philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(stream),
                                static_cast<uint32_t>(stream >> 32)},
                               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{x[0]} << 32 | x[1];
}

/// A double in [0, 1), uniform on multiples of 2^-53.
constexpr double random_uniform(uint64_t seed, uint64_t stream, uint64_t index) noexcept {
  return static_cast<double>(random_bits(seed, stream, index) >> 11) * 0x1p-53;
}

}  // namespace regard
