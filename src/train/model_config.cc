#include "train/model_config.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "mask/plan.h"
#include "regard/json.h"
#include "train/inner_message.h"

namespace regard::train_loop {
namespace {

using Model = TrainConfig::Model;

// What "of_type" means. A model that is free in everything begins with the choices of GPT-2.
struct TypeChoices {
  Model::Position position;
  Model::Norm norm;
  Model::Activation activation;
  Model::Switch gated, biases, tied;
};

TypeChoices choices_of(Model::Type type) {
  if (type == Model::Type::kLlama) {
    return {Model::Position::kRope, Model::Norm::kRmsNorm, Model::Activation::kSilu, Model::Switch::kOn, Model::Switch::kOff, Model::Switch::kOff};
  }
  return {Model::Position::kLearned, Model::Norm::kLayerNorm, Model::Activation::kGeluTanh, Model::Switch::kOff, Model::Switch::kOn, Model::Switch::kOn};
}

// Replaces kOfType by the choice of the type. `fixed`: another choice would make it another family.
enum class Freedom { kFixed, kFree };
template <class T>
T resolved(std::string_view field, T given, T of_type, const Model& model, Freedom freedom) {
  if (given == T::kOfType) return of_type;
  if (given != of_type && freedom == Freedom::kFixed && model.type != Model::Type::kRegard) {
    fail(Code::kInvalidArgument, "[train] model.{} is not what a {} has; leave it out, or set model.type to regard", field,
         model.type == Model::Type::kGpt2 ? "gpt2" : "llama");
  }
  return given;
}

TypeChoices resolve(const Model& model) {
  const TypeChoices usual = choices_of(model.type);
  const auto freedom_of_tied = model.type == Model::Type::kLlama ? Freedom::kFree : Freedom::kFixed;
  return {resolved("position", model.position, usual.position, model, Freedom::kFixed),
          resolved("norm", model.norm, usual.norm, model, Freedom::kFixed),
          resolved("activation", model.activation, usual.activation, model, Freedom::kFixed),
          resolved("gated", model.gated, usual.gated, model, Freedom::kFixed),
          resolved("biases", model.biases, usual.biases, model, Freedom::kFixed),
          resolved("tied", model.tied, usual.tied, model, freedom_of_tied)};
}

nn::PositionKind position_of(Model::Position position) {
  switch (position) {
    case Model::Position::kLearned: return nn::PositionKind::kLearned;
    case Model::Position::kSinusoidal: return nn::PositionKind::kSinusoidal;
    case Model::Position::kRope: return nn::PositionKind::kRope;
    case Model::Position::kAlibi: return nn::PositionKind::kAlibi;
    case Model::Position::kT5: return nn::PositionKind::kT5;
    case Model::Position::kXl: return nn::PositionKind::kXl;
    case Model::Position::kNone:
    case Model::Position::kOfType: break;
  }
  return nn::PositionKind::kNone;
}

nn::NormPlacement placement_of(Model::Placement placement) {
  switch (placement) {
    case Model::Placement::kPost: return nn::NormPlacement::kPost;
    case Model::Placement::kSandwich: return nn::NormPlacement::kSandwich;
    case Model::Placement::kPre: break;
  }
  return nn::NormPlacement::kPre;
}

nn::Activation activation_of(Model::Activation activation) {
  switch (activation) {
    case Model::Activation::kSilu: return nn::Activation::kSilu;
    case Model::Activation::kGeluErf: return nn::Activation::kGeluErf;
    case Model::Activation::kRelu: return nn::Activation::kRelu;
    case Model::Activation::kGeluTanh:
    case Model::Activation::kOfType: break;
  }
  return nn::Activation::kGeluTanh;
}

nn::Architecture architecture_of(Model::Architecture architecture) {
  switch (architecture) {
    case Model::Architecture::kEncoder: return nn::Architecture::kEncoder;
    case Model::Architecture::kEncoderDecoder: return nn::Architecture::kEncoderDecoder;
    case Model::Architecture::kDecoder: break;
  }
  return nn::Architecture::kDecoder;
}

// A gated feed-forward has three matrices where a plain one has two, so two thirds of the width make the same number of
// weights; rounded up to whole vectors. Shazeer, 2020, section 3.
int64_t usual_intermediate(int64_t hidden, bool gated) {
  constexpr int64_t kVector = 16;
  return gated ? (hidden * 8 / 3 + kVector - 1) / kVector * kVector : 4 * hidden;
}

std::string_view position_name(nn::PositionKind position) {
  switch (position) {
    case nn::PositionKind::kLearned: return "learned";
    case nn::PositionKind::kSinusoidal: return "sinusoidal";
    case nn::PositionKind::kRope: return "rope";
    case nn::PositionKind::kAlibi: return "alibi";
    case nn::PositionKind::kT5: return "t5";
    case nn::PositionKind::kXl: return "xl";
    case nn::PositionKind::kNone: break;
  }
  return "none";
}

std::string_view placement_name(nn::NormPlacement placement) {
  switch (placement) {
    case nn::NormPlacement::kPost: return "post";
    case nn::NormPlacement::kSandwich: return "sandwich";
    case nn::NormPlacement::kPre: break;
  }
  return "pre";
}

std::string_view activation_name(nn::Activation activation) {
  switch (activation) {
    case nn::Activation::kSilu: return "silu";
    case nn::Activation::kGeluErf: return "gelu";
    case nn::Activation::kRelu: return "relu";
    case nn::Activation::kGeluTanh: break;
  }
  return "gelu_new";  // the name that Hugging Face has for the form with tanh
}

std::string_view architecture_name(nn::Architecture architecture) {
  switch (architecture) {
    case nn::Architecture::kEncoder: return "encoder";
    case nn::Architecture::kEncoderDecoder: return "encoder_decoder";
    case nn::Architecture::kDecoder: break;
  }
  return "decoder";
}

void write_gpt2(JsonWriter& json, const nn::TransformerConfig& c) {
  json.key("architectures").begin_array().value("GPT2LMHeadModel").end().member("model_type", "gpt2");
  json.member("vocab_size", c.vocab_size).member("n_positions", c.max_positions).member("n_ctx", c.max_positions);
  json.member("n_embd", c.hidden_size).member("n_layer", c.num_layers).member("n_head", c.num_q_heads).member("n_inner", c.intermediate_size);
  json.member("activation_function", "gelu_new").member("layer_norm_epsilon", c.norm_eps).member("initializer_range", c.init_std);
  json.member("embd_pdrop", c.embedding_dropout).member("resid_pdrop", c.residual_dropout).member("attn_pdrop", c.attention_dropout);
  json.member("tie_word_embeddings", true);
}

void write_llama(JsonWriter& json, const nn::TransformerConfig& c) {
  json.key("architectures").begin_array().value("LlamaForCausalLM").end().member("model_type", "llama");
  json.member("vocab_size", c.vocab_size).member("max_position_embeddings", c.max_positions).member("hidden_size", c.hidden_size);
  json.member("intermediate_size", c.intermediate_size).member("num_hidden_layers", c.num_layers).member("num_attention_heads", c.num_q_heads);
  json.member("num_key_value_heads", c.num_kv_heads).member("head_dim", c.head_dim).member("hidden_act", "silu");
  json.member("rms_norm_eps", c.norm_eps).member("rope_theta", c.rope.theta).key("rope_scaling").null();
  json.member("attention_bias", false).member("mlp_bias", false).member("attention_dropout", c.attention_dropout);
  json.member("initializer_range", c.init_std).member("tie_word_embeddings", c.head == nn::Head::kTied);
}

// Version 1.0 is plain and its head the embedding, version 1.1 gated and its head another matrix; transformers tells by tie_word_embeddings alone
// whether the head's input is scaled, until version 5, which has a field of its own for that.
void write_t5(JsonWriter& json, const nn::TransformerConfig& c, const SpecialIds& special) {
  json.key("architectures").begin_array().value("T5ForConditionalGeneration").end().member("model_type", "t5").member("is_encoder_decoder", true);
  json.member("vocab_size", c.vocab_size).member("n_positions", c.max_positions).member("d_model", c.hidden_size).member("d_kv", c.head_dim);
  json.member("d_ff", c.intermediate_size).member("num_layers", c.num_encoder_layers).member("num_decoder_layers", c.num_layers);
  json.member("num_heads", c.num_q_heads).member("relative_attention_num_buckets", c.t5_buckets);
  json.member("relative_attention_max_distance", c.t5_max_distance).member("layer_norm_epsilon", c.norm_eps);
  json.member("feed_forward_proj", c.feed_forward == nn::FeedForwardKind::kGated ? "gated-gelu" : "relu");
  json.member("dropout_rate", c.residual_dropout).member("tie_word_embeddings", c.head == nn::Head::kTied);
  json.member("scale_decoder_outputs", c.head_scale != 1);
  if (special.begin) json.member("decoder_start_token_id", *special.begin);
  if (special.padding) json.member("pad_token_id", *special.padding);
}

void write_regard(JsonWriter& json, const nn::TransformerConfig& c) {
  json.member("model_type", "regard").member("architecture", architecture_name(c.architecture));
  json.member("vocab_size", c.vocab_size).member("hidden_size", c.hidden_size).member("num_layers", c.num_layers);
  json.member("num_encoder_layers", c.num_encoder_layers).member("num_q_heads", c.num_q_heads).member("num_kv_heads", c.num_kv_heads);
  json.member("head_dim", c.head_dim).member("intermediate_size", c.intermediate_size).member("max_positions", c.max_positions);
  json.member("activation", activation_name(c.activation)).member("gated", c.feed_forward == nn::FeedForwardKind::kGated);
  json.member("norm", c.norm == nn::NormKind::kLayer ? "layer_norm" : "rms_norm").member("norm_eps", c.norm_eps);
  json.member("placement", placement_name(c.placement)).member("query_key_norm", c.query_key_norm).member("position", position_name(c.position));
  json.member("rope_theta", c.rope.theta).member("t5_buckets", c.t5_buckets).member("t5_max_distance", c.t5_max_distance);
  json.member("mask", c.mask.text()).member("encoder_mask", c.encoder_mask.text());
  json.member("attention_scale", c.attention_scale).member("embedding_scale", c.embedding_scale).member("head_scale", c.head_scale);
  json.member("attention_softcap", c.attention_softcap).member("final_softcap", c.final_softcap);
  json.member("biases", c.biases == nn::Biases::kAll).member("tied", c.head == nn::Head::kTied).member("num_classes", c.num_classes);
  json.member("embedding_dropout", c.embedding_dropout).member("residual_dropout", c.residual_dropout);
  json.member("attention_dropout", c.attention_dropout);
}

Mask parse_mask(const std::string& text) {
  try {
    return Mask::parse(text);
  } catch (const Error& error) {
    fail(error.code(), "[train] model.mask: {}", inner_message(error.what()));
  }
}

// A configuration has other names for some fields of a Transformer; who wrote it knows only those.
std::string in_words_of_fields(std::string message) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"[TransformerConfig]", "[train]"},
                                                                      {"num_encoder_layers", "model.encoder_layers"},
                                                                      {"num_layers", "model.layers"},
                                                                      {"num_q_heads", "model.heads"},
                                                                      {"num_kv_heads", "model.kv_heads"},
                                                                      {"head_dim", "model.head_size"},
                                                                      {"rotary_dim", "model.head_size"},
                                                                      {"hidden_size", "model.hidden_size"},
                                                                      {"vocab_size", "model.vocab_size"},
                                                                      {"intermediate_size", "model.intermediate_size"},
                                                                      {"max_positions", "model.max_positions"},
                                                                      {"placement is", "model.placement is"},
                                                                      {"attention_softcap", "model.attention_softcap"},
                                                                      {"final_softcap", "model.final_softcap"}};
  for (const auto& [theirs, ours] : kNames) {
    for (size_t at = message.find(theirs); at != std::string::npos; at = message.find(theirs, at + ours.size())) message.replace(at, theirs.size(), ours);
  }
  return message;
}

}  // namespace

