// The vector layer for any machine: four registers of four lanes, written with the compilers' vector types, so that the
// same text serves SSE2 and 64-bit Arm. See vec_avx512-inl.h. There is no fused multiply-add here: fma() rounds twice, and
// the scalar definition that the tests compare with does the same on this instruction set.

inline constexpr int kMicroRows = 2;  // 2 rows x 1 vector of four registers = 8 accumulators, and as much again in operands
inline constexpr int kMicroVecs = 1;
inline constexpr int kVectors = 4;
inline constexpr bool kFused = false;
inline constexpr bool kConvertsUnsigned = false;

typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));

struct F32 {
  Float4 v[4];
};
struct I32 {
  Int4 v[4];
};
struct Lanes {
  Int4 v[4];  // all bits of a lane set or clear
};

// Four statements and not a loop: the compilers would keep a value that a loop indexes in memory.
#define REGARD_ONE_OF_FOUR(index, result, expression) \
  {                                                   \
    constexpr int i = index;                          \
    result.v[i] = expression;                         \
  }
#define REGARD_FOUR(result, expression)       \
  do {                                        \
    REGARD_ONE_OF_FOUR(0, result, expression) \
    REGARD_ONE_OF_FOUR(1, result, expression) \
    REGARD_ONE_OF_FOUR(2, result, expression) \
    REGARD_ONE_OF_FOUR(3, result, expression) \
  } while (false)

REGARD_INLINE Float4 blend(Int4 on, Float4 yes, Float4 no) { return (Float4)((on & (Int4)yes) | (~on & (Int4)no)); }

REGARD_INLINE F32 splat(float x) {
  F32 r;
  REGARD_FOUR(r, (Float4{x, x, x, x}));
  return r;
}
REGARD_INLINE F32 zero() { return splat(0.0f); }
// Registers are copied one by one: g++ takes a copy of all four through the stack.
REGARD_INLINE Float4 load4(const float* p) {
  Float4 r;
  std::memcpy(&r, p, sizeof r);
  return r;
}
REGARD_INLINE F32 load(const float* p) {
  F32 r;
  REGARD_FOUR(r, load4(p + 4 * i));
  return r;
}
REGARD_INLINE void store(float* p, F32 x) {
  std::memcpy(p, &x.v[0], 16);
  std::memcpy(p + 4, &x.v[1], 16);
  std::memcpy(p + 8, &x.v[2], 16);
  std::memcpy(p + 12, &x.v[3], 16);
}
REGARD_INLINE F32 load_first(const float* p, int n) {
  float t[16] = {};
  for (int i = 0; i < n; ++i) t[i] = p[i];
  return load(t);
}
REGARD_INLINE void store_first(float* p, F32 x, int n) {
  float t[16];
  store(t, x);
  for (int i = 0; i < n; ++i) p[i] = t[i];
}

