// The tokenizer inside a GGUF file.
#pragma once

#include <string_view>

#include "base/result.h"
#include "format/gguf.h"
#include "text/tokenizer_spec.h"

namespace regard {

/// Keys of our own in files whose vocabulary is single characters. llama.cpp needs tokens behind them that were never trained: how many rows of
/// embedding and head come before these, and what the tokenizer calls a character that it does not have. With them a file is read as if
/// it had no more rows, and its tokenizer is again the one that it was made from.
inline constexpr std::string_view kTrainedRowsKey = "regard.trained_rows", kUnknownTokenKey = "regard.unknown_token";

/// What the keys tokenizer.ggml.* say. Models: "gpt2" (byte-level BPE; tokenizer.ggml.pre must be one that
/// builtin_pre_tokenizer knows) and "llama" (merging by score). `name` begins every message.
/// Failures: kNotFound when there is no tokenizer, kUnsupported for another model or pre-tokenizer, kCorruptData.
Result<TokenizerSpec> gguf_tokenizer_spec(const GgufMetadata& metadata, std::string_view name);

}  // namespace regard
