// The feed-forward half of a block, plain or gated.
#pragma once

#include "nn/activation.h"
#include "nn/linear.h"
#include "nn/pass.h"

namespace regard::nn {

/// y = W_down f(W_up x), or with a gate y = W_down (f(W_gate x) * W_up x).
/// Vaswani et al., 2017, "Attention is all you need", equation 2; Shazeer, 2020, "GLU variants improve transformer", section 2.
class FeedForward {
 public:
  FeedForward() = default;
  /// `gate` is a default-constructed Linear for the plain form. Errors: kInvalidArgument when the shapes do not chain.
  FeedForward(Activation activation, Linear gate, Linear up, Linear down);

  /// True of a default-constructed one: the block has no feed-forward half.
  bool empty() const { return up_.out() == 0; }
  bool gated() const { return gate_.out() > 0; }

  /// x and y are dense [pass.rows, hidden]; y does not overlap x. A row depends on itself alone.
  void forward(const Pass& pass, const float* x, float* y) const;

 private:
  Activation activation_ = Activation::kSilu;
  Linear gate_, up_, down_;
};

}  // namespace regard::nn
