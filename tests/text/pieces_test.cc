// Regular expressions, normalizers and splitters. Expected values come from PyPI tokenizers 0.23 (Oniguruma) unless said otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <ctime>

#include "regard/error.h"
#include "text/builtin_pre.h"
#include "text/pieces.h"
#include "text/small_tokenizers.h"

namespace regard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> cut(const std::vector<PreTokenizerStep>& steps, std::string text, InputStart start = InputStart::kYes) {
  RegexScratch scratch;
  const TextPieces pieces = run_pre_tokenizer(compile_pre_tokenizer(steps).value_or_throw(), std::move(text), start, scratch);
  std::vector<std::string> out;
  for (const Piece& piece : pieces.pieces) out.emplace_back(pieces.view(piece));
  return out;
}

std::vector<std::string> split(std::string pattern, std::string text, SplitBehavior behavior = SplitBehavior::kIsolated,
                               bool invert = false) {
  return cut({SplitStep{{TextPattern::Kind::kRegex, std::move(pattern)}, behavior, invert}}, std::move(text));
}

TEST(Regex, WhiteSpaceIsTheUnicodeProperty) {
  EXPECT_THAT(split(R"(\s+)", "a\xE1\xA0\x8E" "b"), ElementsAre("a\xE1\xA0\x8E" "b"));  // U+180E is none
  EXPECT_THAT(split(R"(\s+)", "a\xC2\x85" "b\xE2\x80\x8B" "c\xE2\x80\xA8" "d\xEF\xBB\xBF" "e"),
              ElementsAre("a", "\xC2\x85", "b\xE2\x80\x8B" "c", "\xE2\x80\xA8", "d\xEF\xBB\xBF" "e"));
  EXPECT_THAT(split(R"([^\S\n]+)", "a \n b"), ElementsAre("a", " ", "\n", " ", "b"));
  EXPECT_THAT(split(R"([^\S\n]+)", "a\xE1\xA0\x8E" "b"), ElementsAre("a\xE1\xA0\x8E" "b"));
}

TEST(Regex, EveryCodePointIsSpaceOrNot) {
  const Regex space = Regex::compile(R"(\A\s\z)").value_or_throw(), none = Regex::compile(R"(\A\S\z)").value_or_throw();
  const Regex in_class = Regex::compile(R"(\A[\S]\z)").value_or_throw();
  RegexScratch scratch;
  Regex::Match match;
  for (char32_t c = 0; c < 0x30000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    // The property White_Space of Unicode, which has not changed since version 6.3.
    const bool expected = (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
                          c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
    ASSERT_EQ(space.search(text, 0, match, scratch), expected) << std::hex << static_cast<uint32_t>(c);
    ASSERT_EQ(none.search(text, 0, match, scratch), !expected) << std::hex << static_cast<uint32_t>(c);
    ASSERT_EQ(in_class.search(text, 0, match, scratch), !expected) << std::hex << static_cast<uint32_t>(c);
  }
}

TEST(Regex, LinesAndClassesAsOniguruma) {
  EXPECT_THAT(split("a$", "ba\nca\n"), ElementsAre("b", "a", "\nc", "a", "\n"));
  EXPECT_THAT(split("^a", "ab\nac"), ElementsAre("a", "b\n", "a", "c"));
  EXPECT_THAT(split("a.b", "a\nb"), ElementsAre("a\nb"));
  EXPECT_THAT(split(R"(\d+)", "a1\xD9\xA3" "2b"), ElementsAre("a", "1\xD9\xA3" "2", "b"));
  EXPECT_THAT(split(R"(\w+)", "\xC3\xA9_a-b"), ElementsAre("\xC3\xA9_a", "-", "b"));
  EXPECT_THAT(split(R"(\b)", "ab cd"), ElementsAre("ab", " ", "cd"));
  EXPECT_THAT(split("x*", "axb"), ElementsAre("a", "x", "b"));
  EXPECT_THAT(split(R"((?i:'s))", "a'\xC5\xBF" "b"), ElementsAre("a", "'\xC5\xBF", "b"));
}

TEST(Regex, RefusesWhatTheTwoEnginesReadDifferently) {
  for (const char* pattern : {R"(\h+)", R"([a[bc]]+)", R"([a-z&&[^b]]+)", R"(\Qa\E)", "(*LIMIT_MATCH=1)a", R"(\Ca)"}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_FALSE(regex) << pattern;
    EXPECT_EQ(regex.failure().code, Code::kUnsupported) << pattern;
  }
  for (const char* pattern : {"(", "[a", "a\\", "*", "\xFF"}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_FALSE(regex) << pattern;
    EXPECT_EQ(regex.failure().code, Code::kCorruptData) << pattern;
  }
}

TEST(Regex, CatastrophicPatternsGiveUp) {
  const Regex regex = Regex::compile("(?:a+)+$").value_or_throw();
  RegexScratch scratch;
  Regex::Match match;
  try {
    regex.search(std::string(60, 'a') + "c", 0, match, scratch);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kResourceExhausted);
    EXPECT_THAT(error.what(), HasSubstr("(?:a+)+$"));
  }
}

