// Cuts a template into tokens: literal text with the white space rules of trim_blocks and lstrip_blocks already
// applied, and the parts of statements and prints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace regard::jinja {

struct Token {
  enum class Kind {
    kText,
    kBlockBegin,
    kBlockEnd,
    kPrintBegin,
    kPrintEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  uint32_t offset = 0;
  std::string text;  // the text, name, unescaped string or operator
  int64_t integer = 0;
  double number = 0;
};

/// The source with every line end as "\n" and without one at the very end, as Jinja reads it. Offsets of tokens count
/// here.
std::string normalize_newlines(std::string_view source);

/// The tokens of a normalized source; the last is kEnd. Errors: kCorruptData for what is no Jinja, kUnsupported for
/// what is Jinja but not read here; both with line, column and the text.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace regard::jinja
