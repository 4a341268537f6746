// Training of byte-level BPE. All different words lie behind each other in one array of tokens, linked to their neighbours; a pair
// knows the places where it occurs. A merge then costs as much as the pair has places, and not a look at the whole text.
// Start at train_byte_pairs.
#include <array>
#include <optional>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "text/byte_level.h"
#include "text/train_tokenizer.h"
#include "text/utf8.h"

namespace regard {
namespace {

constexpr int32_t kNone = -1;
constexpr size_t kMaxWordBytes = size_t{1} << 31;  // places are counted in 31 bits

struct Pair {
  int32_t left = 0, right = 0;
  bool operator==(const Pair&) const = default;
};
struct PairHash {
  size_t operator()(const Pair& pair) const noexcept {
    const uint64_t key = uint64_t{static_cast<uint32_t>(pair.left)} << 32 | static_cast<uint32_t>(pair.right);
    return static_cast<size_t>((key ^ key >> 29) * 0x9E3779B97F4A7C15u);
  }
};

struct Occurrences {
  int64_t count = 0;
  std::vector<int32_t> places;  ///< of the left token, rising; some may hold something else by now
};

/// The best pair is the largest: more often, then smaller ids.
struct Candidate {
  int64_t count = 0;
  Pair pair;
  bool operator<(const Candidate& other) const noexcept {
    if (count != other.count) return count < other.count;
    if (pair.left != other.pair.left) return pair.left > other.pair.left;
    return pair.right > other.pair.right;
  }
};

class PairMerger {
 public:
  PairMerger(const WordCounts& words, const std::array<int32_t, 256>& byte_ids) {
    size_t bytes = 0;
    for (const auto& [word, count] : words) bytes += word.size();
    if (bytes >= kMaxWordBytes)
      fail(Code::kResourceExhausted, "[train_tokenizer] the different words have {} bytes, over the limit of {}; train on a part of the texts",
           bytes, kMaxWordBytes);
    tokens_.reserve(bytes), previous_.reserve(bytes), next_.reserve(bytes), weights_.reserve(bytes);
    // The order of words changes neither counts nor merges: places of different words do not meet.
    for (const auto& [word, count] : words) {
      for (size_t i = 0; i < word.size(); ++i) {
        const auto place = static_cast<int32_t>(tokens_.size());
        tokens_.push_back(byte_ids[static_cast<uint8_t>(word[i])]);
        previous_.push_back(i == 0 ? kNone : place - 1);
        next_.push_back(i + 1 == word.size() ? kNone : place + 1);
        weights_.push_back(count);
        if (i > 0) add(place - 1, count);
      }
    }
    queue_new_pairs();
  }

  /// The pair that occurs most often, at least `min_count` times; nothing when there is none. It is then merged or dropped.
  std::optional<Pair> best(int64_t min_count) {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      const auto entry = pairs_.find(top.pair);
      const int64_t now = entry == pairs_.end() ? 0 : entry->second.count;
      if (now == top.count) return now < min_count ? std::nullopt : std::optional(top.pair);
      // A count only falls once its pair is queued, so the pair waits further down.
      queue_.pop();
      if (now > 0) queue_.push({now, top.pair});
    }
    return std::nullopt;
  }

  void drop(const Pair& pair) {
    pairs_.erase(pair);
    queue_.pop();
  }

  void merge(const Pair& pair, int32_t merged) {
    const std::vector<int32_t> places = std::move(pairs_.find(pair)->second.places);
    drop(pair);
    // From left to right, as the encoder merges: of "aaa" the first two become one.
    for (const int32_t place : places) {
      const int32_t right = next_[at(place)];
      if (tokens_[at(place)] != pair.left || right == kNone || tokens_[at(right)] != pair.right) continue;
      const int32_t before = previous_[at(place)], after = next_[at(right)];
      const int64_t weight = weights_[at(place)];
      if (before != kNone) remove({tokens_[at(before)], pair.left}, weight);
      if (after != kNone) remove({pair.right, tokens_[at(after)]}, weight);
      tokens_[at(place)] = merged;
      tokens_[at(right)] = kNone;
      next_[at(place)] = after;
      if (after != kNone) previous_[at(after)] = place;
      if (before != kNone) add(before, weight);
      if (after != kNone) add(place, weight);
    }
    queue_new_pairs();
  }

