// The facts of a Hugging Face checkpoint.
#pragma once

#include "format/hf_config.h"
#include "model/facts.h"

namespace regard::model {

/// Refused: kCorruptData when a size that every decoder needs is missing, kUnsupported for options that are not
/// implemented; the message names the field.
Result<Facts> facts_from_hf(const HfConfig& config);

}  // namespace regard::model
