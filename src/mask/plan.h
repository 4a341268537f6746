// What a kernel asks of a mask: which tiles are empty or full, between which keys a row looks, and the bits of the
// rest.
//
// A MaskPlan is an expression and its hard limits, checked against a batch and a number of heads and compiled so that
// no question allocates memory. All positions are absolute. Tile classes and hulls come from reasoning about intervals;
// no pair is looked at until fill_words is called for the row. How: program.h.
#pragma once

#include <cstdint>
#include <memory>

#include "regard/mask.h"
#include "regard/stop_token.h"

namespace regard {

enum class TileClass : uint8_t { kEmpty, kFull, kPartial };

namespace mask_program {
struct Compiled;
}

class MaskPlan {
 public:
  /// Errors: kInvalidArgument, naming the term, when a list or table has rows for another batch, or per_head or a table
  /// has entries for another number of heads.
  MaskPlan(const Mask& mask, const MaskLimits& limits, int64_t batch, int64_t num_q_heads);

  /// Errors: kInvalidArgument, naming the list, when a query stands beyond the end of a list or table (keys there are
  /// simply not seen). Negative positions are unwritten slots and pass.
  void check_queries(int64_t b, Interval positions) const;
  void check_queries(int64_t b, const int64_t* positions, int64_t count) const;

  /// The class of the pairs queries x keys: kEmpty and kFull are never wrong. Exact for full, none, causal, window,
  /// prefix, lengths, blocks, chunk, documents whose ids stand in runs, and expressions of up to 32 of these, for tiles
  /// of up to 1,024 queries; kPartial where the reasoning does not decide.
  TileClass classify(int64_t b, int64_t h, Interval queries, Interval keys) const noexcept;

  /// Row q sees no key outside; within [0, 2^63 - 1). The ends are exact for expressions of the terms named above.
  Interval hull(int64_t b, int64_t h, int64_t q) const noexcept;
  /// No row of `queries` sees a key outside.
  Interval hull(int64_t b, int64_t h, Interval queries) const noexcept;

  /// True when every row sees exactly its hull, by construction of the expression: the words are not needed then.
  bool rows_are_intervals() const noexcept;

  /// Bit j of words[w]: row q sees key k_begin + 64 w + j, for w < count. k_begin is a multiple of 64.
  void fill_words(int64_t b, int64_t h, int64_t q, int64_t k_begin, int count, uint64_t* words) const noexcept;
  /// The same for the rows `queries`, one after the other: `count` words each.
  void fill_words(int64_t b, int64_t h, Interval queries, int64_t k_begin, int count, uint64_t* words) const noexcept;

  /// How many of `keys` row q sees: from intervals where the expression has only interval terms, by counting bits
  /// otherwise.
  int64_t count_row(int64_t b, int64_t h, int64_t q, Interval keys) const noexcept;
  /// The visible pairs of all batch rows, heads and `queries` with `keys`: stretches of rows at once where the expression
  /// has up to 32 terms and only interval terms, else row by row. Errors: kResourceExhausted beyond 2^63 - 1, kCancelled.
  int64_t count_total(Interval queries, Interval keys, const StopToken* stop = nullptr) const;

  bool depends_on_batch() const noexcept;
  bool depends_on_head() const noexcept;
  int64_t batch() const noexcept;
  int64_t num_q_heads() const noexcept;

 private:
  std::shared_ptr<const mask_program::Compiled> compiled_;
};

}  // namespace regard
