// Reading an array as bits: what its numbers are, and which axes they stand on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "regard/mask_check.h"

namespace regard {

/// What became of the numbers.
struct ArrayReading {
  std::vector<uint8_t> visible;  ///< one per element, true keeps
  bool truth_values = false;     ///< false: numbers to be added to scores
  std::string type;              ///< "bool", "float32", ...
  std::vector<MaskFault> faults;
};

/// Errors: kInvalidArgument for a type that no mask has.
ArrayReading read_elements(const MaskArray& array, const std::vector<int64_t>& shape, const StopToken* stop);

/// [batch, heads, q, k], with ones put in front. Errors: kInvalidArgument for other numbers of axes.
std::vector<int64_t> four_axes(const std::vector<int64_t>& shape);

/// Whether the shape fits what was asked for; else the fault.
std::optional<MaskFault> shape_fault(const MaskArray& array, const std::vector<int64_t>& shape, const MaskCheck& check);

}  // namespace regard
