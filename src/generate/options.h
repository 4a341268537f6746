// Checks of what a caller asked for, shared by the functions of this room.
#pragma once

#include "regard/generate.h"

namespace regard {

/// Errors: kInvalidArgument with the name of the option, what was given and its range.
void check_sampling(const SamplingOptions& options);

}  // namespace regard
