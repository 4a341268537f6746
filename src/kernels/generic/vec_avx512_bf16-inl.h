// What the bf16 instructions add to vec_avx512-inl.h: numbers in pairs, a dword holding the first in its low half.

// acc + a.high * b.high, then + a.low * b.low: each a multiply-add that rounds once, to nearest even, and takes and gives 0
// for numbers below the normal range. No exception is raised and the control word is not read.
REGARD_INLINE F32 add_products(F32 acc, I32 a, I32 b) {
  return {_mm512_dpbf16_ps(acc.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
}

// Rounds to nearest even; numbers below the normal range become 0.
// 32 numbers that follow each other, as 16 pairs.
REGARD_INLINE I32 narrow_row(F32 first, F32 second) {
  return {reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second.v, first.v))};
}
// 16 numbers of one row, each in a pair with that of another row.
REGARD_INLINE I32 narrow_rows(F32 low, F32 high) {
  const __m512i l = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(low.v)));
  const __m512i h = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(high.v)));
  return {_mm512_or_si512(l, _mm512_slli_epi32(h, 16))};
}

REGARD_INLINE void store_i(void* p, I32 a) { _mm512_storeu_si512(p, a.v); }
REGARD_INLINE void store_first_i(void* p, I32 a, int n) {
  _mm512_mask_storeu_epi32(p, static_cast<__mmask16>((1u << n) - 1u), a.v);
}
// Lanes N .. 15 of a, then the first N of b.
template <int N>
REGARD_INLINE I32 joined(I32 a, I32 b) {
  return {_mm512_alignr_epi32(b.v, a.v, N)};
}
// The half 2i + h of 16 pairs is all ones where bit 2i + h is set.
REGARD_INLINE I32 half_masks(uint32_t bits) { return {_mm512_maskz_set1_epi16(bits, -1)}; }
REGARD_INLINE I32 splat_pair(const uint32_t* p) { return {_mm512_set1_epi32(static_cast<int32_t>(*p))}; }
