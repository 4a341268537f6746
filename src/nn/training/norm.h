// LayerNorm and RMSNorm with parameters in the store: forward and backward.
#pragma once

#include <string>

#include "nn/training/ops.h"

namespace regard::nn::training {

template <class T>
class Norm {
 public:
  Norm() = default;
  /// Adds `name`.weight and, for LayerNorm, `name`.bias to the store.
  Norm(ParameterStore<T>& store, const std::string& name, NormKind kind, double eps, int64_t size);

  int gain() const noexcept { return gain_; }

  struct Saved {
    NormStats<T>* stats = nullptr;  // [rows]
    Saved from(int64_t row) const { return {ahead(stats, row)}; }
  };
  static Saved take(Memory& memory, int64_t rows) { return {memory.take<NormStats<T>>(rows)}; }

  /// x and y are dense [rows, size]; y may be x, but then x is to be kept elsewhere for backward.
  void forward(const Context<T>& context, const T* x, int64_t rows, const Saved& saved, T* y) const;
  /// Adds the gradients of gain and bias, and adds to dx or overwrites it; overwritten, dx may be x or dy.
  void backward(const Context<T>& context, const T* x, const Saved& saved, const T* dy, int64_t rows, T* dx,
                Accumulate accumulate = Accumulate::kAdd) const;

 private:
  NormKind kind_ = NormKind::kLayer;
  double eps_ = 0;
  int64_t size_ = 0;
  int gain_ = -1, bias_ = -1;
};

}  // namespace regard::nn::training
