#include "text/utf8.h"

#include <cstring>

namespace regard {

Utf8Char next_char(std::string_view text) noexcept {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, Utf8Char::State::kValid};
  uint32_t length = 0, low = 0x80, high = 0xBF;  // low, high: the range of the second byte
  char32_t value = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2, value = lead & 0x1Fu;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3, value = lead & 0x0Fu;
    if (lead == 0xE0) low = 0xA0;  // overlong below
    if (lead == 0xED) high = 0x9F;  // surrogates above
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4, value = lead & 0x07u;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;  // beyond U+10FFFF above
  } else {
    return {0, 1, Utf8Char::State::kInvalid};
  }
  for (uint32_t i = 1; i < length; ++i) {
    if (i == text.size()) return {0, i, Utf8Char::State::kCut};
    if (byte(i) < low || byte(i) > high) return {0, i, Utf8Char::State::kInvalid};
    value = value << 6 | (byte(i) & 0x3Fu);
    low = 0x80, high = 0xBF;
  }
  return {value, length, Utf8Char::State::kValid};
}

size_t valid_prefix(std::string_view text) noexcept {
  size_t at = 0;
  while (at < text.size()) {
    if (text.size() - at >= 8) {  // eight ASCII bytes at once
      uint64_t word;
      std::memcpy(&word, text.data() + at, 8);
      if ((word & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const Utf8Char c = next_char(text.substr(at));
    if (!c.valid()) break;
    at += c.size;
  }
  return at;
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(static_cast<uint8_t>(byte))); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

size_t append_replacing(std::string& out, std::string_view bytes, TextEnd end) {
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t valid = valid_prefix(bytes.substr(at));
    out.append(bytes, at, valid);
    at += valid;
    if (at == bytes.size()) break;
    const Utf8Char c = next_char(bytes.substr(at));
    if (c.state == Utf8Char::State::kCut && end == TextEnd::kMore) break;
    out += "\xEF\xBF\xBD";
    at += c.size;
  }
  return at;
}

}  // namespace regard
