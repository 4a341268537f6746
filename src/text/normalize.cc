// The normalizer steps. They see the text with its broken bytes: literal replacement does not mind them, the others work on the
// well-formed stretches between them.
#include <utf8proc.h>

#include <algorithm>

#include "text/pieces.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace regard {
namespace {

/// Calls good(stretch) and bad(stretch) for the well-formed and broken stretches of `text` in order.
template <class Good, class Bad>
void for_each_stretch(std::string_view text, Good&& good, Bad&& bad) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t valid = valid_prefix(text.substr(at));
    if (valid > 0) good(text.substr(at, valid));
    at += valid;
    size_t broken = 0;
    while (at + broken < text.size()) {
      const Utf8Char c = next_char(text.substr(at + broken));
      if (c.valid()) break;
      broken += c.size;
    }
    if (broken > 0) bad(text.substr(at, broken));
    at += broken;
  }
}

std::string replace_literal(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (size_t found; (found = text.find(from, at)) != std::string_view::npos; at = found + from.size()) {
    out += text.substr(at, found - at);
    out += to;
  }
  out += text.substr(at);
  return out;
}

void replace_regex(std::string& out, std::string_view text, const Regex& regex, std::string_view to, RegexScratch& scratch) {
  size_t at = 0, from = 0;
  Regex::Match match;
  while (from <= text.size() && regex.search(text, from, match, scratch)) {
    out += text.substr(at, match.begin - at);
    out += to;
    at = match.end;
    from = match.end;
    if (match.begin == match.end) {  // step over one character, or the same empty match would be found for ever
      if (from == text.size()) break;
      from += next_char(text.substr(from)).size;
    }
  }
  out += text.substr(at);
}

bool is_space(std::string_view character) {
  const Utf8Char c = next_char(character);
  return c.valid() && c.size == character.size() && is_white_space(c.code_point);
}

std::string strip(std::string_view text, const StripStep& ends) {
  while (ends.left && !text.empty()) {
    const size_t size = next_char(text).size;
    if (!is_space(text.substr(0, size))) break;
    text.remove_prefix(size);
  }
  while (ends.right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!is_space(text.substr(begin))) break;
    text.remove_suffix(text.size() - begin);
  }
  return std::string(text);
}

}  // namespace

std::string to_nfc(std::string_view text) {
  if (std::none_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) >= 0x80; })) return std::string(text);
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = next_char(text.substr(at));
    at += c.size;
    int boundary = 0;
    utf8proc_int32_t parts[32];  // the longest canonical decomposition of one character has 4
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code_point), parts, 32, UTF8PROC_DECOMPOSE, &boundary);
    points.insert(points.end(), parts, parts + std::clamp<utf8proc_ssize_t>(count, 0, 32));
  }
  // Canonical order: each run of marks by combining class, those of one class as they stood. The library would sort by exchange,
  // quadratically. Class, place and code point make one number of 8 + 35 + 21 bits.
  const auto combining_class = [](utf8proc_int32_t p) { return static_cast<uint64_t>(utf8proc_get_property(p)->combining_class); };
  std::vector<uint64_t> keys;
  for (auto run = points.begin(); run != points.end();) {
    run = std::find_if(run, points.end(), [&](auto p) { return combining_class(p) != 0; });
    const auto end = std::find_if(run, points.end(), [&](auto p) { return combining_class(p) == 0; });
    keys.clear();
    for (auto p = run; p != end; ++p) keys.push_back(combining_class(*p) << 56 | uint64_t{keys.size()} << 21 | static_cast<uint64_t>(*p));
    std::sort(keys.begin(), keys.end());
    for (const uint64_t key : keys) *run++ = static_cast<utf8proc_int32_t>(key & 0x1FFFFF);
  }
  const auto composed = utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < composed; ++i) append_utf8(out, static_cast<char32_t>(points[static_cast<size_t>(i)]));
  return out;
}

Result<std::vector<CompiledNormalizer>> compile_normalizer(const std::vector<NormalizerStep>& steps) {
  std::vector<CompiledNormalizer> compiled;
  for (const NormalizerStep& step : steps) {
    if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
      CompiledReplace out{{}, std::nullopt, replace->content};
      if (replace->pattern.text.empty()) return corrupt("[build_tokenizer] normalizer Replace has an empty pattern");
      if (replace->pattern.kind == TextPattern::Kind::kLiteral) {
        out.literal = replace->pattern.text;
      } else {
        REGARD_TRY(out.regex, Regex::compile(replace->pattern.text));
      }
      compiled.emplace_back(std::move(out));
    } else if (const auto* prepend = std::get_if<PrependStep>(&step)) {
      compiled.emplace_back(*prepend);
    } else if (const auto* precompiled = std::get_if<PrecompiledStep>(&step)) {
      REGARD_TRY(Charsmap map, Charsmap::make(precompiled->charsmap));
      compiled.emplace_back(std::move(map));
    } else if (const auto* strip = std::get_if<StripStep>(&step)) {
      compiled.emplace_back(*strip);
    } else {
      compiled.emplace_back(NfcStep{});
    }
  }
  return compiled;
}

std::string run_normalizer(const std::vector<CompiledNormalizer>& steps, std::string_view text, RegexScratch& scratch) {
  std::string current(text);
  for (const CompiledNormalizer& step : steps) {
    if (const auto* prepend = std::get_if<PrependStep>(&step)) {
      if (!current.empty()) current.insert(0, prepend->text);
      continue;
    }
    if (const auto* ends = std::get_if<StripStep>(&step)) {
      current = strip(current, *ends);
      continue;
    }
    const auto* map = std::get_if<Charsmap>(&step);
    const auto* replace = std::get_if<CompiledReplace>(&step);
    if (replace != nullptr && !replace->regex) {
      current = replace_literal(current, replace->literal, replace->content);
      continue;
    }
    std::string next;
    for_each_stretch(
        current,
        [&](std::string_view good) {
          if (replace != nullptr) {
            replace_regex(next, good, *replace->regex, replace->content, scratch);
          } else if (map != nullptr) {
            map->append_normalized(good, next);
          } else {
            next += to_nfc(good);
          }
        },
        [&](std::string_view bad) { next += bad; });
    current = std::move(next);
  }
  return current;
}

}  // namespace regard
