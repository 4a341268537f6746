// What the layers of a model look at while it reads a text: queries, keys and the sums that weights are rebuilt from, or the
// weights themselves, averaged. Looking changes no bit of what the model computes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "regard/attention.h"
#include "regard/export.h"
#include "regard/mask.h"
#include "regard/model.h"
#include "regard/stop_token.h"
#include "regard/tensor.h"

namespace regard {

/// One layer's attention over some rows of a text, in the form that attention_weights() and its relatives in
/// attention_weights.h take. Valid during the call it is handed to.
struct LayerAttention {
  int64_t layer = 0;
  TensorView<const float> q;    ///< [1, num_q_heads, rows, head_dim], after norms and rotation
  TensorView<const float> k;    ///< [1, num_kv_heads, tokens so far, head_dim], likewise, and as the cache has rounded them
  TensorView<const float> lse;  ///< [1, num_q_heads, rows]
  const Mask& mask;
  const AttentionOptions& options;  ///< scale, soft-cap, biases; options.q_begin[0] is the position of the first row
};
using OnLayerAttention = std::function<void(const LayerAttention&)>;

/// Model::forward() of one feed that shows every layer's attention: chunk by chunk, in a chunk layer by layer. `out` and the
/// sequence end up as without looking, to the bit. Cost: a copy of the queries of a chunk and of one layer's keys.
/// The callback runs in the calling thread and must not use the model. Errors: as Model::forward(), and whatever the callback throws.
REGARD_API void watch_forward(const Model& model, const Feed& feed, const ForwardOptions& options, const OnLayerAttention& on_layer, float* out);

struct LookOptions {
  int64_t layer = -1;  ///< one layer, counted from 0; -1: the mean over all
  int64_t head = -1;   ///< one query head; -1: the mean over all
  const StopToken* stop = nullptr;
};

/// The attention weights of a text that the model reads from its beginning, [tokens, tokens]: row i is how token i looked at
/// the tokens before it and itself, and sums to 1 (0 where a mask leaves it nothing). Summed in f64, layers and heads in their order.
/// The matrix is what is asked for; besides it, memory is O(tokens) for each head. Errors: kInvalidArgument for a layer or head
/// that the model has not; as Model::forward().
REGARD_API std::vector<float> look(const Model& model, std::span<const int32_t> tokens, const LookOptions& options = {});

}  // namespace regard
