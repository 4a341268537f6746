// The beginning of a stack: token vectors, the vectors of their positions, dropout; forward and backward.
#pragma once

#include <span>
#include <vector>

#include "nn/training/ops.h"

namespace regard::nn::training {

template <class T>
class Embedding {
 public:
  Embedding() = default;
  /// `tokens` and `positions` are parameters, [vocabulary, hidden] and [max_positions, hidden]; positions < 0: none learned.
  /// `fixed` [max_positions, hidden] is added likewise; empty: none.
  Embedding(int tokens, int positions, std::vector<T> fixed, int64_t hidden, double scale)
      : tokens_(tokens), positions_(positions), fixed_(std::move(fixed)), hidden_(hidden), scale_(static_cast<T>(scale)) {}

  /// y [rows, hidden]; `rate` is that of dropout. Padding gives zeros, whatever its token is.
  void forward(const Context<T>& context, const Sequences& sequences, std::span<const int32_t> ids, uint64_t seed, double rate, T* y) const;
  /// Adds the gradients of the tables; dy is overwritten.
  void backward(const Context<T>& context, const Sequences& sequences, std::span<const int32_t> ids, uint64_t seed, double rate, T* dy) const;

 private:
  int tokens_ = -1, positions_ = -1;
  std::vector<T> fixed_;
  int64_t hidden_ = 0;
  T scale_ = 1;
};

}  // namespace regard::nn::training
