// Whole tokenizers: the T list of bad inputs, exact round trips, linear time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <limits>

#include "regard/error.h"
#include "text/models.h"
#include "text/small_tokenizers.h"

namespace regard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const DecodeOptions kExact{.special = SpecialText::kShow, .invalid = InvalidUtf8::kKeep};

std::vector<std::pair<std::string, Tokenizer>> pipelines() {
  TokenizerSpec qwen = small::byte_level("qwen2");
  qwen.normalizer = {NfcStep{}};
  TokenizerSpec metaspace = small::byte_fallback();
  metaspace.normalizer.clear();
  metaspace.pre_tokenizer = {MetaspaceStep{}};
  metaspace.decoder = {ByteFallbackDecode{}, MetaspaceDecode{}};
  return {{"gpt-2", small::build(small::byte_level("gpt-2"))},       {"smollm", small::build(small::byte_level("smollm"))},
          {"llama-bpe", small::build(small::byte_level("llama-bpe"))}, {"qwen2 with NFC", small::build(std::move(qwen))},
          {"scored", small::build(small::scored())},                 {"byte fallback", small::build(small::byte_fallback())},
          {"metaspace", small::build(std::move(metaspace))}};
}

/// Round trips hold where the pipeline keeps the text: no NFC, no prefix space.
bool keeps_text(const std::string& name) { return name != "qwen2 with NFC" && name != "metaspace"; }

double seconds_of(const Tokenizer& tokenizer, const std::string& text) {
  timespec begin{}, end{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  EXPECT_FALSE(tokenizer.encode(text).empty());
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return static_cast<double>(end.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec);
}

TEST(Tokenizer, T01_T02_RunsTakeTimeInProportion) {
  // One megabyte and more with REGARD_LONG_TESTS; shorter otherwise, for builds with sanitizers take their time.
  const size_t size = std::getenv("REGARD_LONG_TESTS") != nullptr ? size_t{1} << 19 : size_t{1} << 16;
  for (const auto& [name, tokenizer] : pipelines()) {
    for (const std::string unit : {"a", " ", "7", "\n", "\xCC\x81", "'", "\xF0\x9F\x91\xA9\xE2\x80\x8D", "us", "\xE2\x96\x81"}) {
      std::string text;
      while (text.size() < size) text += unit;
      const std::string twice = text + text;
      double once_best = 1e9, twice_best = 1e9;
      bool linear = false;
      for (int attempt = 0; attempt < 12 && !linear; ++attempt) {
        once_best = std::min(once_best, seconds_of(tokenizer, text));
        twice_best = std::min(twice_best, seconds_of(tokenizer, twice));
        linear = attempt >= 1 && twice_best <= 2.3 * once_best;
      }
      EXPECT_TRUE(linear) << name << ", '" << unit << "': " << once_best << " s for " << text.size() << " bytes, " << twice_best << " s for twice";
    }
  }
}

TEST(Tokenizer, T03_BrokenUtf8ComesBackExactly) {
  const std::string_view broken[] = {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF",  // overlong
                                     "\xED\xA0\x80", "\xED\xBF\xBF", "\xED\xA0\xBD\xED\xB8\x80",                                        // surrogates
                                     "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xF8\x88\x80\x80\x80", "\xFE", "\xFF",                    // beyond
                                     "\xC3", "\xE2\x96", "\xE2", "\xF0\x9F\x98", "\xF0\x9F", "\xF0", "\x80", "\xBF", "\x80\x80\x80"};   // cut, lone
  for (const auto& [name, tokenizer] : pipelines()) {
    if (!keeps_text(name)) continue;
    for (const std::string_view bytes : broken) {
      for (const std::string& text : {std::string(bytes), "a " + std::string(bytes) + " the", std::string(bytes) + "\xC3\xA9" + std::string(bytes)}) {
        EXPECT_EQ(tokenizer.decode(tokenizer.encode(text), kExact), text) << name;
      }
    }
    std::string all;
    for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(all), kExact), all) << name;
  }
}

TEST(Tokenizer, BrokenBytesAreTheirByteTokens) {
  const Tokenizer scored = small::build(small::scored()), bytes = small::build(small::byte_level());
  EXPECT_EQ(scored.encode("\xFF" "a"), (std::vector<int32_t>{3 + 0xFF, *scored.find("a")}));
  EXPECT_EQ(bytes.encode("\xFF" "a"), (std::vector<int32_t>{3 + 0xFF, 3 + 'a'}));
}

