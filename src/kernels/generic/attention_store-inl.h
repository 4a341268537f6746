// From keys and values as they are stored to f32 lanes; all arithmetic is in f32. Part of attention-inl.h, whose
// templates take the type of a stored number as T. kernels/kv_layout.h has the layout.

struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

template <class T>
inline constexpr DType kTypeOf = DType::kF32;
template <>
inline constexpr DType kTypeOf<Half> = DType::kF16;
template <>
inline constexpr DType kTypeOf<Brain> = DType::kBF16;
template <>
inline constexpr DType kTypeOf<int8_t> = DType::kI8;

// Vector v of a row: the numbers 16 v ... 16 v + 15.
REGARD_INLINE F32 stored(const float* row, int v) { return load(row + kLanes * v); }
REGARD_INLINE F32 stored(const Half* row, int v) { return load_half(row + kLanes * v); }
REGARD_INLINE F32 stored(const int8_t* row, int v) { return load_i8(row + kLanes * v); }
REGARD_INLINE F32 stored(const Brain* row, int v) {
  const I32 pair = load_i(row + 2 * kLanes * (v / 2));
  return bits_as_float((v & 1) != 0 ? bit_and(pair, splat_i(static_cast<int32_t>(0xFFFF0000u))) : shift_left(pair, 16));
}

// acc[r][w] += x[r * ldx + k] * (vector v + w of row k of b) for k = 0 .. n-1, k rising.
template <class T, int R, int W>
REGARD_INLINE void accumulate_stored(Tile<R, W>& acc, const float* x, int64_t ldx, const T* b, int v, int64_t ldb,
                                     int64_t n) {
  REGARD_UNROLL_2
  for (int64_t k = 0; k < n; ++k, b += ldb) {
    F32 columns[W];
    REGARD_UNROLL
    for (int w = 0; w < W; ++w) columns[w] = stored(b, v + w);
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const F32 row = splat(x[r * ldx + k]);
      REGARD_UNROLL
      for (int w = 0; w < W; ++w) acc[r][w] = fma(row, columns[w], acc[r][w]);
    }
  }
}

// The same, asking for `Lines` cache lines of `ahead` at each step: decode is bound by memory and reads K and V in
// turns, so while one is multiplied the other is fetched. The address may lie behind the block: it is only ever
// prefetched.
template <int Lines, class T, int R, int W>
REGARD_INLINE void accumulate_ahead(Tile<R, W>& acc, const float* x, int64_t ldx, const T* b, int v, int64_t ldb, int n,
                                    uintptr_t ahead) {
  for (int k = 0; k < n; ++k, b += ldb) {
    F32 columns[W];
    REGARD_UNROLL
    for (int w = 0; w < W; ++w) columns[w] = stored(b, v + w);
    REGARD_UNROLL
    for (int i = 0; i < Lines; ++i)
      prefetch<Fetch::kL2>(
          reinterpret_cast<const void*>(ahead + 64 * (static_cast<uintptr_t>(k) * Lines + static_cast<uintptr_t>(i))));
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const F32 row = splat(x[r * ldx + k]);
      REGARD_UNROLL
      for (int w = 0; w < W; ++w) acc[r][w] = fma(row, columns[w], acc[r][w]);
    }
  }
}

// Scores of codes become scores of keys: the vectors v ... v + W - 1 of a panel.
template <class T, int R, int W>
REGARD_INLINE void scale_scores(Tile<R, W>& acc, const AttentionTile& tile, int panel, int v) {
  if constexpr (has_scales(kTypeOf<T>)) {
    REGARD_UNROLL
    for (int w = 0; w < W; ++w) {
      const F32 scale = stored(tile.scales[panel], v + w);
      REGARD_UNROLL
      for (int r = 0; r < R; ++r) acc[r][w] = mul(acc[r][w], scale);
    }
  }
}
