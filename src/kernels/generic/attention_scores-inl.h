// What a few rows see of a tile, and their scores. Part of attention_tile-inl.h.

inline constexpr int kPanelVectors = kPanelKeys / kLanes;
inline constexpr int kTileVectors = kTileKeys / kLanes;
inline constexpr float kInf = std::numeric_limits<float>::infinity();

enum class Sight { kNothing, kEverything, kSome };

// What R rows see of a tile: words by row, the keys that any and that all of them see, and the vectors of 16 keys in
// which some row sees one, rising.
template <int R>
struct Seen {
  uint64_t row[R][kPanelsPerTile];
  uint64_t any[kPanelsPerTile];
  uint64_t all[kPanelsPerTile];
  int vectors[kTileVectors];
  int count;
};

template <int R>
REGARD_INLINE void join(Seen<R>& seen) {
  for (int w = 0; w < kPanelsPerTile; ++w) seen.any[w] = seen.all[w] = seen.row[0][w];
  for (int r = 1; r < R; ++r)
    for (int w = 0; w < kPanelsPerTile; ++w) {
      seen.any[w] |= seen.row[r][w];
      seen.all[w] &= seen.row[r][w];
    }
}

// The keys [lo, hi) of the tile that lie in panel w, as bits.
REGARD_INLINE uint64_t interval_word(int lo, int hi, int w) {
  lo -= 64 * w;
  hi -= 64 * w;
  if (lo < 0) lo = 0;
  if (hi > 64) hi = 64;
  return lo < hi ? (~uint64_t{0} << lo) & (~uint64_t{0} >> (64 - hi)) : 0;
}

template <int R>
REGARD_INLINE Sight look(const AttentionTile& tile, int first, Seen<R>& seen) {
  if (tile.lo == nullptr && tile.words == nullptr) return Sight::kEverything;
  int32_t lo[R], hi[R];
  bool everything = tile.words == nullptr, nothing = true;
  for (int r = 0; r < R; ++r) {
    lo[r] = tile.lo == nullptr ? 0 : tile.lo[first + r];
    hi[r] = tile.hi == nullptr ? kTileKeys : tile.hi[first + r];
    everything = everything && lo[r] <= 0 && hi[r] >= kTileKeys;
    nothing = nothing && lo[r] >= hi[r];
  }
  if (everything) return Sight::kEverything;
  if (nothing) return Sight::kNothing;
  if (tile.lo == nullptr) {
    for (int r = 0; r < R; ++r)
      for (int w = 0; w < kPanelsPerTile; ++w) seen.row[r][w] = tile.words[first + r][w];
    join<R>(seen);
  } else {
    for (int w = 0; w < kPanelsPerTile; ++w) {
      uint64_t any = 0, all = ~uint64_t{0};
      for (int r = 0; r < R; ++r) {
        uint64_t word = interval_word(lo[r], hi[r], w);
        if (tile.words != nullptr) word &= tile.words[first + r][w];
        seen.row[r][w] = word;
        any |= word;
        all &= word;
      }
      seen.any[w] = any;
      seen.all[w] = all;
    }
  }
  uint64_t found = 0, missing = 0;
  seen.count = 0;
  for (int w = 0; w < kPanelsPerTile; ++w) {
    found |= seen.any[w];
    missing |= ~seen.all[w];
    uint64_t any = seen.any[w];
    for (int v = 0; any != 0; ++v, any >>= kLanes)
      if ((any & 0xFFFF) != 0) seen.vectors[seen.count++] = kPanelVectors * w + v;
  }
  return found == 0 ? Sight::kNothing : missing == 0 ? Sight::kEverything : Sight::kSome;
}

// Takes away from what the rows see what dropout does not keep. `seen` need not be filled when they see everything.
template <int R>
REGARD_INLINE void drop(const AttentionTile& tile, int first, Sight sight, Seen<R>& seen) {
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < kPanelsPerTile; ++w) {
      const uint64_t kept = tile.keep[first + r][w];
      seen.row[r][w] = sight == Sight::kEverything ? kept : kept & seen.row[r][w];
    }
  join<R>(seen);
}

// Maxima of a row's scores are taken while these are in registers. A NaN is ignored here and comes back as a weight.
template <int R, int W>
REGARD_INLINE void raise(F32* top, const Tile<R, W>& acc) {
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    F32 m = top[r];
    REGARD_UNROLL
    for (int w = 0; w < W; ++w) m = max(acc[r][w], m);
    top[r] = m;
  }
}

template <class T, int R, int W>
REGARD_INLINE void raise_by_at_most(const AttentionTile& tile, int vectors, const float* q, int panel, int v, float* s,
                                    F32* top) {
  if constexpr (W > 1)
    if (vectors < W) return raise_by_at_most<T, R, W - 1>(tile, vectors, q, panel, v, s, top);
  Tile<R, W> acc;
  clear_tile<R, W>(acc);
  accumulate_stored(acc, q, tile.head_dim, static_cast<const T*>(tile.k[panel]), key_scales<T>(tile, panel), v, kPanelKeys,
                    tile.head_dim);
  scale_scores<T, R, W>(acc, tile, panel, v);
  store_tile<R, W>(acc, s + kPanelKeys * panel + kLanes * v, kTileKeys);
  if (top != nullptr) raise<R, W>(top, acc);
}

