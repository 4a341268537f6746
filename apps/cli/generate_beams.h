// The part of `regard generate` that searches: options, and texts with their scores.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "command.h"
#include "regard/beam_search.h"

namespace regard::cli {

/// --beams, --return, --length-penalty, --early-stopping.
std::vector<Option> beam_options();

/// Nothing where --beams is not given. Errors: UsageError for options that do not go together.
std::optional<BeamOptions> read_beam_options(const Arguments& arguments);

/// Prints what a search found, `prompts` before it with --echo. Of several prompts or texts each has a number.
void write_beams(Context& context, const Model& model, std::span<const BeamResult> results, const BeamOptions& beams, std::span<const std::string> prompts);

}  // namespace regard::cli