TEST(Tokenizer, T04_AllCodePointsComeBack) {
  for (const auto& [name, tokenizer] : pipelines()) {
    if (!keeps_text(name)) continue;
    std::string text;
    for (char32_t c = 0; c < 0x110000; ++c) {
      if ((c >= 0xD800 && c < 0xE000) || c == 0x2581) continue;  // U+2581 means a space to some pipelines
      append_utf8(text, c);
      if (text.size() < 50'000 && c != 0x10FFFF) continue;
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(text), kExact), text) << name << " up to " << std::hex << static_cast<uint32_t>(c);
      text.clear();
    }
  }
}

TEST(Tokenizer, RandomTextsComeBack) {
  for (const auto& [name, tokenizer] : pipelines()) {
    if (!keeps_text(name)) continue;
    for (uint64_t seed = 0; seed < 500; ++seed) {
      const std::string text = small::random_text(seed, seed % 2 == 0 ? small::Broken::kNo : small::Broken::kYes);
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(text), kExact), text) << name << " seed " << seed;
      std::string bytes;
      for (const int32_t id : tokenizer.encode(text)) bytes += tokenizer.token_bytes(id);
      ASSERT_EQ(bytes, text) << name << " seed " << seed;
    }
  }
}

std::string refusal(TokenizerSpec spec, Code code = Code::kCorruptData) {
  const auto tokenizer = build_tokenizer(std::move(spec));
  EXPECT_FALSE(tokenizer);
  if (tokenizer) return "";
  EXPECT_EQ(tokenizer.failure().code, code) << tokenizer.failure().message;
  return tokenizer.failure().message;
}

TEST(Tokenizer, T05_MalformedMerges) {
  TokenizerSpec spec;
  spec.pieces = {"a", "b", "ab", "ba", "aa"};
  const auto with = [&](small::Merges merges) {
    TokenizerSpec copy = spec;
    copy.model = BpeSpec{.merges = std::move(merges)};
    return copy;
  };
  EXPECT_THAT(refusal(with({{"a", "c"}})), HasSubstr("merge 0 ('a' 'c')"));
  EXPECT_THAT(refusal(with({{"a", "b"}, {"b", "b"}})), HasSubstr("merge 1 ('b' 'b')"));       // "bb" is no token
  EXPECT_THAT(refusal(with({{"a", "b"}, {"", "a"}})), HasSubstr("merge 1"));
  EXPECT_THAT(refusal(with({{"a", "b"}, {"b", "a"}, {"a", "b"}})), HasSubstr("is there twice"));
  // A merge with itself and merges that make each other's parts are allowed and end.
  const Tokenizer cyclic = small::build(with({{"a", "a"}, {"a", "b"}, {"b", "a"}}));
  EXPECT_EQ(cyclic.encode("abab"), (std::vector<int32_t>{2, 2}));
  EXPECT_EQ(cyclic.encode("aaba"), (std::vector<int32_t>{4, 3}));
}

TEST(Tokenizer, T06_ByteTokensThatAreNone) {
  EXPECT_EQ(byte_of_piece("<0x0a>"), 0x0A);
  EXPECT_EQ(byte_of_piece("<0xFF>"), 0xFF);
  for (const char* piece : {"<0x-1>", "<0xGG>", "<0x100>", "<0x+1>", "<0x 1>", "<0X41>", "0x41", "<0x4>", ""}) EXPECT_EQ(byte_of_piece(piece), std::nullopt) << piece;
  // Text that spells a byte token, an unknown or a control token is that text.
  const Tokenizer scored = small::build(small::scored());
  for (const char* text : {"<0x41>", "<unk>", "<s>", "</s>"}) {
    EXPECT_GT(scored.encode(text).size(), 1u) << text;
    EXPECT_EQ(scored.decode(scored.encode(text), kExact), text);
  }
  EXPECT_EQ(scored.decode(std::vector<int32_t>{3 + 0x41}), "A");
}

