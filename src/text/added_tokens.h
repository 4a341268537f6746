// Finding added tokens ("<|im_end|>", runs of newlines, ...) in a text. Their texts are kept sorted; walking down a text narrows the
// range of those that begin like it, which is a trie without nodes. Cost: O(n * longest token) at worst, whatever their number.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_spec.h"

namespace regard {

/// A found token with the text it takes, white space swallowed by lstrip and rstrip included.
struct AddedMatch {
  size_t begin = 0, end = 0;
  int32_t id = -1;
};

class AddedTokenMatcher {
 public:
  struct Entry {
    std::string text{};
    int32_t id = -1;
    bool special = false, lstrip = false, rstrip = false, single_word = false;
  };

  AddedTokenMatcher() = default;
  /// Entries with an empty text are left out; of entries with the same text the one of lowest id stays.
  AddedTokenMatcher(std::vector<Entry> entries, AddedTokenOrder order);

  bool empty() const noexcept { return entries_.empty(); }

  /// Where special tokens may be recognised: the stretches of template text, or everywhere, or nowhere.
  class Allowed {
   public:
    static Allowed everywhere() { return Allowed(true); }
    static Allowed nowhere() { return Allowed(false); }
    /// Sorted, disjoint, non-adjacent stretches [begin, end).
    explicit Allowed(std::span<const std::pair<size_t, size_t>> stretches) : stretches_(stretches), some_(true) {}
    bool holds(size_t begin, size_t end) const noexcept;

   private:
    explicit Allowed(bool all) : all_(all) {}
    std::span<const std::pair<size_t, size_t>> stretches_;
    bool all_ = false, some_ = false;
  };

  /// The tokens found in `text` in order, not overlapping. The stretches of `allowed` count from the start of `text`.
  std::vector<AddedMatch> find(std::string_view text, const Allowed& allowed) const;

 private:
  /// Calls found(length, entry) for every entry that begins at `at`, shortest first.
  template <class Found>
  void walk(std::string_view text, size_t at, Found&& found) const;
  const Entry* longest(std::string_view text, size_t at, const Allowed& allowed, size_t below) const;
  std::vector<AddedMatch> find_leftmost(std::string_view text, const Allowed& allowed) const;
  std::vector<AddedMatch> find_longest_first(std::string_view text, const Allowed& allowed) const;

  std::vector<Entry> entries_;                          // sorted by text
  std::array<std::pair<uint32_t, uint32_t>, 256> by_first_{};  // range of the entries that begin with a byte
  AddedTokenOrder order_ = AddedTokenOrder::kLeftmostLongest;
  size_t longest_ = 0;
};

}  // namespace regard
