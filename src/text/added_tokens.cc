#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"
#include "text/utf8.h"

namespace regard {
namespace {

constexpr uint8_t byte_at(std::string_view text, size_t at) { return static_cast<uint8_t>(text[at]); }

/// The last character of `text`, or a broken one; U+FFFD for broken bytes, which are neither space nor word.
Utf8Char last_char(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 && (byte_at(text, begin) & 0xC0) == 0x80) --begin;
  const Utf8Char c = next_char(text.substr(begin));
  if (c.valid() && begin + c.size == text.size()) return c;
  return {0xFFFD, 1, Utf8Char::State::kInvalid};
}

bool word_ends(std::string_view text) { return !text.empty() && is_word_character(last_char(text).code_point); }
bool word_begins(std::string_view text) {
  if (text.empty()) return false;
  const Utf8Char c = next_char(text);
  return c.valid() && is_word_character(c.code_point);
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<Entry> entries, AddedTokenOrder order) : order_(order) {
  std::erase_if(entries, [](const Entry& e) { return e.text.empty(); });
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    const int order_of_texts = a.text.compare(b.text);
    return order_of_texts != 0 ? order_of_texts < 0 : a.id < b.id;
  });
  entries.erase(std::unique(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.text == b.text; }),
                entries.end());
  entries_ = std::move(entries);
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    auto& range = by_first_[byte_at(entries_[i].text, 0)];
    if (range.second == 0) range.first = i;
    range.second = i + 1;
    longest_ = std::max(longest_, entries_[i].text.size());
  }
}

bool AddedTokenMatcher::Allowed::holds(size_t begin, size_t end) const noexcept {
  if (!some_) return all_;
  const auto after = std::upper_bound(stretches_.begin(), stretches_.end(), begin,
                                      [](size_t at, const std::pair<size_t, size_t>& s) { return at < s.first; });
  return after != stretches_.begin() && end <= (after - 1)->second;
}

template <class Found>
void AddedTokenMatcher::walk(std::string_view text, size_t at, Found&& found) const {
  auto [low, high] = by_first_[byte_at(text, at)];
  for (size_t depth = 1; low < high; ++depth) {
    // The entries [low, high) begin with the `depth` bytes from `at`; one that ends there comes first of them.
    if (entries_[low].text.size() == depth) found(depth, entries_[low++]);
    if (low == high || at + depth == text.size()) return;
    const uint8_t next = byte_at(text, at + depth);
    const auto begin = entries_.begin();
    const auto first = std::lower_bound(begin + low, begin + high, next,
                                        [&](const Entry& e, uint8_t b) { return byte_at(e.text, depth) < b; });
    const auto last = std::upper_bound(first, begin + high, next,
                                       [&](uint8_t b, const Entry& e) { return b < byte_at(e.text, depth); });
    low = static_cast<uint32_t>(first - begin);
    high = static_cast<uint32_t>(last - begin);
  }
}

/// The longest entry at `at` that is shorter than `below` and may stand there.
const AddedTokenMatcher::Entry* AddedTokenMatcher::longest(std::string_view text, size_t at, const Allowed& allowed,
                                                           size_t below) const {
  const Entry* best = nullptr;
  walk(text, at, [&](size_t length, const Entry& entry) {
    if (length < below && (!entry.special || allowed.holds(at, at + length))) best = &entry;
  });
  return best;
}

std::vector<AddedMatch> AddedTokenMatcher::find_leftmost(std::string_view text, const Allowed& allowed) const {
  std::vector<AddedMatch> matches;
  size_t taken = 0;  // up to here earlier matches reach, their swallowed space included
  for (size_t at = 0; at < text.size();) {
    const Entry* entry = longest(text, at, allowed, longest_ + 1);
    if (entry == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + entry->text.size();
    at = end;  // the search goes on behind the token itself, as the reference's automaton does
    if (entry->single_word && (word_ends(text.substr(0, begin)) || word_begins(text.substr(end)))) continue;
    if (entry->lstrip) {
      while (begin > taken) {
        const Utf8Char c = last_char(text.substr(0, begin));
        if (!c.valid() || !is_white_space(c.code_point)) break;
        begin -= c.size;
      }
    }
    begin = std::max(begin, taken);
    if (entry->rstrip) {
      while (end < text.size()) {
        const Utf8Char c = next_char(text.substr(end));
        if (!c.valid() || !is_white_space(c.code_point)) break;
        end += c.size;
      }
    }
    end = std::max(end, begin);
    matches.push_back({begin, end, entry->id});
    taken = end;
  }
  return matches;
}

std::vector<AddedMatch> AddedTokenMatcher::find_longest_first(std::string_view text, const Allowed& allowed) const {
  // Candidates by length: at first the longest token at each place; one that meets a token taken before it comes back with the
  // next shorter token of its place. Tokens are taken from the longest down, so a candidate can only meet a taken one at its ends.
  std::vector<std::vector<std::pair<size_t, const Entry*>>> by_length(longest_ + 1);
  for (size_t at = 0; at < text.size(); ++at) {
    if (const Entry* entry = longest(text, at, allowed, longest_ + 1)) by_length[entry->text.size()].emplace_back(at, entry);
  }
  std::vector<bool> taken(text.size(), false);
  std::vector<AddedMatch> matches;
  for (size_t length = longest_; length > 0; --length) {
    auto& candidates = by_length[length];
    // llama.cpp looks for one token after the other: of equally long ones the lower id first, each from the left.
    std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
      return a.second->id != b.second->id ? a.second->id < b.second->id : a.first < b.first;
    });
    for (const auto& [at, entry] : candidates) {
      if (taken[at]) continue;
      if (taken[at + length - 1]) {
        if (const Entry* shorter = longest(text, at, allowed, length)) by_length[shorter->text.size()].emplace_back(at, shorter);
        continue;
      }
      std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(at), length, true);
      matches.push_back({at, at + length, entry->id});
    }
  }
  std::sort(matches.begin(), matches.end(), [](const AddedMatch& a, const AddedMatch& b) { return a.begin < b.begin; });
  return matches;
}

std::vector<AddedMatch> AddedTokenMatcher::find(std::string_view text, const Allowed& allowed) const {
  if (entries_.empty()) return {};
  return order_ == AddedTokenOrder::kLeftmostLongest ? find_leftmost(text, allowed) : find_longest_first(text, allowed);
}

}  // namespace regard
