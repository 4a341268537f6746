// The vector layer on AVX-512: one register holds the 16 lanes. vec_avx2-inl.h and vec_baseline-inl.h say the same in two
// and four registers. Included once per translation unit, inside the instruction set's namespace and target region.
//
// Everything acts on each lane alone except the two reductions, whose order is spelt out because the bits of a row
// depend on it.

inline constexpr int kMicroRows = 6;  // 6 rows x 4 vectors = 24 accumulators, 4 operands and a broadcast of 32 registers
inline constexpr int kMicroVecs = 4;
inline constexpr int kVectors = 32;              // that the registers hold
inline constexpr bool kFused = true;             // fma() rounds once
inline constexpr bool kConvertsUnsigned = true;  // field_to_float() takes fields with the top bit

struct F32 {
  __m512 v;
};
struct I32 {
  __m512i v;
};
struct Lanes {
  __mmask16 m;
};

REGARD_INLINE F32 zero() { return {_mm512_setzero_ps()}; }
REGARD_INLINE F32 splat(float x) { return {_mm512_set1_ps(x)}; }
REGARD_INLINE F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
REGARD_INLINE void store(float* p, F32 a) { _mm512_storeu_ps(p, a.v); }
// The first n lanes (0..16); the others read as 0 and are not written. Memory behind them is not touched.
REGARD_INLINE F32 load_first(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), p)};
}
REGARD_INLINE void store_first(float* p, F32 a, int n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1u), a.v);
}

REGARD_INLINE F32 add(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
REGARD_INLINE F32 sub(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
REGARD_INLINE F32 mul(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
REGARD_INLINE F32 div(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
REGARD_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// The second operand where either is NaN.
REGARD_INLINE F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
REGARD_INLINE F32 min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }
REGARD_INLINE F32 abs(F32 a) { return {_mm512_abs_ps(a.v)}; }
REGARD_INLINE F32 copy_sign(F32 magnitude, F32 sign) {
  const __m512i bit = _mm512_set1_epi32(static_cast<int>(0x80000000u));
  return {_mm512_castsi512_ps(_mm512_or_si512(_mm512_andnot_si512(bit, _mm512_castps_si512(magnitude.v)),
                                              _mm512_and_si512(bit, _mm512_castps_si512(sign.v))))};
}
// Nearest integer, ties to even.
REGARD_INLINE F32 round(F32 a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// x = n + r with n the nearest integer and r in [-1/2, 1/2]; r is 0 for an infinite x.
REGARD_INLINE F32 split_integer(F32 x, F32& n) {
  n = round(x);
  return {_mm512_reduce_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// a * 2^n for integral n (infinite ones too), rounded once.
REGARD_INLINE F32 scale_by_power(F32 a, F32 n) { return {_mm512_scalef_ps(a.v, n.v)}; }

REGARD_INLINE Lanes lanes(uint32_t bits) { return {static_cast<__mmask16>(bits)}; }
REGARD_INLINE Lanes equal(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
REGARD_INLINE Lanes less(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
REGARD_INLINE Lanes is_nan(F32 a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
REGARD_INLINE F32 select(Lanes on, F32 yes, F32 no) { return {_mm512_mask_mov_ps(no.v, on.m, yes.v)}; }
// acc + a * b in all lanes, or acc untouched in all lanes: how a forbidden value stays out even when it is NaN.
REGARD_INLINE F32 fma_if(bool on, F32 a, F32 b, F32 acc) {
  return {_mm512_mask3_fmadd_ps(a.v, b.v, acc.v, _cvtu32_mask16(-static_cast<uint32_t>(on)))};
}

// Lanes are combined as (i, i+8), (i, i+4), (i, i+2), (i, i+1).
REGARD_INLINE float reduce_add(F32 a) {
  const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
REGARD_INLINE float reduce_max(F32 a) {
  const __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}

// Integers and narrow types: what weight decoding needs.
REGARD_INLINE I32 splat_i(int32_t x) { return {_mm512_set1_epi32(x)}; }
REGARD_INLINE I32 load_i(const void* p) { return {_mm512_loadu_si512(p)}; }
REGARD_INLINE I32 bit_and(I32 a, I32 b) { return {_mm512_and_si512(a.v, b.v)}; }
REGARD_INLINE I32 bit_or(I32 a, I32 b) { return {_mm512_or_si512(a.v, b.v)}; }
REGARD_INLINE I32 shift_left(I32 a, int n) { return {_mm512_slli_epi32(a.v, static_cast<unsigned>(n))}; }
REGARD_INLINE I32 shift_right(I32 a, int n) { return {_mm512_srli_epi32(a.v, static_cast<unsigned>(n))}; }
REGARD_INLINE I32 bit_xor(I32 a, I32 b) { return {_mm512_xor_si512(a.v, b.v)}; }
REGARD_INLINE I32 add_i(I32 a, I32 b) { return {_mm512_add_epi32(a.v, b.v)}; }
// The 64-bit products of unsigned elements, in halves.
REGARD_INLINE void multiply_wide(I32 a, I32 b, I32& high, I32& low) {
  const __m512i even = _mm512_mul_epu32(a.v, b.v);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), _mm512_srli_epi64(b.v, 32));
  low = {_mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32))};
  high = {_mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd)};
}
// Bit i: element i of a is at least that of b, both unsigned.
REGARD_INLINE uint32_t at_least(I32 a, I32 b) { return _mm512_cmpge_epu32_mask(a.v, b.v); }
REGARD_INLINE F32 to_float(I32 a) { return {_mm512_cvtepi32_ps(a.v)}; }
REGARD_INLINE F32 bits_as_float(I32 a) { return {_mm512_castsi512_ps(a.v)}; }
REGARD_INLINE F32 load_half(const void* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))}; }
REGARD_INLINE F32 load_u8(const void* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))))};
}
REGARD_INLINE F32 load_i8(const void* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))))};
}
// The value of (words & mask) as a float, where the mask covers up to 24 bits anywhere.
REGARD_INLINE F32 field_to_float(I32 words, I32 mask) { return {_mm512_cvtepu32_ps(_mm512_and_si512(words.v, mask.v))}; }

enum class Fetch { kL1, kL2 };
template <Fetch Where = Fetch::kL1>
REGARD_INLINE void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), Where == Fetch::kL1 ? _MM_HINT_T0 : _MM_HINT_T1);
}