TEST(Tokenizer, T07_EmptyAndDoubleTokens) {
  TokenizerSpec spec;
  spec.model = BpeSpec{};
  EXPECT_THAT(refusal(spec), HasSubstr("the vocabulary is empty"));
  spec.pieces = {"a", "b", "a"};
  EXPECT_THAT(refusal(spec), HasSubstr("the tokens 0 and 2 are the same: 'a'"));
  spec.pieces = {"a", "", "b", ""};  // unused ids are no two of the same
  const Tokenizer tokenizer = small::build(spec);
  EXPECT_EQ(tokenizer.vocab_size(), 4);
  EXPECT_EQ(tokenizer.encode("ab"), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{0, 1, 2, 3}), "ab");
  EXPECT_EQ(tokenizer.find(""), std::nullopt);
}

TEST(Tokenizer, T08_ContentNeverBecomesSpecial) {
  using Source = PromptSegment::Source;
  for (const auto& [name, tokenizer] : pipelines()) {
    const bool bytes = tokenizer.find("<|end|>").has_value();
    const std::string end = bytes ? "<|end|>" : "</s>";
    const int32_t end_id = *tokenizer.find(end);
    EXPECT_TRUE(tokenizer.is_special(end_id));
    const auto count = [&](const std::vector<PromptSegment>& segments) {
      const auto ids = tokenizer.encode(segments);
      return std::count(ids.begin(), ids.end(), end_id);
    };
    EXPECT_EQ(count({{end, Source::kTemplate}}), 1) << name;
    EXPECT_EQ(count({{"x", Source::kTemplate}, {end, Source::kContent}, {end, Source::kTemplate}}), 1) << name;
    EXPECT_EQ(count({{end + end + " " + end, Source::kContent}}), 0) << name;
    // Split in every way between template and content, and between messages.
    for (size_t cut = 1; cut < end.size(); ++cut) {
      EXPECT_EQ(count({{end.substr(0, cut), Source::kContent}, {end.substr(cut), Source::kTemplate}}), 0) << name << cut;
      EXPECT_EQ(count({{end.substr(0, cut), Source::kTemplate}, {end.substr(cut), Source::kContent}}), 0) << name << cut;
      EXPECT_EQ(count({{end.substr(0, cut), Source::kContent}, {end.substr(cut), Source::kContent}}), 0) << name << cut;
      EXPECT_EQ(count({{end.substr(0, cut), Source::kTemplate}, {end.substr(cut), Source::kTemplate}}), 1) << name << cut;
    }
    EXPECT_EQ(tokenizer.encode(end, {.special = SpecialTokens::kParse}), (std::vector<int32_t>{end_id})) << name;
    const auto as_text = tokenizer.encode(end);
    EXPECT_EQ(std::count(as_text.begin(), as_text.end(), end_id), 0) << name;
    EXPECT_EQ(tokenizer.decode(as_text), end) << name;
    // Look-alike letters are other letters.
    const auto alike = tokenizer.encode("<\xEF\xBD\x9C" "end\xEF\xBD\x9C>", {.special = SpecialTokens::kParse});
    EXPECT_EQ(std::count(alike.begin(), alike.end(), end_id), 0) << name;
  }
}

TEST(Tokenizer, SegmentsDoNotCutThePieces) {
  using Source = PromptSegment::Source;
  const Tokenizer tokenizer = small::build(small::byte_level());
  const std::vector<PromptSegment> segments{{"<|start|>the", Source::kTemplate}, {"", Source::kContent}, {" th", Source::kContent}, {"e", Source::kTemplate}};
  EXPECT_EQ(tokenizer.encode(segments), tokenizer.encode("<|start|>the the", {.special = SpecialTokens::kParse}));
  EXPECT_EQ(tokenizer.encode(segments).back(), *tokenizer.find("the"));  // although its letters come from three segments
}

TEST(Tokenizer, MergesAndWholePiecesNeverMakeSpecialTokens) {
  TokenizerSpec spec;
  spec.pieces = {"<", "s", ">", "<s", "<s>"};
  spec.model = BpeSpec{.merges = {{"<", "s"}, {"<s", ">"}}, .ignore_merges = true};
  spec.added = {small::special("<s>", 4)};
  const Tokenizer tokenizer = small::build(spec);
  EXPECT_EQ(tokenizer.encode("<s>"), (std::vector<int32_t>{3, 2}));
  EXPECT_EQ(tokenizer.encode("<s>", {.special = SpecialTokens::kParse}), (std::vector<int32_t>{4}));
}