// The scores of panel w, and where `top` is given the maximum of each row in lanes.
template <class T, int R>
REGARD_INLINE void score_panel(const AttentionTile& tile, int w, const float* q, float* s, F32* top) {
  constexpr int W = kScoreVectors<R>;
  REGARD_UNROLL
  for (int v = 0; v < kPanelVectors; v += W) raise_by_at_most<T, R, W>(tile, kPanelVectors - v, q, w, v, s, top);
}

template <class T, int R>
void scores_of_all(const AttentionTile& tile, const float* q, float* s, F32* top) {
  for (int w = 0; w < kPanelsPerTile; ++w) score_panel<T, R>(tile, w, q, s, top);
}

// The same, fetching ahead.
template <class T, int R>
void scores_of_all_ahead(const AttentionTile& tile, const float* q, float* s, F32* top) {
  if constexpr (kScoreVectors<R> == 4) {
    for (int w = 0; w < kPanelsPerTile; ++w) {
      Tile<R, 4> acc;
      clear_tile<R, 4>(acc);
      accumulate_ahead<sizeof(T)>(acc, q, tile.head_dim, static_cast<const T*>(tile.k[w]), key_scales<T>(tile, w), 0, kPanelKeys,
                                  tile.head_dim, ahead_of_keys<T, R>(tile, w));
      scale_scores<T, R, 4>(acc, tile, w, 0);
      store_tile<R, 4>(acc, s + kPanelKeys * w, kTileKeys);
      raise<R, 4>(top, acc);
    }
  } else {
    scores_of_all<T, R>(tile, q, s, top);
  }
}

// The scores of R rows for W vectors of keys, wherever in the tile these are: a column's chain does not know its
// neighbours.
template <class T, int R, int W>
REGARD_INLINE void score_vectors(const AttentionTile& tile, const float* q, const int* vectors, float* s) {
  const T* panels[W];
  decltype(key_scales<T>(tile, 0)) scales[W];
  for (int w = 0; w < W; ++w) {
    panels[w] = static_cast<const T*>(tile.k[vectors[w] / kPanelVectors]);
    scales[w] = key_scales<T>(tile, vectors[w] / kPanelVectors);
  }
  Tile<R, W> acc;
  clear_tile<R, W>(acc);
  const int64_t ldq = tile.head_dim;
  REGARD_UNROLL_2
  for (int64_t k = 0; k < ldq; ++k) {
    F32 key[W];
    REGARD_UNROLL
    for (int w = 0; w < W; ++w) {
      const int v = vectors[w] % kPanelVectors;
      key[w] = scaled(stored(panels[w] + k * kPanelKeys, v), scales[w], k, v);
    }
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const F32 row = splat(q[r * ldq + k]);
      REGARD_UNROLL
      for (int w = 0; w < W; ++w) acc[r][w] = fma(row, key[w], acc[r][w]);
    }
  }
  for (int w = 0; w < W; ++w) {
    float* to = s + kLanes * vectors[w];
    Tile<R, 1> one;
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) one[r][0] = acc[r][w];
    scale_scores<T, R, 1>(one, tile, vectors[w] / kPanelVectors, vectors[w] % kPanelVectors);
    store_tile<R, 1>(one, to, kTileKeys);
  }
}
template <class T, int R, int W>
REGARD_INLINE void score_at_most(const AttentionTile& tile, int count, const float* q, const int* vectors, float* s) {
  if constexpr (W > 1)
    if (count < W) return score_at_most<T, R, W - 1>(tile, count, q, vectors, s);
  score_vectors<T, R, W>(tile, q, vectors, s);
}

// Only the vectors of 16 keys in which some row sees one: this is what makes causal rows and narrow windows cheap. Where
// `top` is given, the maxima over the panels that all rows see whole go there.
template <class T, int R>
void scores_of_some(const AttentionTile& tile, const float* q, const Seen<R>& seen, float* s, F32* top) {
  int rest[kTileVectors], count = 0;
  for (int i = 0; i < seen.count;) {
    const int v = seen.vectors[i], w = v / kPanelVectors;
    if (v % kPanelVectors == 0 && i + kPanelVectors <= seen.count &&
        seen.vectors[i + kPanelVectors - 1] == v + kPanelVectors - 1) {
      score_panel<T, R>(tile, w, q, s, seen.all[w] == ~uint64_t{0} ? top : nullptr);
      i += kPanelVectors;
    } else {
      rest[count++] = v;
      ++i;
    }
  }
  // What is left in passes of about the same width: a narrow one at the end would leave the units waiting.
  int passes = (count + kScoreVectors<R> - 1) / kScoreVectors<R>;
  for (int i = 0; passes > 0; --passes) {
    const int width = (count - i + passes - 1) / passes;
    score_at_most<T, R, kScoreVectors<R>>(tile, width, q, rest + i, s);
    i += width;
  }
}
