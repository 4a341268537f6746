// `regard eval --run`: how many questions of its task a trained model solves.
#pragma once

#include <vector>

#include "command.h"

namespace regard::cli {

/// --run and what belongs to it.
std::vector<Option> task_options();

/// Whether --run asks for it. Errors: UsageError for an option that belongs to it and stands alone, or one of texts beside it.
bool wants_task(const Arguments& arguments);

/// Measures and prints.
int run_task(Context& context);

}  // namespace regard::cli
