// The table of families. Sources: the model cards and configurations of the families, and the naming of GGUF.
#include <cmath>

#include "base/check.h"
#include "model/family.h"
#include "model/trained_shape.h"

namespace regard::model {
namespace {

// The names that nearly all decoder-only families share.
#define REGARD_COMMON_PARTS(qkv_bias, output_bias, mlp_bias)                                                \
  {Part::kEmbedding, "token_embd", "model.embed_tokens"}, {Part::kFinalNorm, "output_norm", "model.norm"},  \
      {Part::kHead, "output", "lm_head"}, {Part::kAttnNorm, "blk.{}.attn_norm", "model.layers.{}.input_layernorm"}, \
      {Part::kQuery, "blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", qkv_bias},                        \
      {Part::kKey, "blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", qkv_bias},                          \
      {Part::kValue, "blk.{}.attn_v", "model.layers.{}.self_attn.v_proj", qkv_bias},                        \
      {Part::kOutput, "blk.{}.attn_output", "model.layers.{}.self_attn.o_proj", output_bias},               \
      {Part::kGate, "blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj", mlp_bias},                          \
      {Part::kUp, "blk.{}.ffn_up", "model.layers.{}.mlp.up_proj", mlp_bias},                                \
      {Part::kDown, "blk.{}.ffn_down", "model.layers.{}.mlp.down_proj", mlp_bias}

// Gemma's norms around the branches.
#define REGARD_GEMMA_NORMS                                                                                     \
  {Part::kPostAttnNorm, "blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},             \
      {Part::kFfnNorm, "blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm"},                        \
      {Part::kPostFfnNorm, "blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"}

// A stack of what `regard train` writes, behind "encoder." or "decoder.".
#define REGARD_TRAINED_STACK(at)                                                                                              \
  {Part::kPositions, "", at "embed_positions"}, {Part::kT5Table, "", at "relative_attention_bias"},                           \
      {Part::kFinalNorm, "", at "norm", Bias::kByFile}, {Part::kAttnNorm, "", at "layers.{}.self_attn_norm", Bias::kByFile},  \
      {Part::kQuery, "", at "layers.{}.self_attn.q_proj", Bias::kByFile},                                                     \
      {Part::kKey, "", at "layers.{}.self_attn.k_proj", Bias::kByFile},                                                       \
      {Part::kValue, "", at "layers.{}.self_attn.v_proj", Bias::kByFile},                                                     \
      {Part::kOutput, "", at "layers.{}.self_attn.o_proj", Bias::kByFile}, {Part::kXlDistances, "", at "layers.{}.self_attn.r_net"}, \
      {Part::kXlContentBias, "", at "layers.{}.self_attn.r_w_bias"}, {Part::kXlPositionBias, "", at "layers.{}.self_attn.r_r_bias"}, \
      {Part::kQueryNorm, "", at "layers.{}.self_attn.q_norm", Bias::kByFile},                                                 \
      {Part::kKeyNorm, "", at "layers.{}.self_attn.k_norm", Bias::kByFile},                                                   \
      {Part::kPostAttnNorm, "", at "layers.{}.self_attn_branch_norm", Bias::kByFile},                                         \
      {Part::kPostFfnNorm, "", at "layers.{}.mlp_branch_norm", Bias::kByFile},                                                \
      {Part::kFfnNorm, "", at "layers.{}.mlp_norm", Bias::kByFile}, {Part::kGate, "", at "layers.{}.mlp.gate_proj", Bias::kByFile},  \
      {Part::kUp, "", at "layers.{}.mlp.up_proj", Bias::kByFile}, {Part::kDown, "", at "layers.{}.mlp.down_proj", Bias::kByFile}

// A stack of T5; `ffn` is the sub-layer that holds the feed-forward half.
#define REGARD_T5_STACK(at, ffn)                                                                                               \
  {Part::kT5Table, "", at "block.0.layer.0.SelfAttention.relative_attention_bias"}, {Part::kFinalNorm, "", at "final_layer_norm"}, \
      {Part::kAttnNorm, "", at "block.{}.layer.0.layer_norm"}, {Part::kQuery, "", at "block.{}.layer.0.SelfAttention.q"},      \
      {Part::kKey, "", at "block.{}.layer.0.SelfAttention.k"}, {Part::kValue, "", at "block.{}.layer.0.SelfAttention.v"},      \
      {Part::kOutput, "", at "block.{}.layer.0.SelfAttention.o"}, {Part::kFfnNorm, "", at "block.{}." ffn "layer_norm"},       \
      {Part::kGate, "", at "block.{}." ffn "DenseReluDense.wi_0"}, {Part::kUp, "", at "block.{}." ffn "DenseReluDense.wi_1"},  \
      {Part::kPlainUp, "", at "block.{}." ffn "DenseReluDense.wi"}, {Part::kDown, "", at "block.{}." ffn "DenseReluDense.wo"}

constexpr PartNames kFfnNormAfterAttention = {Part::kFfnNorm, "blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"};
constexpr PartNames kQueryNorm = {Part::kQueryNorm, "blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"};
constexpr PartNames kKeyNorm = {Part::kKeyNorm, "blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"};

// Mistral 7B v0.1 has a window on every layer; Llama files name none.
void window_everywhere(const Facts& facts, DecoderConfig& config) {
  if (facts.window && facts.windowed_layers.empty()) config.windowed.assign(static_cast<size_t>(config.num_layers), true);
}

// Qwen: the window is off unless use_sliding_window says otherwise, and starts at max_window_layers.
void qwen_window(const Facts& facts, DecoderConfig& config) {
  if (!facts.use_window.value_or(false)) {
    config.windowed.assign(static_cast<size_t>(config.num_layers), false);
  } else if (facts.windowed_layers.empty()) {
    for (int64_t i = 0; i < config.num_layers; ++i)
      config.windowed[static_cast<size_t>(i)] = facts.window.has_value() && i >= facts.max_window_layers.value_or(0);
  }
}

// Gemma 2: every other layer has a window, the first one too; embeddings times sqrt(hidden). Other programs take soft-caps of 50 and 30
// for a file that states none, but such a file may as well mean that it has none.
void gemma2(const Facts& facts, DecoderConfig& config) {
  if (!facts.attn_softcap || !facts.final_softcap)
    fail(Code::kUnsupported, "[Model::load] a gemma2 file without {}; state the soft-cap, which was 50 for scores and 30 for logits in published models",
         facts.attn_softcap ? "final_logit_softcapping" : "attn_logit_softcapping");
  if (facts.windowed_layers.empty())
    for (int64_t i = 0; i < config.num_layers; ++i) config.windowed[static_cast<size_t>(i)] = i % 2 == 0;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  // GGUF has no query_pre_attn_scalar: it is head_dim in every size but 27B (46 layers), where it is hidden / heads.
  if (!facts.query_pre_attn_scalar && config.num_layers == 46)
    config.attention_scale = 1 / std::sqrt(static_cast<float>(config.hidden_size) / static_cast<float>(config.num_q_heads));
}

// Gemma 3: five windowed layers, then one that sees everything; windowed layers turn by a base of their own and are never
// stretched; embeddings times sqrt(hidden). GGUF files store neither the pattern nor the local base.
void gemma3(const Facts& facts, DecoderConfig& config) {
  const int64_t pattern = facts.window_pattern.value_or(6);
  if (facts.windowed_layers.empty())
    for (int64_t i = 0; i < config.num_layers; ++i) config.windowed[static_cast<size_t>(i)] = (i + 1) % pattern != 0;
  if (!facts.windowed_rope) {
    config.windowed_rope = RopeConfig{};
    config.windowed_rope.rotary_dim = config.rope.rotary_dim;
    config.windowed_rope.order = config.rope.order;
    config.windowed_rope.theta = facts.local_rope_theta.value_or(1e4);
  }
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  // GGUF has no query_pre_attn_scalar: it is head_dim in every size but 27B (62 layers), where it is hidden / heads.
  if (!facts.query_pre_attn_scalar && config.num_layers == 62)
    config.attention_scale = 1 / std::sqrt(static_cast<float>(config.hidden_size) / static_cast<float>(config.num_q_heads));
}

std::vector<Family> make_families() {
  std::vector<Family> all;
  all.push_back(Family{
      .name = "llama",
      .gguf_architectures = {"llama"},
      .hf_model_types = {"llama", "mistral"},
      .parts = {REGARD_COMMON_PARTS(Bias::kByFile, Bias::kByFile, Bias::kByFile), kFfnNormAfterAttention,
                {Part::kRopeDivisors, "rope_freqs", ""}},
      .gguf_rope_order = RopeOrder::kInterleaved,
      .refine = window_everywhere,
  });
  all.push_back(Family{
      .name = "qwen2",
      .gguf_architectures = {"qwen2"},
      .hf_model_types = {"qwen2"},
      .parts = {REGARD_COMMON_PARTS(Bias::kAlways, Bias::kNever, Bias::kNever), kFfnNormAfterAttention},
      .refine = qwen_window,
  });
  all.push_back(Family{
      .name = "qwen3",
      .gguf_architectures = {"qwen3"},
      .hf_model_types = {"qwen3"},
      .parts = {REGARD_COMMON_PARTS(Bias::kByFile, Bias::kByFile, Bias::kNever), kFfnNormAfterAttention, kQueryNorm, kKeyNorm},
      .refine = qwen_window,
  });
  all.push_back(Family{
      .name = "gemma2",
      .gguf_architectures = {"gemma2"},
      .hf_model_types = {"gemma2"},
      .parts = {REGARD_COMMON_PARTS(Bias::kByFile, Bias::kByFile, Bias::kNever), REGARD_GEMMA_NORMS},
      .placement = nn::NormPlacement::kSandwich,
      .activation = nn::Activation::kGeluTanh,
      .hf_norm_offset = 1,
      .tied = Family::Tied::kUnlessStated,
      .refine = gemma2,
  });
  all.push_back(Family{
      .name = "gemma3",
      .gguf_architectures = {"gemma3"},
      .hf_model_types = {"gemma3_text"},
      .parts = {REGARD_COMMON_PARTS(Bias::kByFile, Bias::kByFile, Bias::kNever), kQueryNorm, kKeyNorm,
                REGARD_GEMMA_NORMS},
      .placement = nn::NormPlacement::kSandwich,
      .activation = nn::Activation::kGeluTanh,
      .hf_norm_offset = 1,
      .tied = Family::Tied::kUnlessStated,
      .refine = gemma3,
  });
  all.push_back(Family{
      .name = "gpt2",
      .gguf_architectures = {"gpt2"},
      .hf_model_types = {"gpt2"},
      .parts = {{Part::kEmbedding, "token_embd", "transformer.wte"},
                {Part::kPositions, "position_embd", "transformer.wpe"},
                {Part::kFinalNorm, "output_norm", "transformer.ln_f", Bias::kAlways},
                {Part::kHead, "output", "lm_head"},
                {Part::kAttnNorm, "blk.{}.attn_norm", "transformer.h.{}.ln_1", Bias::kAlways},
                {Part::kFused, "blk.{}.attn_qkv", "transformer.h.{}.attn.c_attn", Bias::kAlways, HfLayout::kInOut},
                {Part::kOutput, "blk.{}.attn_output", "transformer.h.{}.attn.c_proj", Bias::kAlways, HfLayout::kInOut},
                {Part::kFfnNorm, "blk.{}.ffn_norm", "transformer.h.{}.ln_2", Bias::kAlways},
                {Part::kUp, "blk.{}.ffn_up", "transformer.h.{}.mlp.c_fc", Bias::kAlways, HfLayout::kInOut},
                {Part::kDown, "blk.{}.ffn_down", "transformer.h.{}.mlp.c_proj", Bias::kAlways, HfLayout::kInOut}},
      .norm = nn::NormKind::kLayer,
      .position = nn::PositionKind::kLearned,
      .activation = nn::Activation::kGeluTanh,
      .ffn_multiple = 4,
      .hf_prefix = "transformer.",
      .tied = Family::Tied::kUnlessStated,
  });
  // What `regard train` writes for every other shape; which of these tensors there are is for the shape to say.
  all.push_back(Family{
      .name = "regard",
      .gguf_architectures = {},
      .hf_model_types = {"regard"},
      .parts = {{Part::kEmbedding, "", "embed_tokens"},
                {Part::kHead, "", "lm_head"},
                {Part::kClassifier, "", "classifier"},
                REGARD_TRAINED_STACK("decoder."),
                {Part::kCrossNorm, "", "decoder.layers.{}.cross_attn_norm", Bias::kByFile},
                {Part::kCrossQuery, "", "decoder.layers.{}.cross_attn.q_proj", Bias::kByFile},
                {Part::kCrossKey, "", "decoder.layers.{}.cross_attn.k_proj", Bias::kByFile},
                {Part::kCrossValue, "", "decoder.layers.{}.cross_attn.v_proj", Bias::kByFile},
                {Part::kCrossOutput, "", "decoder.layers.{}.cross_attn.o_proj", Bias::kByFile}},
      .encoder_parts = {REGARD_TRAINED_STACK("encoder.")},
      .norm = nn::NormKind::kLayer,
      .refine = refine_trained,
  });
  all.push_back(Family{
      .name = "t5",
      .gguf_architectures = {},
      .hf_model_types = {"t5"},
      .parts = {{Part::kEmbedding, "", "shared"},
                {Part::kHead, "", "lm_head"},
                REGARD_T5_STACK("decoder.", "layer.2."),
                {Part::kCrossNorm, "", "decoder.block.{}.layer.1.layer_norm"},
                {Part::kCrossQuery, "", "decoder.block.{}.layer.1.EncDecAttention.q"},
                {Part::kCrossKey, "", "decoder.block.{}.layer.1.EncDecAttention.k"},
                {Part::kCrossValue, "", "decoder.block.{}.layer.1.EncDecAttention.v"},
                {Part::kCrossOutput, "", "decoder.block.{}.layer.1.EncDecAttention.o"}},
      .encoder_parts = {REGARD_T5_STACK("encoder.", "layer.1.")},
      .tied = Family::Tied::kUnlessStated,
      .refine = refine_trained,
  });
  return all;
}

}  // namespace

std::span<const Family> families() {
  static const std::vector<Family> all = make_families();
  return all;
}

}  // namespace regard::model
