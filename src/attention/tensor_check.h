// What the public calls ask of the tensors they are given, with messages that name the tensor and the numbers.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/aligned_buffer.h"
#include "regard/tensor.h"

namespace regard {

/// The bytes that the elements of a view lie in, from the lowest to the highest address.
struct ByteRange {
  uintptr_t begin = 0, end = 0;
  bool overlaps(const ByteRange& other) const noexcept { return begin < other.end && other.begin < end; }
};

/// Errors: kInvalidArgument for another rank, a negative extent, no data, a pointer that is not aligned to its
/// elements, or strides that lead out of the address space. An empty tensor needs no data and has an empty range.
template <class T>
ByteRange check_tensor(std::string_view function, std::string_view name, const TensorView<T>& tensor, int rank);

/// Errors: kInvalidArgument when two elements of an output share an address.
template <class T>
void check_no_self_overlap(std::string_view function, std::string_view name, const TensorView<T>& tensor);

/// "[2, 3, 5, 64]".
template <class T>
std::string shape_text(const TensorView<T>& tensor);

/// Whether the last axis is contiguous, as kernels want their rows.
template <class T>
bool has_dense_rows(const TensorView<T>& tensor) noexcept {
  const auto last = static_cast<size_t>(tensor.rank - 1);
  return tensor.strides[last] == 1 || tensor.shape[last] <= 1;
}

/// The same tensor with dense rows: itself, or a copy in `storage`.
TensorView<const float> with_dense_rows(const TensorView<const float>& tensor, AlignedBuffer<float>& storage);

/// A dense tensor of this shape in `storage`.
TensorView<float> dense_like(const TensorView<float>& tensor, AlignedBuffer<float>& storage);

/// to = from, element by element.
void copy_tensor(const TensorView<const float>& from, const TensorView<float>& to) noexcept;

}  // namespace regard
