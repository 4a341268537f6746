// Bytes as text and back. RFC 4648, section 4.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace regard {

std::string to_base64(std::string_view bytes);
/// Nothing for what is not base64 with its padding.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace regard
