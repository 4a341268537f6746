#include "model/convert_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "format/gguf_writer.h"
#include "regard/json.h"

namespace regard::model {
namespace {

std::string_view activation_name(nn::Activation activation) {
  switch (activation) {
    case nn::Activation::kSilu: return "silu";
    case nn::Activation::kGeluErf: return "gelu";
    case nn::Activation::kGeluTanh: return "gelu_pytorch_tanh";
    case nn::Activation::kRelu: break;
  }
  return "relu";
}

bool is_windowed(const DecoderConfig& c) { return std::find(c.windowed.begin(), c.windowed.end(), true) != c.windowed.end(); }

[[noreturn]] void refuse_scaling(std::string_view name) {
  fail(Code::kUnsupported, "[convert] rotary scaling '{}': the other format has no form for it that both sides read alike", name);
}

void write_rope(JsonWriter& json, const RopeConfig& rope) {
  json.begin_object().member("rope_theta", rope.theta);
  switch (rope.scaling) {
    case RopeScaling::kNone: json.member("rope_type", "default"); break;
    case RopeScaling::kLinear: json.member("rope_type", "linear").member("factor", rope.factor); break;
    case RopeScaling::kYarn:
      json.member("rope_type", "yarn").member("factor", rope.factor).member("original_max_position_embeddings", rope.original_context);
      json.member("beta_fast", rope.beta_fast).member("beta_slow", rope.beta_slow);
      if (rope.ramp == RopeConfig::Ramp::kFractionalDims) json.member("truncate", false);
      if (rope.mscale != 0) json.member("mscale", rope.mscale);
      if (rope.mscale_all_dim != 0) json.member("mscale_all_dim", rope.mscale_all_dim);
      break;
    case RopeScaling::kLlama3:
      json.member("rope_type", "llama3").member("factor", rope.factor).member("original_max_position_embeddings", rope.original_context);
      json.member("low_freq_factor", rope.low_freq_factor).member("high_freq_factor", rope.high_freq_factor);
      break;
    case RopeScaling::kDynamic:
      json.member("rope_type", "dynamic").member("factor", rope.factor).member("original_max_position_embeddings", rope.original_context);
      break;
    case RopeScaling::kLongRope:
      json.member("rope_type", "longrope").member("factor", rope.factor).member("original_max_position_embeddings", rope.original_context);
      for (const auto& [name, factors] : {std::pair{"short_factor", &rope.short_factors}, std::pair{"long_factor", &rope.long_factors}}) {
        json.key(name).begin_array();
        for (const double f : *factors) json.value(f);
        json.end();
      }
      break;
  }
  if (rope.attention_factor != 0) json.member("attention_factor", rope.attention_factor);
  json.end();
}

void write_ids(JsonWriter& json, const Facts& facts) {
  json.key("bos_token_id");
  if (facts.bos_id) json.value(*facts.bos_id);
  else json.null();
  json.key("eos_token_id");
  if (facts.eos_ids.empty()) {
    json.null();
  } else if (facts.eos_ids.size() == 1) {
    json.value(facts.eos_ids[0]);
  } else {
    json.begin_array();
    for (const int32_t id : facts.eos_ids) json.value(id);
    json.end();
  }
}

void write_gpt2(JsonWriter& json, const DecoderConfig& c) {
  json.key("architectures").begin_array().value("GPT2LMHeadModel").end().member("model_type", "gpt2");
  json.member("vocab_size", c.vocab_size).member("n_positions", c.context).member("n_embd", c.hidden_size).member("n_layer", c.num_layers);
  json.member("n_head", c.num_q_heads).member("n_inner", c.ffn_size).member("layer_norm_epsilon", c.norm_eps);
  json.member("activation_function", c.activation == nn::Activation::kGeluTanh ? "gelu_new" : activation_name(c.activation));
}

void write_others(JsonWriter& json, const Family& family, const Facts& facts, const DecoderConfig& c) {
  const bool windowed = is_windowed(c);
  // A window makes a llama shape a Mistral: other programs ignore it in a llama.
  const std::string_view type = family.name == "llama" && windowed ? "mistral" : family.hf_model_types.front();
  const std::pair<std::string_view, std::string_view> classes[] = {{"llama", "LlamaForCausalLM"},  {"mistral", "MistralForCausalLM"},
                                                                   {"qwen2", "Qwen2ForCausalLM"},  {"qwen3", "Qwen3ForCausalLM"},
                                                                   {"gemma2", "Gemma2ForCausalLM"}, {"gemma3_text", "Gemma3ForCausalLM"}};
  for (const auto& [name, architecture] : classes)
    if (name == type) json.key("architectures").begin_array().value(architecture).end();
  json.member("model_type", type).member("vocab_size", c.vocab_size).member("hidden_size", c.hidden_size).member("intermediate_size", c.ffn_size);
  json.member("num_hidden_layers", c.num_layers).member("num_attention_heads", c.num_q_heads).member("num_key_value_heads", c.num_kv_heads);
  json.member("head_dim", c.head_dim).member("max_position_embeddings", c.context).member("rms_norm_eps", c.norm_eps);
  const bool gemma = family.name == "gemma2" || family.name == "gemma3";
  json.member(gemma ? "hidden_activation" : "hidden_act", activation_name(c.activation));
  if (family.name == "llama") {
    json.member("attention_bias", facts.qkv_bias.value_or(false)).member("mlp_bias", facts.mlp_bias.value_or(false));
  } else if (gemma) {
    // Other programs take a whole number alone; expect_same() notices where it is none.
    json.member("query_pre_attn_scalar", static_cast<int64_t>(std::lround(1 / (c.attention_scale * c.attention_scale))));
    json.key("layer_types").begin_array();
    for (const bool w : c.windowed) json.value(w ? "sliding_attention" : "full_attention");
    json.end();
  } else {
    json.member("use_sliding_window", windowed);
    // Its first layers see everything, as many as this says.
    if (windowed) json.member("max_window_layers", std::find(c.windowed.begin(), c.windowed.end(), true) - c.windowed.begin());
  }
  if (c.attention_softcap > 0) json.member("attn_logit_softcapping", c.attention_softcap);
  if (c.final_softcap > 0) json.member("final_logit_softcapping", c.final_softcap);
  if (windowed) json.member("sliding_window", c.window);
  json.key("rope_parameters");
  if (family.name != "gemma3") return write_rope(json, c.rope);
  json.begin_object().key("full_attention");
  write_rope(json, c.rope);
  json.key("sliding_attention");
  write_rope(json, c.windowed_rope);
  json.end();
}

// The frequencies that a rotary embedding comes to, and what it multiplies cosines with.
bool same_rope(RopeConfig a, RopeConfig b, int64_t context) {
  a.declared_length = b.declared_length = context;
  const Rope x(a), y(b);
  const auto near = [](double p, double q) { return std::fabs(p - q) <= 1e-6 * std::fabs(p); };
  return std::equal(x.frequencies().begin(), x.frequencies().end(), y.frequencies().begin(), y.frequencies().end(), near) &&
         near(x.magnitude(), y.magnitude());
}

// Which tokens begin and end a text, stand for unknown text and pad; no name where there is none.
std::string tokenizer_config(int64_t context, const std::array<std::string, 4>& names) {
  JsonWriter json;
  json.begin_object().member("tokenizer_class", "PreTrainedTokenizerFast").member("model_max_length", context);
  json.member("clean_up_tokenization_spaces", false);  // which would take spaces before punctuation away
  constexpr std::string_view kKeys[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
  for (size_t i = 0; i < names.size(); ++i)
    if (!names[i].empty()) json.member(kKeys[i], names[i]);
  return json.end().finish(JsonStyle::kIndented) + "\n";
}

}  // namespace

std::vector<float> rope_divisors(const RopeConfig& rope) {
  if (rope.scaling != RopeScaling::kLlama3) return {};
  RopeConfig plain = rope;
  plain.scaling = RopeScaling::kNone;
  const Rope scaled(rope), unscaled(plain);
  std::vector<float> divisors;
  for (size_t i = 0; i < scaled.frequencies().size(); ++i) divisors.push_back(static_cast<float>(unscaled.frequencies()[i] / scaled.frequencies()[i]));
  return divisors;
}

GgufMetadata gguf_metadata(const Family& family, const Facts& facts, const DecoderConfig& c, const std::string& name) {
  GgufMetadata m("the new file");
  const std::string_view arch = family.gguf_architectures.front();
  const auto put = [&](std::string_view key, auto value) { m.insert(fmt::format("{}.{}", arch, key), gguf_value(value)); };
  const auto count = [&](std::string_view key, int64_t value) { put(key, static_cast<uint32_t>(value)); };
  m.insert("general.architecture", gguf_value(arch));
  m.insert("general.name", gguf_value(std::string_view(facts.name.empty() ? name : facts.name)));
  m.insert("general.quantization_version", gguf_value(uint32_t{2}));
  count("block_count", c.num_layers);
  count("context_length", c.context);
  count("embedding_length", c.hidden_size);
  count("feed_forward_length", c.ffn_size);
  count("attention.head_count", c.num_q_heads);
  count("attention.head_count_kv", c.num_kv_heads);
  if (c.head_dim * c.num_q_heads != c.hidden_size || facts.head_dim) {
    count("attention.key_length", c.head_dim);
    count("attention.value_length", c.head_dim);
  }
  put(c.norm == nn::NormKind::kRms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", c.norm_eps);
  if (c.attention_softcap > 0) put("attn_logit_softcapping", c.attention_softcap);
  if (c.final_softcap > 0) put("final_logit_softcapping", c.final_softcap);
  if (is_windowed(c)) count("attention.sliding_window", c.window);
  if (c.position != nn::PositionKind::kRope) return m;
  count("rope.dimension_count", c.rope.rotary_dim);
  put("rope.freq_base", static_cast<float>(c.rope.theta));
  switch (c.rope.scaling) {
    case RopeScaling::kNone:
    case RopeScaling::kLlama3: break;  // the latter in a tensor
    case RopeScaling::kYarn:
      put("rope.scaling.type", std::string_view("yarn"));
      put("rope.scaling.factor", static_cast<float>(c.rope.factor));
      count("rope.scaling.original_context_length", c.rope.original_context);
      put("rope.scaling.yarn_beta_fast", static_cast<float>(c.rope.beta_fast));
      put("rope.scaling.yarn_beta_slow", static_cast<float>(c.rope.beta_slow));
      break;
    case RopeScaling::kLinear:
      put("rope.scaling.type", std::string_view("linear"));
      put("rope.scaling.factor", static_cast<float>(c.rope.factor));
      break;
    case RopeScaling::kDynamic: refuse_scaling("dynamic");
    case RopeScaling::kLongRope: refuse_scaling("longrope");
  }
  return m;
}

std::string hf_config_json(const Family& family, const Facts& facts, const DecoderConfig& config, std::string_view dtype) {
  JsonWriter json;
  json.begin_object();
  if (family.name == "gpt2") write_gpt2(json, config);
  else write_others(json, family, facts, config);
  write_ids(json, facts);
  json.member("tie_word_embeddings", config.tied_embeddings).member("torch_dtype", dtype);
  return json.end().finish(JsonStyle::kIndented) + "\n";
}

std::string tokenizer_config_json(const TokenizerSpec& spec, int64_t context) {
  const auto name = [&](const std::optional<int32_t>& id) { return id ? spec.pieces[static_cast<size_t>(*id)] : std::string(); };
  return tokenizer_config(context, {name(spec.bos), name(spec.eos), name(spec.unk), name(spec.pad)});
}

std::string tokenizer_config_json(const Tokenizer& tokenizer, int64_t context) {
  const auto name = [&](const std::optional<int32_t>& id) { return id ? tokenizer.token_text(*id) : std::string(); };
  return tokenizer_config(context, {name(tokenizer.bos()), name(tokenizer.eos()), name(tokenizer.unk()), name(tokenizer.pad())});
}

void expect_same(const DecoderConfig& a, const DecoderConfig& b) {
  const auto same = [](std::string_view field, const auto& x, const auto& y) {
    if (!(x == y)) fail(Code::kUnsupported, "[convert] {} is {} here, and the other format would say {}", field, x, y);
  };
  const auto near = [](std::string_view field, float x, float y) {
    if (std::fabs(x - y) > 1e-6f * std::fabs(x)) fail(Code::kUnsupported, "[convert] {} is {} here, and the other format would say {}", field, x, y);
  };
  same("the number of layers", a.num_layers, b.num_layers);
  same("hidden_size", a.hidden_size, b.hidden_size);
  same("the number of query heads", a.num_q_heads, b.num_q_heads);
  same("the number of key heads", a.num_kv_heads, b.num_kv_heads);
  same("head_dim", a.head_dim, b.head_dim);
  same("the feed-forward size", a.ffn_size, b.ffn_size);
  same("the context", a.context, b.context);
  near("the epsilon of norms", a.norm_eps, b.norm_eps);
  same("the activation", activation_name(a.activation), activation_name(b.activation));
  near("the scale of scores (query_pre_attn_scalar)", a.attention_scale, b.attention_scale);
  near("attn_logit_softcapping", a.attention_softcap, b.attention_softcap);
  near("final_logit_softcapping", a.final_softcap, b.final_softcap);
  for (size_t i = 0; i < a.windowed.size(); ++i)
    same(fmt::format("whether layer {} has a window", i), static_cast<bool>(a.windowed[i]), static_cast<bool>(b.windowed[i]));
  if (is_windowed(a)) same("the window", a.window, b.window);
  if (a.position != nn::PositionKind::kRope) return;
  const bool full = std::find(a.windowed.begin(), a.windowed.end(), false) != a.windowed.end();
  if (full && !same_rope(a.rope, b.rope, a.context)) fail(Code::kUnsupported, "[convert] the rotary embedding cannot be said in the other format");
  if (is_windowed(a) && !same_rope(a.windowed_rope, b.windowed_rope, a.context))
    fail(Code::kUnsupported, "[convert] the rotary embedding of windowed layers cannot be said in the other format");
}

}  // namespace regard::model
