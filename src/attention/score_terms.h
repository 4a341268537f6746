// The score terms of a call (regard/score_terms.h), lowered tile by tile to what the kernels take: one pointer per row
// to the biases of 256 keys. Start at ScoreTerms::lower().
//
// A bias by distance is tabulated once per call over the distances that occur, by head; a row of a tile is a slice of
// that table. A dense bias is read in place where a whole tile of a row lies contiguous. Everything else goes through
// scratch of 256 floats per row, so memory is O(q_len + kv_len) per head and never q_len x kv_len.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "attention/call.h"
#include "attention/distance_bias.h"
#include "attention/relative_term.h"
#include "attention/row_block.h"
#include "attention/tensor_check.h"
#include "kernels/dropout.h"

namespace regard {

/// Scratch of one thread for the terms of one block of rows.
struct TermScratch {
  float* bias = nullptr;                                // [96][256] of the tile at hand
  const float** rows = nullptr;                         // [96]: where each row's biases are
  float* term = nullptr;                                // [256] of one more term of a row
  float* relative_q = nullptr;                          // [96][head_dim]: scale (q + v)
  float* relative = nullptr;                            // [96][RelativeTerm::kRowFloats]
  const float** relative_rows = nullptr;                // [96]: the term of each row
  kernels::DropoutKey* keys = nullptr;                  // [96]
  uint64_t (*keep)[kernels::kPanelsPerTile] = nullptr;  // [96]
  float* sinks = nullptr;                               // [96]
  uint8_t* empty = nullptr;                             // [96]: rows that saw nothing
};

/// Where the slots of one sequence stand: what its queries and keys are to a bias.
struct TermSlots {
  const int64_t* q_encoding = nullptr;     ///< encoding position of each query; null: its position
  const int64_t* k_encoding = nullptr;     ///< of each key
  int64_t first_query = 0, first_key = 0;  ///< number of the first of them on the axes of a dense bias
};

class ScoreTerms {
 public:
  /// Errors: kInvalidArgument, naming the term, for shapes and numbers that do not fit.
  ScoreTerms(std::string_view function, const CallSizes& sizes, const AttentionOptions& options, double scale);

  /// True when there is nothing to do for any term.
  bool empty() const noexcept { return !adds() && sinks_.empty() && !drops(); }
  bool drops() const noexcept { return dropout_.rate > 0; }
  /// Another seed and first batch row, for a call that is made again.
  void set_dropout(uint64_t seed, int64_t first_batch_row) noexcept {
    dropout_.seed = seed;
    dropout_.first_batch_row = first_batch_row;
  }
  /// Other numbers in T5's table, of the same shape, likewise. A backward pass takes them over when it is run again.
  void set_t5(const T5Bias& t5);
  /// Other numbers and memory of Transformer-XL's tensors, of the same shapes and distances, likewise.
  void set_xl(const TransformerXl& xl) {
    relative_.set(xl);
    distance_missing_.store(false, std::memory_order_relaxed);
  }
  /// What dropout multiplies kept weights by.
  float keep_scale() const noexcept { return static_cast<float>(1 / (1 - dropout_.rate)); }

  /// The memory of the tensors, which outputs must not overlap.
  const std::vector<ByteRange>& ranges() const noexcept { return ranges_; }

  /// What the terms are, for the backward pass: axes of extent 1 of the dense bias have stride 0.
  const TensorView<const float>& dense() const noexcept { return dense_; }
  const DistanceBias& by_distance() const noexcept { return by_distance_; }
  const std::vector<float>& sinks() const noexcept { return sinks_; }
  const Dropout& dropout() const noexcept { return dropout_; }

  /// Makes the tables for sequence after sequence of the call, before the parallel part.
  void place(const SequenceQueries& sequence, const PackSource& keys, const TermSlots& slots);

  TermScratch carve(Carver& carver) const;

  /// After RowBlock::load_queries(): what depends on the rows alone. `q` are the scaled queries.
  void begin(const SequenceQueries& queries, const RowBlock& block, float factor, const TermScratch& scratch,
             float* q) const noexcept;

  /// Sets what `tile` adds and drops, for the rows of `block` against tile `index` of sequence number `sequence`; after
  /// RowBlock::lower().
  void lower(size_t sequence, const SequenceQueries& queries, const RowBlock& block, int64_t index,
             const TermScratch& scratch, kernels::AttentionTile& tile) const noexcept;

  /// What the kernels' finish() does, with a sink before it.
  void finish(const RowBlock& block, const kernels::AttentionState& state, int value_dim, const TermScratch& scratch,
              float* const* out, float* lse) const noexcept;

  /// When everything is done. Errors: kInvalidArgument when a row saw a key at a distance that `xl` has no vector for.
  void check_distances(std::string_view function) const;

 private:
  // One sequence's slots and tables.
  struct Placed {
    TermSlots slots;
    int64_t k_begin = 0, kv_len = 0;
    // By column of the view's tiles, when the keys do not simply follow each other: number of the key (-1: none), and
    // its encoding position when that is not its position.
    std::vector<int64_t> key_of_column, encoding_of_column;
    int64_t first_distance = 0, distances = 0;  // of the table; none: pair by pair
    size_t table = 0;                           // where in tables_ it begins, [head][distances]
    size_t relative = 0;                        // number of the table of relative_
  };

  bool adds() const noexcept { return dense_.data != nullptr || !by_distance_.empty() || !relative_.empty(); }
  int64_t query_encoding(const Placed& placed, const RowBlock& block, int r) const noexcept {
    const int64_t* encoding = placed.slots.q_encoding;
    return encoding == nullptr ? block.position(r) : encoding[block.token(r)];
  }
  void place_columns(const KvView& view, const PackSource& keys, Placed& placed) const;
  void place_table(const SequenceQueries& sequence, Placed& placed);

  // The terms of a row for the keys [lo, hi) of a tile that begins at position `base`: a pointer to 256 floats, made in
  // `into` when they do not lie anywhere.
  const float* distance_row(const Placed& placed, int64_t index, int64_t base, int head, int64_t query, int lo, int hi,
                            float* into) const noexcept;
  const float* dense_row(const Placed& placed, int64_t batch_row, int64_t index, int64_t base, int head, int64_t token,
                         int lo, int hi, float* into) const noexcept;

  // The relative term of all rows against a tile; relative_rows[r][j] is that of key j.
  void relative_rows(const Placed& placed, const RowBlock& block, int64_t index, int64_t base,
                     const TermScratch& scratch, const kernels::AttentionTile& tile) const noexcept;
  void relative_slices(const Placed& placed, const RowBlock& block, int64_t base, int first_row,
                       const TermScratch& scratch, const kernels::AttentionTile& tile) const noexcept;
  void relative_pairs(const Placed& placed, const RowBlock& block, int64_t index, int64_t base, int r,
                      const TermScratch& scratch, const kernels::AttentionTile& tile) const noexcept;
  void note_missing(int64_t distance) const noexcept;

  int num_q_heads_, num_kv_heads_, head_dim_;
  float scale_;
  std::vector<ByteRange> ranges_;
  TensorView<const float> dense_;  // axes of extent 1 have stride 0
  DistanceBias by_distance_;
  RelativeTerm relative_;
  std::optional<size_t> all_distances_;  // its table for slots that stand anywhere
  mutable std::atomic<bool> distance_missing_ = false;
  mutable std::atomic<int64_t> missing_distance_ = 0;
  Dropout dropout_;
  std::vector<float> sinks_;  // by head
  std::vector<Placed> placed_;
  std::vector<float> tables_;
};

}  // namespace regard
