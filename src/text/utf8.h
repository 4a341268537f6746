// UTF-8 without assumptions: what is well-formed, what is cut off, what is broken (Unicode 14, table 3-7).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace regard {

struct Utf8Char {
  char32_t code_point = 0;
  uint32_t size = 0;        ///< bytes of the character, or of the maximal ill-formed part (>= 1)
  enum class State : uint8_t { kValid, kInvalid, kCut } state = State::kInvalid;  ///< kCut: well-formed so far, text ends
  bool valid() const noexcept { return state == State::kValid; }
};

/// The character at the start of `text`, which must not be empty.
Utf8Char next_char(std::string_view text) noexcept;

/// The length of the longest well-formed prefix.
size_t valid_prefix(std::string_view text) noexcept;

void append_utf8(std::string& out, char32_t code_point);

/// Appends `bytes` with U+FFFD for each maximal ill-formed part. A character that is cut off at the end is left alone when
/// `end` is kMore; returns how many bytes were consumed.
enum class TextEnd { kMore, kFinal };
size_t append_replacing(std::string& out, std::string_view bytes, TextEnd end);

}  // namespace regard
