// Saying no: builds the message with fmt and throws regard::Error. Parsers use result.h instead.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "regard/error.h"

namespace regard {

[[noreturn]] void throw_error(Code code, const std::string& message);

/// Throws Error(code) with the formatted message.
template <class... Args>
[[noreturn]] void fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  throw_error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(kInvalidArgument) with the formatted message unless `condition` holds.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw_error(Code::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace regard
