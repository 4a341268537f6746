// From keys and values as they are stored to f32 lanes; all arithmetic is in f32. Part of attention_tile-inl.h, whose
// templates take the type of a stored number as T. kernels/kv_layout.h has the layout.

struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};
// A code whose scale belongs to a block of its row; a code of a row with one scale is an int8_t.
struct BlockCode {
  int8_t code;
};

template <class T>
inline constexpr DType kTypeOf = DType::kF32;
template <>
inline constexpr DType kTypeOf<Half> = DType::kF16;
template <>
inline constexpr DType kTypeOf<Brain> = DType::kBF16;
template <>
inline constexpr DType kTypeOf<int8_t> = DType::kI8;
template <>
inline constexpr DType kTypeOf<BlockCode> = DType::kI8;

// Codes with one scale for each row are multiplied as they are, and the scale comes behind: into the score of a key, into the
// weight of a value. Codes with a scale for each block become f32 numbers first.
template <class T>
inline constexpr bool kScaledBehind = false;
template <>
inline constexpr bool kScaledBehind<int8_t> = true;
template <class T>
inline constexpr bool kScaledFirst = false;
template <>
inline constexpr bool kScaledFirst<BlockCode> = true;

// Vector v of a row: the numbers 16 v ... 16 v + 15.
REGARD_INLINE F32 stored(const float* row, int v) { return load(row + kLanes * v); }
REGARD_INLINE F32 stored(const Half* row, int v) { return load_half(row + kLanes * v); }
REGARD_INLINE F32 stored(const int8_t* row, int v) { return load_i8(row + kLanes * v); }
REGARD_INLINE F32 stored(const BlockCode* row, int v) { return load_i8(row + kLanes * v); }
REGARD_INLINE F32 stored(const Brain* row, int v) {
  const I32 pair = load_i(row + 2 * kLanes * (v / 2));
  return bits_as_float((v & 1) != 0 ? bit_and(pair, splat_i(static_cast<int32_t>(0xFFFF0000u))) : shift_left(pair, 16));
}

// The scales of a panel of keys (row k has number k of 64 keys) or of values (row k is a value).
struct NoScales {};
struct KeyScales {
  const float* scales;  // [blocks][64]
  int shift;            // log2 of the numbers in a block
};
struct ValueScales {
  const float* scales;  // [64][blocks]
  int64_t blocks;
  int shift;  // log2 of the vectors in a block
};
// From vector v of row k to numbers.
REGARD_INLINE F32 scaled(F32 x, const NoScales&, int64_t, int) { return x; }
REGARD_INLINE F32 scaled(F32 x, const KeyScales& s, int64_t k, int v) {
  return mul(x, load(s.scales + (k >> s.shift) * kPanelKeys + kLanes * v));
}
REGARD_INLINE F32 scaled(F32 x, const ValueScales& s, int64_t k, int v) {
  return mul(x, splat(s.scales[k * s.blocks + (v >> s.shift)]));
}
// Those of the values from k on.
REGARD_INLINE NoScales from_row(const NoScales&, int64_t) { return {}; }
REGARD_INLINE ValueScales from_row(const ValueScales& s, int64_t k) { return {s.scales + k * s.blocks, s.blocks, s.shift}; }
template <class T>
REGARD_INLINE auto key_scales(const AttentionTile& tile, int panel) {
  if constexpr (kScaledFirst<T>)
    return KeyScales{tile.scales[panel], std::countr_zero(static_cast<unsigned>(tile.scale_block))};
  else
    return NoScales{};
}
template <class T>
REGARD_INLINE auto value_scales(const AttentionTile& tile, int panel) {
  if constexpr (kScaledFirst<T>)
    return ValueScales{tile.scales[panel] + kPanelKeys * scale_blocks(tile.scale_block, tile.head_dim),
                       scale_blocks(tile.scale_block, tile.value_dim),
                       std::countr_zero(static_cast<unsigned>(tile.scale_block / kLanes))};
  else
    return NoScales{};
}

// acc[r][w] += x[r * ldx + k] * (vector v + w of row k of b) for k = 0 .. n-1, k rising.
template <class T, class S, int R, int W>
REGARD_INLINE void accumulate_stored(Tile<R, W>& acc, const float* x, int64_t ldx, const T* b, const S& scales, int v,
                                     int64_t ldb, int64_t n) {
  REGARD_UNROLL_2
  for (int64_t k = 0; k < n; ++k, b += ldb) {
    F32 columns[W];
    REGARD_UNROLL
    for (int w = 0; w < W; ++w) columns[w] = scaled(stored(b, v + w), scales, k, v + w);
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const F32 row = splat(x[r * ldx + k]);
      REGARD_UNROLL
      for (int w = 0; w < W; ++w) acc[r][w] = fma(row, columns[w], acc[r][w]);
    }
  }
}

// Scores of codes become scores of keys: of the vectors v ... v + W - 1 of a panel.
template <class T, int R, int W>
REGARD_INLINE void scale_scores(Tile<R, W>& acc, const AttentionTile& tile, int panel, int v) {
  if constexpr (kScaledBehind<T>) {
    REGARD_UNROLL
    for (int w = 0; w < W; ++w) {
      const F32 scale = stored(tile.scales[panel], v + w);
      REGARD_UNROLL
      for (int r = 0; r < R; ++r) acc[r][w] = mul(acc[r][w], scale);
    }
  }
}
