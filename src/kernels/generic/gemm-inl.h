// The products of a training step on panels and strips, written once for every instruction set; gemm.h says what they compute.
// Included inside an instruction set's region, behind micro-inl.h. Start at multiply_tiles() at the end.

namespace {

inline constexpr int kWidth = 16 * kMicroVecs;  // columns of a panel

// So many inner positions are packed at a time, so that the lines which neighbouring strips share are still in the first-level
// cache. Not more: rows that lie a power of two apart have few sets of it.
inline constexpr int64_t kPackDepth = 16;

// Where the rows of A lie: apart, each contiguous in k, or side by side in a strip.
struct ApartRows {
  const float* a;
  int64_t lda;
  REGARD_INLINE_MEMBER F32 operator()(int r, int64_t k) const { return splat(a[r * lda + k]); }
  REGARD_INLINE_MEMBER void fetch(int64_t) const {}
};
struct StripRows {
  const float* a;
  FetchAhead ahead;
  REGARD_INLINE_MEMBER F32 operator()(int r, int64_t k) const { return splat(a[k * kMicroRows + r]); }
  // The i-th line of what is asked for; an address is formed by numbers because it may lie behind the last row's end.
  REGARD_INLINE_MEMBER void fetch(int64_t i) const {
    const int64_t row = i / FetchAhead::kLines, line = i % FetchAhead::kLines;
    if (row >= ahead.rows) return;
    const auto offset = static_cast<uintptr_t>(static_cast<int64_t>(sizeof(float)) * row * ahead.ld + 64 * line);
    prefetch<Fetch::kL2>(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(ahead.source) + offset));
  }
};

// acc[r][w] = acc[r][w] + rows(r, k) * panel[k][16 w ...].
template <int R, class Rows>
REGARD_INLINE void accumulate_step(Tile<R, kMicroVecs>& acc, const Rows& rows, int64_t k, const float* panel) {
  F32 columns[kMicroVecs];
  REGARD_UNROLL
  for (int w = 0; w < kMicroVecs; ++w) columns[w] = load(panel + k * kWidth + 16 * w);
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    const F32 row = rows(r, k);
    REGARD_UNROLL
    for (int w = 0; w < kMicroVecs; ++w) acc[r][w] = fma(row, columns[w], acc[r][w]);
  }
}

// The same for k = 0 .. inner - 1, rising.
template <int R, class Rows>
REGARD_INLINE void accumulate_panel(Tile<R, kMicroVecs>& acc, const Rows& rows, const float* panel, int64_t inner) {
  constexpr int64_t kSteps = FetchAhead::kSteps;
  int64_t k = 0;
  for (int64_t i = 0; k + kSteps <= inner; ++i) {
    rows.fetch(i);
    REGARD_UNROLL
    for (int64_t s = 0; s < kSteps; ++s, ++k) accumulate_step<R>(acc, rows, k, panel);
  }
  for (; k < inner; ++k) accumulate_step<R>(acc, rows, k, panel);
}

template <int R>
REGARD_INLINE void add_bias(Tile<R, kMicroVecs>& acc, const float* bias, int columns) {
  REGARD_UNROLL
  for (int w = 0; w < kMicroVecs; ++w) {
    const F32 b = columns >= kWidth ? load(bias + 16 * w) : load_first(bias + 16 * w, lanes_below(columns, w));
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) acc[r][w] = add(acc[r][w], b);
  }
}

struct Product {
  const float* panel;
  int64_t inner;
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
  accumulate_panel<R>(acc, rows, p.panel, p.inner);
  if (p.bias != nullptr) add_bias<R>(acc, p.bias, p.columns);
  store_tile<R, kMicroVecs>(acc, c, p.ldc, p.columns);
}
template <int R, class Rows>
void tile(int64_t count, Rows rows, const Product& p, float* c) {
  if constexpr (R > 1) {
    if (count < R) return tile<R - 1>(count, rows, p, c);
  }
  tile_pass<R>(rows, p, c);
}

// The sums of the next tile, which would be waited for. Lines of absent rows and columns are asked for too, which harms nobody.
void prefetch_tile(const float* c, int64_t ldc) {
  for (int r = 0; r < kMicroRows; ++r)
    for (int w = 0; w < kMicroVecs; ++w) {
      const auto offset = static_cast<uintptr_t>(static_cast<int64_t>(sizeof(float)) * (r * ldc + 16 * w));
      prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(c) + offset));
    }
}

