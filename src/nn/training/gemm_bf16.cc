#include "nn/training/gemm_bf16.h"

#include <algorithm>

#include "kernels/gemm_bf16.h"
#include "kernels/registry.h"

namespace regard::nn::training::bf16 {
namespace {

using kernels::pairs;

constexpr int64_t kTileRows = kernels::kBf16TileRows;
constexpr int64_t kPanelColumns = kernels::kBf16PanelColumns;
// Inner positions that are multiplied at a time; even, so that no pair is cut. A panel of them takes 96 KiB.
constexpr int64_t kInner = 768;
// Dwords that the packed rows of one item may take: they stay in the second-level cache beside a part of a panel.
constexpr int64_t kBlockDwords = 96 * 1024;
// Strips of one item of a weight gradient.
constexpr int64_t kBlockStrips = 16;

const kernels::GemmBf16Kernels& kernel() { return *kernels::kernels().gemm_bf16; }

int64_t panels_of(int64_t columns) { return ceil_div(columns, kPanelColumns); }
int columns_of(int64_t panel, int64_t columns) {
  return static_cast<int>(std::min(kPanelColumns, columns - panel * kPanelColumns));
}

// Where chunk i of the inner index begins.
int64_t cut(int64_t inner, int64_t i, int64_t chunks) { return i == chunks ? inner : inner * i / chunks / 2 * 2; }

void pack_panel(const Matrix& b, int64_t panel, uint32_t* panels) {
  if (b.inner == 0) return;  // an empty matrix may have no address
  const int64_t c = panel * kPanelColumns;
  uint32_t* const to = panels + c * pairs(b.inner);
  const int columns = columns_of(panel, b.columns);
  if (b.stored == Stored::kAsIs)
    kernel().pack_columns(b.data + c, b.ld, b.inner, columns, to);
  else
    kernel().pack_transposed(b.data + c * b.ld, b.ld, b.inner, columns, to);
}

// How a product is cut into items: blocks of rows, which are packed by the item, and where these are too few groups of panels.
struct RowBlocks {
  int64_t blocks, most, groups;
  RowBlocks(int64_t rows, int64_t inner, int64_t panels, int64_t threads) {
    const int64_t tiles = ceil_div(rows, kTileRows), fit = std::max<int64_t>(4, kBlockDwords / (kTileRows * std::max<int64_t>(1, pairs(inner))));
    blocks = std::min(tiles, round_up(ceil_div(tiles, fit), threads));
    most = std::min(tiles, fit) * kTileRows;  // of any number of rows up to these
    groups = blocks % threads == 0 ? 1 : std::min(panels, threads);
  }
  int64_t begin(int64_t block, int64_t rows) const {
    return std::min(rows, ceil_div(rows, kTileRows) * block / blocks * kTileRows);
  }
  int64_t dwords(int64_t inner) const { return round_up(most * pairs(inner), 16); }
};

// How the rows of a weight gradient are cut: whole strips, and as many blocks for each thread.
struct StripBlocks {
  int64_t strips, blocks, longest;
  StripBlocks(int64_t height, int64_t threads)
      : strips(ceil_div(height, kTileRows)),
        blocks(std::min(strips, round_up(ceil_div(strips, kBlockStrips), threads))),
        longest(blocks == 0 ? 0 : ceil_div(strips, blocks)) {}
  int64_t begin(int64_t block) const { return strips * block / blocks; }
};
struct GradientScratch {
  int64_t panels, strips;
  GradientScratch(int64_t height, int64_t width, int64_t rows, int64_t threads) {
    const int64_t deep = pairs(std::min(rows, kInner + 2));  // a chunk may be longer by what evens its ends
    panels = panels_of(width) * kPanelColumns * deep;
    strips = round_up(StripBlocks(height, threads).longest * kTileRows * deep, 16);
  }
};

// The scratch holds packed pairs and nothing else.
uint32_t* scratch_of(const GemmContext& context) { return reinterpret_cast<uint32_t*>(context.scratch.data()); }

}  // namespace

int64_t panel_dwords(int64_t columns, int64_t inner) { return panels_of(columns) * kPanelColumns * pairs(inner); }

void pack(const GemmContext& context, const Matrix& b, uint32_t* panels) {
  share(context, panels_of(b.columns), b.inner * b.columns, [&](int64_t panel, int) { pack_panel(b, panel, panels); });
}

int64_t rows_scratch(const ThreadPool& pool, int64_t rows, int64_t inner) {
  return pool.size() * RowBlocks(rows, inner, 1, pool.size()).dwords(inner);
}
int64_t gradient_scratch(const ThreadPool& pool, int64_t height, int64_t width, int64_t rows) {
  const GradientScratch layout(height, width, rows, pool.size());
  return layout.panels + pool.size() * layout.strips;
}

void multiply_rows(const GemmContext& context, TensorView<const float> a, const uint32_t* panels, const float* bias,
                   TensorView<float> c, Accumulate accumulate) {
  const int64_t rows = a.shape[0], inner = a.shape[1], columns = c.shape[1], lda = a.strides[0], ldc = c.strides[0];
  if (rows == 0 || columns == 0) return;
  const int64_t count = panels_of(columns), deep = pairs(inner);
  const RowBlocks items(rows, inner, count, context.pool.size());
  const int64_t chunks = std::max<int64_t>(1, ceil_div(inner, kInner));  // no positions give the start and the bias
  share(context, items.blocks * items.groups, rows * columns * std::max<int64_t>(1, inner), [&](int64_t item, int thread) {
    const int64_t block = item / items.groups, group = item % items.groups;
    const int64_t r0 = items.begin(block, rows), r1 = items.begin(block + 1, rows);
    uint32_t* const packed = scratch_of(context) + thread * items.dwords(inner);
    kernel().pack_rows(a.data + r0 * lda, lda, inner, r1 - r0, packed);
    for (int64_t panel = count * group / items.groups; panel < count * (group + 1) / items.groups; ++panel) {
      const int64_t j = panel * kPanelColumns;
      for (int64_t i = 0; i < chunks; ++i) {
        const int64_t k0 = cut(inner, i, chunks), k1 = cut(inner, i + 1, chunks);
        kernel().multiply_rows(packed + k0 / 2, deep, r1 - r0, panels + j * deep + k0 / 2 * kPanelColumns, k1 - k0,
                               bias != nullptr && i + 1 == chunks ? bias + j : nullptr, c.data + r0 * ldc + j, ldc,
                               columns_of(panel, columns), i == 0 ? accumulate : Accumulate::kAdd);
      }
    }
  });
}

// As in f32: the threads pack b's chunk together, then each packs and multiplies blocks of a's columns.
void multiply_gradient(const GemmContext& context, TensorView<const float> a, TensorView<const float> b, float* c, ColumnSums sums) {
  const kernels::GemmKernels& f32 = *kernels::kernels().gemm;
  const int64_t rows = a.shape[0], height = a.shape[1], width = b.shape[1], lda = a.strides[0], ldb = b.strides[0];
  const StripBlocks items(height, context.pool.size());
  const GradientScratch layout(height, width, rows, context.pool.size());
  uint32_t* const panels = scratch_of(context);
  const int64_t count = panels_of(width), chunks = ceil_div(rows, kInner);
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t m0 = cut(rows, chunk, chunks), inner = cut(rows, chunk + 1, chunks) - m0, deep = pairs(inner);
    const Matrix part{b.data + m0 * ldb, ldb, inner, width};
    share(context, count, inner * width, [&](int64_t panel, int) {
      pack_panel(part, panel, panels);
      const int64_t j = panel * kPanelColumns;
      if (sums.of_b != nullptr) f32.add_rows(part.data + j, ldb, inner, columns_of(panel, width), sums.of_b + j);
    });
    share(context, items.blocks, inner * height * std::max<int64_t>(1, width), [&](int64_t block, int thread) {
      const int64_t i0 = items.begin(block) * kTileRows, i1 = std::min(height, items.begin(block + 1) * kTileRows);
      uint32_t* const strips = panels + layout.panels + thread * layout.strips;
      const float* const from = a.data + m0 * lda + i0;
      kernel().pack_strips(from, lda, inner, i1 - i0, strips);
      if (sums.of_a != nullptr) f32.add_rows(from, lda, inner, i1 - i0, sums.of_a + i0);
      for (int64_t panel = 0; panel < count; ++panel) {
        const int64_t j = panel * kPanelColumns;
        kernel().multiply_strips(strips, i1 - i0, panels + j * deep, inner, c + i0 * width + j, width, columns_of(panel, width), Accumulate::kAdd);
      }
    });
  }
}

}  // namespace regard::nn::training::bf16
