// One layer of a Transformer: attention, in some decoders attention to a source, and feed-forward, each a branch beside the residual
// stream, with norms before it, after it, or both.
#pragma once

#include <optional>

#include "nn/attention_layer.h"
#include "nn/cross_attention.h"
#include "nn/feed_forward.h"
#include "nn/norm.h"

namespace regard::nn {

enum class NormPlacement {
  kPre,       ///< x + f(norm(x)). Xiong et al., 2020, "On layer normalization in the Transformer architecture"
  kPost,      ///< norm(x + f(x)). Vaswani et al., 2017, section 3.1
  kSandwich,  ///< x + norm(f(norm(x))). Ding et al., 2021, "CogView", section 2.4
};

struct BlockNorms {
  Norm attention;            ///< before the attention (kPre, kSandwich) or after its sum (kPost)
  Norm feed_forward;         ///< likewise
  Norm attention_branch;     ///< kSandwich: on the branch before it is added
  Norm feed_forward_branch;  ///< likewise
};

/// The second branch of a decoder that looks at an encoder's output. Not with kSandwich.
struct CrossBranch {
  Norm norm;
  CrossAttention attention;
};

class Block {
 public:
  /// Errors: kInvalidArgument when a norm that the placement needs has another size than the residual stream.
  Block(NormPlacement placement, BlockNorms norms, AttentionLayer attention, FeedForward feed_forward, std::optional<CrossBranch> cross = {});

  /// Runs pass.rows rows of x [rows, hidden] through the layer, in place, appending their keys and values to the caches.
  void forward(const Pass& pass, const RopeAngles& angles, std::span<const SequenceRows> sequences, float* x) const;

  const AttentionLayer& attention() const { return attention_; }
  const std::optional<CrossBranch>& cross() const { return cross_; }

 private:
  /// Adds a branch to the stream; then, in the same step, the norm of this branch (kPost), or into `normed` that of the `next` one.
  void join(const Pass& pass, const Norm& own, const Norm& on_branch, const Norm* next, float* branch, float* x, float* normed) const;

  NormPlacement placement_;
  BlockNorms norms_;
  AttentionLayer attention_;
  FeedForward feed_forward_;
  std::optional<CrossBranch> cross_;
};

}  // namespace regard::nn
