// Checkpoints of `regard train` whose shape no published family has: model_type "regard". Their config.json has the fields of
// nn::TransformerConfig; the table of their tensors stands with the other families (families.cc).
#pragma once

#include <string_view>

#include "format/json_reader.h"
#include "model/facts.h"
#include "model/family.h"

namespace regard::model {

/// Reads the shape. Refused with kCorruptData: missing fields, wrong types, numbers that do not go together; kUnsupported, by
/// name: a decoder whose mask shows later keys, which cannot write token by token, and an encoder-decoder that tells classes apart.
Result<nn::TransformerConfig> read_trained_shape(std::string_view config_json);

/// What Hugging Face's id2label calls the classes, by their numbers; empty where the file has none. Refused with kCorruptData: other numbers
/// than 0 to num_classes - 1, or not all of them.
Result<std::vector<std::string>> read_class_names(std::string_view config_json, int64_t num_classes);

/// Refuses the value of `key`, or the object where it has none, as valid but not implemented: kUnsupported.
Failure unsupported(const JsonObject& o, std::string_view key, std::string_view why);

/// What the shape says of itself, as of every other file.
void add_shape(const nn::TransformerConfig& shape, Facts& facts);

/// Family::refine of files with a shape; of an encoder-decoder the decoder.
void refine_trained(const Facts& facts, DecoderConfig& config);

/// The encoder that belongs to the decoder of an encoder-decoder.
DecoderConfig encoder_config(const nn::TransformerConfig& shape, const DecoderConfig& decoder);

}  // namespace regard::model
