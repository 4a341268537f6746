// The weights of a call, block of rows by block and tile of keys by tile, for whoever asks about them: rebuilt from q,
// k and lse by the kernel that computed the scores, under the same mask and terms, so looking changes no output and
// needs no memory of the size q_len x kv_len. Start at WeightTiles; a question is a loop over Block::next().
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "attention/call.h"
#include "attention/key_set.h"
#include "attention/row_block.h"
#include "attention/score_terms.h"
#include "attention/tensor_check.h"
#include "runtime/thread_pool.h"

namespace regard {

/// What attend() was given, and the lse that it gave.
struct WeightsInput {
  TensorView<const float> q, k, lse;
  const Mask& mask;
  const AttentionOptions& options;
  Interval queries, keys;  ///< the rectangle that is asked for, in numbers of q_len and kv_len
};

class WeightTiles {
  // What of the rectangle belongs to a sequence: its entry on the tensors' batch axis, and the numbers of its first query
  // and key in the rectangle.
  struct Place {
    int64_t entry = 0, first_query = 0, first_key = 0;
  };

 public:
  /// Checks everything but the outputs. Errors: as attend().
  WeightTiles(std::string_view function, const WeightsInput& input);

  const CallSizes& sizes() const noexcept { return sizes_; }
  const CallRows& call_rows() const noexcept { return call_rows_; }
  const CallPositions& positions() const noexcept { return *positions_; }
  int64_t rows() const noexcept { return input_.queries.end - input_.queries.begin; }
  int64_t columns() const noexcept { return input_.keys.end - input_.keys.begin; }

  /// Errors: kInvalidArgument when an output has another shape, overlaps itself, an input or an output checked before.
  template <class T>
  void check_output(std::string_view name, const TensorView<T>& output, std::initializer_list<int64_t> shape);

  /// Packs the keys and takes the scratch; `extra_bytes` of each thread's are the caller's. Errors: kInvalidArgument
  /// for queries beyond a list of the mask; kResourceExhausted.
  void prepare(size_t extra_bytes);

  /// Up to 96 query rows of one batch row that share a KV head. What a Block shows is valid until next().
  class Block {
   public:
    int rows() const noexcept { return rows_->rows(); }
    /// What the mask knows the rows by, and where their tensors are on the batch axis: another number for packed sequences.
    int64_t batch_row() const noexcept { return sequence_.batch_row; }
    int64_t entry() const noexcept { return place_.entry; }
    int head(int r) const noexcept { return rows_->head(r); }
    /// Number of the row's query in the rectangle.
    int64_t query(int r) const noexcept { return place_.first_query + rows_->token(r); }
    int64_t position(int r) const noexcept { return rows_->position(r); }

    /// Goes to the next tile, by rising position, in which some row sees a key; false behind the last one.
    bool next();
    /// Position of the tile's first key.
    int64_t base() const noexcept { return sequence_.keys.tile_id(tile_) * kernels::kTileKeys; }
    /// [256] weights of row r: 0 for keys that it does not see.
    const float* weights(int r) const noexcept { return weights_ + r * kernels::kTileKeys; }
    /// Number of the tile's key j in the rectangle; -1: none stands there.
    int64_t column(int j) const noexcept { return columns_.number(tile_, base(), j); }
    /// The extra bytes of this thread.
    std::byte* extra() const noexcept { return extra_; }

   private:
    friend class WeightTiles;
    Block(const WeightTiles& tiles, size_t sequence, int kv_head, int thread);
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    // Takes up the block of rows from `first_row` on, before its first tile.
    void start(int64_t first_row);
    // Whether the rows from `first_row` on may see a key of this tile; asks no row.
    bool may_see(int64_t first_row, int64_t tile) const;
    TileRange range_of(int64_t first_row) const;
    int64_t all_rows() const;
    int rows_from(int64_t first_row) const;
    // Goes to this tile; false when no row sees a key of it.
    bool show(int64_t tile);

    const WeightTiles& tiles_;
    const SequenceQueries& sequence_;
    const Place& place_;
    const KeyColumns& columns_;
    int kv_head_;
    RowScratch row_scratch_;
    TermScratch terms_;
    float *high_, *low_, *weights_;
    std::byte* extra_;
    std::optional<RowBlock> rows_;
    TileRange range_;
    int64_t tile_ = 0;
  };

  /// Calls f(block) for all blocks of rows, in parallel. Errors: kCancelled; as ScoreTerms::check_distances().
  template <class F>
  void for_each_block(F&& f) const {
    default_pool().for_each(
        static_cast<int64_t>(row_items_.size()),
        [&](int64_t i, int thread) {
          if (stopped()) return;
          const RowItem& at = row_items_[static_cast<size_t>(i)];
          Block block(*this, at.sequence, at.kv_head, thread);
          block.start(at.first_row);
          f(block);
        },
        input_.options.stop);
    check_finished();
  }

  /// Calls begin(block, kv_head), f(block) for the blocks of rows that see a key of the tile in their order, and
  /// end(block, kv_head), for all tiles of all KV heads, in parallel. The block of begin() and end() has no rows.
  /// Errors: as for_each_block().
  template <class Begin, class F, class End>
  void for_each_tile(Begin&& begin, F&& f, End&& end) const {
    default_pool().for_each(
        static_cast<int64_t>(tile_items_.size()),
        [&](int64_t i, int thread) {
          const TileItem& at = tile_items_[static_cast<size_t>(i)];
          Block block(*this, at.sequence, at.kv_head, thread);
          block.tile_ = at.tile;
          begin(block, at.kv_head);
          for (int64_t first_row = 0; first_row < block.all_rows() && !stopped(); first_row += kernels::kBlockRows) {
            if (!block.may_see(first_row, at.tile)) continue;
            block.start(first_row);
            if (block.show(at.tile)) f(block);
          }
          block.tile_ = at.tile;
          end(block, at.kv_head);
        },
        input_.options.stop);
    check_finished();
  }

 private:
  struct RowItem {
    size_t sequence;
    int kv_head;
    int64_t first_row;
  };
  struct TileItem {
    size_t sequence;
    int kv_head;
    int64_t tile;
  };
  // Adds batch row b, or the rows behind the last packed sequence, which see nothing.
  void add_sequence(int64_t b, const TensorView<const float>& q);
  void add_slack(const TensorView<const float>& q);
  void add_row_items();
  // When all items are done: one that was cut short must not pass for finished. Errors: kCancelled; as
  // ScoreTerms::check_distances().
  void check_finished() const;
  bool stopped() const noexcept { return input_.options.stop != nullptr && input_.options.stop->stop_requested(); }

  std::string_view function_;
  WeightsInput input_;
  std::vector<ByteRange> inputs_, outputs_;
  CallSizes sizes_;
  AttentionShape shape_;
  CallRows call_rows_;
  ScoreTerms terms_;
  std::optional<CallPositions> positions_;
  std::optional<MaskPlan> plan_;
  AlignedBuffer<float> q_copy_, k_copy_;
  // By sequence: a batch row each, and then the slack of packed sequences if there is any.
  std::vector<Place> places_;
  std::vector<PackSource> sources_;
  std::optional<PackedKv> packed_;
  std::vector<SequenceQueries> sequences_;
  std::vector<int64_t> nowhere_;  // positions of the slack
  std::vector<KeyColumns> columns_;
  std::vector<RowItem> row_items_;
  std::vector<TileItem> tile_items_;
  mutable Workspace workspace_;
  size_t extra_bytes_ = 0;
};

}  // namespace regard
