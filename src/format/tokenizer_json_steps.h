// The sections of a tokenizer.json beside model and added tokens; see tokenizer_json.cc.
#pragma once

#include "base/result.h"
#include "format/json_reader.h"
#include "text/tokenizer_spec.h"

namespace regard {

// Each reads its section of `root` into `spec`; a section that is missing or null has no steps.
Result<Done> read_normalizer(const JsonObject& root, TokenizerSpec& spec);
Result<Done> read_pre_tokenizer(const JsonObject& root, TokenizerSpec& spec);
Result<Done> read_post_processor(const JsonObject& root, TokenizerSpec& spec);
Result<Done> read_decoder(const JsonObject& root, TokenizerSpec& spec);

}  // namespace regard
