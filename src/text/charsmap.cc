#include "text/charsmap.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/utf8.h"

namespace regard {
namespace {

constexpr size_t kMaxReplacement = 1024, kMaxWholeGrapheme = 5;

uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return value;
}

// The parts of a unit, in the layout of Darts-clone.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FFu; }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

}  // namespace

Result<Charsmap> Charsmap::make(std::string_view bytes) {
  if (bytes.size() > kMaxCharsmapBytes)
    return failure(Code::kResourceExhausted, "[build_tokenizer] a table of characters of {} bytes is over the limit of {}", bytes.size(), kMaxCharsmapBytes);
  if (bytes.size() < 8) return corrupt("[build_tokenizer] a table of characters has {} bytes; expected its size, an array and the replacements", bytes.size());
  const size_t size = little_endian(bytes);
  bytes.remove_prefix(4);
  if (size == 0 || size % 4 != 0 || size > bytes.size())
    return corrupt("[build_tokenizer] a table of characters says {} bytes for its array, and {} follow; expected whole units of 4", size, bytes.size());
  Charsmap map;
  for (size_t at = 0; at < size; at += 4) map.units_.push_back(little_endian(bytes.substr(at)));
  map.replacements_ = bytes.substr(size);
  if (valid_prefix(map.replacements_) != map.replacements_.size()) return corrupt("[build_tokenizer] the replacements of a table of characters are not UTF-8");
  for (size_t at = 0; at < map.replacements_.size();) {
    const size_t end = std::min(map.replacements_.find('\0', at), map.replacements_.size());
    if (end - at > kMaxReplacement) return corrupt("[build_tokenizer] a table of characters has a replacement of {} bytes; expected at most {}", end - at, kMaxReplacement);
    at = end + 1;
  }
  return map;
}

std::optional<std::string_view> Charsmap::find(std::string_view text) const noexcept {
  uint32_t node = offset_of(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) return std::nullopt;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) return std::nullopt;
    const size_t at = value_of(units_[node]);
    const bool inside = at < replacements_.size() && (static_cast<uint8_t>(replacements_[at]) & 0xC0) != 0x80;
    if (!inside) return at == replacements_.size() ? std::optional<std::string_view>("") : std::nullopt;
    const std::string_view rest = std::string_view(replacements_).substr(at);
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

void Charsmap::append_grapheme(std::string_view grapheme, std::string& out) const {
  if (grapheme.size() <= kMaxWholeGrapheme) {
    if (const auto whole = find(grapheme)) {
      out += *whole;
      return;
    }
  }
  for (size_t at = 0; at < grapheme.size();) {
    const std::string_view character = grapheme.substr(at, next_char(grapheme.substr(at)).size);
    out += find(character).value_or(character);
    at += character.size();
  }
}

void Charsmap::append_normalized(std::string_view text, std::string& out) const {
  utf8proc_int32_t state = 0, before = 0;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = next_char(text.substr(at));
    const auto point = static_cast<utf8proc_int32_t>(c.code_point);
    if (at > begin && utf8proc_grapheme_break_stateful(before, point, &state)) {
      append_grapheme(text.substr(begin, at - begin), out);
      begin = at;
    }
    before = point;
    at += c.size;
  }
  if (begin < text.size()) append_grapheme(text.substr(begin), out);
}

}  // namespace regard
