#include "kernels/dropout.h"

namespace regard::kernels {

// philox() of base/rng.h for 64 counters side by side, so that the compiler can use vectors.
void dropout_keep_words(const DropoutKey& row, int64_t tile, uint32_t threshold,
                        uint64_t (&words)[kPanelsPerTile]) noexcept {
  uint32_t x[kPanelsPerTile][kPanelKeys];
  const uint64_t first = static_cast<uint64_t>(tile) * kPanelKeys;
  for (uint32_t i = 0; i < kPanelKeys; ++i) {
    x[0][i] = static_cast<uint32_t>(first) + i;  // does not overflow: `first` is a multiple of 64
    x[1][i] = static_cast<uint32_t>(first >> 32);
    x[2][i] = x[3][i] = 0;
  }
  uint32_t key0 = row[0], key1 = row[1];
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kPanelKeys; ++i) {
      const uint64_t a = uint64_t{0xD2511F53u} * x[0][i], b = uint64_t{0xCD9E8D57u} * x[2][i];
      x[0][i] = static_cast<uint32_t>(b >> 32) ^ x[1][i] ^ key0;
      x[1][i] = static_cast<uint32_t>(b);
      x[2][i] = static_cast<uint32_t>(a >> 32) ^ x[3][i] ^ key1;
      x[3][i] = static_cast<uint32_t>(a);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  for (int w = 0; w < kPanelsPerTile; ++w) {
    words[w] = 0;
    for (int i = 0; i < kPanelKeys; ++i) words[w] |= uint64_t{x[w][i] >= threshold} << i;
  }
}

}  // namespace regard::kernels
