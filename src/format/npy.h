// NumPy arrays from bytes and to bytes; include/regard/npy.h has the functions on files.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "format/byte_source.h"
#include "regard/npy.h"

namespace regard {

/// What stands before the elements of an array.
struct NpyHead {
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  bool fortran_order = false;
  uint64_t data_begin = 0;  ///< offset of the first element
};

/// Reads and checks the head, and that the elements take what is left of `source`. For files that are mapped, not read.
Result<NpyHead> read_npy_head(const ByteSource& source, std::string_view name);

/// Reads and checks one array. `name` begins every message. Refused: see load_npy(). Memory: the bytes of the array, twice
/// for one in Fortran order.
Result<NpyArray> read_npy(const ByteSource& source, std::string_view name);

/// The bytes before the data, a multiple of 64 long. `type` is any type that an NpyArray may have.
std::string npy_header(DType type, std::span<const int64_t> shape);

}  // namespace regard
