// Each field is read from the first of its spellings that the file has, in the ranges of the table below.
#include "format/hf_config.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "format/json_reader.h"
#include "format/names.h"

namespace regard {
namespace {

// What is plausible. Everything later multiplies these numbers in 64 bits, so the products of any of them must fit.
constexpr int64_t kMaxWidth = 1 << 20, kMaxHeads = 4096, kMaxHeadDim = 1024, kMaxLayers = 4096, kMaxVocab = 1'000'000;
constexpr int64_t kMaxContext = std::numeric_limits<int32_t>::max();  // one below 2^31: positions are held in 32 bits by kernels
constexpr double kMinTheta = 1, kMaxTheta = 1e12, kMaxFactor = 1e6, kTiny = std::numeric_limits<double>::min();

using Keys = std::initializer_list<std::string_view>;

/// Reads the first of `keys` that is present and not null.
template <class T, class Read>
Result<Done> read_first(const JsonObject& object, Keys keys, std::optional<T>& out, Read&& read) {
  for (const std::string_view key : keys) {
    const auto value = object.find(key);
    if (!value || value->is_null()) continue;
    REGARD_TRY(out, read(*value));
    break;
  }
  return Done{};
}
Result<Done> integer(const JsonObject& o, Keys keys, std::optional<int64_t>& out, int64_t min, int64_t max) {
  return read_first(o, keys, out, [&](JsonValue v) { return v.as_integer(min, max); });
}
Result<Done> number(const JsonObject& o, Keys keys, std::optional<double>& out, double min, double max) {
  return read_first(o, keys, out, [&](JsonValue v) { return v.as_number(min, max); });
}
Result<Done> boolean(const JsonObject& o, Keys keys, std::optional<bool>& out) {
  return read_first(o, keys, out, [](JsonValue v) { return v.as_bool(); });
}
Result<Done> text(const JsonObject& o, Keys keys, std::optional<std::string>& out) {
  return read_first(o, keys, out, [](JsonValue v) -> Result<std::string> {
    REGARD_TRY(const std::string_view s, v.as_string());
    if (!is_plain_name(s, 256)) return v.refuse("expected a short name");
    return std::string(s);
  });
}

Result<Done> factors(const JsonObject& o, std::string_view key, std::vector<double>& out) {
  REGARD_TRY(const auto list, o.optional_array(key));
  if (!list) return Done{};
  if (list->size() > kMaxHeadDim / 2) return o.find(key)->refuse(fmt::format("{} factors, the limit is {}", list->size(), kMaxHeadDim / 2));
  for (const JsonValue v : *list) {
    REGARD_TRY(const double factor, v.as_number(kTiny, kMaxFactor));
    out.push_back(factor);
  }
  return Done{};
}

/// The members of rope_scaling or of (one layer type's) rope_parameters.
Result<HfRope> read_rope(const JsonObject& o) {
  HfRope rope;
  std::optional<std::string> type;
  REGARD_CHECK(text(o, {"rope_type", "type"}, type));
  if (type) rope.type = *type == "su" ? "longrope" : *type;
  constexpr std::string_view kKnown[] = {"default", "linear", "dynamic", "yarn", "llama3", "longrope"};
  if (std::find(std::begin(kKnown), std::end(kKnown), rope.type) == std::end(kKnown)) {
    Failure refused = o.value().refuse(fmt::format("the rope type \"{}\" is not supported (known: {})", printable(rope.type), fmt::join(kKnown, ", ")));
    refused.code = Code::kUnsupported;
    return refused;
  }
  REGARD_CHECK(number(o, {"rope_theta"}, rope.theta, kMinTheta, kMaxTheta));
  REGARD_CHECK(number(o, {"factor"}, rope.factor, kTiny, kMaxFactor));
  REGARD_CHECK(integer(o, {"original_max_position_embeddings"}, rope.original_context, 1, kMaxContext));
  REGARD_CHECK(number(o, {"low_freq_factor"}, rope.low_freq_factor, kTiny, kMaxFactor));
  REGARD_CHECK(number(o, {"high_freq_factor"}, rope.high_freq_factor, kTiny, kMaxFactor));
  REGARD_CHECK(number(o, {"beta_fast"}, rope.beta_fast, kTiny, kMaxFactor));
  REGARD_CHECK(number(o, {"beta_slow"}, rope.beta_slow, kTiny, kMaxFactor));
  REGARD_CHECK(boolean(o, {"truncate"}, rope.truncate));
  REGARD_CHECK(number(o, {"attention_factor"}, rope.attention_factor, kTiny, kMaxFactor));
  REGARD_CHECK(number(o, {"mscale"}, rope.mscale, 0, kMaxFactor));
  REGARD_CHECK(number(o, {"mscale_all_dim"}, rope.mscale_all_dim, 0, kMaxFactor));
  REGARD_CHECK(factors(o, "short_factor", rope.short_factor));
  REGARD_CHECK(factors(o, "long_factor", rope.long_factor));
  REGARD_CHECK(number(o, {"partial_rotary_factor"}, rope.partial_rotary_factor, kTiny, 1));
  return rope;
}

/// rope_parameters is either one set or one set for each layer type; the sets are objects then, and nothing else is.
Result<bool> is_nested(const JsonObject& parameters) {
  bool objects = false, others = false;
  for (const auto [key, value] : parameters) {
    if (value.is_null()) continue;
    (value.type() == JsonType::kObject ? objects : others) = true;
  }
  if (objects && others) return parameters.value().refuse("parameters stand beside sets of parameters of layer types");
  return objects;
}

/// The theta that stands beside the set belongs to it where the set has none of its own.
Result<Done> fill_theta(const JsonObject& place, std::optional<double> outer, HfRope& rope) {
  if (outer && rope.theta && *outer != *rope.theta)
    return place.value().refuse(fmt::format("rope_theta is {} here and {} beside it", *rope.theta, *outer));
  if (!rope.theta) rope.theta = outer;
  return Done{};
}

Result<Done> read_ropes(const JsonObject& o, HfConfig& config) {
  std::optional<double> theta;
  REGARD_CHECK(number(o, {"rope_theta", "rotary_emb_base"}, theta, kMinTheta, kMaxTheta));
  REGARD_TRY(const auto scaling, o.optional_object("rope_scaling"));
  REGARD_TRY(const auto parameters, o.optional_object("rope_parameters"));
  REGARD_CHECK(number(o, {"rope_local_base_freq"}, config.local_rope_theta, kMinTheta, kMaxTheta));
  REGARD_CHECK(number(o, {"partial_rotary_factor", "rotary_pct"}, config.partial_rotary_factor, kTiny, 1));

  std::optional<HfRope> older;
  if (scaling) {
    REGARD_TRY(older, read_rope(*scaling));
    REGARD_CHECK(fill_theta(*scaling, theta, *older));
  } else if (theta) {
    older = HfRope{};
    older->theta = theta;
  }
  if (!parameters) {
    config.rope = older;
    return Done{};
  }
  REGARD_TRY(const bool nested, is_nested(*parameters));
  if (!nested) {
    REGARD_TRY(HfRope rope, read_rope(*parameters));
    REGARD_CHECK(fill_theta(*parameters, theta, rope));
    if (scaling && !(rope == *older)) return parameters->value().refuse("says something else than rope_scaling beside it");
    config.rope = std::move(rope);
    return Done{};
  }
  if (scaling) return parameters->value().refuse("sets of layer types cannot stand beside rope_scaling");
  for (const auto [key, value] : *parameters) {
    if (value.is_null()) continue;
    if (!is_plain_name(key, 64)) return value.refuse("no name of a layer type");
    REGARD_TRY(const JsonObject set, value.as_object());
    REGARD_TRY(HfRope rope, read_rope(set));
    config.rope_by_layer_type.emplace_back(key, std::move(rope));
  }
  return Done{};
}

/// One id or a list of them; -1 is how some files write "none".
Result<std::vector<int64_t>> read_ids(const JsonObject& o, std::string_view key) {
  std::vector<int64_t> ids;
  const auto value = o.find(key);
  if (!value || value->is_null()) return ids;
  const auto add = [&](JsonValue v) -> Result<Done> {
    REGARD_TRY(const int64_t id, v.as_integer(-1, kMaxVocab - 1));
    if (id >= 0) ids.push_back(id);
    return Done{};
  };
  if (value->type() != JsonType::kArray) {
    REGARD_CHECK(add(*value));
    return ids;
  }
  REGARD_TRY(const JsonArray list, value->as_array());
  constexpr size_t kMaxIds = 1024;
  if (list.size() > kMaxIds) return value->refuse(fmt::format("{} ids, the limit is {}", list.size(), kMaxIds));
  for (const JsonValue v : list) REGARD_CHECK(add(v));
  return ids;
}

Result<std::optional<int64_t>> read_id(const JsonObject& o, std::string_view key) {
  REGARD_TRY(const auto ids, read_ids(o, key));
  if (ids.size() > 1) return o.find(key)->refuse("expected one id");
  return ids.empty() ? std::optional<int64_t>() : ids[0];
}

Result<Done> read_sizes(const JsonObject& o, HfConfig& c) {
  REGARD_CHECK(integer(o, {"hidden_size", "n_embd", "d_model"}, c.hidden_size, 1, kMaxWidth));
  REGARD_CHECK(integer(o, {"num_hidden_layers", "n_layer", "num_layers"}, c.num_layers, 1, kMaxLayers));
  REGARD_CHECK(integer(o, {"num_attention_heads", "n_head", "num_heads"}, c.num_q_heads, 1, kMaxHeads));
  REGARD_CHECK(integer(o, {"num_key_value_heads"}, c.num_kv_heads, 1, kMaxHeads));
  REGARD_CHECK(integer(o, {"head_dim", "d_kv"}, c.head_dim, 1, kMaxHeadDim));
  REGARD_CHECK(integer(o, {"intermediate_size", "n_inner", "d_ff"}, c.ffn_size, 0, 16 * kMaxWidth));  // 0: attention alone
  REGARD_CHECK(integer(o, {"vocab_size"}, c.vocab_size, 1, kMaxVocab));
  REGARD_CHECK(integer(o, {"max_position_embeddings", "n_positions", "n_ctx"}, c.context, 1, kMaxContext));
  REGARD_CHECK(integer(o, {"original_max_position_embeddings"}, c.original_context, 1, kMaxContext));

  if (c.num_q_heads && c.num_kv_heads && *c.num_q_heads % *c.num_kv_heads != 0) {
    return o.find("num_key_value_heads")->refuse(
        fmt::format("{} query heads cannot be shared out among {} key-value heads", *c.num_q_heads, *c.num_kv_heads));
  }
  if (c.hidden_size && c.num_q_heads && !c.head_dim && *c.hidden_size % *c.num_q_heads != 0) {
    return o.value().refuse(fmt::format("head_dim is not given, and a hidden size of {} does not divide into {} heads", *c.hidden_size, *c.num_q_heads));
  }
  return Done{};
}

Result<Done> read_attention(const JsonObject& o, HfConfig& c) {
  REGARD_CHECK(number(o, {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"}, c.norm_eps, kTiny, 0.1));
  REGARD_CHECK(text(o, {"hidden_activation", "hidden_act", "activation_function"}, c.activation));
  REGARD_CHECK(boolean(o, {"attention_bias"}, c.attention_bias));
  REGARD_CHECK(boolean(o, {"mlp_bias"}, c.mlp_bias));
  REGARD_CHECK(boolean(o, {"use_bias"}, c.use_bias));
  REGARD_CHECK(boolean(o, {"scale_attn_weights"}, c.scale_attn_weights));
  REGARD_CHECK(boolean(o, {"scale_attn_by_inverse_layer_idx"}, c.scale_attn_by_layer));
  REGARD_CHECK(boolean(o, {"add_cross_attention"}, c.add_cross_attention));
  REGARD_CHECK(number(o, {"query_pre_attn_scalar"}, c.query_pre_attn_scalar, kTiny, 1e6));
  REGARD_CHECK(number(o, {"attn_logit_softcapping"}, c.attn_softcap, kTiny, 1e6));
  REGARD_CHECK(number(o, {"final_logit_softcapping"}, c.final_softcap, kTiny, 1e6));
  REGARD_CHECK(integer(o, {"sliding_window"}, c.sliding_window, 1, kMaxContext));
  REGARD_CHECK(boolean(o, {"use_sliding_window"}, c.use_sliding_window));
  REGARD_CHECK(integer(o, {"max_window_layers"}, c.max_window_layers, 0, kMaxLayers));
  REGARD_CHECK(integer(o, {"sliding_window_pattern", "_sliding_window_pattern"}, c.sliding_window_pattern, 1, kMaxLayers));
  REGARD_CHECK(boolean(o, {"use_bidirectional_attention"}, c.use_bidirectional_attention));

  REGARD_TRY(const auto types, o.optional_array("layer_types"));
  if (!types) return Done{};
  if (types->size() > kMaxLayers || (c.num_layers && types->size() != static_cast<size_t>(*c.num_layers)))
    return o.find("layer_types")->refuse(fmt::format("{} types for {} layers", types->size(), c.num_layers.value_or(0)));
  for (const JsonValue v : *types) {
    REGARD_TRY(const std::string_view type, v.as_string());
    if (!is_plain_name(type, 64)) return v.refuse("no name of a layer type");
    c.layer_types.emplace_back(type);
  }
  return Done{};
}

/// Special ids lie inside the vocabulary, so that none of them can index past the embedding.
Result<Done> check_ids(const JsonObject& o, const HfConfig& c) {
  if (!c.vocab_size) return Done{};
  const auto check = [&](std::string_view what, int64_t id) -> Result<Done> {
    if (id >= *c.vocab_size) return o.value().refuse(fmt::format("the {} id {} lies outside the vocabulary of {}", what, id, *c.vocab_size));
    return Done{};
  };
  if (c.bos_id) REGARD_CHECK(check("bos", *c.bos_id));
  if (c.pad_id) REGARD_CHECK(check("pad", *c.pad_id));
  for (const int64_t id : c.eos_ids) REGARD_CHECK(check("eos", id));
  return Done{};
}

}  // namespace

Result<HfConfig> read_hf_config(std::string_view config, std::string_view generation) {
  REGARD_TRY(const JsonDocument document, JsonDocument::parse(config, "config.json"));
  REGARD_TRY(const JsonObject root, document.root().as_object());
  // Files that describe several models (text and vision) keep the text part to itself.
  REGARD_TRY(const auto nested, root.optional_object("text_config"));
  const JsonObject o = nested.value_or(root);

  if (const auto quantised = root.find("quantization_config"); quantised && !quantised->is_null()) {
    Failure refused = quantised->refuse("checkpoints with quantised tensors are not supported; take the original one, or a GGUF file");
    refused.code = Code::kUnsupported;
    return refused;
  }

  HfConfig c;
  std::optional<std::string> type;
  REGARD_CHECK(text(o, {"model_type"}, type));
  if (!type) return o.value().refuse("the key \"model_type\" is missing: it says which family the model belongs to");
  c.model_type = *std::move(type);
  REGARD_TRY(const auto architectures, root.optional_array("architectures"));
  if (architectures) {
    for (const JsonValue v : *architectures) {
      REGARD_TRY(const std::string_view name, v.as_string());
      c.architectures.emplace_back(name);
    }
  }
  // What may stand beside text_config instead of inside it.
  for (const JsonObject& place : {o, root}) {
    if (!c.dtype) REGARD_CHECK(text(place, {"dtype", "torch_dtype"}, c.dtype));
    if (!c.tie_word_embeddings) REGARD_CHECK(boolean(place, {"tie_word_embeddings"}, c.tie_word_embeddings));
    if (!c.bos_id) { REGARD_TRY(c.bos_id, read_id(place, "bos_token_id")); }
    if (!c.pad_id) { REGARD_TRY(c.pad_id, read_id(place, "pad_token_id")); }
    if (c.eos_ids.empty()) { REGARD_TRY(c.eos_ids, read_ids(place, "eos_token_id")); }
  }
  REGARD_CHECK(read_sizes(o, c));
  REGARD_CHECK(read_attention(o, c));
  REGARD_CHECK(read_ropes(o, c));

  if (!generation.empty()) {
    REGARD_TRY(const JsonDocument generation_document, JsonDocument::parse(generation, "generation_config.json"));
    REGARD_TRY(const JsonObject g, generation_document.root().as_object());
    REGARD_TRY(auto eos, read_ids(g, "eos_token_id"));
    if (!eos.empty()) c.eos_ids = std::move(eos);
    REGARD_TRY(const auto bos, read_id(g, "bos_token_id"));
    if (!c.bos_id) c.bos_id = bos;
  }
  REGARD_CHECK(check_ids(o, c));
  return c;
}

}  // namespace regard
