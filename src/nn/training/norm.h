// LayerNorm and RMSNorm with parameters in the store: forward and backward.
#pragma once

#include <string>
#include <vector>

#include "nn/training/ops.h"
#include "nn/training/transformer_config.h"

namespace regard::nn::training {

/// What the norms of a model have in common.
struct NormStyle {
  NormKind kind = NormKind::kLayer;
  double eps = 0;
  NormGain gain = NormGain::kStored;
};

template <class T>
class Norm {
 public:
  Norm() = default;
  /// Adds `name`.weight and, for LayerNorm, `name`.bias to the store.
  Norm(ParameterStore<T>& store, const std::string& name, const NormStyle& style, int64_t size);

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
  const T* gains(const Context<T>& context) const;
  const T* biases(const Context<T>& context) const { return bias_ < 0 ? nullptr : context.parameters.value(bias_); }

  NormStyle style_;
  int64_t size_ = 0;
  int gain_ = -1, bias_ = -1;
  // NormGain::kOnePlusStored: the gains, and the pass that they are from.
  mutable std::vector<T> gains_;
  mutable uint64_t gains_of_ = 0;
};

}  // namespace regard::nn::training
