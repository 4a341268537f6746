// The end of a model: the head's product and the cross-entropy of its rows, together, so that logits are never there as a
// whole. Rows without a label are left out of both.
#pragma once

#include <span>

#include "nn/training/linear.h"
#include "nn/training_model.h"

namespace regard::nn::training {

template <class T>
class LinearCrossEntropy {
 public:
  LinearCrossEntropy() = default;
  /// The head reads its rows times `scale`. A `softcap` c other than 0 makes a logit z into c tanh(z / c).
  LinearCrossEntropy(Linear<T> head, const CrossEntropy& options, double scale = 1, double softcap = 0)
      : head_(std::move(head)), options_(options), scale_(static_cast<T>(scale)), softcap_(softcap) {}

  MemoryPlan plan(const ThreadPool& pool, int64_t rows) const;

  /// labels [rows]; padding is not counted. With dx (null: only the loss; it may be x), writes the gradient of factor * objective to it
  /// and adds that of the head. Bits: rows in chunks, but every sum goes on where the last chunk ended.
  LossSum run(const Context<T>& context, const Sequences& sequences, const T* x, std::span<const int32_t> labels, double factor, T* dx,
              Memory scratch) const;

  /// The logits of all rows [rows, classes].
  void logits(const Context<T>& context, const T* x, int64_t rows, T* y, Memory scratch) const;

 private:
  int64_t chunk_rows(int64_t rows) const noexcept;
  void scaled_row(const T* x, T* y) const noexcept;
  Linear<T> head_;
  CrossEntropy options_;
  T scale_ = 1;
  double softcap_ = 0;
};

}  // namespace regard::nn::training
