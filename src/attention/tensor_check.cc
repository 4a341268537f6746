#include "attention/tensor_check.h"

#include "base/check.h"
#include "base/checked.h"

namespace regard {

template <class T>
std::string shape_text(const TensorView<T>& tensor) {
  std::string text = "[";
  for (int i = 0; i < tensor.rank; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", tensor.shape[static_cast<size_t>(i)]);
  return text + "]";
}

template <class T>
ByteRange check_tensor(std::string_view function, std::string_view name, const TensorView<T>& tensor, int rank) {
  require(tensor.rank == rank, "[{}] {} has {} axes, expected {}", function, name, tensor.rank, rank);
  bool empty = false;
  for (int i = 0; i < rank; ++i) {
    const int64_t extent = tensor.shape[static_cast<size_t>(i)];
    require(extent >= 0, "[{}] {} has shape {}: an extent is negative", function, name, shape_text(tensor));
    empty = empty || extent == 0;
  }
  if (empty) return {};
  require(tensor.data != nullptr, "[{}] {} {} has no data", function, name, shape_text(tensor));
  const auto address = reinterpret_cast<uintptr_t>(tensor.data);
  require(address % alignof(T) == 0, "[{}] {} stands at an address that is not a multiple of {} bytes", function, name,
          alignof(T));
  // The lowest and the highest element, in 128 bits: neither the products nor their sum can overflow.
  __int128 low = 0, high = 0;
  for (int i = 0; i < rank; ++i) {
    const auto axis = static_cast<size_t>(i);
    const __int128 reach = static_cast<__int128>(tensor.shape[axis] - 1) * tensor.strides[axis];
    (reach < 0 ? low : high) += reach;
  }
  const __int128 begin = static_cast<__int128>(address) + low * static_cast<__int128>(sizeof(T));
  const __int128 end = static_cast<__int128>(address) + (high + 1) * static_cast<__int128>(sizeof(T));
  require(begin > 0 && end <= static_cast<__int128>(UINTPTR_MAX), "[{}] {} {} has strides that lead out of memory",
          function, name, shape_text(tensor));
  return {static_cast<uintptr_t>(begin), static_cast<uintptr_t>(end)};
}

// Sorted by stride, each axis has to step over all that the smaller ones reach. (Views that interleave more cleverly
// are refused with the ones that do overlap.)
template <class T>
void check_no_self_overlap(std::string_view function, std::string_view name, const TensorView<T>& tensor) {
  struct Axis {
    int64_t stride, extent;
  };
  Axis axes[TensorView<T>::kMaxRank];
  int n = 0;
  for (size_t i = 0; i < static_cast<size_t>(tensor.rank); ++i) {
    if (tensor.shape[i] == 0) return;
    if (tensor.shape[i] == 1) continue;
    const Axis axis{tensor.strides[i] < 0 ? -tensor.strides[i] : tensor.strides[i], tensor.shape[i]};
    int at = n++;
    for (; at > 0 && axes[at - 1].stride > axis.stride; --at) axes[at] = axes[at - 1];
    axes[at] = axis;
  }
  __int128 reach = 0;
  for (int i = 0; i < n; ++i) {
    require(axes[i].stride > reach, "[{}] {} {} overlaps itself: a stride of {} is too small", function, name,
            shape_text(tensor), axes[i].stride);
    reach += static_cast<__int128>(axes[i].stride) * (axes[i].extent - 1);
  }
}

TensorView<float> dense_like(const TensorView<float>& tensor, AlignedBuffer<float>& storage) {
  size_t count = 1;
  for (int64_t extent : tensor.shape) {
    const auto product = checked_mul<size_t>(count, static_cast<size_t>(extent));
    if (!product)
      fail(Code::kResourceExhausted, "[attention] a copy of a tensor of shape {} does not fit into memory",
           shape_text(tensor));
    count = *product;
  }
  storage = AlignedBuffer<float>(count);
  TensorView<float> dense(storage.data(), {tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3]});
  return dense;
}

void copy_tensor(const TensorView<const float>& from, const TensorView<float>& to) noexcept {
  for (int64_t a = 0; a < from.shape[0]; ++a)
    for (int64_t b = 0; b < from.shape[1]; ++b)
      for (int64_t c = 0; c < from.shape[2]; ++c)
        for (int64_t d = 0; d < from.shape[3]; ++d) *to.at(a, b, c, d) = *from.at(a, b, c, d);
}

TensorView<const float> with_dense_rows(const TensorView<const float>& tensor, AlignedBuffer<float>& storage) {
  if (has_dense_rows(tensor) || tensor.size() == 0) return tensor;
  TensorView<float> shape;
  shape.rank = tensor.rank;
  shape.shape = tensor.shape;
  const TensorView<float> dense = dense_like(shape, storage);
  copy_tensor(tensor, dense);
  return dense;
}

template ByteRange check_tensor(std::string_view, std::string_view, const TensorView<float>&, int);
template ByteRange check_tensor(std::string_view, std::string_view, const TensorView<const float>&, int);
template ByteRange check_tensor(std::string_view, std::string_view, const TensorView<const int64_t>&, int);
template ByteRange check_tensor(std::string_view, std::string_view, const TensorView<int64_t>&, int);
template ByteRange check_tensor(std::string_view, std::string_view, const TensorView<const uint8_t>&, int);
template void check_no_self_overlap(std::string_view, std::string_view, const TensorView<float>&);
template void check_no_self_overlap(std::string_view, std::string_view, const TensorView<int64_t>&);
template std::string shape_text(const TensorView<int64_t>&);
template std::string shape_text(const TensorView<const uint8_t>&);
template std::string shape_text(const TensorView<float>&);
template std::string shape_text(const TensorView<const float>&);
template std::string shape_text(const TensorView<const int64_t>&);

}  // namespace regard
