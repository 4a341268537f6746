// The order in which pairs merge: lowest rank first, of several the leftmost. Two queues with one interface: a binary heap for
// pieces of a word or a paragraph, and for the longest pieces one bucket per rank, which is walked from left to right. The heap of a
// long piece does not fit the cache, and time would grow by more than the logarithm.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace regard {

/// A pair that may merge.
struct MergeCandidate {
  uint32_t rank = 0;
  int32_t left = 0;   ///< index of the left symbol
  uint32_t size = 0;  ///< bytes of both symbols when the candidate was made
  int32_t id = 0;     ///< what they merge to
};

class HeapQueue {
 public:
  void clear() { heap_.clear(); }
  bool empty() const noexcept { return heap_.empty(); }
  void push(const MergeCandidate& c) {
    heap_.push_back(c);
    std::push_heap(heap_.begin(), heap_.end(), Later{});
  }
  MergeCandidate pop() {
    const MergeCandidate top = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    heap_.pop_back();
    return top;
  }

 private:
  struct Later {
    bool operator()(const MergeCandidate& a, const MergeCandidate& b) const noexcept {
      return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
    }
  };
  std::vector<MergeCandidate> heap_;
};

/// A bucket gathers the candidates of one rank as they come, mostly from left to right already. When its turn comes they are sorted
/// once; what comes later goes into a heap of its own. So each candidate is sorted or heaped once: O(n log n) in all.
class BucketQueue {
 public:
  void clear() {
    for (Bucket& bucket : buckets_) bucket.reset();
    used_ = 0;
    ranks_.clear();
    slots_.assign(kFirstSlots, 0);
  }
  bool empty() const noexcept { return ranks_.empty(); }

  void push(const MergeCandidate& c) {
    Bucket& bucket = buckets_[bucket_of(c.rank)];
    if (!bucket.waiting) {
      bucket.waiting = true;
      ranks_.push_back({c.rank, static_cast<uint32_t>(&bucket - buckets_.data())});
      std::push_heap(ranks_.begin(), ranks_.end(), Later{});
    }
    if (bucket.opened) {
      bucket.late.push_back(c);
      std::push_heap(bucket.late.begin(), bucket.late.end(), RightOf{});
    } else {
      bucket.in_order = bucket.in_order && (bucket.items.empty() || bucket.items.back().left <= c.left);
      bucket.items.push_back(c);
    }
  }

  MergeCandidate pop() {
    Bucket& bucket = buckets_[ranks_.front().bucket];
    if (!bucket.opened) {
      bucket.opened = true;
      if (!bucket.in_order)
        std::sort(bucket.items.begin(), bucket.items.end(), [](const auto& a, const auto& b) { return a.left < b.left; });
    }
    MergeCandidate top;
    const bool has_item = bucket.head < bucket.items.size();
    if (has_item && (bucket.late.empty() || bucket.items[bucket.head].left <= bucket.late.front().left)) {
      top = bucket.items[bucket.head++];
    } else {
      top = bucket.late.front();
      std::pop_heap(bucket.late.begin(), bucket.late.end(), RightOf{});
      bucket.late.pop_back();
    }
    if (bucket.head == bucket.items.size() && bucket.late.empty()) {
      bucket.reset();
      std::pop_heap(ranks_.begin(), ranks_.end(), Later{});
      ranks_.pop_back();
    }
    return top;
  }

 private:
  static constexpr size_t kFirstSlots = 1024;

  struct Bucket {
    std::vector<MergeCandidate> items;  // sorted by left once opened; taken from head on
    std::vector<MergeCandidate> late;   // heap by left
    size_t head = 0;
    uint32_t rank = 0;
    bool waiting = false;  // is in ranks_
    bool opened = false, in_order = true;

    void reset() {
      items.clear();
      late.clear();
      head = 0;
      waiting = opened = false;
      in_order = true;
    }
  };
  struct Waiting {
    uint32_t rank, bucket;
  };
  struct Later {
    bool operator()(const Waiting& a, const Waiting& b) const noexcept { return a.rank > b.rank; }
  };
  struct RightOf {
    bool operator()(const MergeCandidate& a, const MergeCandidate& b) const noexcept { return a.left > b.left; }
  };

  static size_t hash_of(uint32_t rank) noexcept { return rank * size_t{0x9E3779B97F4A7C15u} >> 32; }

  /// The index of the bucket of `rank`, made if there is none yet.
  size_t bucket_of(uint32_t rank) {
    if ((used_ + 1) * 2 > slots_.size()) grow();
    size_t slot = hash_of(rank) & (slots_.size() - 1);
    for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
      if (buckets_[slots_[slot] - 1].rank == rank) return slots_[slot] - 1;
    }
    if (used_ == buckets_.size()) buckets_.emplace_back();
    buckets_[used_].rank = rank;
    slots_[slot] = static_cast<uint32_t>(++used_);
    return used_ - 1;
  }

  void grow() {
    slots_.assign(slots_.size() * 2, 0);
    for (size_t i = 0; i < used_; ++i) {
      size_t slot = hash_of(buckets_[i].rank) & (slots_.size() - 1);
      while (slots_[slot] != 0) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = static_cast<uint32_t>(i + 1);
    }
  }

  std::vector<Bucket> buckets_;  // the first used_ belong to this run
  size_t used_ = 0;
  std::vector<uint32_t> slots_;  // hash table: bucket index + 1
  std::vector<Waiting> ranks_;   // heap of the buckets that hold candidates
};

}  // namespace regard
