#include "train/permutation.h"

#include <bit>

#include "train/streams.h"

namespace regard::train_data {

uint64_t permuted(uint64_t seed, uint64_t epoch, uint64_t size, uint64_t position) {
  constexpr int kRounds = 6;
  const int half = size <= 1 ? 0 : (static_cast<int>(std::bit_width(size - 1)) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  // The domain is below four times the size, so four walks are what to expect at most; a bijection that starts inside comes back inside.
  do {
    uint64_t left = position >> half, right = position & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (random_bits(seed, kStreamOrder + epoch * kStreamsPerEpoch, right << 3 | round) & mask);
      left = right;
      right = next;
    }
    position = left << half | right;
  } while (position >= size);
  return position;
}

}  // namespace regard::train_data
