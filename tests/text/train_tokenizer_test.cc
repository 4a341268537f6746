// The trainers: byte pairs against a trainer that counts everything anew for each merge, words against one look at the whole text.
#include "text/train_tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "base/rng.h"
#include "regard/error.h"
#include "text/builtin_pre.h"
#include "text/byte_level.h"
#include "text/pieces.h"
#include "text/utf8.h"

namespace regard {
namespace {

std::string golden_text(const std::string& name) {
  std::ifstream in(std::string(REGARD_TEST_DATA) + "/golden/text/" + name, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The words of an ASCII text by the rule that the pattern of GPT-2 writes down, character by character.
std::vector<std::string> ascii_words(const std::string& text) {
  const auto kind = [](char c) { return isspace(c) ? 0 : isalpha(c) ? 1 : isdigit(c) ? 2 : 3; };
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    for (const std::string_view tail : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
      if (std::string_view(text).substr(at).starts_with(tail)) end = at + tail.size();
    }
    if (end == at) {
      // One space belongs to the word behind it; other white space stands alone, the last of it too when a word follows.
      const size_t begin = text[at] == ' ' && at + 1 < text.size() && kind(text[at + 1]) != 0 ? at + 1 : at;
      for (end = begin + 1; end < text.size() && kind(text[end]) == kind(text[begin]);) ++end;
      if (kind(text[begin]) == 0 && end < text.size() && end - begin > 1) --end;
    }
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

using Merges = std::vector<std::pair<std::string, std::string>>;

/// Merges by the definition: all pairs of all words are counted anew each time.
Merges counted_merges(const std::vector<std::string>& words, size_t merges_wanted, int64_t min_count) {
  std::vector<std::string> pieces;
  std::map<std::string, int> ids;
  for (char32_t c = 0; c < kByteLevelEnd; ++c) {
    if (!byte_of_character(c)) continue;
    std::string piece;
    append_utf8(piece, c);
    ids.emplace(piece, static_cast<int>(pieces.size()));
    pieces.push_back(piece);
  }
  std::vector<std::vector<int>> texts;
  for (const std::string& word : words) {
    texts.emplace_back();
    for (const char byte : word) {
      std::string piece;
      append_utf8(piece, kByteCharacters[static_cast<uint8_t>(byte)]);
      texts.back().push_back(ids.at(piece));
    }
  }
  Merges merges;
  while (merges.size() < merges_wanted) {
    std::map<std::pair<int, int>, int64_t> counts;
    for (const auto& text : texts)
      for (size_t i = 1; i < text.size(); ++i) ++counts[{text[i - 1], text[i]}];
    int64_t most = min_count - 1;
    std::pair<int, int> best;
    for (const auto& [pair, count] : counts) {  // in the order of ids: the first of equals wins
      const std::string joined = pieces[static_cast<size_t>(pair.first)] + pieces[static_cast<size_t>(pair.second)];
      if (count > most && !ids.contains(joined)) most = count, best = pair;
    }
    if (most < min_count) break;
    const std::string left = pieces[static_cast<size_t>(best.first)], right = pieces[static_cast<size_t>(best.second)];
    const int merged = static_cast<int>(pieces.size());
    merges.emplace_back(left, right);
    ids.emplace(left + right, merged);
    pieces.push_back(left + right);
    for (auto& text : texts) {
      std::vector<int> next;
      for (size_t i = 0; i < text.size(); ++i) {
        const bool both = i + 1 < text.size() && text[i] == best.first && text[i + 1] == best.second;
        next.push_back(both ? merged : text[i]);
        i += both ? 1 : 0;
      }
      text = std::move(next);
    }
  }
  return merges;
}

TokenizerSpec trained(const std::string& text, int64_t vocab_size, int64_t min_count = 0) {
  TokenizerTraining training;
  training.kind = TokenizerKind::kBytePairs;
  training.vocab_size = vocab_size;
  training.min_count = min_count;
  return train_byte_pairs(std::vector<std::string>{text}, training);
}

const Merges& merges_of(const TokenizerSpec& spec) { return std::get<BpeSpec>(spec.model).merges; }

TEST(TrainBytePairs, ProseGivesTheMergesOfCountingAnew) {
  const std::string text = golden_text("shakespeare.txt").substr(0, 12000);
  const TokenizerSpec spec = trained(text, 256 + 250);
  const Merges expected = counted_merges(ascii_words(text), 250, 2);
  ASSERT_EQ(expected.size(), 250u);
  EXPECT_EQ(merges_of(spec), expected);
  EXPECT_EQ(spec.pieces.size(), 506u);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(spec.pieces[256 + i], expected[i].first + expected[i].second);
}

TEST(TrainBytePairs, RunsAndTiesGiveTheMergesOfCountingAnew) {
  // Two or three letters make overlapping runs, the same token on several ways, and equal counts all the time.
  size_t merges = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::string text;
    const uint64_t letters = 1 + seed % 3, length = 20 + 5 * seed;
    for (uint64_t i = 0; i < length; ++i) text += random_bits(seed, 0, i) % 19 == 0 ? ' ' : static_cast<char>('a' + random_bits(seed, 1, i) % letters);
    const auto min_count = static_cast<int64_t>(1 + seed % 4);
    const Merges expected = counted_merges(ascii_words(text), 40, min_count);
    EXPECT_EQ(merges_of(trained(text, 256 + 40, min_count)), expected) << seed;
    merges += expected.size();
  }
  EXPECT_GT(merges, 800u);
}

TEST(TrainBytePairs, RandomBytesComeBack) {
  const std::string prose = golden_text("shakespeare.txt"), poems = golden_text("tang.txt");
  const Tokenizer tokenizer = build_tokenizer(trained(prose.substr(0, 20000) + poems, 600)).value_or_throw();
  EXPECT_EQ(tokenizer.vocab_size(), 600);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::string bytes;
    for (uint64_t i = 0; i < 3 * seed; ++i) bytes += static_cast<char>(static_cast<uint8_t>(random_bits(seed, 0, i)));
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes), {.invalid = InvalidUtf8::kKeep}), bytes);
  }
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(prose)), prose);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(poems)), poems);
  EXPECT_LT(tokenizer.encode(prose).size(), prose.size() * 6 / 10);
}

