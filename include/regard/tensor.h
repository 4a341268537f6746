// A view of somebody else's memory as a tensor of up to four dimensions. Views never own and never copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace regard {

/// Shape and strides over `data`. Strides count elements, may be 0 (broadcast) and need not be dense, except that
/// functions which ask for a "row" want the last stride to be 1. Axes beyond `rank` have extent 1 and stride 0.
template <class T>
struct TensorView {
  static constexpr int kMaxRank = 4;

  T* data = nullptr;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{1, 1, 1, 1};
  std::array<int64_t, kMaxRank> strides{0, 0, 0, 0};

  TensorView() = default;

  /// A dense view in C order: the last axis is contiguous.
  TensorView(T* values, std::initializer_list<int64_t> extents) : data(values), rank(static_cast<int>(extents.size())) {
    int axis = 0;
    for (int64_t extent : extents) shape[static_cast<size_t>(axis++)] = extent;
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; --i) {
      strides[static_cast<size_t>(i)] = step;
      step *= shape[static_cast<size_t>(i)];
    }
  }

  /// The same elements, read-only.
  operator TensorView<const T>() const {
    TensorView<const T> view;
    view.data = data;
    view.rank = rank;
    view.shape = shape;
    view.strides = strides;
    return view;
  }

  int64_t size() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  T* at(int64_t i, int64_t j = 0, int64_t k = 0, int64_t l = 0) const {
    return data + i * strides[0] + j * strides[1] + k * strides[2] + l * strides[3];
  }
};

}  // namespace regard
