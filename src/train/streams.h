// Which streams of random numbers (base/rng.h) the data of a run takes, so that no two purposes share one. The seed is the
// run's; first weights and dropout have keys of their own.
#pragma once

#include <cstdint>

#include "base/rng.h"

namespace regard::train_data {

inline constexpr uint64_t kStreamsPerEpoch = 16;  // order and offset are streams of their epoch
inline constexpr uint64_t kStreamOrder = 0x7261696E'00000000u;
inline constexpr uint64_t kStreamOffset = kStreamOrder + 1;
inline constexpr uint64_t kStreamCorruption = kStreamOrder + 2;  // index: sequence and place
inline constexpr uint64_t kStreamReplacement = kStreamOrder + 3;

}  // namespace regard::train_data
