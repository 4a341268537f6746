// The facts of a model as the other format writes them: GGUF metadata from a directory's, config.json from a file's.
#pragma once

#include <string>

#include "format/gguf.h"
#include "model/facts.h"
#include "model/family.h"
#include "text/tokenizer_spec.h"

namespace regard::model {

/// The metadata under the architecture's prefix, without the tokenizer. `divisors` of the frequencies stand in a tensor instead of a
/// scaling. Errors: kUnsupported for scalings that GGUF files have no key for.
GgufMetadata gguf_metadata(const Family& family, const Facts& facts, const DecoderConfig& config, const std::string& name);

/// By what each frequency of a llama3 scaling is divided, as GGUF files store it; empty for every other scaling.
std::vector<float> rope_divisors(const RopeConfig& rope);

/// config.json. `dtype` is its hint at the types of tensors: "float32".
std::string hf_config_json(const Family& family, const Facts& facts, const DecoderConfig& config, std::string_view dtype);

/// tokenizer_config.json beside a tokenizer.json: which tokens begin and end a text, stand for unknown text and pad.
std::string tokenizer_config_json(const TokenizerSpec& spec, int64_t context);

/// The same for a tokenizer that was built. Without this file `transformers` takes the tokenizer of the model's family, which is another.
std::string tokenizer_config_json(const Tokenizer& tokenizer, int64_t context);

/// Refuses what the written form says differently, naming the first field: kUnsupported.
void expect_same(const DecoderConfig& original, const DecoderConfig& written);

}  // namespace regard::model
