// Small tokenizers of our own for the tests: every kind of pipeline, with vocabularies made by a rule.
#pragma once

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "text/builtin_pre.h"
#include "text/byte_level.h"
#include "text/tokenizer_spec.h"
#include "text/utf8.h"

namespace regard::small {

using Merges = std::vector<std::pair<std::string, std::string>>;

inline std::string mapped(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_utf8(out, kByteCharacters[static_cast<uint8_t>(c)]);
  return out;
}

/// Merges that build runs of 2, 4, 8, 16 of the common characters, and some words.
inline Merges run_and_word_merges() {
  Merges merges;
  for (const std::string_view unit : {"a", " ", "7", "\n", "'", "us", "\t"}) {
    std::string run = mapped(unit.substr(0, 1));
    if (unit.size() == 2) {
      merges.emplace_back(run, mapped(unit.substr(1)));
      run = mapped(unit);
    }
    for (int doubling = 0; doubling < 4; ++doubling) {
      merges.emplace_back(run, run);
      run += run;
    }
  }
  for (const std::string_view word : {"the", " the", "hello", "world", " wor", "\xC3\xA9", "\xE2\x80\x8D"}) {
    std::string left = mapped(word.substr(0, 1));
    for (size_t i = 1; i < word.size(); ++i) {
      const std::string right = mapped(word.substr(i, 1));
      merges.emplace_back(left, right);
      left += right;
    }
  }
  std::set<std::pair<std::string, std::string>> seen;
  std::erase_if(merges, [&](const auto& merge) { return !seen.insert(merge).second; });
  return merges;
}

/// Adds to `pieces` what the merges make, where it is not there yet.
inline void add_merged(std::vector<std::string>& pieces, const Merges& merges) {
  std::set<std::string> have(pieces.begin(), pieces.end());
  for (const auto& [left, right] : merges) {
    if (have.insert(left + right).second) pieces.push_back(left + right);
  }
}

inline AddedTokenSpec special(std::string text, int32_t id) { return {.content = std::move(text), .id = id, .special = true}; }

/// Byte-level BPE with a built-in splitter. Ids 0 to 2 are special: <|start|>, <|end|>, <|im_end|>; then the 256 bytes.
inline TokenizerSpec byte_level(std::string_view pre = "gpt-2") {
  TokenizerSpec spec;
  spec.pieces = {"<|start|>", "<|end|>", "<|im_end|>"};
  for (uint32_t byte = 0; byte < 256; ++byte) spec.pieces.push_back(mapped(std::string(1, static_cast<char>(byte))));
  BpeSpec bpe;
  bpe.merges = run_and_word_merges();
  add_merged(spec.pieces, bpe.merges);
  spec.model = std::move(bpe);
  spec.pre_tokenizer = builtin_pre_tokenizer(pre).value_or_throw().steps;
  spec.decoder = {ByteLevelDecode{}};
  for (int32_t id = 0; id < 3; ++id) spec.added.push_back(special(spec.pieces[static_cast<size_t>(id)], id));
  spec.bos = 0, spec.eos = 1;
  spec.prefix = {0}, spec.suffix = {1};
  return spec;
}

/// Merging by score with byte fallback, as "llama" files have it. Ids 0 to 2: <unk>, <s>, </s>; 3 to 258: bytes.
inline TokenizerSpec scored() {
  TokenizerSpec spec;
  spec.pieces = {"<unk>", "<s>", "</s>"};
  spec.kinds = {TokenKind::kUnknown, TokenKind::kControl, TokenKind::kControl};
  for (int byte = 0; byte < 256; ++byte) spec.pieces.push_back(fmt::format("<0x{:02X}>", byte)), spec.kinds.push_back(TokenKind::kByte);
  for (const char* piece : {"\xE2\x96\x81", "a", "b", "c", "e", "h", "l", "o", "t", "s", "u", "7", "'", "aa", "aaa", "aaaa", "he", "hel",
                            "hell", "lo", "hello", "\xE2\x96\x81h", "\xE2\x96\x81t", "\xE2\x96\x81the", "th", "the", "us", "usus", "\xE2\x96\x81\xE2\x96\x81",
                            "\xE2\x96\x81\xE2\x96\x81\xE2\x96\x81\xE2\x96\x81", "77", "7777", "''", "ab", "ba", "bab", "aab", "\xCC\x81", "\xF0\x9F\x98\x80"})
    spec.pieces.emplace_back(piece);
  spec.pieces.emplace_back("\n\n");
  spec.kinds.resize(spec.pieces.size() - 1, TokenKind::kNormal);
  spec.kinds.push_back(TokenKind::kUserDefined);
  SpmSpec spm;
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    // Longer pieces score higher or lower without order, some alike.
    spm.scores.push_back(-static_cast<float>(random_bits(7, 0, id) % 16));
  }
  spec.model = std::move(spm);
  spec.normalizer = {ReplaceStep{{TextPattern::Kind::kLiteral, " "}, "\xE2\x96\x81"}};
  spec.decoder = {ReplaceDecode{"\xE2\x96\x81", " "}, ByteFallbackDecode{}, FuseDecode{}};
  spec.added = {special("<unk>", 0), special("<s>", 1), special("</s>", 2),
                {.content = "\n\n", .id = static_cast<int32_t>(spec.pieces.size() - 1)}};
  spec.added_order = AddedTokenOrder::kLongestFirst;
  spec.bos = 1, spec.eos = 2, spec.unk = 0;
  spec.prefix = {1};
  return spec;
}

