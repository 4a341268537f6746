// Talking-heads attention: heads are mixed with each other before and after the softmax. A fused softmax cannot mix
// heads, so this is a slower path of its own; everything else is in attention.h.
#pragma once

#include "regard/attention.h"
#include "regard/export.h"
#include "regard/mask.h"
#include "regard/tensor.h"

namespace regard {

/// The mixing matrices; one without data mixes nothing.
struct TalkingHeads {
  TensorView<const float> before = {};  ///< [num_q_heads, softmax heads]: P_l of the paper
  TensorView<const float> after = {};   ///< [softmax heads, value heads]: P_w
};

/// For every query, with g a query head, h a softmax head and o a value head:
///   s[g, j] = softcap(scale q_g . k_j),  t[h, j] = sum over g of s[g, j] before[g, h],  w[h] = softmax(mask_h(t[h])),
///   out[o] = sum over j of (sum over h of w[h, j] after[h, o]) v_j
///
/// Shapes: q [batch, num_q_heads, q_len, head_dim], k [batch, num_kv_heads, kv_len, head_dim], v [batch, num_v_heads,
/// kv_len, value_dim], out [batch, value heads, q_len, value_dim]; query heads share KV heads as in attend(), and so do
/// value heads those of v. The mask is asked by softmax head (per_head masks and tables have one entry for each of
/// them) and holds after the mix: a masked pair has weight 0 in its head whatever the other heads' scores are, and a
/// key that no softmax head sees is not read. A softmax head without a visible key has weights 0; a row whose heads all
/// see nothing gives out 0. A NaN in a key that some head sees reaches all heads that see it, also by a factor of 0.
/// Accuracy: all sums in f64, rounded to f32 once. A row's bits do not depend on other rows, the batch or the threads.
/// Cost: row by row in plain loops, some fifty times slower than attend(); per thread 8 bytes for each head and key.
/// Of the options scale, softcap, positions, offsets, limits, query_lengths and stop hold. Errors: as attend(); kUnsupported,
/// naming it, for bias, alibi, t5, xl, dropout and sink. Source: Shazeer et al., 2020, "Talking-heads attention",
/// section 4.
REGARD_API void attend_talking_heads(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                                     const TalkingHeads& mix, const Mask& mask, const AttentionOptions& options,
                                     TensorView<float> out);

}  // namespace regard
