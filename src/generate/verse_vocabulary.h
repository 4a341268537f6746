// What a poem needs to know of a vocabulary: which tokens are single Han characters, and which are the marks of verse.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "regard/tokenizer.h"

namespace regard {

inline constexpr char32_t kVerseComma = 0xFF0C, kVerseStop = 0x3002;

/// Unified and compatibility ideographs, and the zero that is written among them (Unicode 15.1, blocks).
bool is_han(char32_t c) noexcept;

class VerseVocabulary {
 public:
  explicit VerseVocabulary(const Tokenizer& tokenizer);

  /// The token that is this character and nothing else; of several the lowest id.
  std::optional<int32_t> find(char32_t c) const;
  /// Those of all Han characters, in the order of the characters.
  const std::vector<int32_t>& han() const noexcept { return han_; }
  /// Whether no token is longer than a character: of a vocabulary of words and pieces most are.
  bool only_characters() const noexcept { return only_characters_; }

 private:
  std::map<char32_t, int32_t> characters_;
  std::vector<int32_t> han_;
  bool only_characters_ = true;
};

}  // namespace regard
