// The backward pass over whole tensors. Read backward_tensors() and BackwardCall in backward.cc; backward_rows.h has
// what the rows see, backward_keys.h the blocks of keys, kernels/attention_backward.h the arithmetic.
//
// Blocks of keys are the work. Each is taken by one thread, which packs it and lets all rows pass that see any of it:
// dk and dv of the block are that thread's own, and the blocks take turns on the dq of each block of rows, in rising
// order. Threads so follow each other through the rows a few steps apart; no sum depends on their number, and no copy
// of a gradient is made.
#pragma once

#include <memory>

#include "attention/attention.h"
#include "attention/call.h"
#include "regard/stop_token.h"
#include "regard/tensor.h"

namespace regard {

class ScoreTerms;
class ThreadPool;
struct ScoreTermGradients;

/// Shapes as in regard/attention_backward.h; the rows of all tensors are dense. A gradient without data is not wanted,
/// dlse without data is 0.
struct BackwardTensors {
  TensorView<const float> q, k, v, out, lse, dout, dlse;
  TensorView<float> dq, dk, dv;
};

/// The score terms of a call and what is wanted of them; no terms, no gradients: null.
struct BackwardTermCall {
  const ScoreTerms* terms = nullptr;
  const AttentionOptions* options = nullptr;
  const ScoreTermGradients* wanted = nullptr;
};

/// `sizes` are those of the tensors, `rows` says which batch row has what of them.
/// Errors: kCancelled when `stop` was requested, with the gradients undefined; kResourceExhausted.
void backward_tensors(const BackwardTensors& tensors, const CallSizes& sizes, const CallRows& rows,
                      const AttentionShape& shape, const MaskPlan& mask, const CallPositions& positions,
                      ThreadPool& pool, const StopToken* stop, const BackwardTermCall& terms = {});

/// backward_tensors() made ready once and run on tensors of that shape one after the other, without allocating. What it was
/// made from has to stay; no slots of their own positions and no packed sequences.
class BackwardPlan {
 public:
  BackwardPlan(const BackwardTensors& tensors, const CallSizes& sizes, const CallRows& rows, const AttentionShape& shape,
               const MaskPlan& mask, const CallPositions& positions, ThreadPool& pool, const BackwardTermCall& terms = {});
  ~BackwardPlan();
  BackwardPlan(BackwardPlan&&) noexcept;

  void run(const BackwardTensors& tensors, const StopToken* stop);

 private:
  std::unique_ptr<class BackwardCall> call_;
};

}  // namespace regard
