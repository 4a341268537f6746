// Arrays in NumPy's file format, for comparing numbers with other programs.
//
// Source: NumPy enhancement proposal 1, "A simple file format for NumPy arrays", versions 1 and 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "regard/dtype.h"
#include "regard/export.h"

namespace regard {

/// An array and what its elements are: one of kF16, kF32, kF64, kBool and the integers. The bytes are in C order (the last
/// axis is contiguous) and in this machine's byte order.
struct REGARD_API NpyArray {
  DType type = DType::kF32;
  std::vector<int64_t> shape;  ///< empty for a single value
  std::vector<std::byte> bytes;

  /// The number of elements.
  int64_t size() const;
  /// The elements as f32: f16 exactly, f64 rounded to nearest. Errors: kInvalidArgument for integers and bools.
  std::vector<float> to_f32() const;
  /// The elements as f64. Errors: as to_f32().
  std::vector<double> to_f64() const;
  /// The elements as integers. Errors: kInvalidArgument for floats, and for u64 beyond 2^63 - 1.
  std::vector<int64_t> to_i64() const;
  /// The elements as truth values, 0 or 1. Errors: kInvalidArgument for anything but bool, and u8 that holds only 0 and 1.
  std::vector<uint8_t> to_bool() const;
};

/// Reads a whole file. Arrays in Fortran order come back in C order.
/// Errors: kNotFound, kIo; kCorruptData for whatever contradicts the format or the size of the file; kUnsupported for
/// big-endian files, Python objects, structured and complex types, archives (.npz).
REGARD_API NpyArray load_npy(const std::string& path);

/// Writes an array whole or not at all: the name shows the old file until the new one is complete. `shape` may be empty for
/// a single value. Errors: kIo with the system's reason; kInvalidArgument when the shape does not fit the values.
REGARD_API void save_npy(const std::string& path, std::span<const int64_t> shape, std::span<const float> values);
REGARD_API void save_npy(const std::string& path, std::span<const int64_t> shape, std::span<const double> values);
REGARD_API void save_npy(const std::string& path, std::span<const int64_t> shape, std::span<const int64_t> values);
REGARD_API void save_npy(const std::string& path, std::span<const int64_t> shape, std::span<const int32_t> values);
/// Truth values, one byte each, 0 or not.
REGARD_API void save_npy_bool(const std::string& path, std::span<const int64_t> shape, std::span<const uint8_t> values);

}  // namespace regard
