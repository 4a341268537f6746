// What a model file says about one tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/checked.h"
#include "regard/dtype.h"

namespace regard {

/// One tensor of a file. The shape is in C order whatever the format: the last axis is contiguous, so a weight of a linear
/// layer is [out, in]. Rank 0 (one value) and axes of length 0 are possible in safetensors.
struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;
  DType type = DType::kF32;
  uint64_t offset = 0;  ///< of its first byte, from the beginning of its file
  uint64_t bytes = 0;

  /// The number of elements. Readers have checked that it fits.
  int64_t values() const noexcept {
    int64_t n = 1;
    for (const int64_t extent : shape) n *= extent;
    return n;
  }
};

/// The product of `shape`, or nothing when an extent is negative or the product does not fit.
inline std::optional<int64_t> checked_values(const std::vector<int64_t>& shape) noexcept {
  std::optional<int64_t> n = 1;
  for (const int64_t extent : shape) {
    n = extent >= 0 ? checked_mul(*n, extent) : std::nullopt;
    if (!n) return std::nullopt;
  }
  return n;
}

/// "[2, 3]", for messages.
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace regard
