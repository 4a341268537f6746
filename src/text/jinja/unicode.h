// Code points of UTF-8 text for the string functions of templates: counting, walking, white space, case. A byte that
// begins no valid sequence counts as one code point of its own, so that nothing is lost and nothing is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace regard::jinja {

/// What is not a code point: the value given for a byte that begins no valid sequence.
inline constexpr int32_t kInvalidCodePoint = -1;

struct CodePoint {
  int32_t value = kInvalidCodePoint;
  size_t bytes = 1;
};

/// The code point that begins at `at` (< text.size()).
CodePoint code_point_at(std::string_view text, size_t at) noexcept;

/// The number of code points.
size_t count_code_points(std::string_view text) noexcept;

/// The byte offset of code point `index`, or text.size() beyond the end.
size_t byte_offset(std::string_view text, size_t index) noexcept;

/// White space as str.isspace() of Python has it.
bool is_space(int32_t code_point) noexcept;

/// Whether repr() of Python shows the code point as itself.
bool is_printable(int32_t code_point) noexcept;

void append_utf8(std::string& out, int32_t code_point);

/// Upper and lower case of one code point as str.upper() and str.lower() of Python write it; several code points where
/// Unicode says so. The final sigma is the caller's affair.
void append_upper(std::string& out, int32_t code_point);
void append_lower(std::string& out, int32_t code_point);

/// Whether the code point has case, and whether it is skipped when a word's end is looked for (Unicode: Cased,
/// Case_Ignorable); both decide what lower case a capital sigma has.
bool is_cased(int32_t code_point) noexcept;
bool is_case_ignorable(int32_t code_point) noexcept;

}  // namespace regard::jinja
