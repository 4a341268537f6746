// The blocks of a matrix product C += A B in f32, for training, where both operands change from step to step: packing into what
// the register tile reads, and the multiplication of rows by one panel. nn/training/gemm.h puts them together.
//
// A panel holds `panel_columns` columns of B as one stream in rising inner index: panel[k * panel_columns + c]. A strip holds up
// to `strip_rows` rows of A likewise: strip[k * strip_rows + r]. Both widths follow from the register tile of an instruction
// set, which is `tile_rows` rows by a panel. Every element of C is one chain acc = fma(a[k], b[k], acc) in rising k from what
// it starts with (a product and a sum, rounded each, on an instruction set without a fused multiply-add): no blocking changes
// its bits.
#pragma once

#include <cstdint>

#include "kernels/accumulate.h"

namespace regard::kernels {

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
  int strip_rows;  ///< a multiple of tile_rows and of 16
  int panel_columns;

  /// panel[k][c] = source[k * ld + c]: columns as they lie. `columns` (1 .. panel_columns) exist, the others become 0.
  void (*pack_columns)(const float* source, int64_t ld, int64_t inner, int columns, float* panel) noexcept;
  /// panel[k][c] = source[c * ld + k]: columns of B that are rows in memory.
  void (*pack_transposed)(const float* source, int64_t ld, int64_t inner, int columns, float* panel) noexcept;
  /// strip[k][r] = source[k * ld + r] for r < rows (1 .. strip_rows); the others are left as they are, or 0.
  void (*pack_strip)(const float* source, int64_t ld, int64_t inner, int rows, float* strip) noexcept;

  /// c[r * ldc + j] = start + sum over k < inner of a[r * lda + k] panel[k][j], then + bias[j] as one addition unless bias is
  /// null; r < rows, j < columns. Nothing else is written.
  void (*multiply_rows)(const float* a, int64_t lda, int64_t rows, const float* panel, int64_t inner, const float* bias, float* c,
                        int64_t ldc, int columns, Accumulate accumulate) noexcept;
  /// The same for the first rows of a strip, without a bias. `ahead` changes no result.
  void (*multiply_strip)(const float* strip, int rows, const float* panel, int64_t inner, float* c, int64_t ldc, int columns,
                         Accumulate accumulate, const FetchAhead& ahead) noexcept;

  /// sum[j] += source[k * ld + j] for k = 0 .. rows - 1, rising; j < columns.
  void (*add_rows)(const float* source, int64_t ld, int64_t rows, int64_t columns, float* sum) noexcept;
};

}  // namespace regard::kernels
