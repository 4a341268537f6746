#include "model/t5_shape.h"

#include <cmath>

#include "base/check.h"
#include "format/json_reader.h"
#include "model/limits.h"
#include "model/trained_shape.h"

namespace regard::model {
namespace {

// T5 has no longest text; this is what the published ones were trained with.
constexpr int64_t kUsualContext = 512;

Result<int64_t> integer(const JsonObject& o, std::string_view key, int64_t max) {
  REGARD_TRY(const JsonValue value, o.get(key));
  return value.as_integer(1, max);
}

Result<nn::TransformerConfig> read_shape(const JsonObject& o) {
  nn::TransformerConfig c;
  c.architecture = nn::Architecture::kEncoderDecoder;
  REGARD_TRY(c.vocab_size, integer(o, "vocab_size", kMaxVocab));
  REGARD_TRY(c.hidden_size, integer(o, "d_model", kMaxWidth));
  REGARD_TRY(c.num_encoder_layers, integer(o, "num_layers", kMaxLayers));
  REGARD_TRY(const auto layers, o.optional_integer("num_decoder_layers", 1, kMaxLayers));
  c.num_layers = layers.value_or(c.num_encoder_layers);
  REGARD_TRY(c.num_q_heads, integer(o, "num_heads", kMaxHeads));
  REGARD_TRY(c.head_dim, integer(o, "d_kv", kMaxHeadDim));
  REGARD_TRY(c.intermediate_size, integer(o, "d_ff", kMaxWidth));
  REGARD_TRY(const auto context, o.optional_integer("n_positions", 1, kMaxContext));
  c.max_positions = context.value_or(kUsualContext);
  REGARD_TRY(c.t5_buckets, integer(o, "relative_attention_num_buckets", 65536));
  REGARD_TRY(const auto distance, o.optional_integer("relative_attention_max_distance", 1, int64_t{1} << 20));
  c.t5_max_distance = distance.value_or(128);
  REGARD_TRY(const auto eps, o.optional_number("layer_norm_epsilon", 1e-30, 1));
  c.norm_eps = eps.value_or(1e-6);
  REGARD_TRY(const auto feed_forward, o.optional_string("feed_forward_proj"));
  if (feed_forward.value_or("relu") == "relu") {
    c.activation = nn::Activation::kRelu;
  } else if (*feed_forward == "gated-gelu") {
    c.activation = nn::Activation::kGeluTanh;
    c.feed_forward = nn::FeedForwardKind::kGated;
  } else {
    return unsupported(o, "feed_forward_proj", "this feed-forward is not implemented; expected relu or gated-gelu");
  }
  REGARD_TRY(const auto has_both, o.optional_bool("is_encoder_decoder"));
  if (!has_both.value_or(true)) return unsupported(o, "is_encoder_decoder", "one half of a T5 cannot be run alone");
  REGARD_TRY(const auto tied, o.optional_bool("tie_word_embeddings"));
  c.head = tied.value_or(true) ? nn::Head::kTied : nn::Head::kUntied;
  // A tied head reads its input divided by sqrt(d_model). Files of transformers 5 say that they are tied in any case, and scale_decoder_outputs
  // says whether they really are; a head of its own is in the file then.
  REGARD_TRY(const auto scaled, o.optional_bool("scale_decoder_outputs"));
  if (scaled.value_or(c.head == nn::Head::kTied)) c.head_scale = static_cast<double>(1 / std::sqrt(static_cast<float>(c.hidden_size)));
  c.norm = nn::NormKind::kRms;
  c.position = nn::PositionKind::kT5;
  c.biases = nn::Biases::kNone;
  c.attention_scale = 1;
  try {
    return nn::completed(c);
  } catch (const Error& error) {
    return o.value().refuse(error.what());
  }
}

}  // namespace

Result<Done> add_t5(std::string_view config_json, Facts& facts) {
  REGARD_TRY(const JsonDocument document, JsonDocument::parse(config_json, "config.json"));
  REGARD_TRY(const JsonObject o, document.root().as_object());
  REGARD_TRY(const nn::TransformerConfig shape, read_shape(o));
  add_shape(shape, facts);
  if (shape.head == nn::Head::kTied && shape.head_scale == 1) facts.tied_embeddings.reset();
  REGARD_TRY(const auto start, o.optional_integer("decoder_start_token_id", 0, shape.vocab_size - 1));
  REGARD_TRY(const auto padding, o.optional_integer("pad_token_id", 0, shape.vocab_size - 1));
  if (start) facts.decoder_start = static_cast<int32_t>(*start);
  else if (padding) facts.decoder_start = static_cast<int32_t>(*padding);
  return Done{};
}

}  // namespace regard::model
