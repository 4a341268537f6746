// Softmax of one row inside one tile: scores become weights, and the row's maximum and sum come out. Part of
// attention-inl.h.

// A maximum of -inf means that nothing was seen; subtracting it would make NaN of an empty row.
REGARD_INLINE F32 finite_or_zero(F32 m) { return select(equal(m, splat(-kInf)), zero(), m); }

// c tanh(s / c), between scale and mask. Gemma 2: Gemma Team, 2024, "Gemma 2", section 2.
REGARD_INLINE F32 capped(F32 s, F32 cap) { return mul(cap, tanh(div(s, cap))); }

// Visits the vectors of a row that hold a visible key: bits of each vector, and where it begins.
template <int R>
void cap_row(float* s, const Seen<R>* seen, int r, float softcap) {
  const F32 cap = splat(softcap);
  for (int w = 0; w < kPanelsPerTile; ++w) {
    uint64_t bits = seen == nullptr ? ~uint64_t{0} : seen->row[w][r];
    for (float* at = s + kPanelKeys * w; bits != 0; bits >>= kLanes, at += kLanes) store(at, capped(load(at), cap));
  }
}

// s = fma(bias, log2 e, s), after the soft-cap and before the mask.
REGARD_INLINE F32 biased(F32 s, F32 bias) { return fma(bias, splat(static_cast<float>(math::kLog2e)), s); }

// Of a vector with a visible key all lanes are computed; what a forbidden key's bias makes of its lane stays there.
template <int R>
void bias_row(float* s, const Seen<R>* seen, int r, const float* bias) {
  for (int w = 0; w < kPanelsPerTile; ++w) {
    uint64_t bits = seen == nullptr ? ~uint64_t{0} : seen->row[w][r];
    for (int j = kPanelKeys * w; bits != 0; bits >>= kLanes, j += kLanes)
      if ((bits & 0xFFFF) != 0) store(s + j, biased(load(s + j), load(bias + j)));
  }
}

REGARD_INLINE void softmax_of_all(float* s, float& m_out, float& l_out) {
  F32 m = splat(-kInf);
  REGARD_UNROLL
  for (int v = 0; v < kTileKeys / kLanes; ++v)
    m = max(load(s + kLanes * v), m);  // a NaN is ignored here and comes back below
  const float top = reduce_max(m);
  const F32 shift = splat(top == -kInf ? 0.0f : top);
  F32 sum = zero();
  REGARD_UNROLL
  for (int v = 0; v < kTileKeys / kLanes; ++v) {
    const F32 p = exp2(sub(load(s + kLanes * v), shift));
    store(s + kLanes * v, p);
    sum = add(sum, p);
  }
  m_out = top;
  l_out = reduce_add(sum);
}

// A forbidden key is replaced, not multiplied away: by -inf in the maximum, by 0 in the sum. Adding +0 changes nothing,
// so the bits equal those of any other way to skip it.
template <int R>
REGARD_INLINE void softmax_of_some(float* s, const Seen<R>& seen, int r, float& m_out, float& l_out) {
  F32 m = splat(-kInf);
  for (int w = 0; w < kPanelsPerTile; ++w) {
    const float* at = s + kPanelKeys * w;
    for (uint64_t bits = seen.row[w][r]; bits != 0; bits >>= kLanes, at += kLanes)
      m = select(lanes(static_cast<uint32_t>(bits & 0xFFFF)), max(load(at), m), m);
  }
  const float top = reduce_max(m);
  const F32 shift = splat(top == -kInf ? 0.0f : top);
  F32 sum = zero();
  for (int w = 0; w < kPanelsPerTile; ++w) {
    float* at = s + kPanelKeys * w;
    for (uint64_t bits = seen.row[w][r]; bits != 0; bits >>= kLanes, at += kLanes) {
      const F32 p = select(lanes(static_cast<uint32_t>(bits & 0xFFFF)), exp2(sub(load(at), shift)), zero());
      store(at, p);
      sum = add(sum, p);
    }
  }
  m_out = top;
  l_out = reduce_add(sum);
}
