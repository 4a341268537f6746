// Where in a template something stands, for error messages.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace regard::jinja {

struct Position {
  size_t line = 1;
  size_t column = 1;  // in bytes
};

inline Position position_of(std::string_view source, size_t offset) {
  const std::string_view before = source.substr(0, std::min(offset, source.size()));
  const size_t newline = before.rfind('\n');
  return {1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n')),
          newline == std::string_view::npos ? before.size() + 1 : before.size() - newline};
}

/// The source from `offset` to the end of its line, cut to a length that fits into a message. Bytes that a terminal
/// could take for commands are shown as '?'.
inline std::string excerpt(std::string_view source, size_t offset) {
  constexpr size_t kMaxBytes = 40;
  std::string_view rest = source.substr(std::min(offset, source.size()));
  rest = rest.substr(0, std::min(rest.find('\n'), kMaxBytes));
  std::string shown(rest);
  for (char& c : shown) {
    if (c < 0x20 || c > 0x7E) c = '?';
  }
  return shown;
}

/// "[chat template] line 3, column 7: what happened, near `source`".
inline std::string message_at(std::string_view source, size_t offset, std::string_view what) {
  const Position position = position_of(source, offset);
  const std::string near = excerpt(source, offset);
  return near.empty() ? fmt::format("[chat template] line {}, column {}: {} at the end of the line or template",
                                    position.line, position.column, what)
                      : fmt::format("[chat template] line {}, column {}: {}, near `{}`", position.line, position.column,
                                    what, near);
}

}  // namespace regard::jinja
