// What someone who watches an attention layer is shown: the queries and keys that the layer computes with, and the lse that came out,
// so that its weights can be rebuilt. Watching changes no bit of the layer's result.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "attention/attention.h"
#include "regard/attention.h"
#include "regard/mask.h"
#include "regard/tensor.h"

namespace regard::nn {

struct AttentionLayerConfig;

/// One sequence's part of a pass through one layer, as attention_weights() takes it. Valid during the call.
struct ObservedAttention {
  TensorView<const float> q;    ///< [1, num_q_heads, rows, head_dim], rotated
  TensorView<const float> k;    ///< [1, num_kv_heads, tokens so far, head_dim], rotated, as the cache has rounded them
  TensorView<const float> lse;  ///< [1, num_q_heads, rows]
  const Mask& mask;
  const AttentionOptions& options;  ///< q_begin says where the first row stands
};
/// Called for one sequence after the other, in the thread of the pass.
using AttentionObserver = std::function<void(const ObservedAttention&)>;

/// The numbers and score terms of a layer as attention options. They point into `config`.
AttentionOptions attention_options(const AttentionLayerConfig& config);

/// What is kept of the queries of a pass, whose memory the results overwrite.
class AttentionLooks {
 public:
  /// Before the attention: copies queries and keys, and asks for lse.
  AttentionLooks(const AttentionLayerConfig& config, std::span<SequenceQueries> queries);
  /// After it.
  void show(const AttentionObserver& observer) const;

 private:
  struct Look {
    int64_t rows = 0, first_position = 0, keys = 0;
    std::vector<float> q, k, lse;
  };
  const AttentionLayerConfig& config_;
  std::vector<Look> looks_;
};

}  // namespace regard::nn
