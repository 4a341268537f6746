// Transformer-XL's terms in the backward pass: scale ((q + u) . k + (q + v) . r[distance]).
//
// The first part is a score as any other, of the query q + u. The second one is a bias with gradient db, and
//   dq += scale sum_j db r,  dv += scale sum_j db r over all rows,  dr[distance] += db scale (q + v)
// The vectors of r lie in columns of rising key (RelativeTerm::place_all), and a row that stands one position further
// finds its keys one column earlier. So the term of all rows of a head against a block of keys is a product with a few
// more columns than there are keys; and with db moved to those columns row by row, both gradients are the products that
// dq and dk are made of, by the same kernels (backward_relative_tiles.cc). Keys that share a vector, beyond the clamp,
// are added up first. Keys whose encoding positions do not follow each other go row by row, to the same definition
// (backward_relative_rows.cc).
//
// Order of sums: dq by rising column for each block of keys; dr in the item's own table over its rows, tables added up
// in the order of the items; u and v over the rows of a block, then block by block.
#pragma once

#include <algorithm>
#include <atomic>

#include "attention/backward_rows.h"
#include "attention/relative_term.h"
#include "regard/attention_backward.h"

namespace regard {

struct BackwardStep;

/// What a block of keys is to the term.
struct RelativeItem {
  bool straight = false;       // its keys' encoding positions follow each other,
  int64_t first_encoding = 0;  // from this one on
  Interval used;               // columns of dr that are not untouched
};

/// Scratch of one thread.
struct BackwardRelativeScratch {
  static constexpr int kRowFloats = RelativeTerm::kRowFloats;
  RelativeItem* item = nullptr;
  int64_t* query = nullptr;    // [96]: encoding position of each row
  int* place = nullptr;        // [96]: number of the row in `position`, where the rows of a head follow each other
  float* position = nullptr;   // [96][padded head_dim]: scale (q + v), then zeros
  int64_t* origin = nullptr;   // [96]: the column that a row of `tile` begins with
  float* tile = nullptr;       // [96][kRowFloats]: the terms by column; then [96][kWeightStride]: db by column
  uint64_t (*seen)[kernels::kPanelsPerTile] = nullptr;  // [96]: which of those columns are seen
  float* dr = nullptr;         // [group][columns][padded head_dim]
};

class BackwardRelative {
 public:
  BackwardRelative(const TransformerXl& xl, const ScoreTermGradients& wanted, const CallRows& call_rows, float scale,
                   int64_t row_blocks);

  BackwardRelativeScratch carve(Carver& carver) const;
  /// Takes over what the tensors of `xl` hold by now.
  void refill();
  /// Before the first item: all sums begin.
  void start();

  /// The queries of a block of rows in both their roles: `q` gets (q + u) * factor in place of q * factor.
  void load(const BackwardRows& rows, int64_t i, const TensorView<const float>& queries, float factor, float* q,
            const BackwardRelativeScratch& scratch) const noexcept;

  /// A block of keys begins; slot[j] and encoding[j] are those of its positions, slot -1 where there is no key.
  void begin(int count, const int64_t* slot, const int64_t* encoding,
             const BackwardRelativeScratch& scratch) const noexcept;

  /// The terms of a step, of which scratch.query is set: multiply() once, then term() for each row that looks at keys
  /// [lo, hi) of the block. That gives 256 readable floats, those in between the term; `into` when they have to be made.
  void multiply(const BackwardStep& step, const BackwardRows& rows,
                const BackwardRelativeScratch& scratch) const noexcept;
  const float* term(const BackwardStep& step, int head, int r, int lo, int hi, const int64_t* encoding, float* into,
                    const BackwardRelativeScratch& scratch) const noexcept;

  /// dr of a step and, in the turn of its block of keys, what r adds to dq.
  void add(const BackwardStep& step, const BackwardRows& rows, const int64_t* encoding, const float* db,
           const BackwardRelativeScratch& scratch) const noexcept;
  void add_in_turn(const BackwardStep& step, const BackwardRows& rows, const int64_t* encoding, const float* db,
                   const BackwardRelativeScratch& scratch) noexcept;
  /// After the last block of keys of a block of rows: completes dq, still to be multiplied by scale.
  void close(const BackwardRows& rows, int64_t i, float* const* dq) noexcept;
  /// Adds an item's table, in the order of the items: wait for merged() to be its number.
  const std::atomic<int64_t>& merged() const noexcept { return merged_; }
  void merge(const BackwardStep& step, const BackwardRelativeScratch& scratch) noexcept;

