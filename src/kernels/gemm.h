// The blocks of a matrix product C += A B in f32, for training, where both operands change from step to step: packing into what
// the register tile reads, and the multiplication of rows by one panel. nn/training/gemm.h puts them together.
//
// A panel holds `panel_columns` columns of B as one stream in rising inner index: panel[k * panel_columns + c]. A strip holds
// `tile_rows` rows of A likewise: strip[k * tile_rows + r]. Both widths are those of the register tile of an instruction
// set. Every element of C is one chain acc = fma(a[k], b[k], acc) in rising k from what it starts with (a product and a sum,
// rounded each, on an instruction set without a fused multiply-add): no blocking changes its bits.
#pragma once

#include <cstdint>

namespace regard::kernels {

/// Whether a result begins at 0 or at what stands there.
enum class Accumulate { kOverwrite, kAdd };

/// Memory that will be read next, to be fetched into the second-level cache while the registers are busy: `rows` rows of kLines
/// cache lines from `source` on, ld apart. One line every kSteps of the inner index, as far as that reaches. Nothing is read.
struct FetchAhead {
  static constexpr int kLines = 4;
  static constexpr int kSteps = 4;
  const float* source = nullptr;
  int64_t ld = 0;
  int64_t rows = 0;
};

struct GemmKernels {
  int tile_rows;
  int panel_columns;

  /// panel[k][c] = source[k * ld + c]: columns as they lie. `columns` (1 .. panel_columns) exist, the others become 0.
  void (*pack_columns)(const float* source, int64_t ld, int64_t inner, int columns, float* panel) noexcept;
  /// panel[k][c] = source[c * ld + k]: columns of B that are rows in memory.
  void (*pack_transposed)(const float* source, int64_t ld, int64_t inner, int columns, float* panel) noexcept;
  /// The rows 0 .. rows - 1 of A as strips one behind the other, from a source that has them as columns:
  /// strips[r / tile_rows][k][r % tile_rows] = source[k * ld + r]. What is absent from the last strip is left as it is.
  void (*pack_strips)(const float* source, int64_t ld, int64_t inner, int64_t rows, float* strips) noexcept;

  /// c[r * ldc + j] = start + sum over k < inner of a[r * lda + k] panel[k][j], then + bias[j] as one addition unless bias is
  /// null; r < rows, j < columns. Nothing else is written.
  void (*multiply_rows)(const float* a, int64_t lda, int64_t rows, const float* panel, int64_t inner, const float* bias, float* c,
                        int64_t ldc, int columns, Accumulate accumulate) noexcept;
  /// The same for rows that were packed into strips, without a bias. `ahead` changes no result.
  void (*multiply_strips)(const float* strips, int64_t rows, const float* panel, int64_t inner, float* c, int64_t ldc, int columns,
                          Accumulate accumulate, const FetchAhead& ahead) noexcept;

  /// sum[j] += source[k * ld + j] for k = 0 .. rows - 1, rising; j < columns.
  void (*add_rows)(const float* source, int64_t ld, int64_t rows, int64_t columns, float* sum) noexcept;
};

}  // namespace regard::kernels
