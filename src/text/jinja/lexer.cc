#include "text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "text/jinja/position.h"
#include "text/jinja/unicode.h"

namespace regard::jinja {
namespace {

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size() && !failure_) read_text();
    if (failure_) return *std::move(failure_);
    push(Token::Kind::kEnd, source_.size());
    return std::move(tokens_);
  }

 private:
  void refuse(Code code, size_t offset, std::string_view what) {
    if (!failure_) failure_ = Failure{code, message_at(source_, offset, what)};
  }
  Token& push(Token::Kind kind, size_t offset, std::string text = {}) {
    tokens_.push_back({kind, static_cast<uint32_t>(offset), std::move(text)});
    return tokens_.back();
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  bool looking_at(std::string_view text) const { return source_.substr(at_).starts_with(text); }

  // The length of white space at an offset.
  size_t space_at(size_t offset) const {
    size_t end = offset;
    while (end < source_.size()) {
      const CodePoint c = code_point_at(source_, end);
      if (!is_space(c.value)) break;
      end += c.bytes;
    }
    return end - offset;
  }
  static std::string_view without_trailing_space(std::string_view text) {
    size_t kept = 0;
    for (size_t i = 0; i < text.size();) {
      const CodePoint c = code_point_at(text, i);
      i += c.bytes;
      if (!is_space(c.value)) kept = i;
    }
    return text.substr(0, kept);
  }

  void push_text(size_t begin, std::string_view text) {
    if (!text.empty()) push(Token::Kind::kText, begin, std::string(text));
  }

  // `text` before a tag with the sign after its opening braces: "-" takes all white space away, and a statement or
  // comment that stands first in its line takes the white space before it (lstrip_blocks), unless the sign is "+".
  void push_text_before_tag(size_t begin, std::string_view text, char sign, bool is_print) {
    if (sign == '-') {
      text = without_trailing_space(text);
    } else if (sign != '+' && !is_print) {
      const size_t line = text.rfind('\n') + 1;  // 0 when there is none
      if ((line > 0 || line_starting_) && without_trailing_space(text.substr(line)).empty())
        text = text.substr(0, line);
    }
    push_text(begin, text);
  }

  // Moves behind a closing tag and what it takes with it: all white space after "-", one line end (trim_blocks) after a
  // statement or comment.
  void close(std::string_view closing, char sign, bool takes_newline) {
    at_ += closing.size();
    if (sign == '-') {
      at_ += space_at(at_);
    } else if (sign != '+' && takes_newline && peek() == '\n') {
      ++at_;
    }
    line_starting_ = source_[at_ - 1] == '\n';
  }

  void read_text() {
    const size_t begin = at_;
    size_t tag = begin;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= source_.size()) {
        push_text(begin, source_.substr(begin));
        at_ = source_.size();
        return;
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    const char type = source_[tag + 1];
    at_ = tag + 2;
    char sign = peek();
    if (sign == '-' || sign == '+') {
      ++at_;
    } else {
      sign = '\0';
    }
    push_text_before_tag(begin, source_.substr(begin, tag - begin), sign, type == '{');
    if (type == '#') {
      skip_comment(tag);
    } else if (type == '%' && at_raw()) {
      read_raw(tag);
    } else {
      read_tag(tag, type == '{');
    }
  }

  void skip_comment(size_t tag) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) return refuse(Code::kCorruptData, tag, "comment without an end");
    const char before = end > at_ ? source_[end - 1] : '\0';
    at_ = end;
    close("#}", before, true);
  }

  // Whether the tag that has just been opened is "raw %}"; moves behind it if so.
  bool at_raw() {
    const size_t name = at_ + space_at(at_);
    if (!source_.substr(name).starts_with("raw")) return false;
    const size_t end = name + 3 + space_at(name + 3);
    const bool strips = source_.substr(end).starts_with("-%}");
    if (!strips && !source_.substr(end).starts_with("%}")) return false;
    at_ = end + (strips ? 3 : 2);
    if (strips) at_ += space_at(at_);
    line_starting_ = source_[at_ - 1] == '\n';
    return true;
  }

  void read_raw(size_t tag) {
    const size_t begin = at_;
    for (size_t open = source_.find("{%", at_); open != std::string_view::npos; open = source_.find("{%", open + 1)) {
      size_t name = open + 2;
      const char sign = name < source_.size() ? source_[name] : '\0';
      if (sign == '-' || sign == '+') ++name;
      name += space_at(name);
      if (!source_.substr(name).starts_with("endraw")) continue;
      size_t end = name + 6 + space_at(name + 6);
      const char closing_sign = end < source_.size() ? source_[end] : '\0';
      if (closing_sign == '-' || closing_sign == '+') ++end;
      if (!source_.substr(end).starts_with("%}")) continue;
      push_text_before_tag(begin, source_.substr(begin, open - begin), sign, false);
      at_ = end;
      return close("%}", closing_sign, true);
    }
    refuse(Code::kCorruptData, tag, "raw without endraw");
  }

  void read_tag(size_t tag, bool is_print) {
    const std::string_view closing = is_print ? "}}" : "%}";
    const std::string_view stripping = is_print ? "-}}" : "-%}";
    push(is_print ? Token::Kind::kPrintBegin : Token::Kind::kBlockBegin, tag);
    std::string open;  // the brackets that are open: a closing tag counts only when there are none
    while (!failure_) {
      at_ += space_at(at_);
      if (at_ >= source_.size()) return refuse(Code::kCorruptData, tag, fmt::format("no `{}` for", closing));
      const size_t begin = at_;
      if (open.empty()) {
        const bool keeps = !is_print && looking_at("+%}");
        const bool strips = looking_at(stripping);
        if (keeps || strips || looking_at(closing)) {
          push(is_print ? Token::Kind::kPrintEnd : Token::Kind::kBlockEnd, begin);
          if (keeps || strips) ++at_;
          return close(closing, keeps ? '+' : (strips ? '-' : '\0'), !is_print);
        }
      }
      read_token(open);
    }
  }

  void read_token(std::string& open) {
    const char c = peek();
    const size_t begin = at_;
    if (is_digit(c)) return read_number();
    if (is_name_start(c)) {
      while (is_name_part(peek())) ++at_;
      push(Token::Kind::kName, begin, std::string(source_.substr(begin, at_ - begin)));
      return;
    }
    if (c == '"' || c == '\'') return read_string(c);
    for (const std::string_view op : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!looking_at(op)) continue;
      at_ += op.size();
      push(Token::Kind::kOperator, begin, std::string(op));
      return;
    }
    if (c == '\0' || std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      return refuse(static_cast<unsigned char>(c) >= 0x80 ? Code::kUnsupported : Code::kCorruptData, begin,
                    "unexpected character");
    }
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : static_cast<char>(c + 2));
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) return refuse(Code::kCorruptData, begin, "bracket that closes nothing");
      open.pop_back();
    }
    ++at_;
    push(Token::Kind::kOperator, begin, std::string(1, c));
  }

  // Reads digits with single underscores between them, as `1_000`.
  void read_digits(std::string& digits) {
    while (is_digit(peek()) || (peek() == '_' && is_digit(peek(1)) && !digits.empty())) {
      if (peek() != '_') digits.push_back(peek());
      ++at_;
    }
  }

  void read_number() {
    const size_t begin = at_;
    std::string digits;
    if (peek() == '0' &&
        (peek(1) == 'x' || peek(1) == 'X' || peek(1) == 'b' || peek(1) == 'B' || peek(1) == 'o' || peek(1) == 'O')) {
      return refuse(Code::kUnsupported, begin, "number that is not decimal");
    }
    read_digits(digits);
    bool is_float = false;
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';  // `x.0.1` are two items, not a number
    if (!after_dot && peek() == '.' && is_digit(peek(1))) {
      is_float = true;
      digits.push_back('.');
      ++at_;
      read_digits(digits);
    }
    const size_t exponent = peek(1) == '+' || peek(1) == '-' ? 2 : 1;
    if (!after_dot && (peek() == 'e' || peek() == 'E') && is_digit(peek(exponent))) {
      is_float = true;
      digits.push_back('e');
      if (exponent == 2) digits.push_back(peek(1));
      at_ += exponent;
      read_digits(digits);
    }
    if (is_name_part(peek())) return refuse(Code::kCorruptData, begin, "number that runs into a name");
    if (is_float) {
      Token& token = push(Token::Kind::kFloat, begin, digits);
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), token.number);
      if (error != std::errc()) refuse(Code::kUnsupported, begin, "number that no double holds");
      return;
    }
    if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) {
      return refuse(Code::kCorruptData, begin, "number with leading zeros");
    }
    Token& token = push(Token::Kind::kInteger, begin, digits);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), token.integer);
    if (error != std::errc()) refuse(Code::kUnsupported, begin, "integer beyond 64 bits");
  }

  void read_string(char quote) {
    const size_t begin = at_++;
    std::string value;
    while (true) {
      if (at_ >= source_.size()) return refuse(Code::kCorruptData, begin, "string without an end");
      const char c = source_[at_++];
      if (c == quote) break;
      if (c != '\\') {
        value.push_back(c);
      } else if (!read_escape(value)) {
        return;
      }
    }
    push(Token::Kind::kString, begin, std::move(value));
  }

  // After a backslash: the escapes of Python. An unknown one stands for itself, backslash included.
  bool read_escape(std::string& value) {
    const size_t begin = at_ - 1;
    if (at_ >= source_.size()) {
      refuse(Code::kCorruptData, begin, "string without an end");
      return false;
    }
    const char c = source_[at_++];
    constexpr std::string_view kNames = "\\'\"abfnrtv";
    constexpr std::string_view kBytes = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t i = kNames.find(c); i != std::string_view::npos) {
      value.push_back(kBytes[i]);
      return true;
    }
    if (c == '\n') return true;
    if (c >= '0' && c <= '7') {
      int code = c - '0';
      for (int i = 0; i < 2 && peek() >= '0' && peek() <= '7'; ++i) code = code * 8 + (source_[at_++] - '0');
      append_utf8(value, code);
      return true;
    }
    if (c == 'N') {
      refuse(Code::kUnsupported, begin, "character by name");
      return false;
    }
    const int length = c == 'x' ? 2 : (c == 'u' ? 4 : (c == 'U' ? 8 : 0));
    if (length == 0) {
      value.push_back('\\');
      value.push_back(c);
      return true;
    }
    int64_t code = 0;
    for (int i = 0; i < length; ++i) {
      const int digit = hex_digit(peek());
      if (digit < 0) {
        refuse(Code::kCorruptData, begin, "escape that is cut short");
        return false;
      }
      code = code * 16 + digit;
      ++at_;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      refuse(Code::kUnsupported, begin, "escape that is no character");
      return false;
    }
    append_utf8(value, static_cast<int32_t>(code));
    return true;
  }

  std::string_view source_;
  size_t at_ = 0;
  bool line_starting_ = true;  // whether the last tag took a line end with it
  std::vector<Token> tokens_;
  std::optional<Failure> failure_;
};

}  // namespace

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

Result<std::vector<Token>> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace regard::jinja
