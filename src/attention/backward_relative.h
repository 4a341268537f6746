// Transformer-XL's terms in the backward pass: scale ((q + u) . k + (q + v) . r[distance]).
//
// The first part is a score as any other, of the query q + u. The second one is a bias with gradient db, and
//   dq += scale sum_j db r,  dv += scale sum_j db r over all rows,  dr[distance] += db scale (q + v)
// The vectors of r lie in columns of rising key (RelativeTerm::place_all), so what a row does with consecutive keys is
// a product with consecutive vectors; keys that share a vector, beyond the clamp, are added up first. Order of sums: dq
// by rising key; dr in the item's own table over its rows, tables added up in the order of the items; u and v over the
// rows of a block, then block by block.
#pragma once

#include <atomic>

#include "attention/backward_rows.h"
#include "attention/relative_term.h"
#include "regard/attention_backward.h"

namespace regard {

struct BackwardStep;

struct BackwardRelativeScratch {
  float* position = nullptr;  // [96][padded head_dim]: scale (q + v), then zeros
  float* row = nullptr;       // [256]: the term of a row
  float* window = nullptr;    // [256]: db by column
  float* dr = nullptr;        // [group][columns][padded head_dim]
};

class BackwardRelative {
 public:
  BackwardRelative(const TransformerXl& xl, const ScoreTermGradients& wanted, const CallRows& call_rows, float scale,
                   int64_t row_blocks);

  BackwardRelativeScratch carve(Carver& carver) const;

  /// The queries of a block of rows in both their roles: `q` gets (q + u) * factor in place of q * factor.
  void load(const BackwardRows& rows, int64_t i, const TensorView<const float>& queries, float factor, float* q,
            const BackwardRelativeScratch& scratch) const noexcept;

  /// The term of row r for the keys that it sees; distances[j] is from the query to key j of the block.
  const float* term(const BackwardStep& step, int head, int r, const int64_t* encoding, int64_t query,
                    const BackwardRelativeScratch& scratch) const noexcept;

  void begin(const BackwardRelativeScratch& scratch) const noexcept;
  /// dr and, in the turn of its block of keys, dq of row r.
  void add(const BackwardStep& step, int head, int r, const int64_t* encoding, int64_t query, const float* db,
           const BackwardRelativeScratch& scratch) const noexcept;
  void add_in_turn(const BackwardStep& step, int head, int r, const int64_t* encoding, int64_t query, const float* db,
                   const BackwardRelativeScratch& scratch) const noexcept;
  /// After the last block of keys of a block of rows: completes dq, still to be multiplied by scale.
  void close(const BackwardRows& rows, int64_t i, float* const* dq) noexcept;
  /// Adds an item's table, in the order of the items: wait for merged() to be its number.
  const std::atomic<int64_t>& merged() const noexcept { return merged_; }
  void merge(const BackwardStep& step, const BackwardRelativeScratch& scratch) noexcept;

  /// After the last item. Errors: kInvalidArgument when a row saw a key at a distance without a vector.
  void finish(const BackwardRows& rows) const;

 private:
  // Calls f(j) for the keys of the block that row r sees, rising.
  template <class F>
  static void for_each_seen(const BackwardStep& step, int r, F f);
  // Calls f(tile of 256 columns, words of its columns) with db by column in the window, as often as the tile changes.
  template <class F>
  void for_each_window(const BackwardStep& step, int r, const int64_t* encoding, int64_t query, const float* db,
                       const BackwardRelativeScratch& scratch, F f) const noexcept;
  int64_t vectors(int head, int64_t tile) const noexcept {
    return (head * tiles_ + tile) * kernels::kTileKeys * padded_;
  }

  TransformerXl xl_;
  ScoreTermGradients wanted_;
  CallSizes sizes_;
  int group_, head_dim_, padded_;
  float scale_;
  RelativeTerm term_;
  size_t table_;
  int64_t tiles_;               // of 256 columns
  AlignedBuffer<float> r_;      // [head][column][padded]: the vectors as rows
  AlignedBuffer<float> dq_;     // [row block][96][padded]: what comes from r
  AlignedBuffer<float> dr_;     // [head][column][padded]
  AlignedBuffer<double> sums_;  // [row block][u, v][group][head_dim]
  std::atomic<int64_t> merged_{0};
  mutable std::atomic<bool> missing_{false};
};

}  // namespace regard
