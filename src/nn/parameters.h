// The trainable numbers of a model: values, gradients and the moments of the optimiser, four flat spans in one order.
//
// A model adds its parameters in its constructor, then allocate() lays them out; modules keep the index that add() gave.
// Optimiser, clipping, checkpoint and gradient check are loops over the spans and know nothing of layers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"

namespace regard::nn {

enum class WeightDecay {
  kApplied,  ///< matrices and embeddings
  kNone,     ///< biases, gains of norms, everything with one axis
};

/// One tensor of the store. A tied weight is one parameter that two modules hold; its gradient is the sum of both.
struct Parameter {
  std::string name;            ///< unique; the name in the files of the architecture's family
  std::vector<int64_t> shape;  ///< row-major
  WeightDecay decay = WeightDecay::kApplied;
  int64_t offset = 0;  ///< of the first element in each of the spans; a multiple of 16
  int64_t size = 0;    ///< elements
};

/// Parameters of scalar T: float to train, double to check gradients.
/// Elements between parameters are padding: always 0 in all four spans, so that loops may run over everything.
template <class T>
class ParameterStore {
 public:
  /// Adds a parameter before allocate(); gives its index. Errors: kInvalidArgument for a name that is there already, a size
  /// that overflows, or a store that is allocated.
  int add(std::string name, std::vector<int64_t> shape, WeightDecay decay) {
    if (values_.size() > 0) fail(Code::kInvalidArgument, "[ParameterStore] {} comes after the memory was laid out", name);
    for (const Parameter& p : parameters_) {
      if (p.name == name) fail(Code::kInvalidArgument, "[ParameterStore] two parameters are called {}", name);
    }
    int64_t size = 1;
    for (const int64_t n : shape) {
      const auto product = checked_mul<int64_t>(size, n);
      if (n < 0 || !product || *product > kMaxElements) fail(Code::kInvalidArgument, "[ParameterStore] {} has an axis of {}", name, n);
      size = *product;
    }
    parameters_.push_back({std::move(name), std::move(shape), decay, size_, size});
    size_ += (size + kAlign - 1) / kAlign * kAlign;
    return static_cast<int>(parameters_.size()) - 1;
  }

  /// Lays out all four spans, zeros. Errors: kResourceExhausted.
  void allocate() {
    for (AlignedBuffer<T>* buffer : {&values_, &gradients_, &first_moments_, &second_moments_}) {
      *buffer = AlignedBuffer<T>(static_cast<size_t>(size_));
      std::fill(buffer->begin(), buffer->end(), T{0});
    }
  }

  std::span<const Parameter> parameters() const noexcept { return parameters_; }
  int64_t size() const noexcept { return size_; }  ///< elements of a span, padding included
  /// Trainable numbers, without padding.
  int64_t count() const noexcept {
    return std::accumulate(parameters_.begin(), parameters_.end(), int64_t{0}, [](int64_t n, const Parameter& p) { return n + p.size; });
  }

  std::span<T> values() noexcept { return {values_.data(), values_.size()}; }
  std::span<const T> values() const noexcept { return {values_.data(), values_.size()}; }
  std::span<T> gradients() noexcept { return {gradients_.data(), gradients_.size()}; }
  std::span<T> first_moments() noexcept { return {first_moments_.data(), first_moments_.size()}; }
  std::span<T> second_moments() noexcept { return {second_moments_.data(), second_moments_.size()}; }

  T* value(int index) noexcept { return values_.data() + parameters_[static_cast<size_t>(index)].offset; }
  const T* value(int index) const noexcept { return values_.data() + parameters_[static_cast<size_t>(index)].offset; }
  T* gradient(int index) noexcept { return gradients_.data() + parameters_[static_cast<size_t>(index)].offset; }

  void zero_gradients() noexcept { std::fill(gradients_.begin(), gradients_.end(), T{0}); }

 private:
  static constexpr int64_t kAlign = 16;                     // floats of a wide vector
  static constexpr int64_t kMaxElements = int64_t{1} << 40;  // far above any memory, far below overflow

  std::vector<Parameter> parameters_;
  AlignedBuffer<T> values_, gradients_, first_moments_, second_moments_;
  int64_t size_ = 0;
};

}  // namespace regard::nn
