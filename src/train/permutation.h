// A shuffled order that is computed, not stored: position -> item, a bijection of [0, size) for each key.
#pragma once

#include <cstdint>

namespace regard::train_data {

/// The item at `position` of the order that (seed, epoch) gives. `position` < `size`. Cost: some ten block functions, whatever
/// the size.
/// Source: Black, Rogaway 2002, "Ciphers with arbitrary finite domains", method 3: a balanced Feistel network on the next
/// power of four, walked on until the value lies inside.
uint64_t permuted(uint64_t seed, uint64_t epoch, uint64_t size, uint64_t position);

}  // namespace regard::train_data
