// Checkpoints of `regard train` whose shape no published family has: model_type "regard". Their config.json has the fields of
// nn::TransformerConfig; the table of their tensors stands with the other families (families.cc).
#pragma once

#include <string_view>

#include "model/facts.h"
#include "model/family.h"

namespace regard::model {

/// Reads the shape. Refused with kCorruptData: missing fields, wrong types, numbers that do not go together; kUnsupported, by
/// name: what a decoder that generates token by token cannot be (encoders, classifiers, masks that show later keys, Transformer-XL).
Result<nn::TransformerConfig> read_trained_shape(std::string_view config_json);

/// What the shape says of itself, as of every other file.
void add_shape(const nn::TransformerConfig& shape, Facts& facts);

/// Family::refine of these checkpoints.
void refine_trained(const Facts& facts, DecoderConfig& config);

}  // namespace regard::model
