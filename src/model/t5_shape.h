// T5 as Hugging Face has it (model_type "t5"): an encoder-decoder whose positions are biases by distance and whose scores are not
// scaled. Raffel et al., 2020, "Exploring the limits of transfer learning with a unified text-to-text transformer", section 2.1.
#pragma once

#include <string_view>

#include "model/facts.h"

namespace regard::model {

/// Adds what config.json says to the facts: as a shape, as of what is trained here. Refused with kCorruptData: missing fields, wrong types,
/// numbers that do not go together; kUnsupported: a feed-forward that is neither "relu" nor "gated-gelu", an encoder without its decoder.
Result<Done> add_t5(std::string_view config_json, Facts& facts);

}  // namespace regard::model
