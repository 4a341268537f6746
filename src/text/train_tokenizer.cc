// Characters and bytes, and what all trainers share.
#include "text/train_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/check.h"
#include "text/byte_level.h"
#include "text/utf8.h"

namespace regard {
namespace {

// Between two looks at the stop token: a few milliseconds.
constexpr size_t kStride = size_t{1} << 20;

std::string byte_characters(uint32_t byte) {
  std::string piece;
  append_utf8(piece, kByteCharacters[byte]);
  return piece;
}

std::map<char32_t, int64_t> count_characters(std::span<const std::string> texts, const TokenizerTraining& training) {
  uint64_t total = 0, before = 0;
  for (const std::string& text : texts) total += text.size();
  std::map<char32_t, int64_t> counts;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string_view text = texts[i];
    size_t next_look = 0;
    for (size_t at = 0; at < text.size();) {
      if (at >= next_look) {
        check_stop(training);
        if (training.progress) training.progress("counting characters", before + at, total);
        next_look = at + kStride;
      }
      const Utf8Char c = next_char(text.substr(at));
      require(c.valid(), "[train_tokenizer] text {} is not UTF-8 at byte {}; a character tokenizer needs UTF-8, bytes and byte pairs do not",
              i, at);
      ++counts[c.code_point];
      at += c.size;
    }
    before += text.size();
  }
  return counts;
}

}  // namespace

void check_stop(const TokenizerTraining& training) {
  if (training.stop != nullptr && training.stop->stop_requested()) fail(Code::kCancelled, "[train_tokenizer] stopped on request");
}

void add_special_tokens(const TokenizerTraining& training, TokenizerSpec& spec) {
  std::unordered_set<std::string> taken(spec.pieces.begin(), spec.pieces.end()), special;
  const auto add = [&](const std::string& token) {
    AddedTokenSpec added;
    added.content = token;
    added.id = static_cast<int32_t>(spec.pieces.size());
    added.special = true;
    special.insert(token);
    spec.pieces.push_back(token);
    spec.added.push_back(std::move(added));
  };
  if (training.unknown == UnknownCharacters::kToken) add(std::string(kUnknownToken));
  for (const std::string& token : training.special) {
    if (training.unknown == UnknownCharacters::kToken && token == kUnknownToken) continue;
    require(!token.empty() && token.size() <= kMaxAddedTokenBytes && valid_prefix(token) == token.size(),
            "[train_tokenizer] the special token '{}' is empty, not UTF-8 or over {} bytes", token, kMaxAddedTokenBytes);
    require(!special.contains(token), "[train_tokenizer] the special token '{}' is there twice", token);
    require(!taken.contains(token), "[train_tokenizer] the special token '{}' is spelt like a token that text becomes; choose a name "
            "that does not occur in the text, such as <|{}|>", token, token);
    add(token);
  }
}

TokenizerSpec train_characters(std::span<const std::string> texts, const TokenizerTraining& training) {
  const int64_t min_count = std::max<int64_t>(training.min_count, 1);
  TokenizerSpec spec;
  spec.origin = "the trained tokenizer";
  for (const auto& [code_point, count] : count_characters(texts, training)) {
    if (count < min_count) continue;
    std::string piece;
    append_utf8(piece, code_point);
    spec.pieces.push_back(std::move(piece));
  }
  require(!spec.pieces.empty(), "[train_tokenizer] no character occurs {} times in the texts; there is nothing to make tokens of", min_count);
  spec.model = WordLevelSpec{std::string(kUnknownToken)};
  // A piece is one character, line ends included; Oniguruma has no other spelling of it that PCRE2 shares.
  spec.pre_tokenizer = {SplitStep{{TextPattern::Kind::kRegex, R"([\s\S])"}, SplitBehavior::kIsolated, false}};
  spec.decoder = {FuseDecode{}};
  add_special_tokens(training, spec);
  return spec;
}

TokenizerSpec train_bytes(const TokenizerTraining& training) {
  TokenizerSpec spec;
  spec.origin = "the trained tokenizer";
  for (uint32_t byte = 0; byte < 256; ++byte) spec.pieces.push_back(byte_characters(byte));
  spec.model = BpeSpec{};
  spec.pre_tokenizer = {ByteLevelStep{.add_prefix_space = false, .use_regex = false}};
  spec.decoder = {ByteLevelDecode{}};
  add_special_tokens(training, spec);
  return spec;
}

}  // namespace regard
