// The gradients of attention over tensors that are there as a whole.
//
//   regard::attend(q, k, v, mask, options, out, lse);
//   regard::attend_backward(q, k, v, out, lse, dout, {}, mask, options, dq, dk, dv);
#pragma once

#include "regard/attention.h"
#include "regard/export.h"
#include "regard/mask.h"
#include "regard/tensor.h"

namespace regard {

/// Where the gradients of score terms go; one without data is not wanted. ALiBi's slopes are fixed and have none.
struct ScoreTermGradients {
  TensorView<float> bias =
      {};  ///< in the shape of AttentionOptions::bias: summed over the axes on which that is repeated
  TensorView<float> t5_table = {};                    ///< [buckets, num_q_heads]
  TensorView<float> sink = {};                        ///< [num_q_heads]
  TensorView<float> xl_u = {}, xl_v = {}, xl_r = {};  ///< in the shapes of TransformerXl's
};

/// The gradients dq, dk, dv of a scalar loss, from its gradients dout and dlse with respect to what attend() gave.
///
/// Shapes: q, k, v, out and lse as in attend(), under the same mask and options, out and lse as it gave them; dout as
/// out, dlse as lse or no data (0); dq as q, dk as k, dv as v. A gradient without data is not computed; at least one
/// has some. Gradients are written, not added to. `terms` likewise takes the gradients of the score terms of `options`.
/// Packed sequences have theirs where their rows are; rows behind the last sequence get 0.
/// Every gradient element is the sum over the pairs that the mask lets see; a masked pair adds nothing, not even 0
/// times a NaN, so that nothing that is masked can change a gradient. Empty rows (no visible key, padding, an lse of
/// -inf) give dq 0 and add nothing to dk and dv, whatever their q, out, dout and dlse hold. (The lse of a row that sees
/// nothing but a sink is that sink, so its dlse is in the sink's gradient, unless the row is padding.) A key that no
/// row sees gets dk and dv 0. A NaN in a visible pair comes through. Determinism: the bits do not depend on the number
/// of threads; those of a row of dq depend on that row and the keys it sees alone. Sums over keys run by rising
/// position, sums over rows in the order of the tensor, heads of a group last. Accuracy: within 1e-5 of the largest
/// gradient on gaussian inputs; lse is rounded to f32, which limits a weight to about |lse| * 6e-8 relative. Cost: 2 (3
/// head_dim + 2 value_dim) operations per visible pair; blocks of keys and rows without one are skipped. Memory: per
/// thread one packed block of keys with its gradients (0.6 MiB for heads of 64), per row 28 bytes, and a copy of each
/// tensor whose last stride is not 1; with biases also their tables as in attend(), and for a gradient of `bias` that
/// is summed over queries one number per query head and key. Aliasing: the gradients share no memory with the inputs,
/// with each other or with themselves. Threads, strides and errors: as attend(). Source: Dao, 2023, "FlashAttention-2",
/// section 3.1.2.
REGARD_API void attend_backward(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                                TensorView<const float> out, TensorView<const float> lse, TensorView<const float> dout,
                                TensorView<const float> dlse, const Mask& mask, const AttentionOptions& options,
                                TensorView<float> dq, TensorView<float> dk, TensorView<float> dv,
                                const ScoreTermGradients& terms = {});

}  // namespace regard
