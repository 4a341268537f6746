#include "format/names.h"

#include <fmt/format.h>

#include <cstdint>

namespace regard {

bool is_utf8(std::string_view text) noexcept {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = p + text.size();
  while (p != end) {
    const unsigned lead = *p++;
    if (lead < 0x80) continue;
    const int extra = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || end - p < extra) return false;
    uint32_t code = lead & (0x3Fu >> extra);
    for (int i = 0; i < extra; ++i, ++p) {
      if ((*p & 0xC0) != 0x80) return false;
      code = code << 6 | (*p & 0x3Fu);
    }
    const bool overlong = (extra == 2 && code < 0x800) || (extra == 3 && code < 0x10000);
    if (overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
  }
  return true;
}

bool is_plain_name(std::string_view name, size_t max_bytes) noexcept {
  if (name.empty() || name.size() > max_bytes || !is_utf8(name)) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    if (byte < 0x20 || byte == 0x7F) return false;
    // U+0080 to U+009F, the second block of control characters.
    if (byte == 0xC2 && static_cast<unsigned char>(name[i + 1]) < 0xA0) return false;
  }
  return true;
}

bool is_plain_file_name(std::string_view name) noexcept {
  return is_plain_name(name, 255) && name.find_first_of("/\\") == std::string_view::npos && name != "." && name != "..";
}

std::string printable(std::string_view text) {
  constexpr size_t kShown = 80;
  std::string shown;
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7F || c == '"' || c == '\\') {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += c;
    }
  }
  if (text.size() > kShown) shown += "...";
  return shown;
}

}  // namespace regard
