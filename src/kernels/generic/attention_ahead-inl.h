// Fetching ahead: few rows against a long cache wait for memory, not for arithmetic, so each step of a tile asks for what a
// later step reads. A tile is read in the order of its parts: four panels of keys, four blocks of values, then the next
// tile's panels; where a cache lays these one behind the other, that is one stream. Part of attention_tile-inl.h.

// How many vectors of keys, and of a value's columns, R rows take at once: as many as the registers allow, so that few rows
// read a number once. Registers, in whole vectors of 16 lanes, hold the sums and one line of operands; three rows by eight
// vectors fill all that there are. Of numbers that are stored in pairs of vectors whole pairs, so that only a single vector
// may begin inside a pair.
inline constexpr int kRegisters = kMicroRows * kMicroVecs + kMicroVecs;
template <int R>
inline constexpr int kScoreVectors = kRegisters / (R + 1) >= 4 ? 4 : kRegisters / (R + 1);
template <class T, int R>
inline constexpr int kValueVectors = kRegisters / (R + 1) >= 7                            ? 8
                                     : kTypeOf<T> == DType::kBF16 && kScoreVectors<R> > 1 ? kScoreVectors<R> / 2 * 2
                                                                                          : kScoreVectors<R>;

// How often the values are passed over.
template <class T, int R>
REGARD_INLINE int value_passes(const AttentionTile& tile) {
  return (tile.value_dim / kLanes + kValueVectors<T, R> - 1) / kValueVectors<T, R>;
}

// It pays from two multiply-adds per cache line on, or when values are passed over several times; else it only disturbs the
// hardware's own prefetch.
template <class T, int R>
REGARD_INLINE bool fetch_ahead(const AttentionTile& tile, int first) {
  constexpr int kVectorsPerLine = static_cast<int>(sizeof(float) / sizeof(T));
  return first == 0 && tile.next[0] != nullptr && (R * kVectorsPerLine >= 2 || value_passes<T, R>(tile) > 1);
}

// What row k of a part fetches: at `first` + k * stride while k < turn, at `then` + k * stride from there on. Addresses may
// lie behind a part: they are only ever fetched.
struct Ahead {
  uintptr_t first, then;
  int64_t stride, turn;
};

REGARD_INLINE uintptr_t part_address(const AttentionTile& tile, int64_t part) {
  const void* const* const parts[] = {tile.k, tile.v, tile.next};
  const int64_t last = 3 * kPanelsPerTile - 1, i = part < last ? part : last;
  return reinterpret_cast<uintptr_t>(parts[i / kPanelsPerTile][i % kPanelsPerTile]);
}

// What is read `bytes` after row k of a part of n rows of `stride` bytes.
REGARD_INLINE Ahead later(const AttentionTile& tile, int64_t part, int64_t stride, int64_t n, int64_t bytes) {
  const int64_t rows = bytes / stride, rest = rows % n;
  return {part_address(tile, part + rows / n) + static_cast<uintptr_t>(rest * stride),
          part_address(tile, part + rows / n + 1) - static_cast<uintptr_t>((n - rest) * stride), stride, n - rest};
}

// Rows of `stride` bytes from some byte of a part on.
REGARD_INLINE Ahead straight(const AttentionTile& tile, int64_t part, int64_t byte, int64_t stride) {
  const uintptr_t address = part_address(tile, part) + static_cast<uintptr_t>(byte);
  return {address, address, stride, 0};
}

// Values that need several passes are passed over so many rows at a time: about 16 KiB, which stay near while the columns
// take their turns. Meanwhile the next rows come, each pass fetching its share of them.
template <class T>
REGARD_INLINE int64_t rows_at_once(const AttentionTile& tile) {
  const int64_t stride = stored_dim(kTypeOf<T>, tile.value_dim) * static_cast<int64_t>(sizeof(T));
  return stride <= 256 ? 64 : stride <= 512 ? 32 : 16;
}

