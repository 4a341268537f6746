// Two properties of characters that added tokens ask for.
#pragma once

namespace regard {

/// White_Space.
bool is_white_space(char32_t c) noexcept;
/// A character of a word: alphabetic, mark, decimal digit, connector or joiner (Unicode Technical Standard 18, \w).
bool is_word_character(char32_t c) noexcept;

}  // namespace regard