void multiply_rows(const float* a, int64_t lda, int64_t rows, const float* panel, int64_t inner, const float* bias, float* c, int64_t ldc,
                   int columns, Accumulate accumulate) noexcept {
  const Product p{panel, inner, bias, ldc, columns, accumulate};
  const int64_t tiles = (rows + kMicroRows - 1) / kMicroRows;  // rows are spread evenly: 10 rows are 5 + 5, not 6 + 4
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t r0 = rows * i / tiles, r1 = rows * (i + 1) / tiles;
    if (i + 1 < tiles) prefetch_tile(c + r1 * ldc, ldc);
    tile<kMicroRows>(r1 - r0, ApartRows{a + r0 * lda, lda}, p, c + r0 * ldc);
  }
}

void multiply_strips(const float* strips, int64_t rows, const float* panel, int64_t inner, float* c, int64_t ldc, int columns,
                     Accumulate accumulate, const FetchAhead& ahead) noexcept {
  const Product p{panel, inner, nullptr, ldc, columns, accumulate};
  for (int64_t r = 0; r < rows; r += kMicroRows) {
    if (r + kMicroRows < rows) prefetch_tile(c + (r + kMicroRows) * ldc, ldc);
    const int64_t begin = ahead.rows * r / rows, end = ahead.rows * (r + kMicroRows < rows ? r + kMicroRows : rows) / rows;
    const FetchAhead part{ahead.source + begin * ahead.ld, ahead.ld, end - begin};
    tile<kMicroRows>(rows - r, StripRows{strips + r * inner, part}, p, c + r * ldc);
  }
}

void pack_columns(const float* source, int64_t ld, int64_t inner, int columns, float* panel) noexcept {
  for (int64_t k = 0; k < inner; ++k, source += ld, panel += kWidth) {
    REGARD_UNROLL
    for (int w = 0; w < kMicroVecs; ++w)
      store(panel + 16 * w, columns >= kWidth ? load(source + 16 * w) : load_first(source + 16 * w, lanes_below(columns, w)));
  }
}

void pack_transposed(const float* source, int64_t ld, int64_t inner, int columns, float* panel) noexcept {
  for (int64_t k0 = 0; k0 < inner; k0 += kPackDepth) {
    const int64_t k1 = k0 + kPackDepth < inner ? k0 + kPackDepth : inner;
    for (int c = 0; c < columns; ++c)
      for (int64_t k = k0; k < k1; ++k) panel[k * kWidth + c] = source[c * ld + k];
  }
  for (int64_t k = 0; k < inner && columns < kWidth; ++k)
    for (int c = columns; c < kWidth; ++c) panel[k * kWidth + c] = 0.0f;
}

// R columns of the source; a constant, so that a row is moved by two or three instructions.
template <int R>
void pack_strip(int64_t rows, const float* source, int64_t ld, int64_t inner, float* strip) {
  if constexpr (R > 1) {
    if (rows < R) return pack_strip<R - 1>(rows, source, ld, inner, strip);
  }
  for (int64_t k = 0; k < inner; ++k) std::memcpy(strip + k * kMicroRows, source + k * ld, R * sizeof(float));
}

void pack_strips(const float* source, int64_t ld, int64_t inner, int64_t rows, float* strips) noexcept {
  for (int64_t k0 = 0; k0 < inner; k0 += kPackDepth) {
    const int64_t depth = k0 + kPackDepth < inner ? kPackDepth : inner - k0;
    for (int64_t r = 0; r < rows; r += kMicroRows)
      pack_strip<kMicroRows>(rows - r, source + k0 * ld + r, ld, depth, strips + r * inner + k0 * kMicroRows);
  }
}

// V vectors of columns at a time, so that their chains of additions run side by side.
template <int V>
void add_rows_pass(const float* source, int64_t ld, int64_t rows, float* sum, int columns) {
  Tile<1, V> acc;
  load_tile<1, V>(acc, sum, 0, columns);
  for (int64_t k = 0; k < rows; ++k, source += ld) {
    REGARD_UNROLL
    for (int v = 0; v < V; ++v)
      acc[0][v] = add(acc[0][v], columns >= 16 * V ? load(source + 16 * v) : load_first(source + 16 * v, lanes_below(columns, v)));
  }
  store_tile<1, V>(acc, sum, 0, columns);
}
void add_rows(const float* source, int64_t ld, int64_t rows, int64_t columns, float* sum) noexcept {
  constexpr int kVecs = kVectors / 4 < 4 ? kVectors / 4 : 4;
  for (int64_t j = 0; j < columns; j += 16 * kVecs)
    add_rows_pass<kVecs>(source + j, ld, rows, sum + j, columns - j < 16 * kVecs ? static_cast<int>(columns - j) : 16 * kVecs);
}

}  // namespace

extern const GemmKernels kGemm;
const GemmKernels kGemm = {
    .tile_rows = kMicroRows,
    .panel_columns = kWidth,
    .pack_columns = pack_columns,
    .pack_transposed = pack_transposed,
    .pack_strips = pack_strips,
    .multiply_rows = multiply_rows,
    .multiply_strips = multiply_strips,
    .add_rows = add_rows,
};
