// The vector layer on AVX2 with FMA and F16C: two registers hold the 16 lanes. See vec_avx512-inl.h.

inline constexpr int kMicroRows = 6;  // 6 rows x 1 vector of two registers = 12 accumulators of 16 registers
inline constexpr int kMicroVecs = 1;
inline constexpr int kVectors = 8;                // that the registers hold
inline constexpr bool kFused = true;              // fma() rounds once
inline constexpr bool kConvertsUnsigned = false;  // field_to_float() takes fields with the top bit

struct F32 {
  __m256 a, b;  // lanes 0..7, 8..15
};
struct I32 {
  __m256i a, b;
};
struct Lanes {
  __m256 a, b;  // all bits of a lane set or clear
};

REGARD_INLINE F32 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
REGARD_INLINE F32 splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
REGARD_INLINE F32 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
REGARD_INLINE void store(float* p, F32 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
// All bits set in the first n of 8 lanes (n may be below 0 or above 8).
REGARD_INLINE __m256i first_of_8(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
REGARD_INLINE F32 load_first(const float* p, int n) {
  return {_mm256_maskload_ps(p, first_of_8(n)), _mm256_maskload_ps(p + 8, first_of_8(n - 8))};
}
REGARD_INLINE void store_first(float* p, F32 x, int n) {
  _mm256_maskstore_ps(p, first_of_8(n), x.a);
  _mm256_maskstore_ps(p + 8, first_of_8(n - 8), x.b);
}

REGARD_INLINE F32 add(F32 x, F32 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
REGARD_INLINE F32 sub(F32 x, F32 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
REGARD_INLINE F32 mul(F32 x, F32 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
REGARD_INLINE F32 div(F32 x, F32 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
REGARD_INLINE F32 fma(F32 x, F32 y, F32 z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
// The second operand where either is NaN.
REGARD_INLINE F32 max(F32 x, F32 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
REGARD_INLINE F32 min(F32 x, F32 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
REGARD_INLINE F32 abs(F32 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
REGARD_INLINE F32 copy_sign(F32 magnitude, F32 sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(bit, magnitude.a), _mm256_and_ps(bit, sign.a)),
          _mm256_or_ps(_mm256_andnot_ps(bit, magnitude.b), _mm256_and_ps(bit, sign.b))};
}
// Nearest integer, ties to even.
REGARD_INLINE F32 round(F32 x) {
  return {_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// x = n + r with n the nearest integer and r in [-1/2, 1/2]. Beyond 2^252 x counts as that: scale_by_power() of it is 0 or
// infinity all the same, and the difference of two infinities does not arise. NaN comes through, see max().
REGARD_INLINE F32 split_integer(F32 x, F32& n) {
  x = min(splat(252.0f), max(splat(-252.0f), x));
  n = round(x);
  return sub(x, n);
}
// 2^n for integral n in [-126, 127].
REGARD_INLINE __m256 power_of_two(__m256 n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
REGARD_INLINE __m256 scale_by_power(__m256 x, __m256 n) {
  // Two steps: the first is exact because half of a clamped exponent stays in the normal range, the second rounds once.
  // NaN in n: min and max return their second operand then, so it survives; x is NaN with it in every use.
  const __m256 clamped = _mm256_min_ps(_mm256_set1_ps(252.0f), _mm256_max_ps(_mm256_set1_ps(-252.0f), n));
  const __m256 half = _mm256_round_ps(_mm256_mul_ps(clamped, _mm256_set1_ps(0.5f)), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  return _mm256_mul_ps(_mm256_mul_ps(x, power_of_two(half)), power_of_two(_mm256_sub_ps(clamped, half)));
}
// a * 2^n for integral n, rounded once.
REGARD_INLINE F32 scale_by_power(F32 x, F32 n) { return {scale_by_power(x.a, n.a), scale_by_power(x.b, n.b)}; }

REGARD_INLINE Lanes lanes(uint32_t bits) {
  const __m256i one = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128), word = _mm256_set1_epi32(static_cast<int>(bits));
  const __m256i two = _mm256_slli_epi32(one, 8);
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(word, one), one)),
          _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(word, two), two))};
}
REGARD_INLINE Lanes equal(F32 x, F32 y) { return {_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ)}; }
REGARD_INLINE Lanes less(F32 x, F32 y) { return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)}; }
REGARD_INLINE Lanes is_nan(F32 x) { return {_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q)}; }
REGARD_INLINE F32 select(Lanes on, F32 yes, F32 no) {
  return {_mm256_blendv_ps(no.a, yes.a, on.a), _mm256_blendv_ps(no.b, yes.b, on.b)};
}
// acc + x * y in all lanes, or acc untouched in all lanes: how a forbidden value stays out even when it is NaN.
REGARD_INLINE F32 fma_if(bool on, F32 x, F32 y, F32 acc) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(-static_cast<int>(on)));
  return {_mm256_blendv_ps(acc.a, _mm256_fmadd_ps(x.a, y.a, acc.a), mask),
          _mm256_blendv_ps(acc.b, _mm256_fmadd_ps(x.b, y.b, acc.b), mask)};
}

