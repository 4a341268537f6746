// Which weights dropout keeps: a function of the seed and of where a pair stands, so that any cut into calls, tiles or
// threads, and a later recomputation, finds the same ones.
//
//   row key  = the first two words of philox((batch row, head, q low, q high), (seed low, seed high))
//   key at p : word (p / 64) % 4 of philox((c low, c high, 0, 0), row key), c = p / 256 * 64 + p % 64
//   dropped when that word is below floor(rate * 2^32)
//
// One block of four words thus serves the keys c, c + 64, c + 128 and c + 192 of a tile.
#pragma once

#include <array>
#include <cstdint>

#include "base/rng.h"
#include "kernels/attention.h"

namespace regard::kernels {

using DropoutKey = std::array<uint32_t, 2>;

/// The key of a row: position is that of the query.
constexpr DropoutKey dropout_row_key(uint64_t seed, int64_t batch_row, int64_t head, int64_t position) noexcept {
  const auto q = static_cast<uint64_t>(position);
  const PhiloxBlock x = philox({static_cast<uint32_t>(batch_row), static_cast<uint32_t>(head), static_cast<uint32_t>(q),
                                static_cast<uint32_t>(q >> 32)},
                               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return {x[0], x[1]};
}

/// What a word has to reach for its key to be kept; 0 <= rate < 1.
constexpr uint32_t dropout_threshold(double rate) noexcept { return static_cast<uint32_t>(rate * 0x1p32); }

/// Bit j of words[w]: the row keeps key 256 tile + 64 w + j.
void dropout_keep_words(const DropoutKey& row, int64_t tile, uint32_t threshold,
                        uint64_t (&words)[kPanelsPerTile]) noexcept;

}  // namespace regard::kernels
