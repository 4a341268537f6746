// The loop that both kinds of BPE share: merge the neighbouring pair of lowest rank, of several the leftmost, until none is left.
// A heap of candidate pairs and a linked list of symbols: O(n log n) for n symbols, however long the piece (Gemma's pieces are whole
// paragraphs).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "text/vocabulary.h"

namespace regard {

struct Symbol {
  int32_t previous = -1, next = -1;  // indices, -1 at the ends
  int32_t id = kNoToken;
  uint32_t begin = 0, size = 0;      // bytes of the piece; size 0 once the symbol has been merged into its left neighbour
};

/// The state of one merging, kept between pieces so that its memory is used again.
class Merger {
 public:
  std::vector<Symbol> symbols;

  void clear() { symbols.clear(); }
  void add(int32_t id, size_t begin, size_t size) {
    const auto index = static_cast<int32_t>(symbols.size());
    if (index > 0) symbols.back().next = index;
    symbols.push_back({index - 1, -1, id, static_cast<uint32_t>(begin), static_cast<uint32_t>(size)});
  }

  /// Merges until no pair is left. lookup(left, right) gives the rank and the id that two symbols merge to, or id kNoToken.
  template <class Lookup>
  void run(Lookup&& lookup) {
    heap_.clear();
    const auto candidate = [&](int32_t left, int32_t right, auto&& keep) {
      const Symbol &a = symbols[static_cast<size_t>(left)], &b = symbols[static_cast<size_t>(right)];
      const MergeTable::Merge merge = lookup(a, b);
      ++steps_;
      if (merge.id != kNoToken) keep(Candidate{merge.rank, left, a.size + b.size, merge.id});
    };
    for (size_t i = 1; i < symbols.size(); ++i) {
      candidate(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i), [&](const Candidate& c) { heap_.push_back(c); });
    }
    std::make_heap(heap_.begin(), heap_.end(), Later{});
    const auto push = [&](const Candidate& c) {
      heap_.push_back(c);
      std::push_heap(heap_.begin(), heap_.end(), Later{});
    };
    while (!heap_.empty()) {
      const Candidate top = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end(), Later{});
      heap_.pop_back();
      ++steps_;
      Symbol& left = symbols[static_cast<size_t>(top.left)];
      if (left.size == 0 || left.next < 0) continue;
      Symbol& right = symbols[static_cast<size_t>(left.next)];
      // Symbols only grow and their ends only move right, so an equal sum of sizes means that the pair is still the same one.
      if (left.size + right.size != top.size) continue;
      left.id = top.id;
      left.size = top.size;
      right.size = 0;
      left.next = right.next;
      if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = top.left;
      if (left.previous >= 0) candidate(left.previous, top.left, push);
      if (left.next >= 0) candidate(top.left, left.next, push);
    }
  }

  /// Calls emit(symbol) for what is left, in order.
  template <class Emit>
  void for_each(Emit&& emit) const {
    for (int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) emit(symbols[static_cast<size_t>(i)]);
  }

  /// Look-ups and heap steps so far: what the tests of linear time count.
  uint64_t steps() const noexcept { return steps_; }

 private:
  struct Candidate {
    uint32_t rank;
    int32_t left;
    uint32_t size;  // of both symbols when the candidate was made
    int32_t id;
  };
  struct Later {
    bool operator()(const Candidate& a, const Candidate& b) const noexcept {
      return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
    }
  };
  std::vector<Candidate> heap_;
  uint64_t steps_ = 0;
};

}  // namespace regard
