#include "format/base64.h"

#include <algorithm>
#include <cstdint>

namespace regard {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t bits = 0;
    for (size_t i = 0; i < count; ++i) bits |= uint32_t{static_cast<uint8_t>(bytes[at + i])} << (16 - 8 * i);
    for (size_t i = 0; i < 4; ++i) text += i <= count ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  const size_t digits = text.size() - padding;
  std::string bytes;
  bytes.reserve(digits * 3 / 4);
  uint32_t bits = 0;
  for (size_t at = 0; at < digits; ++at) {
    const size_t digit = kDigits.find(text[at]);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if (at % 4 != 0) bytes += static_cast<char>(static_cast<uint8_t>(bits >> (6 - 2 * (at % 4))));
  }
  return bytes;
}

}  // namespace regard
