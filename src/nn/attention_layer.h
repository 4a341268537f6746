// The attention half of a block: projections, norms of queries and keys, rotation, the cache, attention, output projection.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attention/attention.h"
#include "attention/kv_cache.h"
#include "mask/plan.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/pass.h"
#include "regard/mask.h"
#include "regard/position.h"
#include "regard/score_terms.h"

namespace regard::nn {

struct AttentionLayerConfig {
  int64_t hidden_size = 0;
  int64_t num_q_heads = 0;
  int64_t num_kv_heads = 0;  ///< divides num_q_heads; consecutive query heads share a key/value head
  int64_t head_dim = 0;      ///< 0: hidden_size / num_q_heads, which must divide evenly
  float scale = 0;           ///< scores are q.k times this; 0: 1 / sqrt(head_dim)
  float softcap = 0;         ///< 0: none
  Mask mask = Mask::causal();
  RopeOrder rope_order = RopeOrder::kHalfSplit;
  /// Biases by distance, see regard/score_terms.h; empty: none.
  std::vector<float> alibi_slopes;  ///< one per query head
  std::vector<float> t5_table;      ///< [buckets, num_q_heads]
  int64_t t5_max_distance = 128;
  T5Direction t5_direction = T5Direction::kCausal;
  /// Transformer-XL's terms, see regard/score_terms.h; no distances: none.
  struct Xl {
    std::vector<float> u, v;   ///< [num_q_heads, head_dim]
    std::vector<float> r;      ///< [distances, num_q_heads, head_dim], projected
    int64_t first_distance = 0;
  } xl;
};

/// The configuration with every 0 that stands for another number replaced by it. Errors: kInvalidArgument for numbers out of range.
AttentionLayerConfig completed(AttentionLayerConfig config);

/// Separate projections, or one fused projection whose rows are all queries, then all keys, then all values.
struct AttentionLayerWeights {
  Linear query, key, value;
  Linear fused;
  Linear output;
  /// Over each head's elements, before the rotation. Henry et al., 2020, "Query-key normalization for Transformers".
  std::optional<Norm> query_norm, key_norm;
};

/// The rows of one sequence within a pass: row first_row + i is the token at position first_position + i.
struct SequenceRows {
  KvCache* cache = nullptr;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_position = 0;
  const KvCache* source = nullptr;  ///< what cross-attention looks at, in a block that has one
};

/// What a layer asks of every call.
AttentionShape shape_of(const AttentionLayerConfig& config);
/// The rows of a sequence as queries that look at `keys`: heads side by side in rows `stride` apart from q on, where the results go too.
SequenceQueries queries_of(const SequenceRows& rows, const AttentionLayerConfig& config, const KvCache& keys, float* q, int64_t stride);

/// Cosines and sines of every row of a pass, [rows, half] each; half 0: no rotation.
struct RopeAngles {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t half = 0;
};

class AttentionLayer {
 public:
  /// Errors: kInvalidArgument with both numbers when heads do not divide or a projection has another shape.
  AttentionLayer(AttentionLayerConfig config, AttentionLayerWeights weights);

  const AttentionLayerConfig& config() const { return config_; }

  /// x and y are dense [pass.rows, hidden_size]; y does not overlap x. Appends the rows' keys and values to the caches, then
  /// lets every row look at its sequence. A row that the mask leaves nothing gives the bias of the output projection.
  /// Bits: a row depends on its own sequence up to its position only.
  void forward(const Pass& pass, const float* x, const RopeAngles& angles, std::span<const SequenceRows> sequences, float* y) const;

 private:
  AttentionLayerConfig config_;
  AttentionLayerWeights weights_;
  MaskPlan plan_;
};

}  // namespace regard::nn
