// Optimisers over the flat parameters of a model. They know nothing of layers, and every element is computed by itself, so
// that results do not depend on threads. Sums run in pieces of fixed size, added up in their order.
//
// Source: Loshchilov, Hutter 2019, "Decoupled weight decay regularization", algorithm 2; Polyak 1964 for momentum.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "nn/parameters.h"
#include "regard/train.h"
#include "runtime/thread_pool.h"

namespace regard::train_loop {

class Optimizer {
 public:
  /// `parameters` is laid out already and outlives this object.
  Optimizer(const TrainConfig::Optimizer& config, nn::ParameterStore<float>& parameters);

  /// The length of the gradient of all parameters together, in f64. Not finite when one element is not.
  double gradient_norm(ThreadPool& pool);
  /// Whether all parameters are finite.
  bool values_are_finite(ThreadPool& pool);

  /// Changes the values by the gradients times `gradient_scale`. `step` is the number of the update, the first is 1:
  /// AdamW divides its moments by 1 - beta^step. The decay of a parameter is learning_rate * weight_decay times its value.
  ///   AdamW  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g g,  x = x - lr wd x - lr m/(1 - b1^t) / (sqrt(v/(1 - b2^t)) + eps)
  ///   SGD    m = momentum m + g,  x = x - lr wd x - lr m
  void update(ThreadPool& pool, int64_t step, double learning_rate, double gradient_scale);

 private:
  struct Piece {
    int64_t begin = 0, size = 0;
    nn::WeightDecay decay = nn::WeightDecay::kApplied;
  };

  TrainConfig::Optimizer config_;
  nn::ParameterStore<float>& parameters_;
  std::vector<Piece> pieces_;
  std::vector<double> sums_;  // of each piece
};

/// A moving average of the parameters: a = decay a + (1 - decay) x after each step, begun at the first weights.
class WeightAverage {
 public:
  WeightAverage(double decay, nn::ParameterStore<float>& parameters);

  void update(ThreadPool& pool);
  std::span<float> values() noexcept { return {average_.data(), average_.size()}; }

  /// Exchanges the averages and the parameters, until the object goes.
  class Shown {
   public:
    explicit Shown(WeightAverage* average);
    ~Shown();
    Shown(const Shown&) = delete;
    Shown& operator=(const Shown&) = delete;

   private:
    WeightAverage* average_;
  };

 private:
  void exchange() noexcept;

  double decay_;
  nn::ParameterStore<float>& parameters_;
  AlignedBuffer<float> average_;
};

}  // namespace regard::train_loop
