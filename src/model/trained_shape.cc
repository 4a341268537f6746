#include "model/trained_shape.h"

#include <array>
#include <charconv>
#include <string>
#include <utility>

#include "base/check.h"
#include "format/json_reader.h"
#include "model/limits.h"
#include "regard/mask_proof.h"

namespace regard::model {
namespace {

template <class T>
using Names = std::initializer_list<std::pair<std::string_view, T>>;

// One of some names, as what it stands for.
template <class T>
Result<T> choice(const JsonObject& o, std::string_view key, Names<T> names) {
  REGARD_TRY(const JsonValue value, o.get(key));
  REGARD_TRY(const std::string_view given, value.as_string());
  std::string known;
  for (const auto& [name, meaning] : names) {
    if (name == given) return meaning;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return value.refuse(fmt::format("expected one of {}", known));
}

Result<int64_t> integer(const JsonObject& o, std::string_view key, int64_t min, int64_t max) {
  REGARD_TRY(const JsonValue value, o.get(key));
  return value.as_integer(min, max);
}

Result<double> number(const JsonObject& o, std::string_view key, double min, double max) {
  REGARD_TRY(const JsonValue value, o.get(key));
  return value.as_number(min, max);
}

Result<bool> flag(const JsonObject& o, std::string_view key) {
  REGARD_TRY(const JsonValue value, o.get(key));
  return value.as_bool();
}

Result<Mask> mask_field(const JsonObject& o, std::string_view key) {
  constexpr size_t kMaxText = 1 << 16;
  REGARD_TRY(const JsonValue value, o.get(key));
  REGARD_TRY(const std::string_view text, value.as_string());
  if (text.size() > kMaxText) return value.refuse(fmt::format("{} characters, the limit is {}", text.size(), kMaxText));
  try {
    return Mask::parse(text);
  } catch (const Error& error) {
    return value.refuse(error.what());
  }
}

// The mask of the decoder. Tokens come one by one, so a query sees only what is there already: a mask that shows more than that
// means another model than the one that was trained.
Result<Mask> causal_mask(const JsonObject& o, int64_t heads) {
  REGARD_TRY(const JsonValue value, o.get("mask"));
  REGARD_TRY(const Mask mask, mask_field(o, "mask"));
  try {
    ProofBounds bounds;
    bounds.num_q_heads = heads;
    const Proof proof = prove(mask, MaskProperty::parse("causal"), bounds);
    if (proof.verdict == Verdict::kProved) return mask;
    const std::string why = proof.verdict == Verdict::kNotDecided
                                ? "it cannot be shown that this mask hides later keys; expected a causal one"
                                : fmt::format("query {} sees key {}; generating token by token takes a causal mask", proof.counter_example->q.value_or(0),
                                              proof.counter_example->k.value_or(0));
    return unsupported(o, "mask", why);
  } catch (const Error& error) {
    return value.refuse(error.what());
  }
}

}  // namespace

Failure unsupported(const JsonObject& o, std::string_view key, std::string_view why) {
  const auto value = o.find(key);
  Failure refused = (value ? *value : o.value()).refuse(why);
  refused.code = Code::kUnsupported;
  return refused;
}

Result<nn::TransformerConfig> read_trained_shape(std::string_view config_json) {
  REGARD_TRY(const JsonDocument document, JsonDocument::parse(config_json, "config.json"));
  REGARD_TRY(const JsonObject o, document.root().as_object());
  nn::TransformerConfig c;
  REGARD_TRY(c.architecture, (choice<nn::Architecture>(o, "architecture", {{"decoder", nn::Architecture::kDecoder},
                                                                          {"encoder", nn::Architecture::kEncoder},
                                                                          {"encoder_decoder", nn::Architecture::kEncoderDecoder}})));
  REGARD_TRY(c.num_classes, integer(o, "num_classes", 0, kMaxVocab));
  if (c.num_classes > 0 && c.architecture == nn::Architecture::kEncoderDecoder)
    return unsupported(o, "num_classes", "an encoder-decoder that tells classes apart is not implemented; expected a decoder or an encoder");
  REGARD_TRY(c.vocab_size, integer(o, "vocab_size", 1, kMaxVocab));
  REGARD_TRY(c.hidden_size, integer(o, "hidden_size", 1, kMaxWidth));
  REGARD_TRY(c.num_layers, integer(o, "num_layers", 1, kMaxLayers));
  REGARD_TRY(c.num_q_heads, integer(o, "num_q_heads", 1, kMaxHeads));
  REGARD_TRY(c.num_kv_heads, integer(o, "num_kv_heads", 1, kMaxHeads));
  REGARD_TRY(c.head_dim, integer(o, "head_dim", 1, kMaxHeadDim));
  REGARD_TRY(c.intermediate_size, integer(o, "intermediate_size", 0, kMaxWidth));
  REGARD_TRY(c.max_positions, integer(o, "max_positions", 1, kMaxContext));
  REGARD_TRY(c.activation, (choice<nn::Activation>(o, "activation", {{"gelu_new", nn::Activation::kGeluTanh},
                                                                    {"gelu", nn::Activation::kGeluErf},
                                                                    {"silu", nn::Activation::kSilu},
                                                                    {"relu", nn::Activation::kRelu}})));
  REGARD_TRY(const bool gated, flag(o, "gated"));
  c.feed_forward = gated ? nn::FeedForwardKind::kGated : nn::FeedForwardKind::kPlain;
  REGARD_TRY(c.norm, (choice<nn::NormKind>(o, "norm", {{"layer_norm", nn::NormKind::kLayer}, {"rms_norm", nn::NormKind::kRms}})));
  REGARD_TRY(c.norm_eps, number(o, "norm_eps", 1e-30, 1));
  REGARD_TRY(c.placement, (choice<nn::NormPlacement>(o, "placement", {{"pre", nn::NormPlacement::kPre}, {"post", nn::NormPlacement::kPost},
                                                                      {"sandwich", nn::NormPlacement::kSandwich}})));
  REGARD_TRY(c.position, (choice<nn::PositionKind>(o, "position", {{"none", nn::PositionKind::kNone},
                                                                  {"learned", nn::PositionKind::kLearned},
                                                                  {"sinusoidal", nn::PositionKind::kSinusoidal},
                                                                  {"rope", nn::PositionKind::kRope},
                                                                  {"alibi", nn::PositionKind::kAlibi},
                                                                  {"t5", nn::PositionKind::kT5},
                                                                  {"xl", nn::PositionKind::kXl}})));
  REGARD_TRY(c.rope.theta, number(o, "rope_theta", 1e-3, 1e30));
  REGARD_TRY(c.t5_buckets, integer(o, "t5_buckets", 2, 65536));
  REGARD_TRY(c.t5_max_distance, integer(o, "t5_max_distance", 1, int64_t{1} << 20));
  REGARD_TRY(c.attention_scale, number(o, "attention_scale", -1e6, 1e6));
  REGARD_TRY(c.embedding_scale, number(o, "embedding_scale", -1e6, 1e6));
  // Younger than the format: a checkpoint without these has none.
  if (o.find("query_key_norm")) {
    REGARD_TRY(c.query_key_norm, flag(o, "query_key_norm"));
  }
  for (const auto& [key, cap] : {std::pair{"attention_softcap", &c.attention_softcap}, std::pair{"final_softcap", &c.final_softcap}})
    if (o.find(key)) {
      REGARD_TRY(*cap, number(o, key, 0, 1e6));
    }
  if (o.find("head_scale")) {
    REGARD_TRY(c.head_scale, number(o, "head_scale", -1e6, 1e6));
  }
  REGARD_TRY(const bool biases, flag(o, "biases"));
  c.biases = biases ? nn::Biases::kAll : nn::Biases::kNone;
  REGARD_TRY(const bool tied, flag(o, "tied"));
  c.head = tied ? nn::Head::kTied : nn::Head::kUntied;
  if (c.architecture == nn::Architecture::kEncoderDecoder) {
    REGARD_TRY(c.num_encoder_layers, integer(o, "num_encoder_layers", 1, kMaxLayers));
  }
  if (c.architecture != nn::Architecture::kDecoder) {
    REGARD_TRY(c.encoder_mask, mask_field(o, "encoder_mask"));
  }
  if (c.architecture != nn::Architecture::kEncoder) {
    REGARD_TRY(c.mask, causal_mask(o, c.num_q_heads));
  }
  try {
    return nn::completed(c);
  } catch (const Error& error) {
    return o.value().refuse(error.what());
  }
}

Result<std::vector<std::string>> read_class_names(std::string_view config_json, int64_t num_classes) {
  REGARD_TRY(const JsonDocument document, JsonDocument::parse(config_json, "config.json"));
  REGARD_TRY(const JsonObject o, document.root().as_object());
  const auto given = o.find("id2label");
  if (num_classes == 0 || !given || given->is_null()) return std::vector<std::string>();
  REGARD_TRY(const JsonObject table, given->as_object());
  if (static_cast<int64_t>(table.size()) != num_classes) return given->refuse(fmt::format("{} names for {} classes", table.size(), num_classes));
  std::vector<std::string> names(table.size());
  std::vector<bool> named(table.size());
  for (const auto& [key, value] : table) {
    size_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id >= names.size() || named[id])
      return value.refuse(fmt::format("expected each number from 0 to {} once", num_classes - 1));
    REGARD_TRY(const std::string_view name, value.as_string());
    names[id] = name;
    named[id] = true;
  }
  return names;
}

void add_shape(const nn::TransformerConfig& shape, Facts& facts) {
  facts.num_layers = shape.num_layers;
  facts.hidden_size = shape.hidden_size;
  facts.num_q_heads = shape.num_q_heads;
  facts.num_kv_heads = shape.num_kv_heads;
  facts.head_dim = shape.head_dim;
  facts.ffn_size = shape.intermediate_size;
  facts.vocab_size = shape.vocab_size;
  facts.context = shape.max_positions;
  facts.norm_eps = shape.norm_eps;
  facts.tied_embeddings = shape.head == nn::Head::kTied;
  facts.qkv_bias = facts.mlp_bias = shape.biases == nn::Biases::kAll;
  facts.rope = shape.rope;
  facts.shape = shape;
}

void refine_trained(const Facts& facts, DecoderConfig& config) {
  const nn::TransformerConfig& shape = *facts.shape;
  config.norm = shape.norm;
  config.placement = shape.placement;
  config.query_key_norm = shape.query_key_norm;
  config.attention_softcap = static_cast<float>(shape.attention_softcap);
  config.final_softcap = static_cast<float>(shape.final_softcap);
  config.activation = shape.activation;
  config.feed_forward = shape.feed_forward;
  const bool encoder = shape.architecture == nn::Architecture::kEncoder;
  config.num_classes = shape.num_classes;
  config.mask = encoder ? shape.encoder_mask : shape.mask;
  config.t5_direction = encoder ? T5Direction::kBidirectional : T5Direction::kCausal;
  config.cross_attention = shape.architecture == nn::Architecture::kEncoderDecoder;
  config.head_scale = static_cast<float>(shape.head_scale);
  config.sinusoidal = shape.sinusoidal;
  config.t5_buckets = shape.t5_buckets;
  config.t5_max_distance = shape.t5_max_distance;
  config.attention_scale = static_cast<float>(shape.attention_scale);
  config.embedding_scale = static_cast<float>(shape.embedding_scale);
}

DecoderConfig encoder_config(const nn::TransformerConfig& shape, const DecoderConfig& decoder) {
  DecoderConfig encoder = decoder;
  encoder.num_layers = shape.num_encoder_layers;
  encoder.windowed.assign(static_cast<size_t>(encoder.num_layers), false);
  encoder.mask = shape.encoder_mask;
  encoder.t5_direction = T5Direction::kBidirectional;
  encoder.cross_attention = false;
  encoder.cache_type = DType::kF32;  // nothing of its own is kept
  return encoder;
}

}  // namespace regard::model
