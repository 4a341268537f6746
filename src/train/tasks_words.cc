// Pig latin, letter by letter, for models with an encoder.
//
// The rules: a word that begins with a vowel gets "way" behind it. Else the consonants before its first vowel go behind the rest, and
// "ay" behind them. Vowels are a, e, i, o, u, and y where it is not the first letter; "qu" goes as one. A word without a vowel gets
// "ay" behind it.
#include <algorithm>

#include "base/check.h"
#include "train/task_makers.h"

namespace regard::train_tasks {
namespace {

constexpr int32_t kPadding = 0, kBegin = 1, kEnd = 2, kFirstLetter = 3;
constexpr size_t kMaxWord = 24;

constexpr std::string_view kOnsets[] = {"",   "b",  "c",  "d",  "f",  "g",  "h",  "j",  "k",  "l",  "m",  "n",  "p",  "qu", "r",  "s",  "t",  "v",   "w",  "y",
                                        "br", "ch", "cl", "cr", "dr", "fl", "fr", "gl", "gr", "pl", "pr", "sh", "sl", "st", "str", "th", "tr", "wh"};
constexpr std::string_view kVowels[] = {"a", "e", "i", "o", "u", "ai", "ea", "ee", "oo", "ou"};
constexpr std::string_view kCodas[] = {"", "", "b", "ck", "d", "g", "l", "m", "n", "nd", "ng", "nt", "p", "r", "rt", "s", "st", "t", "th", "x"};

bool is_vowel(std::span<const int32_t> word, size_t i) {
  constexpr std::string_view vowels = "aeiou";
  const char letter = static_cast<char>('a' + word[i] - kFirstLetter);
  const bool after_q = i > 0 && word[i - 1] == kFirstLetter + 'q' - 'a';
  if (letter == 'u' && after_q) return false;
  return vowels.find(letter) != std::string_view::npos || (letter == 'y' && i > 0);
}

void append(std::vector<int32_t>& out, std::string_view letters) {
  for (const char letter : letters) out.push_back(kFirstLetter + letter - 'a');
}

class PigLatinTask final : public Task {
 public:
  PigLatinTask(int64_t syllables, const std::vector<std::string>& words) : syllables_(syllables) {
    for (const std::string& word : words) {
      const bool letters = std::all_of(word.begin(), word.end(), [](char c) { return c >= 'a' && c <= 'z'; });
      require(letters && !word.empty() && word.size() <= kMaxWord,
              "[make_task] '{}' is no word for pig latin; expected 1 to {} letters of a to z", word, kMaxWord);
      append(words_.emplace_back(), word);
    }
    if (words_.empty()) return;
    const auto kept = std::count_if(words_.begin(), words_.end(), [](const auto& word) { return held_out(word); });
    require(kept > 0 && static_cast<size_t>(kept) < words_.size(),
            "[make_task] of {} words for pig latin {} are for validation; give more words", words_.size(), kept);
  }

  int32_t vocab_size() const override { return kFirstLetter + 26; }
  int64_t source_seq() const override { return static_cast<int64_t>(kMaxWord); }
  std::optional<Frame> frame() const override { return Frame{kPadding, kBegin, kEnd}; }
  // The begin sign, the word, "way".
  int64_t seq() const override { return static_cast<int64_t>(kMaxWord) + 4; }
  std::string token_text(int32_t id) const override {
    return id == kPadding ? "_" : id == kBegin ? "^" : id == kEnd ? "$" : std::string(1, static_cast<char>('a' + id - kFirstLetter));
  }

 protected:
  void make(Draw& draw, Example& out) const override {
    draw_word(draw, out.source);
    out.key = out.source;
    const std::span<const int32_t> word = out.source;
    size_t first = 0;
    while (first < word.size() && !is_vowel(word, first)) ++first;
    out.tokens.push_back(kBegin);
    out.tokens.insert(out.tokens.end(), word.begin() + static_cast<std::ptrdiff_t>(first), word.end());
    out.tokens.insert(out.tokens.end(), word.begin(), word.begin() + static_cast<std::ptrdiff_t>(first));
    append(out.tokens, first == 0 ? "way" : "ay");
    out.labels.assign(out.tokens.begin() + 1, out.tokens.end());
    out.labels.push_back(kEnd);
  }

 private:
  void draw_word(Draw& draw, std::vector<int32_t>& out) const {
    if (!words_.empty()) {
      out = words_[static_cast<size_t>(draw.below(static_cast<int64_t>(words_.size())))];
      return;
    }
    const auto one_of = [&](std::span<const std::string_view> parts) {
      return parts[static_cast<size_t>(draw.below(static_cast<int64_t>(parts.size())))];
    };
    const int32_t count = 1 + draw.below(syllables_);
    for (int32_t i = 0; i < count; ++i) {
      append(out, one_of(kOnsets));
      append(out, one_of(kVowels));
      append(out, one_of(kCodas));
    }
  }

  int64_t syllables_;
  std::vector<std::vector<int32_t>> words_;
};

// The longest syllable: three letters, two, two.
static_assert(kMaxWord >= 3 * 7);

}  // namespace

std::unique_ptr<Task> make_pig_latin(int64_t syllables, const std::vector<std::string>& words) {
  return std::make_unique<PigLatinTask>(syllables, words);
}

}  // namespace regard::train_tasks
