// Hugging Face's tokenizer.json, the pipelines of BPE and of whole words. Writing one: tokenizer_json_writer.h.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/tokenizer_spec.h"

namespace regard {

/// What a tokenizer.json says. The sections "truncation" and "padding" are ignored: cutting and padding are for the caller.
/// Failures: kUnsupported names the component that is not implemented and where it stands, kCorruptData, kResourceExhausted.
Result<TokenizerSpec> tokenizer_json_spec(std::string_view text, std::string_view name);

/// Adds what a tokenizer_config.json says: which tokens begin and end a text, stand for unknown text and pad.
Result<Done> apply_tokenizer_config(std::string_view text, std::string_view name, TokenizerSpec& spec);

}  // namespace regard
