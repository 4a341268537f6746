// Unigram and the table of characters, against all ways to cut a text and against bytes that are no table.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/rng.h"
#include "text/charsmap.h"
#include "text/tokenizer_spec.h"

namespace regard {
namespace {

TokenizerSpec small(std::vector<std::pair<std::string, double>> pieces) {
  TokenizerSpec spec;
  UnigramSpec unigram;
  for (const auto& [piece, score] : pieces) {
    spec.pieces.push_back(piece);
    unigram.scores.push_back(score);
  }
  unigram.unk_id = 0;
  spec.model = std::move(unigram);
  return spec;
}

// The highest sum of scores over all ways to cut `text`; a character alone that is no piece costs the lowest score less ten.
double best_score(const TokenizerSpec& spec, std::string_view text) {
  const std::vector<double>& scores = std::get<UnigramSpec>(spec.model).scores;
  double lowest = 0;
  for (const double score : scores) lowest = std::min(lowest, score);
  const std::function<double(std::string_view)> best = [&](std::string_view rest) {
    if (rest.empty()) return 0.0;
    double most = -1e300;
    bool single = false;
    for (size_t id = 1; id < scores.size(); ++id) {
      if (!rest.starts_with(spec.pieces[id])) continue;
      single = single || spec.pieces[id].size() == 1;
      most = std::max(most, scores[id] + best(rest.substr(spec.pieces[id].size())));
    }
    return single ? most : std::max(most, lowest - 10 + best(rest.substr(1)));
  };
  return best(text);
}

TEST(Unigram, FindsTheBestOfAllWays) {
  const TokenizerSpec spec = small({{"<unk>", 0}, {"a", -2}, {"b", -3}, {"ab", -4}, {"ba", -4.5}, {"aab", -5}, {"bb", -9}, {"abba", -6}, {"cc", -1}});
  const Tokenizer tokenizer = build_tokenizer(spec).value_or_throw();
  const std::vector<double>& scores = std::get<UnigramSpec>(spec.model).scores;
  for (uint64_t i = 0; i < 300; ++i) {
    std::string text;
    for (uint64_t t = 0; t < 1 + i % 11; ++t) text += static_cast<char>('a' + random_bits(2, i, t) % (i % 3 == 0 ? 3 : 2));
    double sum = 0;
    std::string spelt;
    bool unknown = false;
    for (const int32_t id : tokenizer.encode(text)) {
      sum += scores[static_cast<size_t>(id)];
      spelt += tokenizer.token_text(id);
      unknown = unknown || id == 0;
    }
    if (unknown) continue;  // one token stands for several characters
    EXPECT_EQ(spelt, text);
    EXPECT_NEAR(sum, best_score(spec, text), 1e-9) << text;
  }
  EXPECT_EQ(tokenizer.encode("accb"), (std::vector<int32_t>{1, 8, 2}));
  EXPECT_EQ(tokenizer.encode("acb"), (std::vector<int32_t>{1, 0, 2}));
  for (const char* unknown : {"z", "zq\xC3\xA9", "\xFF\xC3"}) EXPECT_EQ(tokenizer.encode(unknown), std::vector<int32_t>{0}) << "unknown characters that stand together are one";
}

TEST(Unigram, RefusesWhatIsNoModel) {
  TokenizerSpec spec = small({{"<unk>", 0}, {"a", -2}});
  std::get<UnigramSpec>(spec.model).unk_id = 2;
  EXPECT_EQ(build_tokenizer(spec).failure().code, Code::kCorruptData);
  spec = small({{"<unk>", 0}, {std::string(1025, 'a'), -2}});
  EXPECT_EQ(build_tokenizer(spec).failure().code, Code::kResourceExhausted);
  spec = small({});
  EXPECT_FALSE(build_tokenizer(spec));
  spec = small({{"<unk>", 0}, {"a", -2}, {"a", -3}});
  EXPECT_FALSE(build_tokenizer(spec));
}

// "a" becomes "xyz": a root that leads to 'a', a unit with a leaf, the leaf. In the layout of Darts-clone.
std::string table() {
  const uint32_t root = 0, size = 4 * 512;
  std::vector<uint32_t> units(512, 0x80000000u);
  units[0] = 1u << 10;                                // the children stand at 1 ^ byte
  units[1 ^ 'a'] = 'a' | 1u << 8 | 256u << 10;        // the leaf stands at its place ^ 256
  units[(1 ^ 'a') ^ 256] = 0x80000000u | root;        // the replacement begins at 0
  std::string bytes;
  const auto put = [&](uint32_t v) {
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(static_cast<uint8_t>(v >> (8 * i)));
  };
  put(size);
  for (const uint32_t unit : units) put(unit);
  return bytes + std::string("xyz\0q", 5);
}

TEST(Charsmap, ReplacesAndRefuses) {
  std::string out;
  Charsmap::make(table()).value_or_throw().append_normalized("bab\xC3\xA9", out);
  EXPECT_EQ(out, "bxyzb\xC3\xA9");
  const std::string right = table();
  EXPECT_FALSE(Charsmap::make(""));
  EXPECT_FALSE(Charsmap::make(right.substr(0, 100)));
  EXPECT_FALSE(Charsmap::make(right + "\xFF"));
  EXPECT_FALSE(Charsmap::make(right + std::string(1025, 'x')));
  EXPECT_EQ(Charsmap::make(std::string(kMaxCharsmapBytes + 1, '\0')).failure().code, Code::kResourceExhausted);
  // Any unit may point anywhere: what leads outside leads nowhere.
  for (uint64_t i = 0; i < 2000; ++i) {
    std::string bytes = right;
    const size_t at = 4 + random_bits(7, i, 0) % (i % 2 == 0 ? 2048 : 420);
    bytes[at] = static_cast<char>(static_cast<uint8_t>(random_bits(7, i, 1)));
    const auto map = Charsmap::make(bytes);
    if (!map) continue;
    out.clear();
    map->append_normalized("abc a\xCC\x81 zzz", out);
    EXPECT_LT(out.size(), 200u);
  }
}

}  // namespace
}  // namespace regard