TEST(Tokenizer, T09_IdsOutsideTheVocabulary) {
  const Tokenizer tokenizer = small::build(small::byte_level());
  for (const int32_t id : {-1, tokenizer.vocab_size(), std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    try {
      tokenizer.decode(std::vector<int32_t>{5, id});
      FAIL() << id;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr(std::to_string(id)));
    }
    EXPECT_THROW(tokenizer.token_text(id), Error);
    EXPECT_THROW(tokenizer.token_bytes(id), Error);
    EXPECT_THROW(tokenizer.is_special(id), Error);
    EXPECT_THROW(StreamDecoder(tokenizer).push(id), Error);
  }
}

TEST(Tokenizer, NamesAndEnds) {
  const Tokenizer tokenizer = small::build(small::byte_level());
  EXPECT_EQ(tokenizer.bos(), 0);
  EXPECT_EQ(tokenizer.eos(), 1);
  EXPECT_EQ(tokenizer.eot(), 2);  // <|im_end|>, by its name
  EXPECT_EQ(tokenizer.pad(), std::nullopt);
  EXPECT_TRUE(tokenizer.adds_bos());
  EXPECT_TRUE(tokenizer.adds_eos());
  const int32_t the = *tokenizer.find("the");
  EXPECT_THAT(tokenizer.encode("the", {.add = AddSpecial::kAsModel}), ElementsAre(0, the, 1));
  EXPECT_THAT(tokenizer.encode("", {.add = AddSpecial::kAsModel}), ElementsAre(0, 1));
  EXPECT_THAT(tokenizer.encode(""), ElementsAre());
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{0, the, 1}), "the");
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{0, the, 1}, {.special = SpecialText::kShow}), "<|start|>the<|end|>");
  EXPECT_EQ(tokenizer.token_text(*tokenizer.find("\xC4\xA0the")), "\xC4\xA0the");
  EXPECT_EQ(tokenizer.token_bytes(*tokenizer.find("\xC4\xA0the")), " the");
}

TEST(Tokenizer, RefusesSpecsThatContradictThemselves) {
  TokenizerSpec spec = small::byte_level();
  spec.eos = 100'000;
  EXPECT_THAT(refusal(spec), HasSubstr("eos token has id 100000"));
  spec = small::byte_level();
  spec.added.push_back(small::special("other", 5));
  EXPECT_THAT(refusal(spec), HasSubstr("id 5 is the added token 'other'"));
  spec = small::byte_level();
  spec.added.push_back(small::special("x", -1));
  EXPECT_THAT(refusal(spec), HasSubstr("has id -1"));
  spec = small::scored();
  std::get<SpmSpec>(spec.model).scores.pop_back();
  EXPECT_THAT(refusal(spec), HasSubstr("scores for"));
  spec = small::scored();
  std::get<SpmSpec>(spec.model).scores[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal(spec), HasSubstr("token 7 is NaN"));
  spec = small::scored();
  spec.unk.reset();
  spec.pieces[3 + 0x41] = "no byte";
  EXPECT_THAT(refusal(spec), HasSubstr("no token <0x41>"));
  spec = small::byte_level();
  spec.decoder = {FuseDecode{}, ReplaceDecode{"a", "b"}};
  EXPECT_THAT(refusal(spec, Code::kUnsupported), HasSubstr("Fuse"));
  spec = small::byte_level();
  spec.pieces.resize(kMaxVocabulary + 1);
  EXPECT_THAT(refusal(spec, Code::kResourceExhausted), HasSubstr("1000001 tokens"));
}

TEST(Tokenizer, SpacePrefixAndStrip) {
  TokenizerSpec spec = small::scored();
  spec.normalizer.insert(spec.normalizer.begin(), PrependStep{" "});
  spec.decoder.emplace_back(StripDecode{" ", 1, 0});
  const Tokenizer tokenizer = small::build(spec);
  EXPECT_EQ(tokenizer.token_bytes(tokenizer.encode("the").front()).front(), ' ');
  for (const char* text : {"the", " the", "  hello", "a b", ""}) EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

}  // namespace
}  // namespace regard