TEST(TrainBytePairs, TheOrderAndCutOfTextsChangesNothingInsideWords) {
  const std::string text = golden_text("shakespeare.txt");
  const size_t cut = text.find("\n\n", 10000);
  TokenizerTraining training;
  training.kind = TokenizerKind::kBytePairs;
  training.vocab_size = 400;
  const auto parts = train_byte_pairs(std::vector<std::string>{text.substr(cut), text.substr(0, cut)}, training);
  EXPECT_EQ(merges_of(parts), merges_of(trained(text, 400)));
}

TEST(TrainBytePairs, StopsWhenNoPairIsLeftAndRefusesWhatDoesNotFit) {
  EXPECT_EQ(merges_of(trained("ab ab", 1000)), (Merges{{"a", "b"}}));
  EXPECT_TRUE(merges_of(trained("", 1000)).empty());
  EXPECT_THROW(trained("ab", 255), Error);
  TokenizerTraining training;
  training.kind = TokenizerKind::kBytePairs;
  training.vocab_size = 300;
  training.special = {"ab"};
  EXPECT_THROW(train_byte_pairs(std::vector<std::string>{"ab ab ab"}, training), Error);
  StopToken stop;
  stop.request_stop();
  training.stop = &stop;
  try {
    train_byte_pairs(std::vector<std::string>{"ab ab ab"}, training);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kCancelled);
  }
}

TEST(TrainWords, ChunksOfALongTextGiveTheWordsOfTheWhole) {
  // White space of all kinds around the places where a chunk may end, and broken bytes.
  std::string text;
  const std::string_view units[] = {"word", " ", "\n", "\n\n", "\r\n", "\xE3\x80\x80", "\xE3\x80\x82", "12", ".", "\xFF", "'s", "\t", "\xC2\xA0"};
  for (uint64_t i = 0; text.size() < size_t{5} << 19; ++i) text += units[random_bits(5, 0, i) % std::size(units)];
  const SplitStep split{{TextPattern::Kind::kRegex, std::string(kGpt2Pattern)}, SplitBehavior::kIsolated, false};
  RegexScratch scratch;
  const TextPieces whole = run_pre_tokenizer(compile_pre_tokenizer({split}).value_or_throw(), text, InputStart::kNo, scratch);
  WordCounts expected;
  for (const Piece& piece : whole.pieces) ++expected[std::string(whole.view(piece))];
  std::vector<uint64_t> progress;
  TokenizerTraining training;
  training.progress = [&](std::string_view, uint64_t done, uint64_t total) {
    progress.push_back(done);
    EXPECT_EQ(total, text.size());
  };
  EXPECT_EQ(count_words(std::vector<std::string>{text}, training), expected);
  EXPECT_EQ(progress.size(), 3u);
}

