// What a Transformer to be trained looks like: numbers and choices, no memory. make_transformer() (transformer.h) builds it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "nn/activation.h"
#include "nn/block.h"
#include "nn/norm.h"
#include "nn/training/gemm.h"
#include "regard/mask.h"
#include "regard/position.h"
#include "regard/score_terms.h"

namespace regard::nn {

enum class Architecture {
  kDecoder,         ///< predicts the next token; what a position sees is `mask`
  kEncoder,         ///< masked tokens, or classes of tokens and sequences: every position sees every other one
  kEncoderDecoder,  ///< a decoder that also looks at an encoder's output. Vaswani et al., 2017, figure 1
};

/// How a model knows where its tokens stand.
enum class PositionKind {
  kNone,
  kLearned,     ///< a vector per position, added to the embedding. Radford et al., 2018, section 3.1
  kSinusoidal,  ///< a fixed vector per position, added to the embedding. Vaswani et al., 2017, section 3.5
  kRope,        ///< queries and keys are turned; `rope` has the numbers
  kAlibi,       ///< scores sink with the distance by the published slopes
  kT5,          ///< a learned bias per bucket of distances and head, one table for all layers of a stack
  kXl,          ///< Transformer-XL's u, v and projected distances, in every layer
};

enum class FeedForwardKind {
  kPlain,  ///< W_down f(W_up x)
  kGated,  ///< W_down (f(W_gate x) * W_up x). Shazeer, 2020, "GLU variants improve transformer"
};

/// Which linear layers have biases.
enum class Biases {
  kNone,
  kAll,
  kProjections,  ///< queries, keys and values: Qwen 2
  kAttention,    ///< these and the output of attention, the feed-forward none
};

/// Which files a model's parameters are named like.
enum class ParameterNaming {
  kGpt2,    ///< transformer.h.0.attn.c_attn.weight ...: matrices of layers are stored [in, out]
  kLlama,   ///< model.layers.0.self_attn.q_proj.weight ...
  kT5,      ///< encoder.block.0.layer.0.SelfAttention.q.weight ...: of a model that was read from such a file
  kRegard,  ///< decoder.layers.0.self_attn.q_proj.weight ...: every other shape
};

/// What a norm multiplies with.
enum class NormGain {
  kStored,         ///< the parameter
  kOnePlusStored,  ///< 1 more than the parameter, which then begins at 0: Gemma
};

enum class Head {
  kTied,    ///< the output matrix is the token embedding
  kUntied,  ///< a matrix of its own, `vocab_size` or `num_classes` rows
};

/// What the backward pass computes again instead of keeping it. Changes no bit of any result.
enum class Recompute {
  kNone,   ///< everything that backward reads is kept: about 15 numbers per channel, token and layer
  kCheap,  ///< norms and activations are computed again: about 10. In bf16, where products cost little, those into the feed-forward
           ///< half and out of attention too: about 5
  kFull,   ///< whole layers are computed again from their inputs: about 1, for a third more work
};

struct TransformerConfig {
  Architecture architecture = Architecture::kDecoder;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;          ///< of the decoder, or of an encoder alone
  int64_t num_encoder_layers = 0;  ///< kEncoderDecoder; 0: as num_layers
  int64_t num_q_heads = 0;
  int64_t num_kv_heads = 0;       ///< divides num_q_heads; 0: as many
  int64_t head_dim = 0;           ///< 0: hidden_size / num_q_heads, which must divide evenly
  int64_t intermediate_size = 0;  ///< 0: blocks without a feed-forward half
  int64_t max_positions = 0;      ///< the longest sequence; encoding positions are below it

  Activation activation = Activation::kGeluTanh;
  FeedForwardKind feed_forward = FeedForwardKind::kPlain;
  NormKind norm = NormKind::kLayer;
  double norm_eps = 1e-5;
  NormPlacement placement = NormPlacement::kPre;  ///< kPre and kSandwich have a last norm behind the layers. kSandwich: no encoder-decoder
  NormGain norm_gain = NormGain::kStored;
  bool query_key_norm = false;  ///< queries and keys of self-attention are normalised per head, before they are turned: Qwen 3, Gemma 3