/// BPE by rank with byte fallback over whole texts, as Llama 2 and Gemma have it.
inline TokenizerSpec byte_fallback() {
  TokenizerSpec spec = scored();
  spec.kinds.clear();
  spec.pieces.pop_back();
  BpeSpec bpe;
  bpe.byte_fallback = true;
  bpe.unk_token = "<unk>";
  bpe.fuse_unk = true;
  bpe.merges = {{"a", "a"}, {"aa", "aa"}, {"h", "e"}, {"l", "o"}, {"he", "l"}, {"hel", "lo"}, {"t", "h"}, {"th", "e"}, {"u", "s"}, {"us", "us"},
                {"\xE2\x96\x81", "\xE2\x96\x81"}, {"7", "7"}, {"77", "77"}, {"'", "'"}, {"a", "b"}, {"\xE2\x96\x81", "the"}};
  spec.model = std::move(bpe);
  spec.added.pop_back();
  spec.added_order = AddedTokenOrder::kLeftmostLongest;
  return spec;
}

inline Tokenizer build(TokenizerSpec spec) { return build_tokenizer(std::move(spec)).value_or_throw(); }

/// A random text: ASCII, letters of several scripts, marks, emoji, runs; with `broken`, bytes that are not UTF-8 too.
enum class Broken { kNo, kYes };
inline std::string random_text(uint64_t seed, Broken broken) {
  std::string text;
  uint64_t index = 0;
  const auto draw = [&](uint64_t n) { return random_bits(seed, 1, index++) % n; };
  const uint64_t parts = draw(24);
  for (uint64_t i = 0; i < parts; ++i) {
    switch (draw(broken == Broken::kYes ? 9 : 8)) {
      case 0: text += "hello the world"; break;
      case 1: text.append(draw(12), " a7\n'\t"[draw(6)]); break;
      case 2: append_utf8(text, static_cast<char32_t>(0x20 + draw(0x5F))); break;
      case 3: append_utf8(text, static_cast<char32_t>(0x80 + draw(0x2000))); break;
      case 4: append_utf8(text, static_cast<char32_t>(0x4E00 + draw(0x1000))); break;
      case 5: append_utf8(text, static_cast<char32_t>(0x1F600 + draw(64))); break;
      case 6: text += "e\xCC\x81\xE2\x80\x8D"; break;
      case 7: text += "us 123 <|end|> </s> \n\n"; break;
      default:
        for (uint64_t n = draw(4) + 1; n > 0; --n) text += static_cast<char>(0x80 + draw(0x80));
    }
  }
  return text;
}

}  // namespace regard::small
