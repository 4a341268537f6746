#include "model/facts_hf.h"

#include "model/limits.h"

namespace regard::model {
namespace {

Result<int64_t> needed(std::string_view name, const std::optional<int64_t>& value, int64_t max) {
  if (!value) return corrupt("[config.json] {} is missing", name);
  if (*value < 1 || *value > max) return corrupt("[config.json] {} is {}; expected 1 to {}", name, *value, max);
  return *value;
}

Result<RopeConfig> rope_from(const HfConfig& config, const HfRope& in) {
  RopeConfig rope;
  rope.theta = in.theta.value_or(10000);
  if (!in.factor && (in.type == "linear" || in.type == "dynamic" || in.type == "yarn" || in.type == "llama3"))
    return corrupt("[config.json] rope type '{}' without a factor", in.type);
  if (in.type == "llama3" && (!in.low_freq_factor || !in.high_freq_factor)) return corrupt("[config.json] rope type 'llama3' without low_freq_factor and high_freq_factor");
  rope.factor = in.factor.value_or(1);
  rope.original_context = in.original_context.value_or(config.original_context.value_or(0));
  if (in.type == "default") {
    rope.scaling = RopeScaling::kNone;
  } else if (in.type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (in.type == "dynamic") {
    rope.scaling = RopeScaling::kDynamic;
  } else if (in.type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.beta_fast = in.beta_fast.value_or(32);
    rope.beta_slow = in.beta_slow.value_or(1);
    rope.ramp = in.truncate.value_or(true) ? RopeConfig::Ramp::kWholeDims : RopeConfig::Ramp::kFractionalDims;
    rope.mscale = in.mscale.value_or(0);
    rope.mscale_all_dim = in.mscale_all_dim.value_or(0);
  } else if (in.type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.low_freq_factor = in.low_freq_factor.value_or(1);
    rope.high_freq_factor = in.high_freq_factor.value_or(4);
  } else if (in.type == "longrope") {
    rope.scaling = RopeScaling::kLongRope;
    rope.short_factors = in.short_factor;
    rope.long_factors = in.long_factor;
    // The factor of the magnitude is how far the context was stretched, unless the file states it.
    if (!in.factor && rope.original_context > 0 && config.context)
      rope.factor = static_cast<double>(*config.context) / static_cast<double>(rope.original_context);
  } else {
    return Failure{Code::kUnsupported, fmt::format("[config.json] rope type '{}' is not implemented", in.type)};
  }
  rope.attention_factor = in.attention_factor.value_or(0);
  return rope;
}

}  // namespace

Result<Facts> facts_from_hf(const HfConfig& c) {
  Facts f;
  f.kind = FileKind::kHuggingFace;
  f.architecture = c.model_type;
  REGARD_TRY(f.num_layers, needed("num_hidden_layers", c.num_layers, kMaxLayers));
  REGARD_TRY(f.hidden_size, needed("hidden_size", c.hidden_size, kMaxWidth));
  REGARD_TRY(f.num_q_heads, needed("num_attention_heads", c.num_q_heads, kMaxHeads));
  REGARD_TRY(f.num_kv_heads, needed("num_key_value_heads", c.num_kv_heads ? c.num_kv_heads : c.num_q_heads, kMaxHeads));
  if (c.ffn_size) {
    REGARD_TRY(f.ffn_size, needed("intermediate_size", c.ffn_size, kMaxWidth));
  }
  REGARD_TRY(f.vocab_size, needed("vocab_size", c.vocab_size, kMaxVocab));
  REGARD_TRY(f.context, needed("max_position_embeddings", c.context, kMaxContext));
  f.head_dim = c.head_dim;
  if (!c.norm_eps) return corrupt("[config.json] rms_norm_eps (or layer_norm_epsilon) is missing");
  f.norm_eps = *c.norm_eps;
  f.activation = c.activation;
  f.tied_embeddings = c.tie_word_embeddings;
  f.qkv_bias = c.attention_bias ? c.attention_bias : c.use_bias;
  f.mlp_bias = c.mlp_bias ? c.mlp_bias : c.use_bias;
  f.query_pre_attn_scalar = c.query_pre_attn_scalar;
  if (!c.scale_attn_weights.value_or(true)) f.query_pre_attn_scalar = 1;
  f.attn_softcap = c.attn_softcap;
  f.final_softcap = c.final_softcap;
  if (c.use_bidirectional_attention.value_or(false))
    return Failure{Code::kUnsupported, "[config.json] use_bidirectional_attention: this model is no causal decoder"};
  if (c.scale_attn_by_layer.value_or(false))
    return Failure{Code::kUnsupported, "[config.json] scale_attn_by_inverse_layer_idx: scales that differ by layer are not implemented"};
  if (c.add_cross_attention.value_or(false))
    return Failure{Code::kUnsupported, "[config.json] add_cross_attention: this model reads another one's output"};

  f.window = c.sliding_window;
  f.use_window = c.use_sliding_window;
  f.max_window_layers = c.max_window_layers;
  f.window_pattern = c.sliding_window_pattern;
  for (const std::string& type : c.layer_types) {
    if (type != "full_attention" && type != "sliding_attention")
      return Failure{Code::kUnsupported, fmt::format("[config.json] layer type '{}' is not implemented", type)};
    f.windowed_layers.push_back(type == "sliding_attention");
  }
  if (!f.windowed_layers.empty() && f.windowed_layers.size() != static_cast<size_t>(f.num_layers))
    return corrupt("[config.json] layer_types has {} entries for {} layers", f.windowed_layers.size(), f.num_layers);

  if (c.rope) {
    REGARD_TRY(f.rope, rope_from(c, *c.rope));
  }
  for (const auto& [type, rope] : c.rope_by_layer_type) {
    if (type == "full_attention") {
      REGARD_TRY(f.rope, rope_from(c, rope));
    } else if (type == "sliding_attention") {
      REGARD_TRY(f.windowed_rope, rope_from(c, rope));
    } else {
      return Failure{Code::kUnsupported, fmt::format("[config.json] rope of layer type '{}' is not implemented", type)};
    }
  }
  f.partial_rotary_factor = c.rope && c.rope->partial_rotary_factor ? c.rope->partial_rotary_factor : c.partial_rotary_factor;
  f.local_rope_theta = c.local_rope_theta;
  for (int64_t id : c.eos_ids) f.eos_ids.push_back(static_cast<int32_t>(id));
  if (c.bos_id) f.bos_id = static_cast<int32_t>(*c.bos_id);
  return f;
}

}  // namespace regard::model
