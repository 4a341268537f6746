// Names that come from files: what a name may be, and how any bytes are shown in a message.
#pragma once

#include <string>
#include <string_view>

namespace regard {

/// True for valid UTF-8 (no overlong forms, no surrogates, nothing above U+10FFFF).
bool is_utf8(std::string_view text) noexcept;

/// True for what the name of a tensor or key may be: 1 to `max_bytes` bytes of UTF-8 without control characters.
bool is_plain_name(std::string_view name, size_t max_bytes) noexcept;

/// True for a name that stays inside its folder: a plain name without '/' and '\', and neither "." nor "..".
bool is_plain_file_name(std::string_view name) noexcept;

/// `text` for a message: bytes outside printable ASCII, quotes and backslashes escaped, the rest after 80 bytes cut.
std::string printable(std::string_view text);

}  // namespace regard
