// A linear layer with parameters in the store: forward and backward.
#pragma once

#include <string>

#include "nn/training/ops.h"

namespace regard::nn::training {

/// y = x W^T + b. Saves nothing: the caller keeps x.
template <class T>
class Linear {
 public:
  Linear() = default;
  /// Adds `name`.weight and, with biases, `name`.bias to the store.
  Linear(ParameterStore<T>& store, const std::string& name, int64_t in, int64_t out, bool bias, WeightLayout layout = WeightLayout::kOutIn);
  /// With the matrix of another module, [out, in]: a tied head.
  Linear(int weight, int64_t in, int64_t out) : in_(in), out_(out), weight_(weight) {}

  int64_t in() const noexcept { return in_; }
  int64_t out() const noexcept { return out_; }
  int weight() const noexcept { return weight_; }

  MemoryPlan plan(const ThreadPool& pool, int64_t rows) const { return {0, product_scratch<T>(pool, rows, in_, out_)}; }
  /// x is [rows, in], y [rows, out], rows may be strided.
  void forward(const Context<T>& context, TensorView<const T> x, TensorView<T> y, Memory scratch) const;
  /// Adds the gradients of weight and bias; writes dx or adds to it, unless it has no data.
  void backward(const Context<T>& context, TensorView<const T> x, TensorView<const T> dy, TensorView<T> dx, Memory scratch,
                Accumulate accumulate = Accumulate::kOverwrite) const;

 private:
  WeightView<T> view(T* data) const { return {data, in_, out_, layout_}; }
  int64_t in_ = 0, out_ = 0;
  int weight_ = -1, bias_ = -1;
  WeightLayout layout_ = WeightLayout::kOutIn;
};

}  // namespace regard::nn::training
