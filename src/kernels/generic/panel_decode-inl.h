// From the bytes of a panel to f32 lanes: 16 columns at a time, k rising, one template for all formats
// (kernels/panel_layout.h has the layout).
//
// Sixteen weights take an `and`, a conversion and an fma. A field at bit B*i reads as q * 2^(B*i) and the scale register
// holds d * 2^(-B*i), both exact, so fma(q 2^(Bi), d 2^(-Bi), offset) has just the one rounding of q*d + m. Symmetric
// formats have offset = -bias*d, which is exact, and (q - bias)*d is representable, so that there is no rounding at all.
// Every product is exact in f32: where fma() is a product and a sum the value is the same.

// How far ahead of its use a panel is fetched, a few lines per step. The out-of-order window is full of arithmetic and runs
// only a few lines ahead by itself; all lines of a tile at once would block the miss buffers.
inline constexpr int kPrefetchBytes = 4096;

// The address may lie behind the panel: it is formed as a number and only ever prefetched.
REGARD_INLINE void prefetch_ahead(const uint8_t* p, int64_t offset) {
  prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(offset)));
}

// Scale and offset of the 16 columns of group g.
template <class L>
REGARD_INLINE void load_scales(const uint8_t* super, const uint8_t* tile, int64_t g, F32& d, F32& offset) {
  if constexpr (L::kScales == Scales::kSymmetric) {
    d = load_half(tile + 32 * g);
    offset = mul(d, splat(static_cast<float>(-L::kBias)));
  } else if constexpr (L::kScales == Scales::kAffine) {
    d = load_half(tile + 32 * g);
    offset = load_half(tile + 128 + 32 * g);
  } else if constexpr (L::kScales == Scales::kSuperAffine) {
    d = mul(load_half(super + 32 * g), load_u8(tile + 16 * g));
    offset = mul(mul(load_half(super + 128 + 32 * g), splat(-1.0f)), load_u8(tile + 64 + 16 * g));
  } else {
    d = mul(load_half(super + 32 * g), load_i8(tile + 16 * g));
    offset = mul(d, splat(static_cast<float>(-L::kBias)));
  }
}

// The code whose bits are spread over bits 30 and 31 of several rows; the r-th of the tile.
template <class L>
REGARD_INLINE I32 load_rest(const uint8_t* codes, int r) {
  const I32 low = load_i(codes + 256 * (r == 0 ? 0 : 3)), middle = load_i(codes + 256 * (r == 0 ? 1 : 4)), high = load_i(codes + 512);
  const I32 bits01 = shift_right(low, 30);
  const I32 bits23 = bit_and(shift_right(middle, 28), splat_i(0xC));
  const I32 bits45 = bit_and(shift_right(high, 26 + r), splat_i(L::kBits == 6 ? 0x30 : 0x10));
  return bit_or(bit_or(bits01, bits23), bits45);
}

// A tile of plain numbers. `Count` of its kTileK positions: the last dword of an odd BF16 row holds one.
template <class L, int G, int Count = L::kTileK, class Sink>
REGARD_INLINE void decode_plain(const uint8_t* tile, int64_t g0, const Sink& sink) {
  REGARD_UNROLL
  for (int k = 0; k < Count; ++k) {
    REGARD_UNROLL
    for (int g = 0; g < G; ++g) {
      if constexpr (L::kType == DType::kF32) {
        sink(k, g, load(reinterpret_cast<const float*>(tile + 64 * (g0 + g))));
      } else if constexpr (L::kType == DType::kF16) {
        sink(k, g, load_half(tile + 32 * (g0 + g)));
      } else {
        const I32 pair = load_i(tile + 64 * (g0 + g));
        sink(k, g, bits_as_float(k == 0 ? shift_left(pair, 16) : bit_and(pair, splat_i(static_cast<int32_t>(0xFFFF0000u)))));
      }
    }
  }
}

// A tile of codes.
template <class L, int G, class Sink>
REGARD_INLINE void decode_codes(const uint8_t* super, const uint8_t* tile, int64_t g0, const Sink& sink) {
  const uint8_t* codes = tile + L::kScaleBytes + 64 * g0;
  F32 d[G], offset[G], step_d[G];
  REGARD_UNROLL
  for (int g = 0; g < G; ++g) {
    load_scales<L>(super, tile, g0 + g, d[g], offset[g]);
    step_d[g] = d[g];
  }
  I32 mask = splat_i((1 << L::kBits) - 1);
  const F32 step = splat(1.0f / (1 << L::kBits));
  // A field that reaches the top bit is shifted down where conversions are signed.
  constexpr bool kShiftsLast = !kConvertsUnsigned && L::kBits * L::kFields == 32;
  constexpr int kMasked = kShiftsLast ? L::kFields - 1 : L::kFields;
  constexpr int kLines = (L::kTileBytes + 64 * L::kFields - 1) / (64 * L::kFields);
  REGARD_NO_UNROLL
  for (int i = 0; i < kMasked; ++i) {
    REGARD_OPAQUE(codes);  // the rows are the same for every i: the compilers would load them all ahead of the loop and spill them
    REGARD_UNROLL
    for (int line = 0; line < kLines; ++line) prefetch_ahead(tile, kPrefetchBytes + 64 * (i * kLines + line));
    REGARD_UNROLL
    for (int j = 0; j < L::kDwords; ++j) {
      REGARD_UNROLL
      for (int g = 0; g < G; ++g)
        sink(L::kDwords * i + j, g, fma(field_to_float(load_i(codes + 256 * j + 64 * g), mask), step_d[g], offset[g]));
    }
    mask = shift_left(mask, L::kBits);
    REGARD_UNROLL
    for (int g = 0; g < G; ++g) step_d[g] = mul(step_d[g], step);
  }
  if constexpr (kShiftsLast) {
    REGARD_UNROLL
    for (int j = 0; j < L::kDwords; ++j) {
      REGARD_UNROLL
      for (int g = 0; g < G; ++g) {
        const I32 q = shift_right(load_i(codes + 256 * j + 64 * g), 32 - L::kBits);
        sink(L::kDwords * kMasked + j, g, fma(to_float(q), d[g], offset[g]));
      }
    }
  }
  REGARD_UNROLL
  for (int r = 0; r < L::kRest; ++r) {
    REGARD_UNROLL
    for (int g = 0; g < G; ++g)
      sink(L::kFields * L::kDwords + r, g, fma(to_float(load_rest<L>(codes + 64 * g, r)), d[g], offset[g]));
  }
}

// Calls sink(k, g, w) for all k of the tile, rising, and within each k for the groups g = 0 .. G-1, which are the columns
// 16 * (g0 + g) ... + 15 of the panel.
template <class L, int G, class Sink>
REGARD_INLINE void decode_tile(const uint8_t* super, const uint8_t* tile, int64_t g0, const Sink& sink) {
  if constexpr (L::kScales == Scales::kNone)
    decode_plain<L, G>(tile, g0, sink);
  else
    decode_codes<L, G>(super, tile, g0, sink);
}