  /// After the last item. Errors: kInvalidArgument when a row saw a key at a distance without a vector.
  void finish(const BackwardRows& rows) const;

 private:
  // The rows first, first + group ... of a block, which are those of one head; `at` is the first one's place.
  struct HeadRows {
    int head, first, count, at;
  };
  template <class F>
  void for_each_head(const BackwardRowBlock& block, F f) const noexcept;

  // backward_relative_tiles.cc. The keys [lo, hi) of the block that a row looks at, and the column of key 0 when there is
  // no clamp.
  struct Reach {
    int lo, hi;
    int64_t column;
  };
  // Rows of a head, by number there, that stand close together, and the columns of all of them.
  struct Run {
    int begin, end;
    int64_t nearest;  // the least Reach::column
    Interval columns;
  };
  Reach reach_of(const BackwardStep& step, const BackwardRows& rows, int r,
                 const BackwardRelativeScratch& scratch) const noexcept;
  int64_t clamped(int64_t column) const noexcept { return std::clamp(column, low_, high_); }
  template <class F>
  void for_each_run(const BackwardStep& step, const BackwardRows& rows, const HeadRows& head, int most, int64_t spread,
                    const BackwardRelativeScratch& scratch, F f) const noexcept;
  // Calls f(block, first column, first row) with db of the rows of a head in the columns of a tile.
  template <class F>
  void for_each_tile(const BackwardStep& step, const BackwardRows& rows, const HeadRows& head, const float* db,
                     const BackwardRelativeScratch& scratch, F f) const noexcept;
  void move_row(const BackwardStep& step, int r, int64_t column, int64_t first, const float* db, float* to,
                uint64_t* seen) const noexcept;

  // backward_relative_rows.cc
  template <class F>
  static void for_each_seen(const BackwardStep& step, int r, F f);
  // Calls f(tile of 256 columns) with db by column in the first row of the tile, as often as that changes.
  template <class F>
  void for_each_window(const BackwardStep& step, int r, const int64_t* encoding, const float* db,
                       const BackwardRelativeScratch& scratch, F f) const noexcept;
  const float* term_by_keys(const BackwardStep& step, int head, int r, const int64_t* encoding, float* into,
                            const BackwardRelativeScratch& scratch) const noexcept;
  void add_by_rows(const BackwardStep& step, const BackwardRows& rows, const int64_t* encoding, const float* db,
                   const BackwardRelativeScratch& scratch) const noexcept;
  void add_by_rows_in_turn(const BackwardStep& step, const BackwardRows& rows, const int64_t* encoding,
                           const float* db, const BackwardRelativeScratch& scratch) noexcept;

  void fill_vectors();
  /// Columns of the item's table are about to be added to.
  void use(Interval columns, const BackwardRelativeScratch& scratch) const noexcept;
  float* relative_dq(int64_t row_block, int r) noexcept {
    return dq_.data() + (row_block * kernels::kBlockRows + r) * padded_;
  }
  int64_t vectors(int64_t head, int64_t column) const noexcept { return (head * columns_ + column) * padded_; }

  const TransformerXl& xl_;  // of the options, whose tensors may be others between calls
  ScoreTermGradients wanted_;
  CallSizes sizes_;
  int group_, head_dim_, padded_;
  float scale_;
  RelativeTerm term_;
  size_t table_;
  int64_t count_;               // columns with a vector
  int64_t columns_;             // with room for a whole tile behind the last of them
  int64_t low_, high_;          // columns of the clamp; far away: none
  AlignedBuffer<float> r_;      // [head][column][padded]: the vectors as rows
  AlignedBuffer<float> dq_;     // [row block][96][padded]: what comes from r
  AlignedBuffer<float> dr_;     // [head][column][padded]
  AlignedBuffer<double> sums_;  // [row block][u, v][group][head_dim]
  std::atomic<int64_t> merged_{0};
  mutable std::atomic<bool> missing_{false};
};

template <class F>
void BackwardRelative::for_each_head(const BackwardRowBlock& block, F f) const noexcept {
  const auto first = static_cast<int>(block.first_row % group_);  // head of the block's first row, in the group
  int at = 0;
  for (int g = 0; g < group_; ++g) {
    const int r = (g - first + group_) % group_;
    if (r >= block.rows) continue;
    const HeadRows rows{block.kv_head * group_ + g, r, (block.rows - r + group_ - 1) / group_, at};
    f(rows);
    at += rows.count;
  }
}

}  // namespace regard
