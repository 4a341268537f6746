// The kernels of gemm_bf16.h. Included inside the instruction set's region, behind micro_bf16-inl.h. Start at multiply_tiles().

namespace {

inline constexpr int kLanes = 16;
#include "kernels/generic/pack_bf16-inl.h"

static_assert(kMicroRows == kBf16TileRows && 16 * kMicroVecs == kBf16PanelColumns);
inline constexpr int kWidth = kBf16PanelColumns;

// Where the rows of A lie: apart, or side by side in a strip.
struct ApartRows {
  const uint32_t* a;
  int64_t lda;
  REGARD_INLINE_MEMBER I32 operator()(int r, int64_t k) const { return splat_pair(a + r * lda + k); }
};
struct StripRows {
  const uint32_t* a;
  REGARD_INLINE_MEMBER I32 operator()(int r, int64_t k) const { return splat_pair(a + k * kMicroRows + r); }
};

struct Product {
  const uint32_t* panel;
  int64_t deep;  // pairs
  const float* bias;
  int64_t ldc;
  int columns;
  Accumulate accumulate;
};

template <int R, class Rows>
[[gnu::noinline]] void tile_pass(Rows rows, const Product& p, float* c) {
  Tile<R, kMicroVecs> acc;
  if (p.accumulate == Accumulate::kAdd)
    load_tile<R, kMicroVecs>(acc, c, p.ldc, p.columns);
  else
    clear_tile<R, kMicroVecs>(acc);
  const uint32_t* panel = p.panel;
  REGARD_UNROLL_2
  for (int64_t k = 0; k < p.deep; ++k, panel += kWidth) {
    I32 columns[kMicroVecs];
    REGARD_UNROLL
    for (int w = 0; w < kMicroVecs; ++w) columns[w] = load_i(panel + 16 * w);
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const I32 row = rows(r, k);
      REGARD_UNROLL
      for (int w = 0; w < kMicroVecs; ++w) acc[r][w] = add_products(acc[r][w], row, columns[w]);
    }
  }
  if (p.bias != nullptr) {
    REGARD_UNROLL
    for (int w = 0; w < kMicroVecs; ++w) {
      const F32 b = load_first(p.bias + 16 * w, lanes_below(p.columns, w));
      REGARD_UNROLL
      for (int r = 0; r < R; ++r) acc[r][w] = add(acc[r][w], b);
    }
  }
  store_tile<R, kMicroVecs>(acc, c, p.ldc, p.columns);
}
template <int R, class Rows>
void tile(int64_t count, Rows rows, const Product& p, float* c) {
  if constexpr (R > 1) {
    if (count < R) return tile<R - 1>(count, rows, p, c);
  }
  tile_pass<R>(rows, p, c);
}

// The sums of the next tile, which would be waited for. The lines are those of whole panels, if they exist or not.
void prefetch_tile(const float* c, int64_t ldc) {
  for (int r = 0; r < kMicroRows; ++r)
    for (int w = 0; w < kMicroVecs; ++w)
      prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(c) + static_cast<uintptr_t>(4 * (r * ldc + 16 * w))));
}

// A tile's rows begin r * step dwords behind the first one's, apart or in a strip.
template <class Rows>
REGARD_INLINE void multiply_tiles(const uint32_t* a, int64_t step, int64_t rows, const Product& p, float* c) {
  for (int64_t r = 0; r < rows; r += kMicroRows) {
    if (r + kMicroRows < rows) prefetch_tile(c + (r + kMicroRows) * p.ldc, p.ldc);
    if constexpr (std::is_same_v<Rows, ApartRows>)
      tile<kMicroRows>(rows - r, ApartRows{a + r * step, step}, p, c + r * p.ldc);
    else
      tile<kMicroRows>(rows - r, StripRows{a + r * step}, p, c + r * p.ldc);
  }
}

void multiply_rows(const uint32_t* a, int64_t lda, int64_t rows, const uint32_t* panel, int64_t inner, const float* bias, float* c, int64_t ldc,
                   int columns, Accumulate accumulate) noexcept {
  multiply_tiles<ApartRows>(a, lda, rows, {panel, pairs(inner), bias, ldc, columns, accumulate}, c);
}
void multiply_strips(const uint32_t* strips, int64_t rows, const uint32_t* panel, int64_t inner, float* c, int64_t ldc, int columns,
                     Accumulate accumulate) noexcept {
  multiply_tiles<StripRows>(strips, pairs(inner), rows, {panel, pairs(inner), nullptr, ldc, columns, accumulate}, c);
}

