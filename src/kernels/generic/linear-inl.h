// y = x W^T on panels, written once for every instruction set and storage format; linear.h says what it computes. Start at
// multiply() at the end.
//
// A few rows run fused: weights go from the panel's bytes into the sums without leaving the registers. More rows decode a
// chunk of a panel into a small f32 scratch and let the register tile of micro-inl.h use it for all of them. Both add the
// same products in the same order into one sum per output, so the bits do not depend on which of them ran.

namespace {

// The register budget of a fused pass: with codes, sums take at most half the registers, and scales and offsets of the G groups
// of 16 columns a part of the rest; plain numbers leave three quarters to the sums. More spills, silently.
inline constexpr int kFusedRows = kVectors == 32 ? 8 : kVectors / 2;
template <class L>
constexpr int fused_groups(int rows) {
  constexpr bool kPlain = L::kScales == Scales::kNone;
  constexpr int kSums = kPlain ? kVectors * 3 / 4 : kVectors / 2;
  int groups = kVectors >= 16 || kPlain ? 4 : kVectors / 4;
  while (groups > 1 && groups * rows > kSums) groups /= 2;
  return groups;
}
// 16-bit weights decode so cheaply that fused passes over blocks of rows beat the scratch up to this many rows.
inline constexpr int kFusedPlainRows = kVectors == 32 ? 16 * kFusedRows : kFusedRows;

// Adds weight w of position k to the sums of M rows; a type and not a lambda, which would not inherit the region's target.
template <int M, int G>
struct AddToSums {
  const float* x;
  int64_t ldx;
  Tile<M, G>& acc;
  REGARD_INLINE_MEMBER void operator()(int k, int g, F32 w) const {
    REGARD_UNROLL
    for (int m = 0; m < M; ++m) acc[m][g] = fma(splat(x[m * ldx + k]), w, acc[m][g]);
  }
};

// M rows by G groups of 16 columns of one panel from group g0 on; `columns` of them exist.
template <class L, int M, int G>
[[gnu::noinline]] void fused_pass(const uint8_t* panel, int64_t g0, int64_t in, const float* x, int64_t ldx, float* y, int64_t ldy,
                                  int columns) {
  Tile<M, G> acc;
  clear_tile<M, G>(acc);
  int64_t k = 0;
  for (; k + L::kSuperK <= in; k += L::kSuperK, panel += L::kSuperBytes) {
    const uint8_t* tile = panel + L::kHeaderBytes;
    REGARD_NO_UNROLL
    for (int t = 0; t < L::kTilesPerSuper; ++t, tile += L::kTileBytes)
      decode_tile<L, G>(panel, tile, g0, AddToSums<M, G>{x + k + t * L::kTileK, ldx, acc});
  }
  if constexpr (L::kType == DType::kBF16) {
    if (k < in) decode_plain<L, G, 1>(panel, g0, AddToSums<M, G>{x + k, ldx, acc});
  }
  store_tile<M, G>(acc, y, ldy, columns);
}

// The columns 32 h ... of the halves in `part`, M rows.
template <class L, int M>
void fused_part(const Panels& w, const float* x, int64_t ldx, float* y, int64_t ldy, HalfPanels part) {
  for (int64_t h = part.begin; h < part.end; ++h) {
    const uint8_t* panel = w.panel(h / 2);
    const int64_t left = w.out - 32 * h;
    if (left <= 0) return;
    const int columns = left < 64 ? static_cast<int>(left) : 64;
    float* yh = y + 32 * h;
    constexpr int kGroups = fused_groups<L>(M);
    if constexpr (kGroups == 4) {
      if (h % 2 == 0 && h + 1 < part.end) {
        fused_pass<L, M, 4>(panel, 0, w.in, x, ldx, yh, ldy, columns);
        ++h;
        continue;
      }
    }
    constexpr int kHalfGroups = kGroups < 2 ? kGroups : 2;
    const int half_columns = columns < 32 ? columns : 32;
    REGARD_NO_UNROLL
    for (int g = 0; 16 * g < half_columns; g += kHalfGroups)
      fused_pass<L, M, kHalfGroups>(panel, 2 * (h % 2) + g, w.in, x, ldx, yh + 16 * g, ldy, half_columns - 16 * g);
  }
}

// fused_part for a number of rows from 1 to M.
template <class L, int M>
void fused(const Panels& w, const float* x, int64_t ldx, int64_t rows, float* y, int64_t ldy, HalfPanels part) {
  if constexpr (M > 1) {
    if (rows < M) return fused<L, M - 1>(w, x, ldx, rows, y, ldy, part);
  }
  fused_part<L, M>(w, x, ldx, y, ldy, part);
}

// Decoded chunks lie as the register tile reads them: blocks of kMicroVecs vectors, within a block k rising. (Sixteen
// columns at a stride of 64 would use a quarter of the cache's sets.)
inline constexpr int kBlockColumns = 16 * kMicroVecs;
struct StoreToScratch {
  float* out;  // position 0 of the tile
  int64_t g0;
  REGARD_INLINE_MEMBER void operator()(int k, int g, F32 w) const {
    const int64_t group = g0 + g;
    store(out + group / kMicroVecs * (kLinearChunk * kBlockColumns) + k * kBlockColumns + 16 * (group % kMicroVecs), w);
  }
};

// Decodes `count` positions of a panel, from the super tile at `super` on, into the scratch. An odd end of a BF16 row decodes a zero
// behind it, for which there is room and which nobody reads.
template <class L>
[[gnu::noinline]] void decode_chunk(const uint8_t* super, int64_t count, float* scratch) {
  constexpr int kGroups = fused_groups<L>(1);
  for (int64_t g0 = 0; g0 < 4; g0 += kGroups) {
    const uint8_t* s = super;
    for (int64_t k = 0; k < count; k += L::kSuperK, s += L::kSuperBytes) {
      const uint8_t* tile = s + L::kHeaderBytes;
      REGARD_NO_UNROLL
      for (int t = 0; t < L::kTilesPerSuper; ++t, tile += L::kTileBytes)
        decode_tile<L, kGroups>(s, tile, g0, StoreToScratch{scratch + (k + t * L::kTileK) * kBlockColumns, g0});
    }
  }
}

// R rows by one block of columns; goes on from the sums in y unless this is the first chunk. A stored f32 is the register's
// value, so cutting the chain changes no bit.
enum class Chunk { kFirst, kLater };
template <int R>
[[gnu::noinline]] void micro_pass(const float* x, int64_t ldx, const float* b, int64_t n, float* y, int64_t ldy, int columns, Chunk chunk) {
  Tile<R, kMicroVecs> acc;
  if (chunk == Chunk::kFirst)
    clear_tile<R, kMicroVecs>(acc);
  else
    load_tile<R, kMicroVecs>(acc, y, ldy, columns);
  accumulate_tile<R, kMicroVecs>(acc, x, ldx, b, kBlockColumns, n);
  store_tile<R, kMicroVecs>(acc, y, ldy, columns);
}
template <int R>
void micro(int64_t rows, const float* x, int64_t ldx, const float* b, int64_t n, float* y, int64_t ldy, int columns, Chunk chunk) {
  if constexpr (R > 1) {
    if (rows < R) return micro<R - 1>(rows, x, ldx, b, n, y, ldy, columns, chunk);
  }
  micro_pass<R>(x, ldx, b, n, y, ldy, columns, chunk);
}

// Packed f32 is not decoded, so that its chunks may be longer than the scratch: fewer trips of the sums through memory.
template <class L>
inline constexpr bool kReadsPanel = L::kType == DType::kF32 && kMicroVecs == 4;
template <class L>
inline constexpr int64_t kChunk = kReadsPanel<L> ? 384 : kLinearChunk;

template <class L>
void tiled(const Panels& w, const float* x, int64_t ldx, int64_t rows, float* y, int64_t ldy, HalfPanels part, float* scratch) {
  const int64_t blocks = (rows + kMicroRows - 1) / kMicroRows;  // rows are spread evenly: 10 rows are 5 + 5, not 6 + 4
  for (int64_t p = part.begin / 2; 2 * p < part.end && kPanelColumns * p < w.out; ++p) {
    const int64_t left = w.out - kPanelColumns * p;
    const int columns = left < kPanelColumns ? static_cast<int>(left) : kPanelColumns;
    int64_t k = 0;
    do {  // once at least: no positions give zeros
      const int64_t n = w.in - k < kChunk<L> ? w.in - k : kChunk<L>;
      const uint8_t* super = w.panel(p) + k / L::kSuperK * L::kSuperBytes;
      const float* decoded = scratch;
      if constexpr (kReadsPanel<L>)
        decoded = reinterpret_cast<const float*>(super);  // the panel lies as the scratch would
      else
        decode_chunk<L>(super, n, scratch);
      for (int c = 0; c < columns; c += kBlockColumns) {
        const float* b = decoded + c / kBlockColumns * (kLinearChunk * kBlockColumns);
        float* yc = y + kPanelColumns * p + c;
        for (int64_t i = 0; i < blocks; ++i) {
          const int64_t r0 = rows * i / blocks, r1 = rows * (i + 1) / blocks;
          micro<kMicroRows>(r1 - r0, x + r0 * ldx + k, ldx, b, n, yc + r0 * ldy, ldy, columns - c,
                            k == 0 ? Chunk::kFirst : Chunk::kLater);
        }
      }
      k += kChunk<L>;
    } while (k < w.in);
  }
}

template <class L>
void multiply(const Panels& w, const float* x, int64_t ldx, int64_t rows, float* y, int64_t ldy, HalfPanels part, float* scratch) noexcept {
  if (rows <= 0) return;
  if (rows <= kFusedRows) return fused<L, kFusedRows>(w, x, ldx, rows, y, ldy, part);
  if constexpr (L::kType == DType::kF16 || L::kType == DType::kBF16) {
    if (rows <= kFusedPlainRows) {
      const int64_t blocks = (rows + kFusedRows - 1) / kFusedRows;
      for (int64_t h = part.begin; h < part.end; h += 2)  // panel by panel: the second block of rows finds it in the cache
        for (int64_t i = 0; i < blocks; ++i) {
          const int64_t r0 = rows * i / blocks, r1 = rows * (i + 1) / blocks;
          fused<L, kFusedRows>(w, x + r0 * ldx, ldx, r1 - r0, y + r0 * ldy, ldy, {h, h + 2 < part.end ? h + 2 : part.end});
        }
      return;
    }
  }
  tiled<L>(w, x, ldx, rows, y, ldy, part, scratch);
}

}  // namespace

extern const LinearKernels kLinear;
const LinearKernels kLinear = {
    .f32 = multiply<Layout<DType::kF32>>,
    .f16 = multiply<Layout<DType::kF16>>,
    .bf16 = multiply<Layout<DType::kBF16>>,
    .q8_0 = multiply<Layout<DType::kQ8_0>>,
    .q4_0 = multiply<Layout<DType::kQ4_0>>,
    .q4_1 = multiply<Layout<DType::kQ4_1>>,
    .q5_0 = multiply<Layout<DType::kQ5_0>>,
    .q5_1 = multiply<Layout<DType::kQ5_1>>,
    .q4_k = multiply<Layout<DType::kQ4_K>>,
    .q5_k = multiply<Layout<DType::kQ5_K>>,
    .q6_k = multiply<Layout<DType::kQ6_K>>,
    .fused_rows = kFusedRows,
};