TEST(Split, BehavioursAndInversion) {
  using enum SplitBehavior;
  EXPECT_THAT(split(R"(\d)", "a12b", kContiguous), ElementsAre("a", "12", "b"));
  EXPECT_THAT(split(R"(\d)", "a12b", kMergedWithPrevious), ElementsAre("a1", "2", "b"));
  EXPECT_THAT(split(R"(\d)", "a12b3", kMergedWithNext), ElementsAre("a", "1", "2b", "3"));
  EXPECT_THAT(split(R"(\d)", "a12b", kRemoved), ElementsAre("a", "b"));
  EXPECT_THAT(split(R"(\d)", "a12b", kRemoved, true), ElementsAre("1", "2"));
  EXPECT_THAT(split(R"(\d)", "a12b", kIsolated), ElementsAre("a", "1", "2", "b"));
  EXPECT_THAT(cut({SplitStep{{TextPattern::Kind::kLiteral, "a+"}, kIsolated, false}}, "aa+b"), ElementsAre("a", "a+", "b"));
}

TEST(Split, BuiltInPatterns) {
  // The examples of the ByteLevel pre-tokenizer's documentation and tests.
  EXPECT_THAT(split(std::string(kGpt2Pattern), "Hello my friend, how is your day going?"),
              ElementsAre("Hello", " my", " friend", ",", " how", " is", " your", " day", " going", "?"));
  EXPECT_THAT(split(std::string(kGpt2Pattern), "Hello there       dear"), ElementsAre("Hello", " there", "      ", " dear"));
  EXPECT_THAT(split(std::string(kGpt2Pattern), "Hello there\nHello there"), ElementsAre("Hello", " there", "\n", "Hello", " there"));
  EXPECT_THAT(split(std::string(kLlama3Pattern), "I'M 12345\n\n x"), ElementsAre("I", "'M", " ", "123", "45", "\n\n", " x"));
  EXPECT_THAT(split(std::string(kQwen2Pattern), "123"), ElementsAre("1", "2", "3"));
}

TEST(Split, UnknownBuiltInsAreNamed) {
  for (const char* pre : {"default", "tekken", ""}) {
    const auto builtin = builtin_pre_tokenizer(pre);
    ASSERT_FALSE(builtin);
    EXPECT_EQ(builtin.failure().code, Code::kUnsupported);
    EXPECT_THAT(builtin.failure().message, HasSubstr(std::string("'") + pre + "'"));
    EXPECT_THAT(builtin.failure().message, HasSubstr("gpt-2, smollm, llama-bpe, qwen2"));
  }
}

TEST(Metaspace, SchemesAndPieces) {
  using Scheme = MetaspaceStep::Scheme;
  const std::string mark = "\xE2\x96\x81";
  const auto run = [&](Scheme scheme, bool splits, const char* text, InputStart start) {
    return cut({MetaspaceStep{mark, scheme, splits}}, text, start);
  };
  EXPECT_THAT(run(Scheme::kAlways, true, "Hey   friend!", InputStart::kYes), ElementsAre(mark + "Hey", mark, mark, mark + "friend!"));
  EXPECT_THAT(run(Scheme::kAlways, true, " Hey", InputStart::kNo), ElementsAre(mark + "Hey"));
  EXPECT_THAT(run(Scheme::kFirst, true, "Hey", InputStart::kYes), ElementsAre(mark + "Hey"));
  EXPECT_THAT(run(Scheme::kFirst, true, "Hey", InputStart::kNo), ElementsAre("Hey"));
  EXPECT_THAT(run(Scheme::kNever, true, "Hey you", InputStart::kYes), ElementsAre("Hey", mark + "you"));
  EXPECT_THAT(run(Scheme::kAlways, false, "a b", InputStart::kYes), ElementsAre(mark + "a" + mark + "b"));
}

