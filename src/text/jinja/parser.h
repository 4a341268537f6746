// From the text of a template to its tree.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/limits.h"

namespace regard::jinja {

struct Template {
  std::string source;  // with normalized line ends; offsets in the tree count here
  Block body;
};

/// Parses a template. Errors, each with line, column and the text: kCorruptData for what is no Jinja, kUnsupported for
/// Jinja that is not read here (also a filter or test that is not known), kResourceExhausted for nesting and length.
Result<Template> parse(std::string_view source, const Limits& limits = {});

}  // namespace regard::jinja
