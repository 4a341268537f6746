// The feed-forward half of a layer, plain or gated: forward and backward. nn/feed_forward.h has the formulas.
#pragma once

#include <string>

#include "nn/training/linear.h"
#include "nn/training/transformer_config.h"

namespace regard::nn::training {

/// Names of the linear layers; `gate` is empty for the plain form.
struct FeedForwardNames {
  std::string gate, up, down;
};

template <class T>
class FeedForward {
 public:
  FeedForward() = default;
  FeedForward(ParameterStore<T>& store, const FeedForwardNames& names, int64_t hidden, int64_t width, Activation activation,
              const LinearStyle& style);

  const Linear<T>& down() const noexcept { return down_; }
  int64_t width() const noexcept { return width_; }

  /// Per row 1 width (plain) or 2 (gated), and one more where the activated values are kept, too; none where products are cheap.
  struct Saved {
    T *gate = nullptr, *up = nullptr, *active = nullptr;  // what is null is computed again
    Saved from(int64_t row, int64_t width) const { return {ahead(gate, row * width), ahead(up, row * width), ahead(active, row * width)}; }
  };
  Saved take(Memory& memory, int64_t rows, Recompute recompute) const;
  MemoryPlan plan(const ThreadPool& pool, int64_t rows, Recompute recompute) const;

  /// x and y are dense [rows, hidden].
  void forward(const Context<T>& context, const T* x, int64_t rows, const Saved& saved, T* y, Memory scratch) const;
  /// Adds the gradients of the parameters; writes dx. What is saved is overwritten.
  void backward(const Context<T>& context, const T* x, const Saved& saved, const T* dy, int64_t rows, T* dx, Memory scratch) const;

 private:
  bool gated() const noexcept { return gate_.out() > 0; }
  bool keeps_products(Recompute recompute) const noexcept { return precision_ == GemmPrecision::kF32 || recompute != Recompute::kCheap; }
  // Scratch for what is not saved.
  Saved complete(Saved saved, int64_t rows, Memory& scratch) const;
  // gate and up of x, and the activated values from them.
  void project(const Context<T>& context, const T* x, int64_t rows, const Saved& all, Memory scratch) const;
  void activate(const Context<T>& context, const Saved& all, int64_t rows) const;

  Activation activation_ = Activation::kGeluTanh;
  int64_t hidden_ = 0, width_ = 0;
  GemmPrecision precision_ = GemmPrecision::kF32;
  Linear<T> gate_, up_, down_;
};

}  // namespace regard::nn::training
