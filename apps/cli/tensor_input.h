// Arrays of numbers from .npy files, as `attend` takes them: checked, and with messages that name the option and the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "regard/dtype.h"
#include "regard/tensor.h"

namespace regard::cli {

/// An array as f32, mostly [batch, heads, seq, dim].
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> values;

  /// Up to four axes.
  TensorView<float> view();
  int64_t batch() const { return shape[0]; }
  int64_t heads() const { return shape[1]; }
  int64_t length() const { return shape[2]; }
  int64_t dim() const { return shape[3]; }
};

/// Whether an array of this type holds decimal numbers.
bool is_float(DType type);

/// "[2, 4, 7, 6]".
std::string shape_text(const std::vector<int64_t>& shape);

/// The array of the file that `option` names. `layout` says what its axes are, such as "[batch, heads, seq, dim]"; their
/// number is checked. Errors: UsageError for another number of axes, a type that is no float, and a value that f32 cannot
/// hold; as load_npy().
Tensor load_tensor(const Arguments& arguments, std::string_view option, size_t axes, std::string_view layout);

/// Rounds the elements of `option` to the nearest numbers of --dtype. Errors: UsageError where that makes infinity of a number.
void round_tensor(const Arguments& arguments, std::string_view option, Tensor& tensor);

/// Errors: kResourceExhausted when there cannot be so many elements; std::bad_alloc when there is no memory for them.
Tensor empty_tensor(std::vector<int64_t> shape);

}  // namespace regard::cli
