// The loop that both kinds of BPE share: merge the neighbouring pair of lowest rank, of several the leftmost, until none is left.
// A queue of candidate pairs and a linked list of symbols: O(n log n) for n symbols, however long the piece (Gemma's pieces are
// whole paragraphs).
#pragma once

#include <cstdint>
#include <vector>

#include "text/merge_queue.h"
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
    if (symbols.size() <= kHeapSymbols) {
      run_with(heap_, lookup);
    } else {
      run_with(buckets_, lookup);
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
  static constexpr size_t kHeapSymbols = 1024;  // up to here a heap stays in the first-level cache

  template <class Queue, class Lookup>
  void run_with(Queue& queue, Lookup&& lookup) {
    queue.clear();
    const auto consider = [&](int32_t left, int32_t right) {
      const Symbol &a = symbols[static_cast<size_t>(left)], &b = symbols[static_cast<size_t>(right)];
      const MergeTable::Merge merge = lookup(a, b);
      ++steps_;
      if (merge.id != kNoToken) queue.push({merge.rank, left, a.size + b.size, merge.id});
    };
    for (size_t i = 1; i < symbols.size(); ++i) consider(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
    while (!queue.empty()) {
      const MergeCandidate top = queue.pop();
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
      if (left.previous >= 0) consider(left.previous, top.left);
      if (left.next >= 0) consider(top.left, left.next);
    }
  }

  HeapQueue heap_;
  BucketQueue buckets_;
  uint64_t steps_ = 0;
};

}  // namespace regard