nn::Recompute recompute_of(TrainConfig::Model::Recompute recompute) {
  switch (recompute) {
    case Model::Recompute::kNone: return nn::Recompute::kNone;
    case Model::Recompute::kFull: return nn::Recompute::kFull;
    case Model::Recompute::kCheap: break;
  }
  return nn::Recompute::kCheap;
}

nn::training::GemmPrecision precision_of(TrainConfig::Run::Precision precision) {
  return precision == TrainConfig::Run::Precision::kBf16 ? nn::training::GemmPrecision::kBF16 : nn::training::GemmPrecision::kF32;
}

nn::TransformerConfig transformer_config(const TrainConfig& config, int64_t vocab_size, int64_t num_classes) {
  const Model& m = config.model;
  if (m.type != Model::Type::kRegard) {
    const auto refuse = [](std::string_view field, std::string_view has) {
      fail(Code::kInvalidArgument, "[train] model.{} is not what a model of that type has, {}; set model.type to regard", field, has);
    };
    if (num_classes > 0) fail(Code::kInvalidArgument, "[train] data.objective is class, and models of that type predict tokens; set model.type to regard");
    if (m.architecture != Model::Architecture::kDecoder) refuse("architecture", "decoder");
    if (m.placement != Model::Placement::kPre) refuse("placement", "pre");
    if (m.query_key_norm != Model::QueryKeyNorm::kOff) refuse("query_key_norm", "off");
    if (m.attention_softcap != 0) refuse("attention_softcap", "0");
    if (m.final_softcap != 0) refuse("final_softcap", "0");
    if (m.intermediate_size == 0) refuse("intermediate_size", "which is not 0");
    if (m.embedding_scale != 1) refuse("embedding_scale", "1");
    if (!m.mask.empty() && parse_mask(m.mask) != Mask::causal()) refuse("mask", "causal");
    if (m.type == Model::Type::kGpt2 && m.kv_heads != 0 && m.kv_heads != m.heads) refuse("kv_heads", "as many as heads");
    if (m.type == Model::Type::kGpt2 && m.head_size != 0 && m.head_size * m.heads != m.hidden_size) refuse("head_size", "hidden_size / heads");
  }
  const TypeChoices choices = resolve(m);
  nn::TransformerConfig t;
  t.architecture = architecture_of(m.architecture);
  t.vocab_size = vocab_size;
  t.num_classes = num_classes;
  t.hidden_size = m.hidden_size;
  t.num_layers = m.layers;
  t.num_encoder_layers = m.architecture == Model::Architecture::kEncoderDecoder ? m.encoder_layers : 0;
  t.num_q_heads = m.heads;
  t.num_kv_heads = m.kv_heads;
  t.head_dim = m.head_size;
  const bool gated = choices.gated == Model::Switch::kOn;
  t.intermediate_size = m.intermediate_size < 0 ? usual_intermediate(m.hidden_size, gated) : m.intermediate_size;
  t.max_positions = m.max_positions > 0 ? m.max_positions : config.run.sequence;
  if (t.max_positions < config.run.sequence) {
    fail(Code::kInvalidArgument, "[train] model.max_positions is {}, but run.sequence is {}; expected at least as many", t.max_positions, config.run.sequence);
  }
  t.activation = activation_of(choices.activation);
  t.feed_forward = gated ? nn::FeedForwardKind::kGated : nn::FeedForwardKind::kPlain;
  t.norm = choices.norm == Model::Norm::kRmsNorm ? nn::NormKind::kRms : nn::NormKind::kLayer;
  t.norm_eps = m.norm_epsilon;
  t.placement = placement_of(m.placement);
  t.query_key_norm = m.query_key_norm == Model::QueryKeyNorm::kOn;
  t.position = position_of(choices.position);
  t.rope.theta = m.rope_theta;
  if (!m.mask.empty()) (m.architecture == Model::Architecture::kEncoder ? t.encoder_mask : t.mask) = parse_mask(m.mask);
  t.embedding_scale = m.embedding_scale;
  t.attention_softcap = m.attention_softcap;
  t.final_softcap = m.final_softcap;
  t.biases = choices.biases == Model::Switch::kOn ? nn::Biases::kAll : nn::Biases::kNone;
  t.head = choices.tied == Model::Switch::kOn ? nn::Head::kTied : nn::Head::kUntied;
  t.embedding_dropout = m.embedding_dropout;
  t.residual_dropout = m.residual_dropout;
  t.attention_dropout = m.attention_dropout;
  t.label_smoothing = m.label_smoothing;
  t.z_loss = m.z_loss;
  t.init_std = m.initializer_std;
  t.recompute = recompute_of(m.recompute);
  t.precision = precision_of(config.run.precision);
  try {
    t = nn::completed(t);
  } catch (const Error& error) {
    throw_error(error.code(), in_words_of_fields(error.what()));
  }
  if (!m.mask.empty()) {
    try {  // lists of a length for each sequence, a mask for each head
      const int64_t at_once = config.run.micro_batch > 0 ? config.run.micro_batch : config.run.batch;
      MaskPlan(m.architecture == Model::Architecture::kEncoder ? t.encoder_mask : t.mask, {}, at_once, t.num_q_heads);
    } catch (const Error& error) {
      fail(error.code(), "[train] model.mask: {}", inner_message(error.what()));
    }
  }
  return t;
}

