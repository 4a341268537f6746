// The message of an error inside another one.
#pragma once

#include <string_view>

namespace regard {

/// Without the function in brackets that every message begins with.
inline std::string_view inner_message(std::string_view message) {
  const size_t end = message.find("] ");
  return message.starts_with('[') && end != std::string_view::npos ? message.substr(end + 2) : message;
}

}  // namespace regard
