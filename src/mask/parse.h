// Reading the text form of a mask. Untrusted text: returns a failure, never throws for what it finds.
#pragma once

#include <string_view>

#include "base/result.h"
#include "regard/mask.h"

namespace regard {

/// As Mask::parse, with the error as a value.
Result<Mask> parse_mask(std::string_view text, const Bindings& bindings);

}  // namespace regard
