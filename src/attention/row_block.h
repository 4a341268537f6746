// A block of query rows that share one KV head: which keys each row sees, lowered tile by tile to what the kernels
// take.
#pragma once

#include <cstdint>

#include "attention/attention.h"

namespace regard {

/// Scratch of one thread for one block of rows.
struct RowScratch {
  float* q = nullptr;       // [rows][head_dim], scaled
  float* scores = nullptr;  // [6][256]
  float* o = nullptr;       // [rows][padded value_dim]
  float* m = nullptr;       // [rows + 16]
  float* l = nullptr;
  float* lse = nullptr;   // [rows]
  int32_t* lo = nullptr;  // [rows] of the tile at hand
  int32_t* hi = nullptr;
  int64_t* begin = nullptr;  // [rows] of the row
  int64_t* end = nullptr;
  uint64_t (*words)[kernels::kPanelsPerTile] = nullptr;  // [rows]

  /// Lays the scratch out for blocks of at most `block_rows`; see Carver.
  static RowScratch carve(Carver& carver, int head_dim, int value_dim, int block_rows = kernels::kBlockRows);
};

class RowBlock {
 public:
  /// Rows first_row ... of `kv_head`; rows are (token, head of the group), tokens first.
  RowBlock(const SequenceQueries& sequence, const AttentionShape& shape, const MaskPlan& mask, int kv_head,
           int64_t first_row, int rows, const RowScratch& scratch) noexcept;

  int rows() const noexcept { return rows_; }
  int64_t token(int r) const noexcept { return (first_row_ + r) / group_; }
  int head(int r) const noexcept { return kv_head_ * group_ + static_cast<int>((first_row_ + r) % group_); }
  int64_t position(int r) const noexcept {
    return sequence_.positions == nullptr ? sequence_.first_position + token(r) : sequence_.positions[token(r)];
  }

  /// Scales the queries into the scratch.
  void load_queries(float factor) noexcept;
  /// Rounds them to pairs of bf16, not scaled.
  void load_queries(uint32_t* pairs) noexcept;

  /// Describes tile `index` of the view to the kernels. False when no row sees a key of it.
  bool lower(int64_t index, kernels::AttentionTile& tile) noexcept;

 private:
  void find_queries(const float** q) const noexcept;
  bool lower_words(Interval keys, const uint64_t* written, kernels::AttentionTile& tile) noexcept;
  TileClass classify(Interval keys) const noexcept;
  void place(int64_t index, kernels::AttentionTile& tile) const noexcept;

  const SequenceQueries& sequence_;
  const AttentionShape& shape_;
  const MaskPlan& mask_;
  int group_, kv_head_;
  int64_t first_row_;
  int rows_;
  int heads_;         // how many heads of the group need a look at the mask: 1 unless it depends on the head
  Interval queries_;  // of the rows that have a position
  Interval shared_;   // keys that lie between the first and the last one of every row
  const RowScratch& scratch_;
};

/// Whether a run of rows [first_row, first_row + rows) of a KV head may see anything, and in which tiles of the view.
/// No row sees a key of another tile.
struct TileRange {
  int64_t begin = 0, end = 0;
};
TileRange tile_range(const SequenceQueries& sequence, const AttentionShape& shape, const MaskPlan& mask, int kv_head,
                     int64_t first_row, int64_t rows) noexcept;

}  // namespace regard
