// A linear layer with parameters in the store: forward and backward. float is the products of gemm.h, double plain loops.
#pragma once

#include <string>
#include <type_traits>

#include "nn/training/gemm.h"
#include "nn/training/ops.h"

namespace regard::nn::training {

/// What the linear layers of a module have in common.
struct LinearStyle {
  bool bias = true;
  WeightLayout layout = WeightLayout::kOutIn;
  GemmPrecision precision = GemmPrecision::kF32;  ///< of float; double computes as it is
};

/// y = x W^T + b. Saves nothing: the caller keeps x.
template <class T>
class Linear {
 public:
  Linear() = default;
  /// Adds `name`.weight and, with biases, `name`.bias to the store.
  Linear(ParameterStore<T>& store, const std::string& name, int64_t in, int64_t out, const LinearStyle& style);
  /// With the matrix of another module, [out, in]: a tied head.
  Linear(int weight, int64_t in, int64_t out, GemmPrecision precision);

  int64_t in() const noexcept { return config_.in; }
  int64_t out() const noexcept { return config_.out; }
  int weight() const noexcept { return weight_; }

  MemoryPlan plan(const ThreadPool& pool, int64_t rows) const;
  /// x is [rows, in], y [rows, out], rows may be strided.
  void forward(const Context<T>& context, TensorView<const T> x, TensorView<T> y, Memory scratch) const;
  /// Adds the gradients of weight and bias; then writes dx or adds to it, unless it has no data. dx may lie over x.
  void backward(const Context<T>& context, TensorView<const T> x, TensorView<const T> dy, TensorView<T> dx, Memory scratch,
                Accumulate accumulate = Accumulate::kOverwrite) const;

 private:
  struct PlainLoops {
    PlainLoops() = default;
    explicit PlainLoops(const TrainableLinearConfig&) {}
  };
  using Products = std::conditional_t<std::is_same_v<T, float>, TrainableLinear, PlainLoops>;
  Products& products(const Context<T>& context) const;

  TrainableLinearConfig config_;
  int weight_ = -1, bias_ = -1;
  // The weights in the layout of the kernels, and the pass that they are from.
  mutable Products products_;
  mutable uint64_t packed_in_ = 0;
};

}  // namespace regard::nn::training
