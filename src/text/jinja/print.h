// Values as text: what printing, repr() and tojson write.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/runtime.h"

namespace regard::jinja {

/// str() of Python: text as it is, an undefined value as nothing, the rest as a literal.
MarkedText to_text(Runtime& runtime, const Value& value);

/// repr() of Python: text in quotes.
MarkedText to_literal(Runtime& runtime, const Value& value);

/// A float as Python prints it: the shortest digits that read back the same.
std::string float_literal(double value);

struct JsonStyle {
  std::optional<std::string> indent;  // nothing: all in one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ascii_only = false;
};

/// json.dumps() of Python.
MarkedText to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace regard::jinja