// Lanes are combined as (i, i+8), (i, i+4), (i, i+2), (i, i+1).
REGARD_INLINE float reduce_add(F32 x) {
  const __m256 b = _mm256_add_ps(x.a, x.b);
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
REGARD_INLINE float reduce_max(F32 x) {
  const __m256 b = _mm256_max_ps(x.a, x.b);
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}

// Integers and narrow types: what weight decoding needs.
REGARD_INLINE I32 splat_i(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
REGARD_INLINE I32 load_i(const void* p) {
  const auto* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
REGARD_INLINE I32 bit_and(I32 x, I32 y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
REGARD_INLINE I32 bit_or(I32 x, I32 y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
REGARD_INLINE I32 shift_left(I32 x, int n) { return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)}; }
REGARD_INLINE I32 shift_right(I32 x, int n) { return {_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)}; }
REGARD_INLINE I32 bit_xor(I32 x, I32 y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
REGARD_INLINE I32 add_i(I32 x, I32 y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
REGARD_INLINE void multiply_half(__m256i x, __m256i y, __m256i& high, __m256i& low) {
  const __m256i even = _mm256_mul_epu32(x, y);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(y, 32));
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}
// The 64-bit products of unsigned elements, in halves.
REGARD_INLINE void multiply_wide(I32 x, I32 y, I32& high, I32& low) {
  multiply_half(x.a, y.a, high.a, low.a);
  multiply_half(x.b, y.b, high.b, low.b);
}
// Bit i: element i of x is at least that of y, both unsigned.
REGARD_INLINE uint32_t at_least(I32 x, I32 y) {
  const __m256i a = _mm256_cmpeq_epi32(_mm256_max_epu32(x.a, y.a), x.a), b = _mm256_cmpeq_epi32(_mm256_max_epu32(x.b, y.b), x.b);
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(a))) |
         static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(b))) << 8;
}
REGARD_INLINE F32 to_float(I32 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
REGARD_INLINE F32 bits_as_float(I32 x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
REGARD_INLINE F32 load_half(const void* p) {
  const auto* q = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
REGARD_INLINE F32 load_u8(const void* p) {
  const __m128i x = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(x)), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)))};
}
REGARD_INLINE F32 load_i8(const void* p) {
  const __m128i x = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))};
}
// The value of (words & mask) as a float. AVX2 converts signed integers only: the mask must not cover the top bit.
REGARD_INLINE F32 field_to_float(I32 words, I32 mask) { return to_float(bit_and(words, mask)); }

enum class Fetch { kL1, kL2 };
template <Fetch Where = Fetch::kL1>
REGARD_INLINE void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), Where == Fetch::kL1 ? _MM_HINT_T0 : _MM_HINT_T1);
}