std::string model_config_json(const nn::TransformerConfig& config, const SpecialIds& special, TrainConfig::Run::SaveAs weights,
                              const std::vector<std::string>& class_names) {
  JsonWriter json;
  json.begin_object();
  switch (nn::parameter_naming(config)) {
    case nn::ParameterNaming::kGpt2: write_gpt2(json, config); break;
    case nn::ParameterNaming::kLlama: write_llama(json, config); break;
    case nn::ParameterNaming::kT5: write_t5(json, config, special); break;
    case nn::ParameterNaming::kRegard: write_regard(json, config); break;
  }
  const auto id = [&json](std::string_view key, const std::optional<int32_t>& value) {
    json.key(key);
    if (value) json.value(*value);
    else json.null();
  };
  id("bos_token_id", special.begin);
  id("eos_token_id", special.end);
  if (!class_names.empty()) {
    json.key("id2label").begin_object();
    for (size_t i = 0; i < class_names.size(); ++i) json.member(fmt::format("{}", i), class_names[i]);
    json.end().key("label2id").begin_object();
    for (size_t i = 0; i < class_names.size(); ++i) json.member(class_names[i], static_cast<int64_t>(i));
    json.end();
  }
  return json.member("torch_dtype", weights == TrainConfig::Run::SaveAs::kBf16 ? "bfloat16" : "float32").end().finish(JsonStyle::kIndented) + "\n";
}

}  // namespace regard::train_loop
