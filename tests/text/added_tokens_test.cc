// Added tokens: both orders against their definitions carried out literally, stripping, words, and the size of the list.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "text/added_tokens.h"
#include "text/small_tokenizers.h"

namespace regard {
namespace {

using Allowed = AddedTokenMatcher::Allowed;
using Entry = AddedTokenMatcher::Entry;
using Triple = std::tuple<size_t, size_t, int32_t>;

std::vector<Triple> found(const AddedTokenMatcher& matcher, std::string_view text, const Allowed& allowed = Allowed::everywhere()) {
  std::vector<Triple> out;
  for (const AddedMatch& m : matcher.find(text, allowed)) out.emplace_back(m.begin, m.end, m.id);
  return out;
}

std::vector<Entry> random_entries(uint64_t seed) {
  std::vector<Entry> entries;
  for (int32_t id = 0; id < 12; ++id) {
    std::string text;
    const uint64_t size = 1 + random_bits(seed, 0, static_cast<uint64_t>(id)) % 5;
    for (uint64_t i = 0; i < size; ++i) text += static_cast<char>('a' + random_bits(seed, static_cast<uint64_t>(id) + 1, i) % 2);
    if (std::none_of(entries.begin(), entries.end(), [&](const Entry& e) { return e.text == text; })) entries.push_back({text, id});
  }
  return entries;
}

std::string random_ab(uint64_t seed, size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += static_cast<char>('a' + random_bits(seed, 99, i) % 3);
  return text;
}

TEST(AddedTokens, LeftmostLongestEqualsTheDefinition) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto entries = random_entries(seed);
    const std::string text = random_ab(seed, 60);
    std::vector<Triple> expected;
    for (size_t at = 0; at < text.size();) {
      const Entry* best = nullptr;
      for (const Entry& e : entries) {
        if (text.compare(at, e.text.size(), e.text) == 0 && (best == nullptr || e.text.size() > best->text.size())) best = &e;
      }
      if (best == nullptr) {
        ++at;
        continue;
      }
      expected.emplace_back(at, at + best->text.size(), best->id);
      at += best->text.size();
    }
    EXPECT_EQ(found(AddedTokenMatcher(entries, AddedTokenOrder::kLeftmostLongest), text), expected) << seed;
  }
}

TEST(AddedTokens, LongestFirstEqualsTheDefinition) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    auto entries = random_entries(seed);
    const std::string text = random_ab(seed, 60);
    // One token after the other, the longest first, each found from the left in what is still free.
    auto order = entries;
    std::sort(order.begin(), order.end(), [](const Entry& a, const Entry& b) {
      return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.id < b.id;
    });
    std::vector<Triple> expected;
    std::vector<bool> taken(text.size());
    for (const Entry& e : order) {
      for (size_t at = 0; at + e.text.size() <= text.size(); ++at) {
        const auto begin = taken.begin() + static_cast<std::ptrdiff_t>(at), end = begin + static_cast<std::ptrdiff_t>(e.text.size());
        if (text.compare(at, e.text.size(), e.text) != 0 || std::find(begin, end, true) != end) continue;
        std::fill(begin, end, true);
        expected.emplace_back(at, at + e.text.size(), e.id);
      }
    }
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(found(AddedTokenMatcher(entries, AddedTokenOrder::kLongestFirst), text), expected) << seed;
  }
}

TEST(AddedTokens, StripsAndWords) {
  const AddedTokenMatcher matcher({{.text = "[L]", .id = 0, .lstrip = true},
                                   {.text = "[R]", .id = 1, .rstrip = true},
                                   {.text = "word", .id = 2, .single_word = true}},
                                  AddedTokenOrder::kLeftmostLongest);
  EXPECT_EQ(found(matcher, "a \xE3\x80\x80[L] b"), (std::vector<Triple>{{1, 8, 0}}));
  EXPECT_EQ(found(matcher, "a [R] \n b"), (std::vector<Triple>{{2, 8, 1}}));
  EXPECT_EQ(found(matcher, "[R]  [L]"), (std::vector<Triple>{{0, 5, 1}, {5, 8, 0}}));  // spaces go to one of them only
  EXPECT_EQ(found(matcher, "word, words sword \xC3\xA9word -word- _word"), (std::vector<Triple>{{0, 4, 2}, {26, 30, 2}}));
  EXPECT_EQ(found(matcher, "\x80[L]\xFFword\xFF"), (std::vector<Triple>{{1, 4, 0}, {5, 9, 2}}));
}

TEST(AddedTokens, SpecialOnesOnlyWhereAllowed) {
  for (const AddedTokenOrder order : {AddedTokenOrder::kLeftmostLongest, AddedTokenOrder::kLongestFirst}) {
    const AddedTokenMatcher matcher({{.text = "<a>", .id = 0, .special = true}, {.text = "x<a>", .id = 1, .special = true}, {.text = "--", .id = 2}}, order);
    EXPECT_EQ(found(matcher, "x<a>--", Allowed::nowhere()), (std::vector<Triple>{{4, 6, 2}}));
    // "x" is content, "<a>" template: the longer token would take content, the shorter one must still be found.
    const std::vector<std::pair<size_t, size_t>> stretches{{1, 4}};
    EXPECT_EQ(found(matcher, "x<a>--", Allowed(stretches)), (std::vector<Triple>{{1, 4, 0}, {4, 6, 2}}));
  }
}

TEST(AddedTokens, T11_AMillionTokensAreSearchedInLinearTime) {
  std::vector<Entry> entries;
  entries.reserve(1'000'000);
  for (int32_t id = 0; id < 1'000'000; ++id) entries.push_back({fmt::format("<unused{}>", id), id});
  const AddedTokenMatcher matcher(std::move(entries), AddedTokenOrder::kLeftmostLongest);
  EXPECT_EQ(found(matcher, "<unused7><unused77> <unused999999><unused1000000>"),
            (std::vector<Triple>{{0, 9, 7}, {9, 19, 77}, {20, 34, 999999}}));
  // Time does not depend on the number of tokens but through the depth of a binary search.
  const auto seconds = [&](size_t size) {
    std::string text;
    while (text.size() < size) text += "<unused12345 <un 12>";
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const std::clock_t begin = std::clock();
      EXPECT_TRUE(matcher.find(text, Allowed::everywhere()).empty());
      best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    }
    return best;
  };
  bool linear = false;
  for (int attempt = 0; attempt < 5 && !linear; ++attempt) linear = seconds(200'000) <= 2.3 * seconds(100'000) + 1e-3;
  EXPECT_TRUE(linear);
}

}  // namespace
}  // namespace regard
