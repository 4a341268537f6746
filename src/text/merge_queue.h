// The order in which pairs merge: lowest rank first, of several the leftmost. Two queues with one interface: a binary heap for
// pieces of a word or a paragraph, and for the longest pieces one bucket per rank, which is walked from left to right. The heap of a
// long piece does not fit the cache, and time would grow by more than the logarithm.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace regard {

/// A pair that may merge.
struct MergeCandidate {
  uint32_t rank = 0;
  int32_t left = 0;  ///< index of the left symbol
  int32_t end = 0;   ///< index of the symbol behind the right one
  int32_t id = 0;    ///< what they merge to
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
/// once; what comes later goes into a heap of its own. So each candidate is sorted or heaped once: O(n log n) in all. The memory of
/// buckets is made of small blocks that are used again at once, so that no more is touched than candidates wait at the same time.
class BucketQueue {
 public:
  void clear() {
    used_ = 0;
    ranks_.clear();
    slots_.assign(kFirstSlots, 0);
    free_.clear();
    next_block_ = 0;
  }
  bool empty() const noexcept { return ranks_.empty(); }

  void push(const MergeCandidate& c) {
    const uint32_t index = bucket_of(c.rank);
    Bucket& bucket = buckets_[index];
    if (!bucket.waiting) {
      bucket.waiting = true;
      ranks_.push_back({c.rank, index});
      std::push_heap(ranks_.begin(), ranks_.end(), Later{});
    }
    const Item item{c.left, c.end, c.id};
    if (bucket.opened) {
      bucket.late.push_back(item);
      std::push_heap(bucket.late.begin(), bucket.late.end(), RightOf{});
    } else {
      bucket.in_order = bucket.in_order && bucket.last_left <= c.left;
      append(bucket, item);
    }
  }

  MergeCandidate pop() {
    Bucket& bucket = buckets_[ranks_.front().bucket];
    if (!bucket.opened) open(bucket);
    Item top;
    if (bucket.count > 0 && (bucket.late.empty() || front(bucket).left <= bucket.late.front().left)) {
      top = take_front(bucket);
    } else {
      top = bucket.late.front();
      std::pop_heap(bucket.late.begin(), bucket.late.end(), RightOf{});
      bucket.late.pop_back();
    }
    const MergeCandidate out{bucket.rank, top.left, top.end, top.id};
    if (bucket.count == 0 && bucket.late.empty()) {
      bucket.waiting = bucket.opened = false;
      bucket.in_order = true;
      bucket.last_left = 0;
      std::pop_heap(ranks_.begin(), ranks_.end(), Later{});
      ranks_.pop_back();
    }
    return out;
  }

 private:
  static constexpr size_t kFirstSlots = 1024;
  static constexpr uint32_t kBlockItems = 15;      // with the link a block has 184 bytes, about three cache lines
  static constexpr uint32_t kSlabBlocks = 512;
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Item {
    int32_t left = 0, end = 0, id = 0;
  };
  struct Block {
    Item items[kBlockItems];
    uint32_t next = kNone;
  };
  /// A queue of items in linked blocks.
  struct Bucket {
    uint32_t rank = 0, count = 0;
    uint32_t first = kNone, last = kNone;  // blocks
    uint32_t head = 0, tail = 0;           // places in them
    int32_t last_left = 0;
    bool waiting = false;                  // is in ranks_
    bool opened = false, in_order = true;
    std::vector<Item> late;                // heap by left
  };
  struct Waiting {
    uint32_t rank, bucket;
  };
  struct Later {
    bool operator()(const Waiting& a, const Waiting& b) const noexcept { return a.rank > b.rank; }
  };
  struct RightOf {
    bool operator()(const Item& a, const Item& b) const noexcept { return a.left > b.left; }
  };

  Block& block(uint32_t index) noexcept { return slabs_[index / kSlabBlocks][index % kSlabBlocks]; }

  uint32_t new_block() {
    if (!free_.empty()) {
      const uint32_t index = free_.back();
      free_.pop_back();
      return index;
    }
    if (next_block_ == slabs_.size() * kSlabBlocks) slabs_.push_back(std::make_unique<Block[]>(kSlabBlocks));
    return next_block_++;
  }

  void append(Bucket& bucket, const Item& item) {
    if (bucket.last == kNone || bucket.tail == kBlockItems) {
      const uint32_t added = new_block();
      block(added).next = kNone;
      if (bucket.last == kNone) {
        bucket.first = added;
        bucket.head = 0;
      } else {
        block(bucket.last).next = added;
      }
      bucket.last = added;
      bucket.tail = 0;
    }
    block(bucket.last).items[bucket.tail++] = item;
    bucket.last_left = item.left;
    ++bucket.count;
  }

  const Item& front(const Bucket& bucket) noexcept { return block(bucket.first).items[bucket.head]; }

  Item take_front(Bucket& bucket) {
    const Item item = front(bucket);
    ++bucket.head;
    --bucket.count;
    if (bucket.count == 0 || bucket.head == kBlockItems) {
      const uint32_t next = block(bucket.first).next;
      free_.push_back(bucket.first);
      bucket.first = next;
      bucket.head = 0;
      if (bucket.count == 0) bucket.first = bucket.last = kNone;
    }
    return item;
  }

  void open(Bucket& bucket) {
    bucket.opened = true;
    if (bucket.in_order) return;
    sorted_.clear();
    while (bucket.count > 0) sorted_.push_back(take_front(bucket));
    std::sort(sorted_.begin(), sorted_.end(), [](const Item& a, const Item& b) { return a.left < b.left; });
    for (const Item& item : sorted_) append(bucket, item);
  }

  static size_t hash_of(uint32_t rank) noexcept { return rank * size_t{0x9E3779B97F4A7C15u} >> 32; }

  /// The index of the bucket of `rank`, made if there is none yet.
  uint32_t bucket_of(uint32_t rank) {
    if ((used_ + 1) * 2 > slots_.size()) grow();
    size_t slot = hash_of(rank) & (slots_.size() - 1);
    for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
      if (buckets_[slots_[slot] - 1].rank == rank) return slots_[slot] - 1;
    }
    if (used_ == buckets_.size()) buckets_.emplace_back();
    buckets_[used_].rank = rank;  // a bucket that an earlier run used was left empty by it
    slots_[slot] = static_cast<uint32_t>(++used_);
    return static_cast<uint32_t>(used_ - 1);
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
  std::vector<std::unique_ptr<Block[]>> slabs_;
  uint32_t next_block_ = 0;      // blocks from here on have not been used in this run
  std::vector<uint32_t> free_;
  std::vector<Item> sorted_;
};

}  // namespace regard
