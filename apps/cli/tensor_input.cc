#include "tensor_input.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "regard/error.h"
#include "regard/npy.h"

namespace regard::cli {
namespace {

// "[0, 3, 1]": where element `index` of a dense array stands.
std::string place_text(const std::vector<int64_t>& shape, size_t index) {
  std::vector<int64_t> at(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; index /= static_cast<size_t>(shape[axis])) {
    at[axis] = static_cast<int64_t>(index % static_cast<size_t>(shape[axis]));
  }
  return shape_text(at);
}

}  // namespace

TensorView<float> Tensor::view() {
  TensorView<float> result;
  result.data = values.data();
  result.rank = static_cast<int>(shape.size());
  int64_t step = 1;
  for (size_t axis = shape.size(); axis-- > 0; step *= shape[axis]) {
    result.shape[axis] = shape[axis];
    result.strides[axis] = step;
  }
  return result;
}

bool is_float(DType type) { return type == DType::kF16 || type == DType::kF32 || type == DType::kF64; }

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Tensor load_tensor(const Arguments& arguments, std::string_view option, size_t axes, std::string_view layout) {
  const std::string& path = arguments.text(option);
  const NpyArray array = load_npy(path);
  if (array.shape.size() != axes) {
    throw UsageError(fmt::format("--{} {} has the shape {}; give {}", option, path, shape_text(array.shape), layout));
  }
  if (!is_float(array.type)) {
    throw UsageError(fmt::format("--{} {} holds {}; give float16, float32 or float64", option, path, info(array.type).name));
  }
  Tensor tensor{array.shape, array.to_f32()};
  if (array.type != DType::kF64) return tensor;
  const std::vector<double> exact = array.to_f64();
  for (size_t i = 0; i < exact.size(); ++i) {
    if (std::isinf(tensor.values[i]) && std::isfinite(exact[i])) {
      throw UsageError(fmt::format("--{} {} holds {} at {}, which float32 cannot hold", option, path, exact[i], place_text(array.shape, i)));
    }
  }
  return tensor;
}

void round_tensor(const Arguments& arguments, std::string_view option, Tensor& tensor) {
  const std::string& name = arguments.text("dtype");
  if (name == "f32") return;
  const DType type = name == "f16" ? DType::kF16 : DType::kBF16;
  for (size_t i = 0; i < tensor.values.size(); ++i) {
    const float exact = tensor.values[i];
    tensor.values[i] = rounded(exact, type);
    if (std::isinf(tensor.values[i]) && !std::isinf(exact)) {
      throw UsageError(fmt::format("--{} {} holds {} at {}, which --dtype {} cannot hold", option, arguments.text(option), exact,
                                   place_text(tensor.shape, i), name));
    }
  }
}

Tensor empty_tensor(std::vector<int64_t> shape) {
  int64_t size = 1;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(size, extent, &size)) {
      throw Error(Code::kResourceExhausted, fmt::format("a result of the shape {} is too large", shape_text(shape)));
    }
  }
  Tensor tensor{std::move(shape), {}};
  tensor.values.resize(static_cast<size_t>(size));
  return tensor;
}

}  // namespace regard::cli
