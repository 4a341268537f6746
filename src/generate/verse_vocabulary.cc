#include "generate/verse_vocabulary.h"

#include <array>
#include <string>

#include "text/utf8.h"

namespace regard {

bool is_han(char32_t c) noexcept {
  struct Range {
    char32_t first, last;
  };
  constexpr std::array kHan = {Range{0x3007, 0x3007}, Range{0x3400, 0x4DBF}, Range{0x4E00, 0x9FFF}, Range{0xF900, 0xFAFF}, Range{0x20000, 0x323AF}};
  for (const Range& range : kHan)
    if (range.first <= c && c <= range.last) return true;
  return false;
}

VerseVocabulary::VerseVocabulary(const Tokenizer& tokenizer) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(id)) continue;
    const std::string bytes = tokenizer.token_bytes(id);
    if (bytes.empty()) continue;
    const Utf8Char c = next_char(bytes);
    if (c.valid() && c.size == bytes.size()) characters_.emplace(c.code_point, id);  // keeps the first
    if (c.valid() && c.size < bytes.size()) only_characters_ = false;
  }
  for (const auto& [c, id] : characters_)
    if (is_han(c)) han_.push_back(id);
}

std::optional<int32_t> VerseVocabulary::find(char32_t c) const {
  const auto at = characters_.find(c);
  return at == characters_.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace regard
