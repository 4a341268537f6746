// The merging loop against the definition of BPE carried out literally, for both models and both queues.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "support/cases.h"
#include "text/small_tokenizers.h"

namespace regard {
namespace {

/// BPE as it is defined: look at every neighbouring pair, merge the one of lowest rank, of several the leftmost, begin again.
std::vector<std::string> merge_literally(std::vector<std::string> symbols, const std::map<std::pair<std::string, std::string>, double>& ranks) {
  while (true) {
    size_t best = symbols.size();
    double best_rank = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found != ranks.end() && (best == symbols.size() || found->second < best_rank)) best = i, best_rank = found->second;
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> out;
  for (const char c : text) out.emplace_back(1, c);
  return out;
}

std::string random_letters(uint64_t seed, size_t size, uint64_t letters) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += static_cast<char>('a' + random_bits(seed, 2, i) % letters);
  return text;
}

/// A vocabulary of random pieces over `letters` letters, each made by a merge of two earlier ones; the order of ranks is mixed.
TokenizerSpec random_bpe(uint64_t seed, uint64_t letters, size_t count) {
  TokenizerSpec spec;
  for (uint64_t i = 0; i < letters; ++i) spec.pieces.emplace_back(1, static_cast<char>('a' + i));
  BpeSpec bpe;
  std::set<std::pair<std::string, std::string>> pairs;
  std::set<std::string> pieces(spec.pieces.begin(), spec.pieces.end());
  for (uint64_t i = 0; pairs.size() < count; ++i) {
    const std::string left = spec.pieces[random_bits(seed, 3, 2 * i) % spec.pieces.size()];
    const std::string right = spec.pieces[random_bits(seed, 3, 2 * i + 1) % spec.pieces.size()];
    if (left.size() + right.size() > 12 || !pairs.insert({left, right}).second) continue;
    if (pieces.insert(left + right).second) spec.pieces.push_back(left + right);
    const size_t place = random_bits(seed, 4, i) % (bpe.merges.size() + 1);
    bpe.merges.insert(bpe.merges.begin() + static_cast<std::ptrdiff_t>(place), {left, right});
  }
  spec.model = std::move(bpe);
  return spec;
}

TEST(Merge, RanksEqualTheDefinition) {
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(cases(60)); ++seed) {
    const uint64_t letters = 1 + seed % 4;
    TokenizerSpec spec = random_bpe(seed, letters, letters == 1 ? 20 : 30);
    std::map<std::pair<std::string, std::string>, double> ranks;
    const BpeSpec& bpe = std::get<BpeSpec>(spec.model);
    for (size_t i = 0; i < bpe.merges.size(); ++i) ranks[bpe.merges[i]] = static_cast<double>(i);
    const Tokenizer tokenizer = small::build(spec);
    // 1500 symbols are more than the heap takes: the longest texts go through the buckets.
    for (const size_t size : {0u, 1u, 2u, 3u, 17u, 100u, 1500u}) {
      const std::string text = random_letters(seed, size, letters);
      std::vector<std::string> pieces;
      for (const int32_t id : tokenizer.encode(text)) pieces.push_back(tokenizer.token_text(id));
      ASSERT_EQ(pieces, merge_literally(characters(text), ranks)) << "seed " << seed << " size " << size;
    }
  }
}

TEST(Merge, ScoresEqualTheDefinition) {
  const TokenizerSpec spec = small::scored();
  const SpmSpec& spm = std::get<SpmSpec>(spec.model);
  std::map<std::string, double> scores;
  for (size_t id = 3 + 256; id < spec.pieces.size(); ++id) scores[spec.pieces[id]] = spm.scores[id];
  std::map<std::pair<std::string, std::string>, double> ranks;
  for (const auto& [piece, score] : scores) {
    for (size_t cut = 1; cut < piece.size(); ++cut) ranks[{piece.substr(0, cut), piece.substr(cut)}] = -score;
  }
  const Tokenizer tokenizer = small::build(spec);
  const std::string alphabet = "abhelo7'us";
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(cases(60)); ++seed) {
    for (const size_t size : {1u, 2u, 40u, 1500u}) {
      std::string text;
      for (size_t i = 0; i < size; ++i) text += alphabet[random_bits(seed, 5, i) % (seed % 2 == 0 ? alphabet.size() : 2)];
      std::vector<std::string> pieces;
      for (const int32_t id : tokenizer.encode(text)) pieces.push_back(tokenizer.token_text(id));
      ASSERT_EQ(pieces, merge_literally(characters(text), ranks)) << "seed " << seed << " size " << size;
    }
  }
}

TEST(Merge, EqualRanksGoFromTheLeft) {
  TokenizerSpec spec;
  spec.pieces = {"a", "aa"};
  spec.model = BpeSpec{.merges = {{"a", "a"}}};
  const Tokenizer tokenizer = small::build(spec);
  EXPECT_EQ(tokenizer.encode("aaaaa"), (std::vector<int32_t>{1, 1, 0}));
}

// The expected ids of the next two are those of PyPI tokenizers' own tests of unknown tokens: "accb" with and without fusing.
TEST(Merge, UnknownTokensFuseOnlyWhenAsked) {
  TokenizerSpec spec;
  spec.pieces = {"<unk>", "a", "b"};
  spec.model = BpeSpec{.unk_token = "<unk>", .fuse_unk = false};
  EXPECT_EQ(small::build(spec).encode("accb"), (std::vector<int32_t>{1, 0, 0, 2}));
  spec.model = BpeSpec{.unk_token = "<unk>", .fuse_unk = true};
  EXPECT_EQ(small::build(spec).encode("accb"), (std::vector<int32_t>{1, 0, 2}));
}

TEST(Merge, IgnoreMergesTakesAWholePiece) {
  TokenizerSpec spec;
  spec.pieces = {"a", "b", "c", "ab", "abc"};
  spec.model = BpeSpec{.merges = {{"a", "b"}}, .ignore_merges = true};
  EXPECT_EQ(small::build(spec).encode("abc"), (std::vector<int32_t>{4}));
  spec.model = BpeSpec{.merges = {{"a", "b"}}, .ignore_merges = false};
  EXPECT_EQ(small::build(spec).encode("abc"), (std::vector<int32_t>{3, 2}));
}

TEST(Merge, ContinuingPrefixAndEndSuffix) {
  TokenizerSpec spec;
  spec.pieces = {"a", "##b", "##c</w>", "a##b", "ab", "ab##c</w>", "abc</w>", "a</w>"};
  spec.model = BpeSpec{.merges = {{"a", "##b"}, {"ab", "##c</w>"}}, .continuing_subword_prefix = "##", .end_of_word_suffix = "</w>"};
  const Tokenizer tokenizer = small::build(spec);
  EXPECT_EQ(tokenizer.encode("abc"), (std::vector<int32_t>{6}));
  EXPECT_EQ(tokenizer.encode("a"), (std::vector<int32_t>{7}));
}

}  // namespace
}  // namespace regard
