// The query rows of a backward call: what each of them needs beside its query, and which keys of a block it sees.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/backward.h"
#include "attention/backward_keys.h"
#include "base/aligned_buffer.h"

namespace regard {

/// Up to kBlockRows rows that share a KV head; rows are (token, head of the group), tokens first.
struct BackwardRowBlock {
  int64_t batch = 0;
  int kv_head = 0;
  int64_t first_row = 0;
  int rows = 0;
  Interval queries;      ///< of the rows that see anything
  Interval some, every;  ///< no row sees a key outside `some`, and all of them look over all of `every`
  Interval key_blocks;   ///< the blocks of keys that hold any of `some`
};

enum class BlockSight { kNothing, kEverything, kSome };

/// The positions of [begin, end) among the 64 from `base` on, as bits.
inline uint64_t interval_word(int64_t begin, int64_t end, int64_t base) noexcept {
  const int64_t lo = std::max<int64_t>(begin - base, 0), hi = std::min<int64_t>(end - base, 64);
  return lo < hi ? (~uint64_t{0} << lo) & (~uint64_t{0} >> (64 - hi)) : 0;
}

class BackwardRows {
 public:
  /// All rows of all batch rows and KV heads in blocks; `keys` has one entry for each batch row.
  BackwardRows(const BackwardTensors& tensors, const CallRows& call_rows, const AttentionShape& shape,
               const MaskPlan& mask, const CallPositions& positions, const std::vector<BackwardKeys>& keys);

  int64_t size() const noexcept { return static_cast<int64_t>(blocks_.size()); }
  const BackwardRowBlock& block(int64_t i) const noexcept { return blocks_[static_cast<size_t>(i)]; }
  /// The blocks of one KV head: [begin, end).
  Interval blocks_of(int64_t batch, int kv_head) const noexcept {
    const int64_t first = first_block_[static_cast<size_t>(batch)], next = first_block_[static_cast<size_t>(batch) + 1],
                  count = (next - first) / shape_.num_kv_heads;
    return {first + kv_head * count, first + (kv_head + 1) * count};
  }
  /// Whether any row of block i may see keys of this block of its batch row.
  bool wants(int64_t i, int64_t key_block) const noexcept {
    return key_block >= block(i).key_blocks.begin && key_block < block(i).key_blocks.end;
  }
  /// The most that a KV head has.
  int64_t most_blocks() const noexcept { return most_blocks_; }

  /// Row r of a block in a tensor [batch, num_q_heads, q_len, ...].
  template <class T>
  T* row_of(const TensorView<T>& tensor, const BackwardRowBlock& block, int r) const noexcept {
    return tensor.at(call_rows_.entry(block.batch), head(block, r),
                     call_rows_.first_query(block.batch) + token(block, r));
  }

  /// Finds out what the rows of block i see and what the kernels want to know of them, and writes 0 into their dq.
  /// Once for each block, before anything else; different blocks from different threads.
  void prepare(int64_t i) noexcept;

  int64_t token(const BackwardRowBlock& block, int r) const noexcept { return (block.first_row + r) / group_; }
  int head(const BackwardRowBlock& block, int r) const noexcept {
    return block.kv_head * group_ + static_cast<int>((block.first_row + r) % group_);
  }
  /// False: the row sees nothing, and nothing of it is read.
  bool takes_part(int64_t i, int r) const noexcept { return !span(i, r).empty(); }
  /// Between which positions the row looks.
  Interval span(int64_t i, int r) const noexcept {
    return {begin_[static_cast<size_t>(at(i) + r)], end_[static_cast<size_t>(at(i) + r)]};
  }
  int64_t position(const BackwardRowBlock& block, int r) const noexcept;
  float lse(const BackwardRowBlock& block, int r) const noexcept { return *row_of(tensors_.lse, block, r); }

  /// Remembers which rows of block i see a key by these words (null: all that take part), from any thread; and whether
  /// a row did.
  void note_sight(int64_t i, int panels, const uint64_t (*seen)[kernels::kPanelsPerTile]) noexcept;
  bool saw(int64_t i, int r) const noexcept { return saw_[static_cast<size_t>(at(i) + r)] != 0; }

  const float* lse_high(int64_t i) const noexcept { return lse_high_.data() + at(i); }
  const float* lse_low(int64_t i) const noexcept { return lse_low_.data() + at(i); }
  const float* delta(int64_t i) const noexcept { return delta_.data() + at(i); }

  /// Which keys of a block of `panels` panels the rows of block i see, as bits where the answer is kSome.
  BlockSight look(int64_t i, const BackwardKeys& keys, const KeyBlock& block, int panels,
                  uint64_t (*seen)[kernels::kPanelsPerTile]) const noexcept;

 private:
  int64_t at(int64_t i) const noexcept { return i * kernels::kBlockRows; }
  TileClass classify(const BackwardRowBlock& block, Interval keys) const noexcept;

  const BackwardTensors& tensors_;
  const CallRows& call_rows_;
  const AttentionShape& shape_;
  const MaskPlan& mask_;
  const CallPositions& positions_;
  const std::vector<BackwardKeys>& keys_;
  int group_;
  int heads_;  // how many heads of the group need a look at the mask: 1 unless it depends on the head
  int64_t most_blocks_ = 0;
  std::vector<int64_t> first_block_;  // by batch row, and the number of all
  std::vector<BackwardRowBlock> blocks_;
  AlignedBuffer<float> lse_high_, lse_low_, delta_;
  AlignedBuffer<int64_t> begin_, end_;  // between which positions each row looks
  AlignedBuffer<uint8_t> saw_;
};

}  // namespace regard