TEST(ByteLevel, MapsEveryByte) {
  std::set<char32_t> seen;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const char32_t c = kByteCharacters[byte];
    EXPECT_TRUE(seen.insert(c).second);
    EXPECT_EQ(byte_of_character(c), byte);
  }
  EXPECT_EQ(kByteCharacters[' '], 0x120u);   // the published alphabet's best-known two
  EXPECT_EQ(kByteCharacters['\n'], 0x10Au);
  EXPECT_EQ(kByteCharacters[0xAD], 0x143u);  // and its last
  EXPECT_EQ(byte_of_character(' '), std::nullopt);
  EXPECT_THAT(cut({ByteLevelStep{.add_prefix_space = true, .use_regex = true}}, "i\xE2\xAD\xA2j"),
              ElementsAre("\xC4\xA0i", "\xC3\xA2\xC5\x83\xC2\xA2", "j"));
}

TEST(Nfc, T10_ComposedAndDecomposedPairs) {
  EXPECT_EQ(to_nfc("e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(to_nfc("a\xCC\x82\xCC\xA3"), "\xE1\xBA\xAD");                        // marks in any order
  EXPECT_EQ(to_nfc("a\xCC\xA3\xCC\x82"), "\xE1\xBA\xAD");
  EXPECT_EQ(to_nfc("\xE2\x84\xAB"), "\xC3\x85");                                  // the angstrom sign
  EXPECT_EQ(to_nfc("\xE0\xA5\x98"), "\xE0\xA4\x95\xE0\xA4\xBC");                  // a composition exclusion
  EXPECT_EQ(to_nfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"), "\xED\x95\x9C");      // Hangul
  EXPECT_EQ(to_nfc("\xEF\xAC\x81"), "\xEF\xAC\x81");                              // compatibility stays
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::string text;
    for (uint64_t i = 0; i < 1 + seed % 12; ++i) {
      const uint64_t r = random_bits(seed, 9, i);
      append_utf8(text, static_cast<char32_t>(r % 3 == 0 ? 0x300 + r / 3 % 0x70 : r % 3 == 1 ? 'a' + r / 3 % 26 : 0xC0 + r / 3 % 0x2000));
    }
    utf8proc_uint8_t* expected = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
    ASSERT_NE(expected, nullptr);
    EXPECT_EQ(to_nfc(text), reinterpret_cast<const char*>(expected)) << text;
    std::free(expected);
  }
}

TEST(Nfc, LongRunsOfMarksAreSortedQuickly) {
  // Marks above and below in turn are out of order everywhere: sorting by exchange would take hours for this text.
  std::string text = "a", expected_low, expected_high;
  for (int i = 0; i < 300'000; ++i) text += "\xCC\x81\xCC\xA3", expected_low += "\xCC\xA3", expected_high += "\xCC\x81";
  const std::clock_t begin = std::clock();
  const std::string composed = to_nfc(text);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 20.0);
  // The first mark below joins the letter; the rest keep their order by class.
  EXPECT_EQ(composed, "\xE1\xBA\xA1" + expected_low.substr(2) + expected_high);
}

TEST(Normalizer, LeavesBrokenBytesAlone) {
  RegexScratch scratch;
  const auto steps = compile_normalizer({NfcStep{}, ReplaceStep{{TextPattern::Kind::kLiteral, " "}, "_"},
                                         ReplaceStep{{TextPattern::Kind::kRegex, "b+"}, "B"}, PrependStep{">"}}).value_or_throw();
  EXPECT_EQ(run_normalizer(steps, "e\xCC\x81 \xFF\xE2\x96 bb\x80" "b", scratch), ">\xC3\xA9_\xFF\xE2\x96_B\x80" "B");
  EXPECT_EQ(run_normalizer(steps, "", scratch), "");
}

}  // namespace
}  // namespace regard
