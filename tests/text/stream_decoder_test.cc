// Streaming: what comes out piece by piece is what decoding gives at once, never half a character, never the start of a stop string.
#include <gtest/gtest.h>

#include "regard/error.h"
#include "text/small_tokenizers.h"
#include "text/utf8.h"

namespace regard {
namespace {

std::vector<Tokenizer> tokenizers() {
  TokenizerSpec stripped = small::scored();
  stripped.decoder.emplace_back(StripDecode{" ", 1, 2});
  TokenizerSpec metaspace = small::byte_fallback();
  metaspace.normalizer.clear();
  metaspace.pre_tokenizer = {MetaspaceStep{}};
  metaspace.decoder = {ByteFallbackDecode{}, MetaspaceDecode{}};
  return {small::build(small::byte_level()), small::build(small::scored()), small::build(std::move(stripped)), small::build(std::move(metaspace))};
}

/// Ids that are half random (broken bytes, specials and all), half those of a text.
std::vector<int32_t> random_ids(const Tokenizer& tokenizer, uint64_t seed) {
  if (seed % 2 == 0) return tokenizer.encode(small::random_text(seed, small::Broken::kYes), {.special = SpecialTokens::kParse});
  std::vector<int32_t> ids;
  for (uint64_t i = 0; i < seed % 40; ++i)
    ids.push_back(static_cast<int32_t>(random_bits(seed, 6, i) % static_cast<uint64_t>(tokenizer.vocab_size())));
  return ids;
}

TEST(StreamDecoder, EqualsDecodingAtOnce) {
  for (const Tokenizer& tokenizer : tokenizers()) {
    for (uint64_t seed = 0; seed < 400; ++seed) {
      const std::vector<int32_t> ids = random_ids(tokenizer, seed);
      for (const SpecialText special : {SpecialText::kSkip, SpecialText::kShow}) {
        for (const InvalidUtf8 invalid : {InvalidUtf8::kReplace, InvalidUtf8::kKeep}) {
          const DecodeOptions options{.special = special, .invalid = invalid};
          StreamDecoder stream(tokenizer, options);
          std::string text;
          for (const int32_t id : ids) {
            const std::string part = stream.push(id);
            if (invalid == InvalidUtf8::kReplace) {
              ASSERT_EQ(valid_prefix(part), part.size()) << "half a character, seed " << seed;
            }
            text += part;
          }
          text += stream.flush();
          ASSERT_EQ(text, tokenizer.decode(ids, options)) << "seed " << seed;
        }
      }
    }
  }
}

TEST(StreamDecoder, HoldsBackAnIncompleteCharacter) {
  const Tokenizer tokenizer = small::build(small::byte_level());
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(3 + 0xF0), "");
  EXPECT_EQ(stream.push(3 + 0x9F), "");
  EXPECT_EQ(stream.push(3 + 0x98), "");
  EXPECT_EQ(stream.push(3 + 0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(stream.push(3 + 0xE2), "");
  EXPECT_EQ(stream.push(3 + 'a'), "\xEF\xBF\xBD" "a");
  EXPECT_EQ(stream.push(3 + 0xE2), "");
  EXPECT_EQ(stream.flush(), "\xEF\xBF\xBD");
}

TEST(StreamDecoder, HoldsBackTheBeginningOfAStopString) {
  const Tokenizer tokenizer = small::build(small::byte_level());
  const auto id = [](char c) { return 3 + static_cast<int32_t>(c); };
  StreamDecoder stream(tokenizer, {}, {"abc", "zz"});
  EXPECT_EQ(stream.push(id('x')), "x");
  EXPECT_EQ(stream.push(id('a')), "");
  EXPECT_EQ(stream.push(id('a')), "a");
  EXPECT_EQ(stream.push(id('b')), "");
  EXPECT_EQ(stream.push(id('d')), "abd");
  EXPECT_EQ(stream.push(id('z')), "");
  EXPECT_EQ(stream.stopped_by(), std::nullopt);
  EXPECT_EQ(stream.push(id('z')), "");
  EXPECT_EQ(stream.stopped_by(), 1u);
  EXPECT_EQ(stream.push(id('x')), "");
  EXPECT_EQ(stream.flush(), "");
  StreamDecoder cut_off(tokenizer, {}, {"abc"});
  EXPECT_EQ(cut_off.push(id('a')), "");
  EXPECT_EQ(cut_off.push(id('b')), "");
  EXPECT_EQ(cut_off.flush(), "ab");
  EXPECT_THROW(StreamDecoder(tokenizer, {}, {"a", ""}), Error);
}

TEST(StreamDecoder, StopsWhereTheFirstStopStringEnds) {
  const Tokenizer tokenizer = small::build(small::byte_level());
  const std::vector<std::string> stops{"ab", "bca", "cab", "aa", "b c"};
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::string text;
    for (uint64_t i = 0; i < 30; ++i) text += "abcx y"[random_bits(seed, 8, i) % 6];
    // The definition: the stop string whose end comes first, the longest of several that end there.
    size_t end = std::string::npos, length = 0, which = 0;
    for (size_t i = 0; i < stops.size(); ++i) {
      const size_t found = text.find(stops[i]);
      if (found == std::string::npos) continue;
      const size_t this_end = found + stops[i].size();
      if (end == std::string::npos || this_end < end || (this_end == end && stops[i].size() > length)) end = this_end, length = stops[i].size(), which = i;
    }
    StreamDecoder stream(tokenizer, {}, stops);
    std::string out;
    for (const int32_t id : tokenizer.encode(text)) out += stream.push(id);
    out += stream.flush();
    if (end == std::string::npos) {
      EXPECT_EQ(out, text);
      EXPECT_EQ(stream.stopped_by(), std::nullopt);
    } else {
      EXPECT_EQ(out, text.substr(0, end - length)) << text;
      EXPECT_EQ(stream.stopped_by(), which) << text;
    }
  }
}

}  // namespace
}  // namespace regard
