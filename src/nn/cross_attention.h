// The part of a decoder's block that looks at an encoder's output: its keys and values are made once per source, and every
// text about that source reads the same ones. Vaswani et al., 2017, "Attention is all you need", section 3.2.3.
#pragma once

#include <span>

#include "attention/kv_cache.h"
#include "mask/plan.h"
#include "nn/attention_layer.h"
#include "nn/linear.h"
#include "nn/pass.h"

namespace regard::nn {

struct CrossAttentionWeights {
  Linear query, key, value, output;
};

class CrossAttention {
 public:
  /// Of `config` the sizes, the scale and the soft-cap count: a query sees the whole source, and where they stand to each other means
  /// nothing. Errors: kInvalidArgument with both numbers when heads do not divide or a projection has another shape.
  CrossAttention(AttentionLayerConfig config, CrossAttentionWeights weights);

  /// Appends the keys and values of encoded rows, dense [pass.rows, hidden_size], to an empty cache.
  void remember(const Pass& pass, const float* encoded, KvCache& cache) const;

  /// x and y are dense [pass.rows, hidden_size]; y does not overlap x. Every row looks at SequenceRows::source of its sequence.
  /// Bits: a row depends on itself and its source only.
  void forward(const Pass& pass, const float* x, std::span<const SequenceRows> sequences, float* y) const;

 private:
  AttentionLayerConfig config_;
  CrossAttentionWeights weights_;
  MaskPlan plan_;
};

}  // namespace regard::nn