 private:
  static size_t at(int32_t place) { return static_cast<size_t>(place); }

  void add(int32_t place, int64_t weight) {
    const Pair pair{tokens_[at(place)], tokens_[at(next_[at(place)])]};
    Occurrences& entry = pairs_[pair];
    if (entry.places.empty()) new_pairs_.push_back(pair);
    entry.places.push_back(place);
    entry.count += weight;
  }

  void remove(const Pair& pair, int64_t weight) {
    const auto entry = pairs_.find(pair);
    if (entry == pairs_.end()) return;  // the pair that is being merged, or one that was dropped
    if ((entry->second.count -= weight) == 0) pairs_.erase(entry);
  }

  // A pair is new when one of its tokens is: its places all come into being in one merge, and are queued together.
  void queue_new_pairs() {
    for (const Pair& pair : new_pairs_) {
      if (const auto entry = pairs_.find(pair); entry != pairs_.end()) queue_.push({entry->second.count, pair});
    }
    new_pairs_.clear();
  }

  std::vector<int32_t> tokens_, previous_, next_;  // by place; the right half of a merged pair holds kNone
  std::vector<int64_t> weights_;                   // how often the word of the place occurs
  std::unordered_map<Pair, Occurrences, PairHash> pairs_;
  std::vector<Pair> new_pairs_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

TokenizerSpec train_byte_pairs(std::span<const std::string> texts, const TokenizerTraining& training) {
  const int64_t min_count = training.min_count > 0 ? training.min_count : 2;
  const auto special = static_cast<int64_t>(training.special.size());
  require(training.vocab_size >= 256 + special && training.vocab_size <= static_cast<int64_t>(kMaxVocabulary),
          "[train_tokenizer] vocab_size is {}; with {} special tokens it must be {} to {}", training.vocab_size, special, 256 + special,
          kMaxVocabulary);
  TokenizerSpec spec;
  spec.origin = "the trained tokenizer";
  // GPT-2 orders the bytes by their characters; so do those who train like it, and ids are then comparable.
  std::array<int32_t, 256> byte_ids{};
  for (char32_t character = 0; character < kByteLevelEnd; ++character) {
    const auto byte = byte_of_character(character);
    if (!byte) continue;
    byte_ids[*byte] = static_cast<int32_t>(spec.pieces.size());
    append_utf8(spec.pieces.emplace_back(), character);
  }

  PairMerger merger(count_words(texts, training), byte_ids);
  const auto wanted = static_cast<size_t>(training.vocab_size - special);
  std::unordered_set<std::string> known(spec.pieces.begin(), spec.pieces.end());
  BpeSpec bpe;
  while (spec.pieces.size() < wanted) {
    check_stop(training);
    if (training.progress) training.progress("merging pairs", spec.pieces.size() - 256, wanted - 256);
    const std::optional<Pair> pair = merger.best(min_count);
    if (!pair) break;
    const std::string &left = spec.pieces[static_cast<size_t>(pair->left)], &right = spec.pieces[static_cast<size_t>(pair->right)];
    std::string joined = left + right;
    if (joined.size() > kMaxPieceBytes || !known.insert(joined).second) {
      merger.drop(*pair);
      continue;
    }
    bpe.merges.emplace_back(left, right);
    merger.merge(*pair, static_cast<int32_t>(spec.pieces.size()));
    spec.pieces.push_back(std::move(joined));
  }
  spec.model = std::move(bpe);
  spec.pre_tokenizer = {ByteLevelStep{.add_prefix_space = false, .use_regex = true}};
  spec.decoder = {ByteLevelDecode{}};
  add_special_tokens(training, spec);
  return spec;
}

}  // namespace regard
