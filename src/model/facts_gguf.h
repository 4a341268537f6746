// The facts of a GGUF file.
#pragma once

#include "format/gguf.h"
#include "model/facts.h"

namespace regard::model {

/// Reads what the metadata says about the model, under the prefix of its architecture. Numbers are held to plausible ranges;
/// a refusal names the key.
Result<Facts> facts_from_gguf(const GgufMetadata& metadata);

}  // namespace regard::model
