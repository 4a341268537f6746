// Which weights dropout keeps (kernels/dropout.h): Philox for 16 counters at a time. Part of attention-inl.h.

REGARD_INLINE I32 splat_u(uint32_t x) { return splat_i(static_cast<int32_t>(x)); }

// Groups of 16 counters whose rounds run side by side, as far as the registers reach.
inline constexpr int kDropoutGroups = kVectors >= 32 ? 4 : 1;

void dropout_keep(const uint32_t* row_key, int64_t tile, uint32_t threshold, uint64_t* words) noexcept {
  constexpr int kGroups = kDropoutGroups;
  const uint64_t first = static_cast<uint64_t>(tile) * kPanelKeys;
  const I32 a = splat_u(0xD2511F53u), b = splat_u(0xCD9E8D57u), least = splat_u(threshold);
  alignas(64) int32_t counter[kLanes];
  for (int i = 0; i < kLanes; ++i) counter[i] = i;
  for (int w = 0; w < kPanelsPerTile; ++w) words[w] = 0;
  for (int begin = 0; begin < kPanelKeys; begin += kLanes * kGroups) {
    I32 x[kGroups][4];
    REGARD_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      // Adding to the low half does not carry: `first` is a multiple of 64.
      x[g][0] =
          add_i(load_i(counter), splat_u(static_cast<uint32_t>(first) + static_cast<uint32_t>(begin + kLanes * g)));
      x[g][1] = splat_u(static_cast<uint32_t>(first >> 32));
      x[g][2] = x[g][3] = splat_u(0);
    }
    uint32_t key0 = row_key[0], key1 = row_key[1];
    REGARD_NO_UNROLL
    for (int round = 0; round < 10; ++round) {
      REGARD_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        I32 high_a, low_a, high_b, low_b;
        multiply_wide(x[g][0], a, high_a, low_a);
        multiply_wide(x[g][2], b, high_b, low_b);
        x[g][0] = bit_xor(bit_xor(high_b, x[g][1]), splat_u(key0));
        x[g][1] = low_b;
        x[g][2] = bit_xor(bit_xor(high_a, x[g][3]), splat_u(key1));
        x[g][3] = low_a;
      }
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    REGARD_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      REGARD_UNROLL
      for (int w = 0; w < kPanelsPerTile; ++w) words[w] |= uint64_t{at_least(x[g][w], least)} << (begin + kLanes * g);
    }
  }
}
