// The blocks of a matrix product C += A B on bf16 dot products, for training: gemm.h with operands that are rounded to bf16 when
// they are packed, and sums in f32. nn/training/gemm_bf16.h puts them together.
//
// A panel holds 64 columns of B as one stream of pairs along the inner index (pairs.h): panel[k / 2 * 64 + c]. Rows of A
// are packed too, apart (rows[r * pairs(inner) + k / 2]) or side by side in strips of 6 (strip[k / 2 * 6 + r]). Every element of
// C is one chain of reference/bf16.h from what it starts with; where the inner index is cut, it is cut between pairs, and
// then no blocking changes a bit. An odd last position is in a pair with 0.
#pragma once

#include <cstdint>

#include "kernels/gemm.h"
#include "kernels/pairs.h"

namespace regard::kernels {

inline constexpr int kBf16TileRows = 6;
inline constexpr int kBf16PanelColumns = 64;

struct GemmBf16Kernels {
  /// panel[k][c] = source[k * ld + c]: columns as they lie. `columns` (1 .. 64) exist, the others become 0.
  void (*pack_columns)(const float* source, int64_t ld, int64_t inner, int columns, uint32_t* panel) noexcept;
  /// panel[k][c] = source[c * ld + k]: columns of B that are rows in memory.
  void (*pack_transposed)(const float* source, int64_t ld, int64_t inner, int columns, uint32_t* panel) noexcept;
  /// rows[r][k] = source[r * ld + k].
  void (*pack_rows)(const float* source, int64_t ld, int64_t inner, int64_t rows, uint32_t* out) noexcept;
  /// The rows 0 .. rows - 1 of A as strips one behind the other, from a source that has them as columns:
  /// strips[r / 6][k][r % 6] = source[k * ld + r]. What is absent from the last strip is left as it is.
  void (*pack_strips)(const float* source, int64_t ld, int64_t inner, int64_t rows, uint32_t* strips) noexcept;

  /// c[r * ldc + j] = start + sum over k < inner of a[r * lda][k] panel[k][j], then + bias[j] as one addition unless bias is
  /// null; r < rows, j < columns. Nothing else is written.
  void (*multiply_rows)(const uint32_t* a, int64_t lda, int64_t rows, const uint32_t* panel, int64_t inner, const float* bias, float* c,
                        int64_t ldc, int columns, Accumulate accumulate) noexcept;
  /// The same for strips, without a bias.
  void (*multiply_strips)(const uint32_t* strips, int64_t rows, const uint32_t* panel, int64_t inner, float* c, int64_t ldc, int columns,
                          Accumulate accumulate) noexcept;
};

}  // namespace regard::kernels
