// The public calls over whole tensors (regard/attention.h, attention_backward.h) on the threads of a given pool.
#pragma once

#include "regard/attention_backward.h"

namespace regard {

class ThreadPool;

/// attend(), on `pool`.
void attend_in_pool(ThreadPool& pool, TensorView<const float> q, TensorView<const float> k, TensorView<const float> v, const Mask& mask,
                    const AttentionOptions& options, TensorView<float> out, TensorView<float> lse);

/// attend_backward() without dlse, on `pool`.
void attend_backward_in_pool(ThreadPool& pool, TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                             TensorView<const float> out, TensorView<const float> lse, TensorView<const float> dout, const Mask& mask,
                             const AttentionOptions& options, TensorView<float> dq, TensorView<float> dk, TensorView<float> dv,
                             const ScoreTermGradients& terms);

}  // namespace regard
