// Writing Hugging Face's tokenizer.json: the inverse of tokenizer_json.h.
#pragma once

#include <string>

#include "base/result.h"
#include "text/tokenizer_spec.h"

namespace regard {

/// The file that says what `spec` says: reading it gives the same ids, here and in PyPI `tokenizers`. What the format has no place for is
/// left out: bos, eos, eot and pad beyond the template of `prefix` and `suffix`.
/// Failures: kUnsupported for a model that merges by score.
Result<std::string> write_tokenizer_json(const TokenizerSpec& spec);

}  // namespace regard
