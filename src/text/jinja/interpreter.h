// Runs a parsed template.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/jinja/parser.h"
#include "text/jinja/runtime.h"

namespace regard::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

/// The text that the template makes of the variables, each byte with its origin: text of the template is kTemplate,
/// text of a variable what the variable says. Throws Error: kInvalidArgument for what the template does wrong or
/// refuses itself, kUnsupported, kResourceExhausted for a limit; each with line, column and source.
MarkedText render(const Template& parsed, const Variables& variables, const Limits& limits, const Clock& clock);

}  // namespace regard::jinja