REGARD_INLINE F32 add(F32 x, F32 y) {
  REGARD_FOUR(x, x.v[i] + y.v[i]);
  return x;
}
REGARD_INLINE F32 sub(F32 x, F32 y) {
  REGARD_FOUR(x, x.v[i] - y.v[i]);
  return x;
}
REGARD_INLINE F32 mul(F32 x, F32 y) {
  REGARD_FOUR(x, x.v[i] * y.v[i]);
  return x;
}
REGARD_INLINE F32 div(F32 x, F32 y) {
  REGARD_FOUR(x, x.v[i] / y.v[i]);
  return x;
}
REGARD_INLINE F32 fma(F32 x, F32 y, F32 z) {
  REGARD_FOUR(z, x.v[i] * y.v[i] + z.v[i]);
  return z;
}
// The second operand where either is NaN.
REGARD_INLINE F32 max(F32 x, F32 y) {
  REGARD_FOUR(x, blend(x.v[i] > y.v[i], x.v[i], y.v[i]));
  return x;
}
REGARD_INLINE F32 min(F32 x, F32 y) {
  REGARD_FOUR(x, blend(x.v[i] < y.v[i], x.v[i], y.v[i]));
  return x;
}
REGARD_INLINE F32 abs(F32 x) {
  REGARD_FOUR(x, (Float4)((Int4)x.v[i] & 0x7FFFFFFF));
  return x;
}
REGARD_INLINE F32 copy_sign(F32 magnitude, F32 sign) {
  REGARD_FOUR(magnitude, (Float4)(((Int4)magnitude.v[i] & 0x7FFFFFFF) | ((Int4)sign.v[i] & ~0x7FFFFFFF)));
  return magnitude;
}
// Nearest integer, ties to even: adding and subtracting 1.5 * 2^23 leaves no fraction bits. Larger values are integers.
REGARD_INLINE F32 round(F32 x) {
  const F32 magic = splat(0x1.8p23f);
  const F32 rounded = sub(add(x, magic), magic);
  const F32 size = abs(x);
  REGARD_FOUR(x, blend(size.v[i] < 0x1p22f, rounded.v[i], x.v[i]));
  return x;
}
// x = n + r with n the nearest integer and r in [-1/2, 1/2]. Beyond 2^252 x counts as that: scale_by_power() of it is 0 or
// infinity all the same, and the difference of two infinities does not arise. NaN comes through, see max().
REGARD_INLINE F32 split_integer(F32 x, F32& n) {
  x = min(splat(252.0f), max(splat(-252.0f), x));
  n = round(x);
  return sub(x, n);
}
// 2^n for integral n in [-126, 127].
REGARD_INLINE Float4 power_of_two(Float4 n) { return (Float4)((__builtin_convertvector(n, Int4) + 127) << 23); }
// a * 2^n for integral n, rounded once: the first step is exact because half of a clamped exponent stays in the normal
// range. A NaN in n comes with a NaN in x in every use.
REGARD_INLINE F32 scale_by_power(F32 x, F32 n) {
  const F32 clamped = min(splat(252.0f), max(splat(-252.0f), n));
  F32 half = mul(clamped, splat(0.5f));
  half = round(sub(half, splat(0.25f)));  // rounds a half-integer down; an integer less a quarter rounds back to itself
  const F32 rest = sub(clamped, half);
  REGARD_FOUR(x, x.v[i] * power_of_two(half.v[i]) * power_of_two(rest.v[i]));
  return x;
}

REGARD_INLINE Lanes lanes(uint32_t bits) {
  Lanes r;
  for (int i = 0; i < 4; ++i) {
    const auto b = static_cast<int32_t>(bits >> (4 * i));
    const Int4 word = {b, b, b, b}, one = {1, 2, 4, 8};
    r.v[i] = (word & one) == one;
  }
  return r;
}
REGARD_INLINE Lanes equal(F32 x, F32 y) {
  Lanes r;
  REGARD_FOUR(r, x.v[i] == y.v[i]);
  return r;
}
REGARD_INLINE Lanes less(F32 x, F32 y) {
  Lanes r;
  REGARD_FOUR(r, x.v[i] < y.v[i]);
  return r;
}
REGARD_INLINE Lanes is_nan(F32 x) {
  Lanes r;
  REGARD_FOUR(r, x.v[i] != x.v[i]);
  return r;
}
REGARD_INLINE F32 select(Lanes on, F32 yes, F32 no) {
  REGARD_FOUR(no, blend(on.v[i], yes.v[i], no.v[i]));
  return no;
}
// acc + x * y in all lanes, or acc untouched in all lanes: how a forbidden value stays out even when it is NaN.
REGARD_INLINE F32 fma_if(bool on, F32 x, F32 y, F32 acc) { return on ? fma(x, y, acc) : acc; }

// Lanes are combined as (i, i+8), (i, i+4), (i, i+2), (i, i+1).
REGARD_INLINE float reduce_add(F32 x) {
  const Float4 b = (x.v[0] + x.v[2]) + (x.v[1] + x.v[3]);
  return (b[0] + b[2]) + (b[1] + b[3]);
}
REGARD_INLINE float reduce_max(F32 x) {
  const Float4 lo = blend(x.v[0] > x.v[2], x.v[0], x.v[2]), hi = blend(x.v[1] > x.v[3], x.v[1], x.v[3]);
  const Float4 b = blend(lo > hi, lo, hi);
  const float c = b[0] > b[2] ? b[0] : b[2], d = b[1] > b[3] ? b[1] : b[3];
  return c > d ? c : d;
}

