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

// A block is a list of sub-layers: self-attention, in a decoder the look at the encoder, the feed-forward half; each has its norm.
BlockNames t5_names(const TransformerConfig& config, const std::string& stack, StackKind kind, int64_t layer) {
  const auto sub_layer = [&](int i) { return fmt::format("{}block.{}.layer.{}.", stack, layer, i); };
  const auto attention = [](const std::string& at) { return AttentionNames{{}, at + "q", at + "k", at + "v", at + "o", {}, {}, {}, {}, {}}; };
  BlockNames names;
  names.self_norm = sub_layer(0) + "layer_norm";
  names.self = attention(sub_layer(0) + "SelfAttention.");
  if (kind == StackKind::kDecoder) {
    names.cross_norm = sub_layer(1) + "layer_norm";
    names.cross = attention(sub_layer(1) + "EncDecAttention.");
  }
  if (config.intermediate_size == 0) return names;
  const std::string at = sub_layer(kind == StackKind::kDecoder ? 2 : 1), dense = at + "DenseReluDense.";
  names.feed_forward_norm = at + "layer_norm";
  const bool gated = config.feed_forward == FeedForwardKind::kGated;
  names.feed_forward = {gated ? dense + "wi_0" : "", dense + (gated ? "wi_1" : "wi"), dense + "wo"};
  return names;
}

std::string stack_prefix(StackKind kind) { return kind == StackKind::kEncoder ? "encoder." : "decoder."; }

}  // namespace

StackNames stack_names(const TransformerConfig& config, StackKind kind) {
  switch (parameter_naming(config)) {
    case ParameterNaming::kGpt2: return {"transformer.wpe.weight", {}, "transformer.ln_f"};
    case ParameterNaming::kLlama: return {{}, {}, "model.norm"};
    case ParameterNaming::kT5:
    case ParameterNaming::kRegard: break;
  }
  const std::string at = stack_prefix(kind);
  if (parameter_naming(config) == ParameterNaming::kT5)
    return {{}, at + "block.0.layer.0.SelfAttention.relative_attention_bias.weight", at + "final_layer_norm"};
  return {at + "embed_positions.weight", at + "relative_attention_bias.weight", at + "norm"};
}

BlockNames block_names(const TransformerConfig& config, StackKind kind, int64_t layer) {
  switch (parameter_naming(config)) {
    case ParameterNaming::kGpt2: return gpt2_names(layer);
    case ParameterNaming::kLlama: return llama_names(config, layer);
    case ParameterNaming::kT5: return t5_names(config, stack_prefix(kind), kind, layer);
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
    case ParameterNaming::kT5: return "shared.weight";
    case ParameterNaming::kRegard: break;
  }
  return "embed_tokens.weight";
}

std::string head_name(const TransformerConfig& config) { return config.num_classes > 0 ? "classifier" : "lm_head"; }

}  // namespace regard::nn::training
