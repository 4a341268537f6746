#include "nn/training/parameter_names.h"

#include <fmt/format.h>

namespace regard::nn::training {
namespace {

BlockNames gpt2_names(int64_t layer) {
  const std::string at = fmt::format("transformer.h.{}.", layer);
  BlockNames names;
  names.self_norm = at + "ln_1";
  names.self.fused = at + "attn.c_attn";
  names.self.output = at + "attn.c_proj";
  names.feed_forward_norm = at + "ln_2";
  names.feed_forward.up = at + "mlp.c_fc";
  names.feed_forward.down = at + "mlp.c_proj";
  names.layout = WeightLayout::kInOut;
  return names;
}

AttentionNames attention_names(const std::string& at) { return {{}, at + "q_proj", at + "k_proj", at + "v_proj", at + "o_proj", {}, {}, {}, {}, {}}; }

void name_query_key_norms(const std::string& at, AttentionNames& names) {
  names.query_norm = at + "q_norm";
  names.key_norm = at + "k_norm";
}

FeedForwardNames feed_forward_names(const std::string& at, FeedForwardKind kind) {
  return {kind == FeedForwardKind::kGated ? at + "gate_proj" : "", at + "up_proj", at + "down_proj"};
}

// With norms on both sides of a branch the names are Gemma's, where post_attention_layernorm is behind the branch.
BlockNames llama_names(const TransformerConfig& config, int64_t layer) {
  const std::string at = fmt::format("model.layers.{}.", layer);
  BlockNames names;
  names.self_norm = at + "input_layernorm";
  names.self = attention_names(at + "self_attn.");
  if (config.query_key_norm) name_query_key_norms(at + "self_attn.", names.self);
  const bool sandwich = config.placement == NormPlacement::kSandwich;
  names.feed_forward_norm = at + (sandwich ? "pre_feedforward_layernorm" : "post_attention_layernorm");
  if (sandwich) {
    names.self_branch_norm = at + "post_attention_layernorm";
    names.feed_forward_branch_norm = at + "post_feedforward_layernorm";
  }
  names.feed_forward = feed_forward_names(at + "mlp.", FeedForwardKind::kGated);
  return names;
}

std::string stack_prefix(StackKind kind) { return kind == StackKind::kEncoder ? "encoder." : "decoder."; }

}  // namespace

StackNames stack_names(const TransformerConfig& config, StackKind kind) {
  switch (parameter_naming(config)) {
    case ParameterNaming::kGpt2: return {"transformer.wpe.weight", {}, "transformer.ln_f"};
    case ParameterNaming::kLlama: return {{}, {}, "model.norm"};
    case ParameterNaming::kRegard: break;
  }
  const std::string at = stack_prefix(kind);
  return {at + "embed_positions.weight", at + "relative_attention_bias.weight", at + "norm"};
}

BlockNames block_names(const TransformerConfig& config, StackKind kind, int64_t layer) {
  switch (parameter_naming(config)) {
    case ParameterNaming::kGpt2: return gpt2_names(layer);
    case ParameterNaming::kLlama: return llama_names(config, layer);
    case ParameterNaming::kRegard: break;
  }
  const std::string at = fmt::format("{}layers.{}.", stack_prefix(kind), layer);
  BlockNames names;
  names.self_norm = at + "self_attn_norm";
  names.self = attention_names(at + "self_attn.");
  if (config.query_key_norm) name_query_key_norms(at + "self_attn.", names.self);
  if (config.placement == NormPlacement::kSandwich) names.self_branch_norm = at + "self_attn_branch_norm";
  if (config.position == PositionKind::kXl) {
    names.self.relative = at + "self_attn.r_net";
    names.self.content_bias = at + "self_attn.r_w_bias";
    names.self.position_bias = at + "self_attn.r_r_bias";
  }
  if (kind == StackKind::kDecoder && config.architecture == Architecture::kEncoderDecoder) {
    names.cross_norm = at + "cross_attn_norm";
    names.cross = attention_names(at + "cross_attn.");
  }
  if (config.intermediate_size > 0) {
    names.feed_forward_norm = at + "mlp_norm";
    if (config.placement == NormPlacement::kSandwich) names.feed_forward_branch_norm = at + "mlp_branch_norm";
    names.feed_forward = feed_forward_names(at + "mlp.", config.feed_forward);
  }
  return names;
}

std::string embedding_name(const TransformerConfig& config) {
  switch (parameter_naming(config)) {
    case ParameterNaming::kGpt2: return "transformer.wte.weight";
    case ParameterNaming::kLlama: return "model.embed_tokens.weight";
    case ParameterNaming::kRegard: break;
  }
  return "embed_tokens.weight";
}

std::string head_name(const TransformerConfig& config) { return config.num_classes > 0 ? "classifier" : "lm_head"; }

}  // namespace regard::nn::training