  PositionKind position = PositionKind::kLearned;
  RopeConfig rope;                               ///< kRope; rotary_dim 0: the whole head
  Sinusoidal sinusoidal = Sinusoidal::kPaper;    ///< kSinusoidal
  int64_t t5_buckets = 32, t5_max_distance = 128;  ///< kT5

  Mask mask = Mask::causal();  ///< of the decoder's self-attention
  Mask encoder_mask;           ///< of an encoder's; key lengths and documents are ANDed with both

  /// Layers of a decoder that see the last `window` keys alone, their own included, of those that `mask` shows.
  std::vector<bool> windowed;  ///< by layer; empty: none
  int64_t window = 0;
  RopeConfig windowed_rope;    ///< kRope: of these layers

  double attention_scale = 0;  ///< scores are q . k times this; 0: 1 / sqrt(head_dim)
  double attention_softcap = 0;  ///< c: a score s becomes c tanh(s / c), before biases; 0: none. Gemma team, 2024, "Gemma 2", section 2
  double final_softcap = 0;      ///< the same for logits
  double head_scale = 1;       ///< multiplies what the head reads; T5 has 1 / sqrt(hidden_size) before a tied head
  double embedding_scale = 1;  ///< multiplies token embeddings; the original Transformer has sqrt(hidden_size)

  Biases biases = Biases::kAll;  ///< of the linear layers; LayerNorm has its bias in any case
  Head head = Head::kTied;
  int64_t num_classes = 0;  ///< not 0: labels are classes, not tokens; the head is untied then. A class of a whole sequence is
                            ///< the label of its first token, with kIgnoredLabel on the others

  double embedding_dropout = 0, residual_dropout = 0, attention_dropout = 0;  ///< each 0 <= rate < 1; off in evaluation
  double label_smoothing = 0;  ///< 0 <= e < 1: the target is 1 - e on the label and e spread evenly over all
  double z_loss = 0;           ///< adds this times (log of the softmax's denominator)^2. Chowdhery et al., 2022, "PaLM", section 5

  /// Standard deviation of the normal distribution of weights; the matrices that write into the residual stream have it
  /// divided by sqrt(2 layers). Radford et al., 2019, section 2.3. Biases begin at 0, gains of norms at 1.
  double init_std = 0.02;

  Recompute recompute = Recompute::kCheap;

  /// Layers take whole sequences of about that many rows at a time, so that what they compute with stays small. Changes no bit,
  /// except of the gradient of T5's table, which is a sum of the groups' sums. A batch is one group with masks that differ between its
  /// sequences, and with Transformer-XL's terms, whose projected distances all sequences share.
  int64_t group_rows = 512;

  /// Of what enters the matrix products of linear layers and the head. kBF16: rounded there; parameters, sums, everything between the
  /// products, attention and the loss stay f32. Needs avx512_bf16.
  training::GemmPrecision precision = training::GemmPrecision::kF32;

  /// What the file that a model was read from names its parameters like; nothing: what parameter_naming() makes of the shape. Published
  /// families have more shapes than those two: stretched rotations, a window, biases here and there.
  std::optional<ParameterNaming> naming;
};

/// The configuration with every 0 that stands for another number replaced by it.
/// Errors: kInvalidArgument with the field, what was given and its range, for numbers that do not go together.
TransformerConfig completed(TransformerConfig config);

/// Whether this layer of the decoder has a window.
bool is_windowed(const TransformerConfig& config, int64_t layer);

/// How the parameters of this shape are named: as `naming` says, or by the shape. A GPT-2 shape is a causal pre-norm decoder with learned positions, LayerNorm,
/// GELU by tanh, biases and as many key/value heads as query heads; a LLaMA shape one with rotary positions (half-split, the whole
/// head, not stretched), RMSNorm, gated SiLU and no biases.
ParameterNaming parameter_naming(const TransformerConfig& config);

/// Multiplications and additions that a training step takes for each token of sequences of `sequence` tokens, forward and backward: those of
/// linear layers, head and attention, of visible pairs alone where the mask is causal. 0 for an encoder-decoder, whose sides differ.
double operations_per_token(const TransformerConfig& config, int64_t sequence);

}  // namespace regard::nn
