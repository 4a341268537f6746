// Rounding to bf16 while packing in pairs; what attention and the products of training share.

// One row of n numbers as pairs(n) pairs.
REGARD_INLINE void pack_row(const float* x, int64_t n, uint32_t* out) {
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) store_i(out + i / 2, narrow_row(load(x + i), load(x + i + kLanes)));
  if (i == n) return;
  const int left = static_cast<int>(n - i), first = left < kLanes ? left : kLanes;
  const F32 second = left > kLanes ? load_first(x + i + kLanes, left - kLanes) : zero();
  store_first_i(out + i / 2, narrow_row(load_first(x + i, first), second), pairs(left));
}

typedef uint32_t Quad __attribute__((vector_size(16)));
REGARD_INLINE Quad load_quad(const uint32_t* p) {
  Quad q;
  std::memcpy(&q, p, sizeof q);
  return q;
}

// panel[k / 2 * ldp + c] = source[c * ld + k], in pairs along k. Four rows are turned at a time, as their bytes lie far apart in the
// panel.
REGARD_INLINE void pack_turned(const float* source, int64_t ld, int count, int64_t n, uint32_t* panel, int ldp) {
  constexpr int kDepth = 512;  // numbers of a row at a time
  alignas(64) uint32_t row[4][pairs(kDepth)];
  for (int64_t k0 = 0; k0 < n; k0 += kDepth, panel += pairs(kDepth) * int64_t{ldp}) {
    const int64_t depth = n - k0 < kDepth ? n - k0 : kDepth, deep = pairs(depth);
    for (int j = 0; j < count; j += 4) {
      const int rows = count - j < 4 ? count - j : 4;
      for (int i = 0; i < rows; ++i) pack_row(source + (j + i) * ld + k0, depth, row[i]);
      uint32_t* to = panel + j;
      int64_t k = 0;
      for (; rows == 4 && k + 4 <= deep; k += 4) {
        const Quad a = load_quad(row[0] + k), b = load_quad(row[1] + k), c = load_quad(row[2] + k), d = load_quad(row[3] + k);
        const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
        const Quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        const Quad columns[4] = {
            __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5), __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
            __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5), __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
        for (int i = 0; i < 4; ++i) std::memcpy(to + (k + i) * ldp, &columns[i], sizeof(Quad));
      }
      for (; k < deep; ++k)
        for (int i = 0; i < rows; ++i) to[k * ldp + i] = row[i][k];
    }
  }
}
