// Softmax of one row inside one tile: scores become weights, and the row's maximum and sum come out. Part of
// attention_tile-inl.h.

// A maximum of -inf means that nothing was seen; subtracting it would make NaN of an empty row.
REGARD_INLINE F32 finite_or_zero(F32 m) { return select(equal(m, splat(-kInf)), zero(), m); }

// c tanh(s / c), between scale and mask. Gemma 2: Gemma Team, 2024, "Gemma 2", section 2.
REGARD_INLINE F32 capped(F32 s, F32 cap) { return mul(cap, tanh(div(s, cap))); }

// Visits the vectors of a row that hold a visible key: bits of each vector, and where it begins.
template <int R>
void cap_row(float* s, const Seen<R>* seen, int r, float softcap) {
  const F32 cap = splat(softcap);
  for (int w = 0; w < kPanelsPerTile; ++w) {
    uint64_t bits = seen == nullptr ? ~uint64_t{0} : seen->row[r][w];
    for (float* at = s + kPanelKeys * w; bits != 0; bits >>= kLanes, at += kLanes) store(at, capped(load(at), cap));
  }
}

// s = fma(bias, log2 e, s), after the soft-cap and before the mask.
REGARD_INLINE F32 biased(F32 s, F32 bias) { return fma(bias, splat(static_cast<float>(math::kLog2e)), s); }

// Of a vector with a visible key all lanes are computed; what a forbidden key's bias makes of its lane stays there.
template <int R>
void bias_row(float* s, const Seen<R>* seen, int r, const float* bias) {
  for (int w = 0; w < kPanelsPerTile; ++w) {
    uint64_t bits = seen == nullptr ? ~uint64_t{0} : seen->row[r][w];
    for (int j = kPanelKeys * w; bits != 0; bits >>= kLanes, j += kLanes)
      if ((bits & 0xFFFF) != 0) store(s + j, biased(load(s + j), load(bias + j)));
  }
}

// The maximum of each row in lanes, once more after scores were changed in memory.
template <int R>
REGARD_INLINE void maxima_of_all(const float* s, F32* top) {
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    top[r] = splat(-kInf);
    for (int v = 0; v < kTileKeys / kLanes; ++v) top[r] = max(load(s + r * kTileKeys + kLanes * v), top[r]);
  }
}

// Rows are taken together in each step: the chains of one row alone would leave the units waiting.
template <int R>
REGARD_INLINE void softmax_of_all(float* s, const F32* top, float* m_out, float* l_out) {
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) m_out[r] = reduce_max(top[r]);
  F32 sum[R];
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    const F32 shift = splat(m_out[r] == -kInf ? 0.0f : m_out[r]);
    sum[r] = zero();
    REGARD_UNROLL
    for (int v = 0; v < kTileKeys / kLanes; ++v) {
      float* at = s + r * kTileKeys + kLanes * v;
      const F32 p = exp2(sub(load(at), shift));
      store(at, p);
      sum[r] = add(sum[r], p);
    }
  }
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) l_out[r] = reduce_add(sum[r]);
}

// Which of the 16 keys of a vector row r sees.
template <int R>
REGARD_INLINE Lanes seen_lanes(const Seen<R>& seen, int r, int vector) {
  const uint64_t word = seen.row[r][vector / kPanelVectors];
  return lanes(static_cast<uint32_t>(word >> (kLanes * (vector % kPanelVectors))) & 0xFFFF);
}

// The keys of panel w of which some row sees one in the same vector.
template <int R>
REGARD_INLINE bool touched(const Seen<R>& seen, int w, int v) {
  return ((seen.any[w] >> (kLanes * v)) & 0xFFFF) != 0;
}

// Scores of panel w become weights and go into the sums; kAll: every row sees every key of it. A forbidden key is replaced,
// not multiplied away: adding its +0 changes nothing, so the bits equal those of any other way to skip it.
template <bool kAll, int R>
REGARD_INLINE void exponentials(float* s, const Seen<R>& seen, int w, const F32* shift, F32* sum) {
  REGARD_UNROLL
  for (int v = 0; v < kPanelVectors; ++v) {
    if (!kAll && !touched<R>(seen, w, v)) continue;
    float* at = s + kPanelKeys * w + kLanes * v;
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      F32 p = exp2(sub(load(at + r * kTileKeys), shift[r]));
      if constexpr (!kAll) p = select(seen_lanes<R>(seen, r, kPanelVectors * w + v), p, zero());
      store(at + r * kTileKeys, p);
      sum[r] = add(sum[r], p);
    }
  }
}

// `top`: the maxima over the panels that all rows see whole, or null when those are not known. A forbidden key is -inf in a
// maximum.
template <int R>
REGARD_INLINE void softmax_of_some(float* s, const Seen<R>& seen, const F32* top, float* m_out, float* l_out) {
  F32 m[R], sum[R];
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) m[r] = top == nullptr ? splat(-kInf) : top[r];
  for (int i = 0; i < seen.count; ++i) {
    const int v = seen.vectors[i];
    if (top != nullptr && seen.all[v / kPanelVectors] == ~uint64_t{0}) continue;
    const float* at = s + kLanes * v;
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) m[r] = select(seen_lanes<R>(seen, r, v), max(load(at + r * kTileKeys), m[r]), m[r]);
  }
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) m_out[r] = reduce_max(m[r]);
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    m[r] = splat(m_out[r] == -kInf ? 0.0f : m_out[r]);
    sum[r] = zero();
  }
  for (int w = 0; w < kPanelsPerTile; ++w) {
    if (seen.any[w] == 0) continue;
    if (seen.all[w] == ~uint64_t{0})
      exponentials<true, R>(s, seen, w, m, sum);
    else
      exponentials<false, R>(s, seen, w, m, sum);
  }
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) l_out[r] = reduce_add(sum[r]);
}

// Weights of values that are codes: p times the value's scale. Behind the sum of the weights, which knows no scale.
template <class T, int R>
REGARD_INLINE void weigh_codes(const AttentionTile& tile, const Seen<R>* seen, float* s) {
  if constexpr (kScaledBehind<T>) {
    constexpr int kPerPanel = kPanelKeys / kLanes;
    const int count = seen == nullptr ? kTileKeys / kLanes : seen->count;
    for (int i = 0; i < count; ++i) {
      const int v = seen == nullptr ? i : seen->vectors[i];
      const F32 scale = stored(tile.scales[v / kPerPanel] + kPanelKeys, v % kPerPanel);
      for (int r = 0; r < R; ++r) {
        float* at = s + r * kTileKeys + kLanes * v;
        store(at, mul(load(at), scale));
      }
    }
  }
}
