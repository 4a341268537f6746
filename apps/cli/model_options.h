// Options that the model commands share: which model, how to choose tokens, and the model loaded with progress on a terminal.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "command.h"
#include "regard/generate.h"
#include "regard/json.h"
#include "regard/model.h"
#include "regard/tokenizer.h"

namespace regard::cli {

/// --model, --context, --mmap.
std::vector<Option> model_options();
/// --chunk.
Option chunk_option();
/// --max-tokens, --temperature, the filters, the penalties, --seed and what ends a text.
std::vector<Option> sampling_options();

/// Loads --model. Errors: as Model::load.
Model load_model(Context& context);
/// The tokenizer of --model alone: a GGUF file, a tokenizer.json, or a directory that has one.
Tokenizer load_tokenizer(const Arguments& arguments);

GenerateOptions read_generate_options(const Arguments& arguments);

std::string_view finish_name(FinishReason reason);

/// A text to print; where the model has no tokenizer its ids.
std::string text_of(std::span<const int32_t> ids, const std::string& text, const Model& model);

/// "prompt 12 tokens, 240.1 tokens/s; text 48 tokens, 96.0 tokens/s; length" for standard error.
std::string speed_text(std::span<const Generation> generations);

/// The members of one generation: text, ids, finish, counts, seconds and, where asked for, log-probabilities.
void write_generation(JsonWriter& json, const Generation& generation, const Model& model);

}  // namespace regard::cli