// Integers and narrow types: what weight decoding needs.
REGARD_INLINE I32 splat_i(int32_t x) {
  I32 r;
  REGARD_FOUR(r, (Int4{x, x, x, x}));
  return r;
}
REGARD_INLINE Int4 load4_i(const void* p) {
  Int4 r;
  std::memcpy(&r, p, sizeof r);
  return r;
}
REGARD_INLINE I32 load_i(const void* p) {
  I32 r;
  REGARD_FOUR(r, load4_i(static_cast<const uint8_t*>(p) + 16 * i));
  return r;
}
REGARD_INLINE I32 bit_and(I32 x, I32 y) {
  REGARD_FOUR(x, x.v[i] & y.v[i]);
  return x;
}
REGARD_INLINE I32 bit_or(I32 x, I32 y) {
  REGARD_FOUR(x, x.v[i] | y.v[i]);
  return x;
}
typedef uint32_t Unsigned4 __attribute__((vector_size(16)));
REGARD_INLINE I32 shift_left(I32 x, int n) {
  REGARD_FOUR(x, (Int4)((Unsigned4)x.v[i] << n));
  return x;
}
REGARD_INLINE I32 shift_right(I32 x, int n) {
  REGARD_FOUR(x, (Int4)((Unsigned4)x.v[i] >> n));
  return x;
}
REGARD_INLINE I32 bit_xor(I32 x, I32 y) {
  REGARD_FOUR(x, x.v[i] ^ y.v[i]);
  return x;
}
REGARD_INLINE I32 add_i(I32 x, I32 y) {
  REGARD_FOUR(x, (Int4)((Unsigned4)x.v[i] + (Unsigned4)y.v[i]));
  return x;
}
typedef uint64_t Wide2 __attribute__((vector_size(16)));
REGARD_INLINE void multiply_quarter(Int4 x, Int4 y, Int4& high, Int4& low) {
  const Wide2 even = ((Wide2)x & 0xFFFFFFFF) * ((Wide2)y & 0xFFFFFFFF), odd = ((Wide2)x >> 32) * ((Wide2)y >> 32);
  low = (Int4)((even & 0xFFFFFFFF) | (odd << 32));
  high = (Int4)((even >> 32) | (odd & ~uint64_t{0xFFFFFFFF}));
}
// The 64-bit products of unsigned elements, in halves.
REGARD_INLINE void multiply_wide(I32 x, I32 y, I32& high, I32& low) {
  for (int i = 0; i < 4; ++i) multiply_quarter(x.v[i], y.v[i], high.v[i], low.v[i]);
}
// Bit i: element i of x is at least that of y, both unsigned.
REGARD_INLINE uint32_t at_least(I32 x, I32 y) {
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) {
    const Int4 on = (Int4)((Unsigned4)x.v[i] >= (Unsigned4)y.v[i]);
    for (int j = 0; j < 4; ++j) bits |= (static_cast<uint32_t>(on[j]) & 1) << (4 * i + j);
  }
  return bits;
}
REGARD_INLINE F32 to_float(I32 x) {
  F32 r;
  REGARD_FOUR(r, __builtin_convertvector(x.v[i], Float4));
  return r;
}
REGARD_INLINE F32 bits_as_float(I32 x) {
  F32 r;
  REGARD_FOUR(r, (Float4)x.v[i]);
  return r;
}
// The magnitude's bits, moved to where f32 has them, are the value times 2^-112 (a denormal f32 where the half is denormal, so
// that one product puts every finite half right); infinity and NaN need the exponent that is all ones.
REGARD_INLINE Float4 load4_half(const uint8_t* p) {
  typedef uint16_t Half4 __attribute__((vector_size(8)));
  Half4 h;
  std::memcpy(&h, p, sizeof h);
  const Int4 word = __builtin_convertvector(h, Int4), magnitude = (word & 0x7FFF) << 13, sign = (word & 0x8000) << 16;
  const Int4 finite = (Int4)((Float4)magnitude * 0x1p112f);
  const Int4 special = magnitude >= 0x0F800000;
  return (Float4)(finite | (special & 0x7F800000) | sign);
}
REGARD_INLINE F32 load_half(const void* p) {
  F32 r;
  REGARD_FOUR(r, load4_half(static_cast<const uint8_t*>(p) + 8 * i));
  return r;
}
REGARD_INLINE F32 load_u8(const void* p) {
  float f[16];
  for (int i = 0; i < 16; ++i) f[i] = static_cast<float>(static_cast<const uint8_t*>(p)[i]);
  return load(f);
}
REGARD_INLINE F32 load_i8(const void* p) {
  float f[16];
  for (int i = 0; i < 16; ++i) f[i] = static_cast<float>(static_cast<const int8_t*>(p)[i]);
  return load(f);
}
// The value of (words & mask) as a float. The conversion is signed: the mask must not cover the top bit.
REGARD_INLINE F32 field_to_float(I32 words, I32 mask) { return to_float(bit_and(words, mask)); }

enum class Fetch { kL1, kL2 };
template <Fetch Where = Fetch::kL1>
REGARD_INLINE void prefetch(const void* p) {
  __builtin_prefetch(p, 0, Where == Fetch::kL1 ? 3 : 2);
}
