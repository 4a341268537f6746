// Cuts the text form of a mask into tokens that know where they stand.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

namespace regard {

struct MaskToken {
  enum class Kind : uint8_t { kName, kNumber, kHuge, kSign, kUnknown, kEnd } kind = Kind::kEnd;  // kHuge: beyond int64
  std::string_view text;
  size_t offset = 0;
  int64_t value = 0;

  bool is(char sign) const noexcept { return kind == Kind::kSign && text.front() == sign; }
};

class MaskLexer {
 public:
  explicit MaskLexer(std::string_view text) : text_(text) {}

  MaskToken next() noexcept {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    const size_t begin = at_;
    if (begin == text_.size()) return {MaskToken::Kind::kEnd, {}, begin, 0};
    const char c = text_[at_++];
    MaskToken::Kind kind = MaskToken::Kind::kUnknown;
    if (is_word(c) || c == '-') {
      while (at_ < text_.size() && is_word(text_[at_])) ++at_;
      kind = MaskToken::Kind::kName;
    } else if (std::string_view("~&|(),;/*").find(c) != std::string_view::npos) {
      kind = MaskToken::Kind::kSign;
    }
    MaskToken token{kind, text_.substr(begin, at_ - begin), begin, 0};
    if (kind == MaskToken::Kind::kName && (c == '-' || is_digit(c))) token.kind = number(token);
    return token;
  }

 private:
  static bool is_space(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }
  static bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
  static bool is_word(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
  }

  static MaskToken::Kind number(MaskToken& token) noexcept {
    const char* end = token.text.data() + token.text.size();
    const auto [stop, error] = std::from_chars(token.text.data(), end, token.value);
    if (stop != end) return MaskToken::Kind::kUnknown;
    if (error == std::errc::result_out_of_range) return MaskToken::Kind::kHuge;
    return error == std::errc{} ? MaskToken::Kind::kNumber : MaskToken::Kind::kUnknown;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace regard
