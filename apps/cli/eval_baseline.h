// The n-gram baseline of `regard eval`: what counting alone predicts.
#pragma once

#include <string>
#include <vector>

#include "command.h"
#include "regard/json.h"
#include "regard/tokenizer.h"

namespace regard::cli {

/// --baseline and what belongs to it.
std::vector<Option> baseline_options();

/// Whether --baseline asks for one. Errors: UsageError for an option that belongs to it and stands alone, or the other way round.
bool wants_baseline(const Arguments& arguments);

struct Baseline {
  int64_t tokens = 0, characters = 0;
  int64_t vocab_size = 0;
  std::vector<double> nats;  ///< sums by order; [0] is the uniform distribution
};

/// Counts in the text of --train and predicts `text`, both in tokens of `tokenizer`, of --tokenizer when it is nullptr, or, when that is
/// not given, in characters: those that occur in either text.
Baseline measure_baseline(Context& context, const Tokenizer* tokenizer, const std::string& text);

/// A table for people, and members for a JSON object.
std::string baseline_text(const Baseline& baseline);
void write_baseline(JsonWriter& json, const Baseline& baseline);

}  // namespace regard::cli