// Rows k and k + 1 of a source, 16 columns from c on; the second of them is 0 behind the end.
REGARD_INLINE I32 row_pair(const float* source, int64_t ld, int64_t k, int64_t inner, int64_t c, int lanes_there) {
  const float* x = source + k * ld + c;
  const bool both = k + 1 < inner;
  if (lanes_there >= kLanes) return narrow_rows(load(x), both ? load(x + ld) : zero());
  return narrow_rows(load_first(x, lanes_there), both ? load_first(x + ld, lanes_there) : zero());
}

void pack_columns(const float* source, int64_t ld, int64_t inner, int columns, uint32_t* panel) noexcept {
  for (int64_t k = 0; k < inner; k += 2, panel += kWidth) {
    REGARD_UNROLL
    for (int w = 0; w < kMicroVecs; ++w) store_i(panel + 16 * w, row_pair(source, ld, k, inner, 16 * w, lanes_below(columns, w)));
  }
}

void pack_transposed(const float* source, int64_t ld, int64_t inner, int columns, uint32_t* panel) noexcept {
  pack_turned(source, ld, columns, inner, panel, kWidth);
  for (int64_t k = 0; k < pairs(inner) && columns < kWidth; ++k)
    for (int c = columns; c < kWidth; ++c) panel[k * kWidth + c] = 0;
}

void pack_rows(const float* source, int64_t ld, int64_t inner, int64_t rows, uint32_t* out) noexcept {
  for (int64_t r = 0; r < rows; ++r) pack_row(source + r * ld, inner, out + r * pairs(inner));
}

// Three vectors of columns are eight strips. (Through memory they would be waited for: a strip may lie across two of the stores.)
struct EightStrips {
  I32 columns[3];
  template <int S>
  REGARD_INLINE_MEMBER void store_strip(uint32_t* to, int64_t strip) const {
    constexpr int kFirst = kMicroRows * S, kVector = kFirst / kLanes, kNext = kVector == 2 ? 2 : kVector + 1;
    store_first_i(to + S * strip, joined<kFirst % kLanes>(columns[kVector], columns[kNext]), kMicroRows);
  }
  template <int... S>
  REGARD_INLINE_MEMBER void store_strips(uint32_t* to, int64_t strip, std::integer_sequence<int, S...>) const {
    (store_strip<S>(to, strip), ...);
  }
};

void pack_strips(const float* source, int64_t ld, int64_t inner, int64_t rows, uint32_t* strips) noexcept {
  constexpr int kColumns = 3 * kLanes, kStrips = kColumns / kMicroRows;
  constexpr int64_t kPackDepth = 32;  // lines that neighbouring strips share are still in the first-level cache
  const int64_t strip = pairs(inner) * kMicroRows;
  for (int64_t k0 = 0; k0 < inner; k0 += kPackDepth) {
    const int64_t k1 = k0 + kPackDepth < inner ? k0 + kPackDepth : inner;
    int64_t c = 0;
    for (; c + kColumns <= rows; c += kColumns) {
      uint32_t* to = strips + c / kMicroRows * strip + k0 / 2 * kMicroRows;
      for (int64_t k = k0; k < k1; k += 2, to += kMicroRows) {
        EightStrips eight;
        REGARD_UNROLL
        for (int w = 0; w < 3; ++w) eight.columns[w] = row_pair(source, ld, k, inner, c + 16 * w, kLanes);
        eight.store_strips(to, strip, std::make_integer_sequence<int, kStrips>());
      }
    }
    for (; c < rows; c += kMicroRows) {
      const int there = rows - c < kMicroRows ? static_cast<int>(rows - c) : kMicroRows;
      uint32_t* to = strips + c / kMicroRows * strip + k0 / 2 * kMicroRows;
      for (int64_t k = k0; k < k1; k += 2, to += kMicroRows) store_first_i(to, row_pair(source, ld, k, inner, c, there), there);
    }
  }
}

}  // namespace

extern const GemmBf16Kernels kGemmBf16;
const GemmBf16Kernels kGemmBf16 = {
    .pack_columns = pack_columns,
    .pack_transposed = pack_transposed,
    .pack_rows = pack_rows,
    .pack_strips = pack_strips,
    .multiply_rows = multiply_rows,
    .multiply_strips = multiply_strips,
};