// How many bytes ahead: far enough for the latency of memory, near enough to be in the first-level cache still. Codes are so
// few that a tile's softmax would use up such a lead: theirs is four parts.
template <class T, int R>
REGARD_INLINE int64_t bytes_ahead(const AttentionTile& tile) {
  if (value_passes<T, R>(tile) == 1) return 8192;
  return rows_at_once<T>(tile) * stored_dim(kTypeOf<T>, tile.value_dim) * static_cast<int64_t>(sizeof(T));
}
template <class T, int R>
REGARD_INLINE Ahead ahead_of_keys(const AttentionTile& tile, int w) {
  constexpr int64_t kStride = kPanelKeys * sizeof(T);
  if (has_scales(kTypeOf<T>)) return straight(tile, w + kPanelsPerTile, 0, kStride);
  return later(tile, w, kStride, tile.head_dim, bytes_ahead<T, R>(tile));
}
// For block w of the values when one pass is enough.
template <class T, int R>
REGARD_INLINE Ahead ahead_of_values(const AttentionTile& tile, int w) {
  const int64_t stride = stored_dim(kTypeOf<T>, tile.value_dim) * static_cast<int64_t>(sizeof(T));
  if (has_scales(kTypeOf<T>)) return straight(tile, w + 2 * kPanelsPerTile, 0, stride);
  return later(tile, kPanelsPerTile + w, stride, kPanelKeys, bytes_ahead<T, R>(tile));
}
// For the pass over the columns from vector v on, `Lines` cache lines of each row, of n values from `row` of the tile on.
template <class T, int R, int Lines>
REGARD_INLINE Ahead ahead_of_pass(const AttentionTile& tile, int64_t row, int64_t n, int v) {
  const int64_t stride = stored_dim(kTypeOf<T>, tile.value_dim) * static_cast<int64_t>(sizeof(T)), next = row + n;
  return straight(tile, kPanelsPerTile + next / kPanelKeys,
                  next % kPanelKeys * stride + v / kValueVectors<T, R> * n * 64 * Lines, 64 * Lines);
}

// The next tile's scales, which lie where this tile's do.
template <class T>
REGARD_INLINE void fetch_scales(const AttentionTile& tile) {
  const int lines = kPanelKeys / kLanes * (scale_blocks(tile.scale_block, tile.head_dim) + scale_blocks(tile.scale_block, tile.value_dim));
  for (int w = 0; w < kPanelsPerTile; ++w) {
    const uintptr_t scales = reinterpret_cast<uintptr_t>(tile.scales[w]) - reinterpret_cast<uintptr_t>(tile.k[w]) +
                             reinterpret_cast<uintptr_t>(tile.next[w]);
    for (int i = 0; i < lines; ++i)
      prefetch<Fetch::kL2>(reinterpret_cast<const void*>(scales + 64 * static_cast<uintptr_t>(i)));
  }
}

// acc[r][w] += x[r * ldx + k] * (vector v + w of row k of b) as accumulate_stored() does it, fetching `Lines` cache lines at
// each step.
template <int Lines, class T, class S, int R, int W>
REGARD_INLINE void accumulate_fetching(Tile<R, W>& acc, const float* x, int64_t ldx, const T* b, const S& scales, int v,
                                       int64_t ldb, int64_t from, int64_t to, uintptr_t ahead, int64_t stride) {
  b += from * ldb;
  ahead += static_cast<uintptr_t>(from * stride);
  for (int64_t k = from; k < to; ++k, b += ldb, ahead += static_cast<uintptr_t>(stride)) {
    F32 columns[W];
    REGARD_UNROLL
    for (int w = 0; w < W; ++w) columns[w] = scaled(stored(b, v + w), scales, k, v + w);
    REGARD_UNROLL
    for (int i = 0; i < Lines; ++i) prefetch(reinterpret_cast<const void*>(ahead + 64 * static_cast<uintptr_t>(i)));
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const F32 row = splat(x[r * ldx + k]);
      REGARD_UNROLL
      for (int w = 0; w < W; ++w) acc[r][w] = fma(row, columns[w], acc[r][w]);
    }
  }
}
template <int Lines, class T, class S, int R, int W>
REGARD_INLINE void accumulate_ahead(Tile<R, W>& acc, const float* x, int64_t ldx, const T* b, const S& scales, int v,
                                    int64_t ldb, int64_t n, const Ahead& ahead) {
  accumulate_fetching<Lines>(acc, x, ldx, b, scales, v, ldb, 0, ahead.turn, ahead.first, ahead.stride);
  accumulate_fetching<Lines>(acc, x, ldx, b, scales, v, ldb, ahead.turn, n, ahead.then, ahead.stride);
}
