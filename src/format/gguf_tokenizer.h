// The tokenizer inside a GGUF file.
#pragma once

#include <string_view>

#include "base/result.h"
#include "format/gguf.h"
#include "text/tokenizer_spec.h"

namespace regard {

/// What the keys tokenizer.ggml.* say. Models: "gpt2" (byte-level BPE; tokenizer.ggml.pre must be one that
/// builtin_pre_tokenizer knows) and "llama" (merging by score). `name` begins every message.
/// Failures: kNotFound when there is no tokenizer, kUnsupported for another model or pre-tokenizer, kCorruptData.
Result<TokenizerSpec> gguf_tokenizer_spec(const GgufMetadata& metadata, std::string_view name);

}  // namespace regard
