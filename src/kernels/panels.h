// Weights at rest: a matrix [out][in] in the precision of its file, cut into panels of 64 output columns that the kernels
// stream through (panel_layout.h has the bytes). Packing takes the rows of a file, a panel at a time, so that a loader
// needs room for 64 rows and not for the matrix.
//
// The values are those of the file's decoder, except that a zero is always +0 where a symmetric format could give -0:
// kernels/reference/linear.h writes down both decoders.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/panel_layout.h"
#include "regard/dtype.h"

namespace regard::kernels {

/// A packed weight matrix; a view. Panel p holds the columns 64 p .. 64 p + 63 of the output; columns from `out` on are zero.
/// `data` is aligned to 64 bytes. Kernels prefetch behind the end, and read nothing there.
struct Panels {
  DType type = DType::kF32;
  int64_t out = 0;
  int64_t in = 0;
  int64_t panel_bytes = 0;
  const uint8_t* data = nullptr;

  int64_t count() const noexcept { return (out + kPanelColumns - 1) / kPanelColumns; }
  const uint8_t* panel(int64_t p) const noexcept { return data + p * panel_bytes; }
};

/// Bytes of one row of `in` weights in a file. Nothing when `type` cannot hold weights, `in` is negative or no multiple
/// of the block length, or the number does not fit.
std::optional<int64_t> row_bytes(DType type, int64_t in) noexcept;

/// Bytes of one panel, a multiple of 64; nothing under the same conditions.
std::optional<int64_t> panel_bytes(DType type, int64_t in) noexcept;

enum class PackStatus {
  kPacked,
  kNonFiniteScale,  ///< a block's d, m or dmin is infinite or NaN: no such weight is a number, so the matrix is refused
};

/// Packs `columns` (1 .. 64) rows of a file into the panel `dst`, panel_bytes(type, in) bytes aligned to 4. Row c begins at
/// rows + c * row_stride, needs no alignment, and becomes column c; the other columns become zero. Plain types take every
/// bit pattern, NaN included. The sizes must have passed panel_bytes(). On failure `dst` is unspecified.
PackStatus pack_panel(DType type, const uint8_t* rows, int64_t row_stride, int columns, int64_t in, uint8_t* dst) noexcept;

/// Row n of the stored matrix as `in` floats, 0 <= n < out: the same values, bit for bit, as the kernels multiply with. This
/// is how a tied embedding is looked up. Touches in / 32 * (bits + 2) cache lines or so; a few microseconds per thousand values.
void decode_column(const Panels& weights, int64_t n, float* out) noexcept;

}  // namespace regard::kernels
