#include "nn/training/transformer_config.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/attention.h"

namespace regard::nn {
namespace {

void in_range(std::string_view field, int64_t value, int64_t low, int64_t high) {
  require(value >= low && value <= high, "[TransformerConfig] {} is {}; expected {} to {}", field, value, low, high);
}

void is_rate(std::string_view field, double value) {
  require(value >= 0 && value < 1, "[TransformerConfig] {} is {}; expected 0 or more and less than 1", field, value);
}

// Rounded as in nn::AttentionLayer, so that a trained model has the bits of a loaded one.
double usual_scale(int64_t head_dim) { return static_cast<double>(1 / std::sqrt(static_cast<float>(head_dim))); }

// 0, or far enough from the ends of f32 for a quotient.
void is_cap(std::string_view field, double value) {
  require(value == 0 || (value >= 1e-30 && value <= 1e30), "[TransformerConfig] {} is {}; expected 1e-30 to 1e30, or 0 for none", field, value);
}

// Keys that a query sees on average, in a causal sequence with a window.
double mean_keys(int64_t sequence, int64_t window) {
  const auto w = static_cast<double>(std::min(window, sequence)), n = static_cast<double>(sequence);
  return n == 0 ? 0 : w * (n - (w - 1) / 2) / n;
}

// Far above what fits into memory, far below overflow of products of two of them.
constexpr int64_t kMost = int64_t{1} << 28;

}  // namespace

TransformerConfig completed(TransformerConfig c) {
  in_range("vocab_size", c.vocab_size, 1, kMost);
  in_range("hidden_size", c.hidden_size, 1, kMost);
  in_range("num_layers", c.num_layers, 1, 65536);
  in_range("num_encoder_layers", c.num_encoder_layers, 0, 65536);
  in_range("num_q_heads", c.num_q_heads, 1, 65536);
  in_range("num_kv_heads", c.num_kv_heads, 0, c.num_q_heads);
  in_range("head_dim", c.head_dim, 0, kernels::kMaxHeadDim);
  in_range("intermediate_size", c.intermediate_size, 0, kMost);
  in_range("max_positions", c.max_positions, 1, kMost);
  in_range("num_classes", c.num_classes, 0, kMost);
  in_range("group_rows", c.group_rows, 1, kMost);
  is_rate("embedding_dropout", c.embedding_dropout);
  is_rate("residual_dropout", c.residual_dropout);
  is_rate("attention_dropout", c.attention_dropout);
  is_rate("label_smoothing", c.label_smoothing);
  require(c.z_loss >= 0 && std::isfinite(c.z_loss), "[TransformerConfig] z_loss is {}; expected a finite number, 0 or more", c.z_loss);
  require(c.norm_eps > 0 && std::isfinite(c.norm_eps), "[TransformerConfig] norm_eps is {}; expected a finite number above 0", c.norm_eps);
  require(c.init_std >= 0 && std::isfinite(c.init_std), "[TransformerConfig] init_std is {}; expected a finite number, 0 or more", c.init_std);
  require(std::isfinite(c.attention_scale), "[TransformerConfig] attention_scale is {}; expected a finite number", c.attention_scale);
  require(std::isfinite(c.embedding_scale), "[TransformerConfig] embedding_scale is {}; expected a finite number", c.embedding_scale);
  require(c.head_scale != 0 && std::isfinite(c.head_scale), "[TransformerConfig] head_scale is {}; expected a finite number other than 0", c.head_scale);
  is_cap("attention_softcap", c.attention_softcap);
  is_cap("final_softcap", c.final_softcap);
  require(c.placement != NormPlacement::kSandwich || c.architecture != Architecture::kEncoderDecoder,
          "[TransformerConfig] placement is sandwich in an encoder-decoder; expected pre or post");
  require(!c.query_key_norm || c.naming != ParameterNaming::kGpt2, "[TransformerConfig] query_key_norm in a model named like gpt2, which has none");
  require(c.naming != ParameterNaming::kT5 || (c.architecture == Architecture::kEncoderDecoder && c.position == PositionKind::kT5 && !c.query_key_norm),
          "[TransformerConfig] a model named like t5; expected an encoder-decoder with t5's positions, without norms of queries and keys");

  if (c.num_kv_heads == 0) c.num_kv_heads = c.num_q_heads;
  require(c.num_q_heads % c.num_kv_heads == 0, "[TransformerConfig] num_q_heads is {}, which cannot share num_kv_heads, {}, evenly", c.num_q_heads,
          c.num_kv_heads);
  if (c.head_dim == 0) {
    require(c.hidden_size % c.num_q_heads == 0, "[TransformerConfig] hidden_size {} cannot be cut into {} heads evenly; state head_dim or change one of them",
            c.hidden_size, c.num_q_heads);
    c.head_dim = c.hidden_size / c.num_q_heads;
    in_range("head_dim", c.head_dim, 1, kernels::kMaxHeadDim);
  }
  if (c.architecture == Architecture::kEncoderDecoder && c.num_encoder_layers == 0) c.num_encoder_layers = c.num_layers;
  if (c.attention_scale == 0) c.attention_scale = usual_scale(c.head_dim);
  if (c.num_classes > 0) c.head = Head::kUntied;

  if (c.position == PositionKind::kRope) {
    if (c.rope.rotary_dim == 0) c.rope.rotary_dim = c.head_dim;
    require(c.rope.rotary_dim <= c.head_dim, "[TransformerConfig] rope.rotary_dim is {}; expected at most head_dim, {}", c.rope.rotary_dim, c.head_dim);
    Rope{c.rope};  // its numbers, checked where they are used
  }
  if (std::find(c.windowed.begin(), c.windowed.end(), true) == c.windowed.end()) {
    c.windowed.clear();
  } else {
    require(c.architecture == Architecture::kDecoder, "[TransformerConfig] windowed layers in a model with an encoder; expected a decoder");
    require(static_cast<int64_t>(c.windowed.size()) == c.num_layers, "[TransformerConfig] windowed has {} entries for {} layers", c.windowed.size(), c.num_layers);
    in_range("window", c.window, 1, kMost);
    if (c.position == PositionKind::kRope) {
      if (c.windowed_rope.rotary_dim == 0) c.windowed_rope.rotary_dim = c.head_dim;
      require(c.windowed_rope.rotary_dim <= c.head_dim, "[TransformerConfig] windowed_rope.rotary_dim is {}; expected at most head_dim, {}",
              c.windowed_rope.rotary_dim, c.head_dim);
      Rope{c.windowed_rope};
    }
  }
  if (c.position == PositionKind::kSinusoidal || c.position == PositionKind::kXl)
    require(c.hidden_size % 2 == 0 && c.hidden_size >= 4, "[TransformerConfig] hidden_size is {}; sinusoids need an even number, 4 or more", c.hidden_size);
  if (c.position == PositionKind::kT5) {
    in_range("t5_buckets", c.t5_buckets, 2, 65536);
    t5_bucket(0, c.t5_buckets, c.t5_max_distance, T5Direction::kCausal);
    if (c.architecture != Architecture::kDecoder) t5_bucket(0, c.t5_buckets, c.t5_max_distance, T5Direction::kBidirectional);
  }
  return c;
}

bool is_windowed(const TransformerConfig& config, int64_t layer) { return !config.windowed.empty() && config.windowed[static_cast<size_t>(layer)]; }

ParameterNaming parameter_naming(const TransformerConfig& config) {
  if (config.naming) return *config.naming;
  const TransformerConfig c = completed(config);
  const bool usual = c.architecture == Architecture::kDecoder && c.placement == NormPlacement::kPre && c.mask == Mask::causal() &&
                     c.intermediate_size > 0 && c.num_classes == 0 && c.embedding_scale == 1 && c.head_scale == 1 &&
                     c.attention_scale == usual_scale(c.head_dim) && c.windowed.empty() && !c.query_key_norm && c.norm_gain == NormGain::kStored &&
                     c.attention_softcap == 0 && c.final_softcap == 0;
  if (usual && c.position == PositionKind::kLearned && c.norm == NormKind::kLayer && c.activation == Activation::kGeluTanh &&
      c.feed_forward == FeedForwardKind::kPlain && c.biases == Biases::kAll && c.head == Head::kTied && c.num_kv_heads == c.num_q_heads &&
      c.head_dim * c.num_q_heads == c.hidden_size)
    return ParameterNaming::kGpt2;
  if (usual && c.position == PositionKind::kRope && c.rope.order == RopeOrder::kHalfSplit && c.rope.rotary_dim == c.head_dim &&
      c.rope.scaling == RopeScaling::kNone && c.rope.divisors.empty() && c.norm == NormKind::kRms && c.activation == Activation::kSilu &&
      c.feed_forward == FeedForwardKind::kGated && c.biases == Biases::kNone)
    return ParameterNaming::kLlama;
  return ParameterNaming::kRegard;
}

double operations_per_token(const TransformerConfig& config, int64_t sequence) {
  const TransformerConfig c = completed(config);
  if (c.architecture == Architecture::kEncoderDecoder) return 0;
  const int64_t q = c.num_q_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  const int64_t feed_forward = (c.feed_forward == FeedForwardKind::kGated ? 3 : 2) * c.intermediate_size;
  const int64_t layer = c.hidden_size * (2 * q + 2 * kv + feed_forward);
  const int64_t head = c.hidden_size * (c.num_classes > 0 ? c.num_classes : c.vocab_size);
  const bool causal = c.architecture == Architecture::kDecoder && c.mask == Mask::causal();
  double keys = 0;  // of a query, in all layers together
  for (int64_t i = 0; i < c.num_layers; ++i)
    keys += causal ? mean_keys(sequence, is_windowed(c, i) ? c.window : sequence) : static_cast<double>(sequence);
  // Three products for each weight, and for each pair of query and key two forward and five backward.
  return 6 * static_cast<double>(c.num_layers * layer + head) + 14 * static_cast<double>(q) * keys;
}

}  // namespace regard::nn
