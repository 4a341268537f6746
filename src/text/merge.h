// The loop that both kinds of BPE share: merge the neighbouring pair of lowest rank, of several the leftmost, until none is left.
// A queue of candidate pairs and a linked list of symbols: O(n log n) for n symbols, however long the piece (Gemma's pieces are
// whole paragraphs).
#pragma once

#include <cstdint>
#include <vector>

#include "text/merge_queue.h"
#include "text/vocabulary.h"

namespace regard {

/// A symbol stands at the index of the first initial symbol that went into it; `next` tells how far it reaches.
struct Symbol {
  int32_t previous = -1, next = -1;  // indices; previous -1 at the start, next the number of symbols at the end
  int32_t id = kNoToken;             // kMerged once the symbol went into its left neighbour
};

/// The state of one merging, kept between pieces so that its memory is used again.
class Merger {
 public:
  static constexpr int32_t kMerged = -2;

  void clear(size_t expected) {
    symbols_.clear();
    symbols_.reserve(expected);
  }
  void add(int32_t id) {
    const auto index = static_cast<int32_t>(symbols_.size());
    symbols_.push_back({index - 1, index + 1, id});
  }

  /// Merges until no pair is left. lookup(left, right, end) gives the rank and the id that the symbols [left, right) and [right, end)
  /// merge to, or the id kNoToken; id(index) tells what they are.
  template <class Lookup>
  void run(Lookup&& lookup) {
    if (symbols_.size() <= kHeapSymbols) {
      run_with(heap_, lookup);
    } else {
      run_with(buckets_, lookup);
    }
  }

  int32_t id(int32_t index) const noexcept { return symbols_[static_cast<size_t>(index)].id; }

  /// Calls emit(id, begin, end) for what is left, in order: each with the initial symbols that it covers.
  template <class Emit>
  void for_each(Emit&& emit) const {
    const auto count = static_cast<int32_t>(symbols_.size());
    for (int32_t i = 0; i < count; i = symbols_[static_cast<size_t>(i)].next) emit(id(i), i, symbols_[static_cast<size_t>(i)].next);
  }

  /// Look-ups and heap steps so far: what the tests of linear time count.
  uint64_t steps() const noexcept { return steps_; }

 private:
  static constexpr size_t kHeapSymbols = 1024;  // up to here a heap stays in the first-level cache

  template <class Queue, class Lookup>
  void run_with(Queue& queue, Lookup&& lookup) {
    queue.clear();
    const auto count = static_cast<int32_t>(symbols_.size());
    const auto at = [&](int32_t index) -> Symbol& { return symbols_[static_cast<size_t>(index)]; };
    const auto consider = [&](int32_t left, int32_t right) {
      const int32_t end = at(right).next;
      const MergeTable::Merge merge = lookup(left, right, end);
      ++steps_;
      if (merge.id != kNoToken) queue.push({merge.rank, left, end, merge.id});
    };
    for (int32_t right = 1; right < count; ++right) consider(right - 1, right);
    while (!queue.empty()) {
      const MergeCandidate top = queue.pop();
      ++steps_;
      Symbol& left = at(top.left);
      if (left.id == kMerged || left.next == count) continue;
      Symbol& right = at(left.next);
      // Symbols only grow, to the right, so a pair that ends where it ended when it was found is still the same pair.
      if (right.next != top.end) continue;
      left.id = top.id;
      right.id = kMerged;
      left.next = top.end;
      if (top.end < count) at(top.end).previous = top.left;
      if (left.previous >= 0) consider(left.previous, top.left);
      if (top.end < count) consider(top.left, top.end);
    }
  }

  std::vector<Symbol> symbols_;
  HeapQueue heap_;
  BucketQueue buckets_;
  uint64_t steps_ = 0;
};

}  // namespace regard
