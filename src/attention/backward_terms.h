// Score terms in the backward pass: the biases of a block of rows and keys, and the gradients of the terms.
//
// How sums keep their order for any number of threads, whatever axes a bias is repeated on:
//   every pair its own element                nothing to add up
//   summed over keys, batch rows or heads     added in the turns of blocks of keys (over keys alone), or of all items
//   of
//                                             the call (Turns::kItems), on one block of rows after the other
//   summed over queries                       one partial sum per head and key, by the thread that has the key; those
//                                             are added up at the end
//   T5's table                                one partial table per item, added up at the end
//   sink                                      from lse and delta of the rows, at the end
//   Transformer-XL's u, v and r               backward_relative.h
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attention/backward_keys.h"
#include "attention/backward_relative.h"
#include "attention/backward_rows.h"
#include "attention/score_terms.h"
#include "regard/attention_backward.h"

namespace regard {

/// Scratch of one thread.
struct BackwardTermScratch {
  float* bias = nullptr;         // [96][256]
  const float** rows = nullptr;  // [96]
  float* term = nullptr;         // [256]
  float* db = nullptr;           // [96][kWeightStride]: gradients of the biases of the pairs at hand
  int64_t* slot = nullptr;       // [256] of the keys of the block; -1: no key
  int64_t* encoding = nullptr;   // [256]
  float* columns = nullptr;      // [group][256]: db summed over rows
  double* table = nullptr;       // [group][buckets]
  uint64_t (*keep)[kernels::kPanelsPerTile] = nullptr;  // [96]
  BackwardRelativeScratch relative;
};

/// One block of keys of one head, and the block of rows that is passing.
struct BackwardStep {
  int64_t item = 0;  ///< number in the list of all blocks
  int64_t batch = 0;
  int kv_head = 0;
  const KeyBlock* keys = nullptr;
  int panels = 0;
  int64_t row_block = 0;
  const uint64_t (*seen)[kernels::kPanelsPerTile] = nullptr;  ///< null: every row sees every key
};

class BackwardTerms {
 public:
  /// Whose turn it is to add to `bias` on a block of rows.
  enum class Turns { kNone, kKeyBlocks, kItems };

  /// `t5` as in the options; the gradients have been checked. Errors: kResourceExhausted.
  BackwardTerms(const ScoreTerms& terms, const AttentionOptions& options, const ScoreTermGradients& wanted,
                const CallRows& call_rows, const CallPositions& positions, const std::vector<BackwardKeys>& keys,
                float scale, int64_t row_blocks);

  bool adds() const noexcept { return dense_.data != nullptr || !by_distance_.empty() || relative_; }
  bool wants_pairs() const noexcept {
    return wanted_.bias.data != nullptr || wanted_.t5_table.data != nullptr || relative_;
  }
  /// Transformer-XL's part, or null.
  BackwardRelative* relative() noexcept { return relative_ ? &*relative_ : nullptr; }
  /// What the blocks of keys add to dq of the rows besides the products of their keys, in their turn.
  void add_queries_in_turn(const BackwardStep& step, const BackwardRows& rows, const float* db,
                           const BackwardTermScratch& scratch) noexcept;
  Turns turns() const noexcept { return turns_; }
  float keep_scale() const noexcept { return keep_scale_; }

  BackwardTermScratch carve(Carver& carver) const;
  /// Takes over what T5's table and Transformer-XL's tensors hold by now.
  void refill();
  /// Makes room for the partial tables of so many items.
  void reserve(int64_t items);

  void begin(const BackwardStep& step, const BackwardKeys& keys, const BackwardTermScratch& scratch) const noexcept;
  /// The biases of the rows for the keys of the block, as kernels take them; null without any.
  const float* const* lower(const BackwardStep& step, const BackwardRows& rows, const BackwardKeys& keys,
                            const BackwardTermScratch& scratch) const noexcept;
  /// Which weights of the rows dropout keeps; null without dropout.
  const uint64_t (*keep(const BackwardStep& step, const BackwardRows& rows, const BackwardTermScratch& scratch)
                      const noexcept)[kernels::kPanelsPerTile];
  /// Takes the gradients `db` of a step: what is the item's own, and, when it is the step's turn, what is not.
  void add(const BackwardStep& step, const BackwardRows& rows, const float* db,
           const BackwardTermScratch& scratch) const noexcept;
  void add_in_turn(const BackwardStep& step, const BackwardRows& rows, const float* db,
                   const BackwardTermScratch& scratch) const noexcept;
  void end(const BackwardStep& step, const BackwardTermScratch& scratch) noexcept;

  /// After the last item.
  void finish(const BackwardRows& rows, const TensorView<const float>& dlse) const;

 private:
  const float* distance_row(int64_t b, int head, int64_t query, const KeyBlock& block, int lo, int hi,
                            const int64_t* encoding, float* into) const noexcept;
  const float* dense_row(int64_t b, int head, int64_t token, const BackwardKeys& keys, int lo, int hi,
                         const int64_t* slot, float* into) const noexcept;
  int64_t query_encoding(int64_t b, int64_t token) const noexcept;
  void place_table(int64_t b, const BackwardKeys& keys);
  void add_bias(const BackwardStep& step, const BackwardRows& rows, const float* db,
                const BackwardTermScratch& scratch) const noexcept;
  void finish_bias() const noexcept;
  void finish_sink(const BackwardRows& rows, const TensorView<const float>& dlse) const noexcept;

  // Numbers by distance for one batch row, [head][distances]; none: pair by pair.
  struct Table {
    int64_t first = 0, distances = 0;
    size_t begin = 0;
  };

  const CallRows& call_rows_;
  CallSizes sizes_;  // of the longest sequences
  int group_;
  const CallPositions& positions_;
  TensorView<const float> dense_;
  const DistanceBias& by_distance_;
  const std::vector<float>& sinks_;
  const Dropout& dropout_;  // of the terms, whose seed may change between calls
  float keep_scale_;
  ScoreTermGradients wanted_;
  TensorView<float> bias_;  // the gradient, axes of extent 1 with stride 0
  bool over_queries_ = false;
  Turns turns_ = Turns::kNone;
  std::optional<BackwardRelative> relative_;
  int64_t buckets_ = 0, reach_ = 0;
  std::vector<int32_t> bucket_of_;  // for distances -reach_ .. reach_
  std::vector<Table> tables_;
  std::vector<float> numbers_;
  AlignedBuffer<float> columns_;       // [batch][head][key]
  AlignedBuffer<double> table_parts_;  // [item][group][buckets]
  std::vector<int> head_of_item_;      // KV head
};

}  // namespace regard