TEST(TrainCharacters, OneIdPerCodePointInTheirOrder) {
  const std::string poems = golden_text("tang.txt");
  std::set<std::string> seen;  // bytes of UTF-8 sort as code points do
  for (size_t at = 0; at < poems.size();) {
    const size_t size = next_char(std::string_view(poems).substr(at)).size;
    seen.insert(poems.substr(at, size));
    at += size;
  }
  const TokenizerSpec spec = train_characters(std::vector<std::string>{poems}, {});
  EXPECT_EQ(spec.pieces, std::vector<std::string>(seen.begin(), seen.end()));
  const Tokenizer tokenizer = build_tokenizer(spec).value_or_throw();
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(poems)), poems);
  EXPECT_EQ(tokenizer.encode("\n"), (std::vector<int32_t>{0}));
}

TEST(TrainCharacters, UnknownCharactersAreNamedOrBecomeTheirToken) {
  TokenizerTraining training;
  const Tokenizer strict = build_tokenizer(train_characters(std::vector<std::string>{"abc", "c d"}, training)).value_or_throw();
  EXPECT_EQ(strict.vocab_size(), 5);
  EXPECT_EQ(strict.encode(" dcba"), (std::vector<int32_t>{0, 4, 3, 2, 1}));
  for (const auto& [text, named] : {std::pair{"ab\xE5\xA5\xBD", "'\xE5\xA5\xBD' (U+597D)"}, std::pair{"a\xFF", "0xFF"}}) {
    try {
      strict.encode(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
    }
  }
  training.unknown = UnknownCharacters::kToken;
  training.min_count = 2;
  training.special = {"<|end|>"};
  const Tokenizer lenient = build_tokenizer(train_characters(std::vector<std::string>{"abc", "cab d"}, training)).value_or_throw();
  EXPECT_EQ(lenient.vocab_size(), 5);
  EXPECT_EQ(lenient.unk(), 3);
  EXPECT_EQ(lenient.encode("adc\n"), (std::vector<int32_t>{0, 3, 2, 3}));
  EXPECT_EQ(lenient.encode("c<|end|>a", {.special = SpecialTokens::kParse}), (std::vector<int32_t>{2, 4, 0}));
  EXPECT_EQ(lenient.decode(std::vector<int32_t>{0, 3, 1}, {.special = SpecialText::kShow}), "a<unk>b");
}

TEST(TrainCharacters, RefusesBrokenTextsAndSpecialTokensThatAreCharacters) {
  EXPECT_THROW(train_characters(std::vector<std::string>{"ab\xC3"}, {}), Error);
  EXPECT_THROW(train_characters(std::vector<std::string>{""}, {}), Error);
  for (const std::string token : {"a", "", "\xFF"}) {
    TokenizerTraining training;
    training.special = {token};
    EXPECT_THROW(train_characters(std::vector<std::string>{"abc"}, training), Error) << token;
  }
  TokenizerTraining twice;
  twice.special = {"<x>", "<x>"};
  EXPECT_THROW(train_characters(std::vector<std::string>{"abc"}, twice), Error);
}

TEST(TrainBytes, TheIdIsTheByte) {
  TokenizerTraining training;
  training.special = {"<s>"};
  const Tokenizer tokenizer = build_tokenizer(train_bytes(training)).value_or_throw();
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  std::string bytes;
  std::vector<int32_t> ids;
  for (int32_t byte = 0; byte < 256; ++byte) {
    bytes += static_cast<char>(static_cast<uint8_t>(byte));
    ids.push_back(byte);
  }
  EXPECT_EQ(tokenizer.encode(bytes), ids);
  EXPECT_EQ(tokenizer.decode(ids, {.invalid = InvalidUtf8::kKeep}), bytes);
}

}  // namespace
}  // namespace regard
