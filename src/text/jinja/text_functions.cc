// Functions of text that filters and methods share. Everything is made of slices and appends, so that each byte keeps its
// origin; a changed character takes the origin of what it was made from.
#include <algorithm>
#include <cstring>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace regard::jinja {
namespace {

// Appends every character as change(out, code point, offset) writes it.
template <class Change>
MarkedText change_characters(Runtime& runtime, const MarkedText& text, Change change) {
  MarkedText out;
  const std::string_view bytes = text.bytes();
  runtime.read(4 * bytes.size());  // looking up case takes longer than looking at a byte
  std::string changed;
  // Characters of one origin are gathered, so that an append happens per run and not per character.
  Origin origin = Origin::kTemplate;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = code_point_at(bytes, at);
    const Origin here = text.origin(at, at + c.bytes);
    if (here != origin) {
      runtime.append(out, changed, origin);
      changed.clear();
      origin = here;
    }
    if (c.value < 0) {
      changed.append(bytes.substr(at, c.bytes));
    } else {
      change(changed, c.value, at);
    }
    at += c.bytes;
  }
  runtime.append(out, changed, origin);
  return out;
}

// A capital sigma is final when a letter is before it and none after, characters without case aside (Unicode, SpecialCasing).
bool is_final_sigma(std::string_view bytes, size_t at, bool cased_before) {
  if (!cased_before) return false;
  for (size_t next = at + 2; next < bytes.size();) {
    const CodePoint c = code_point_at(bytes, next);
    if (!is_case_ignorable(c.value)) return !is_cased(c.value);
    next += c.bytes;
  }
  return true;
}

// Lower case of one character, with what is known of those before it.
class Lowering {
 public:
  Lowering(Runtime& runtime, std::string_view bytes) : runtime_(runtime), bytes_(bytes) {}
  void append(std::string& out, int32_t c, size_t at) {
    constexpr int32_t kCapitalSigma = 0x3A3;
    constexpr int32_t kFinalSigma = 0x3C2;
    if (c == kCapitalSigma && is_final_sigma(bytes_, at, cased_before_)) {
      append_utf8(out, kFinalSigma);
    } else {
      append_lower(out, c);
    }
    if (c == kCapitalSigma) runtime_.step(16);  // looking ahead is not free
    see(c);
  }
  void see(int32_t c) {
    if (!is_case_ignorable(c)) cased_before_ = is_cased(c);
  }

 private:
  Runtime& runtime_;
  std::string_view bytes_;
  bool cased_before_ = false;
};

bool is_stripped(int32_t c, std::string_view character, const MarkedText* characters) {
  if (characters == nullptr) return is_space(c);
  return characters->bytes().find(character) != std::string_view::npos;
}

}  // namespace

MarkedText strip(Runtime& runtime, const MarkedText& text, Side side, const Value* characters) {
  const MarkedText* set = nullptr;
  if (characters != nullptr && !characters->is<None>()) {
    set = characters->text();
    if (set == nullptr) runtime.wrong("strip needs a str of characters, not a {}", type_name(*characters));
  }
  const std::string_view bytes = text.bytes();
  runtime.read(bytes.size());
  const uint64_t look_up = set != nullptr ? set->size() / 16 : 0;
  size_t begin = 0;
  size_t end = bytes.size();
  while (side != Side::kRight && begin < end) {
    const CodePoint c = code_point_at(bytes, begin);
    runtime.step(look_up);
    if (!is_stripped(c.value, bytes.substr(begin, c.bytes), set)) break;
    begin += c.bytes;
  }
  while (side != Side::kLeft && end > begin) {
    size_t length = std::min<size_t>(4, end - begin);  // of the last character: the longest that ends here
    while (length > 1 && code_point_at(bytes, end - length).bytes != length) --length;
    const size_t last = end - length;
    runtime.step(look_up);
    if (!is_stripped(code_point_at(bytes, last).value, bytes.substr(last, end - last), set)) break;
    end = last;
  }
  return runtime.slice(text, begin, end);
}

MarkedText upper(Runtime& runtime, const MarkedText& text) {
  return change_characters(runtime, text, [](std::string& out, int32_t c, size_t) { append_upper(out, c); });
}

MarkedText lower(Runtime& runtime, const MarkedText& text) {
  Lowering lowering(runtime, text.bytes());
  return change_characters(runtime, text, [&](std::string& out, int32_t c, size_t at) { lowering.append(out, c, at); });
}

MarkedText capitalize(Runtime& runtime, const MarkedText& text) {
  Lowering lowering(runtime, text.bytes());
  return change_characters(runtime, text, [&](std::string& out, int32_t c, size_t at) {
    if (at > 0) return lowering.append(out, c, at);
    lowering.see(c);
    const size_t before = out.size();
    append_upper(out, c);
    // Title case differs from upper case where one character becomes several, and for a few that are pairs of letters.
    if (count_code_points(std::string_view(out).substr(before)) > 1 || (c >= 0x1C4 && c <= 0x1F3) || (c >= 0x10D0 && c <= 0x10FF)) {
      runtime.unsupported("capitalizing the character U+{:04X} is not supported", c);
    }
  });
}

MarkedText replace(Runtime& runtime, const MarkedText& text, const MarkedText& from, const MarkedText& to, int64_t count) {
  MarkedText out;
  const std::string_view bytes = text.bytes();
  runtime.read(bytes.size());
  const auto put = [&](Origin replaced) {
    if (replaced == Origin::kContent) {
      runtime.append(out, to.bytes(), Origin::kContent);
    } else {
      runtime.append(out, to);
    }
  };
  size_t at = 0;
  if (from.empty()) {  // between all characters, and at both ends
    while (count != 0) {
      const bool at_end = at >= bytes.size();
      const size_t next = at_end ? at : at + code_point_at(bytes, at).bytes;
      put(text.origin(at > 0 ? at - 1 : 0, next));
      --count;
      if (at_end) return out;
      runtime.append(out, text, at, next);
      at = next;
    }
    runtime.append(out, text, at, bytes.size());
    return out;
  }
  while (count != 0) {
    const void* found = memmem(bytes.data() + at, bytes.size() - at, from.bytes().data(), from.size());
    if (found == nullptr) break;
    const auto begin = static_cast<size_t>(static_cast<const char*>(found) - bytes.data());
    runtime.append(out, text, at, begin);
    put(text.origin(begin, begin + from.size()));
    at = begin + from.size();
    --count;
  }
  runtime.append(out, text, at, bytes.size());
  return out;
}

std::vector<Value> split_lines(Runtime& runtime, const MarkedText& text) {
  std::vector<Value> lines;
  const std::string_view bytes = text.bytes();
  runtime.read(bytes.size());
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = code_point_at(bytes, at);
    const size_t end = at;
    at += c.bytes;
    const bool is_break = (c.value >= '\n' && c.value <= '\r') || (c.value >= 0x1C && c.value <= 0x1E) || c.value == 0x85 ||
                          c.value == 0x2028 || c.value == 0x2029;
    if (!is_break) continue;
    if (c.value == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.emplace_back(runtime.slice(text, begin, end));
    runtime.step();
    begin = at;
  }
  if (begin < bytes.size()) lines.emplace_back(runtime.slice(text, begin, bytes.size()));
  return lines;
}

MarkedText join(Runtime& runtime, const MarkedText& separator, const std::vector<Value>& parts) {
  MarkedText out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) runtime.append(out, separator);
    refuse_safe(runtime, parts[i]);
    runtime.append(out, to_text(runtime, parts[i]));
  }
  return out;
}

}  // namespace regard::jinja
