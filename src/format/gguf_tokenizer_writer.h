// A tokenizer as the metadata of a GGUF file: the inverse of gguf_tokenizer.h.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "format/gguf.h"
#include "text/tokenizer_spec.h"

namespace regard {

/// Adds tokenizer.ggml.* to `metadata`, for a model whose embedding has `rows` rows; gives how many rows the file's vocabulary has.
///
/// Byte-level BPE becomes the model "gpt2", with the pre-tokenizer that llama.cpp knows by name; `rows` that are no token are named
/// [PAD<id>] and marked as unused. Whole characters become the model "llama", which merges nothing because no token is longer than a
/// character: behind the vocabulary stand 256 byte tokens, for characters that are none of it, and a token <unk> that also ends a text
/// where the model has no end token. These rows have to be added to the embedding; kTrainedRowsKey says
/// how many came before.
/// Failures: kUnsupported, naming what llama.cpp has no word for.
Result<int64_t> add_gguf_tokenizer(const TokenizerSpec& spec, int64_t rows, GgufMetadata& metadata);

}  // namespace regard
