// Attention that takes statistics of its rows along: the rows pass their tiles a few at a time, and what the weights of
// a tile amount to is added up before the next rows take their place. Outputs have the bits of attend_sequences(), since
// a tile's partial result is folded as it is where tiles are shared out over threads.
//
// Start at StatisticsPass::run(); the sums of a row are in RowSums.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "attention/attention.h"
#include "attention/key_set.h"
#include "attention/row_block.h"
#include "attention/score_terms.h"
#include "attention/tensor_check.h"
#include "regard/attention_weights.h"

namespace regard {

/// What attend_with_statistics() was given besides the arguments of attend().
struct StatisticsRequest {
  const KeySet& set;
  const RowStatistics& to;
};

class StatisticsPass {
 public:
  /// `others` is the memory that statistics must not overlap. Errors: kInvalidArgument for shapes, overlaps and sets that do
  /// not fit; kUnsupported for weights after dropout.
  StatisticsPass(std::string_view function, const CallSizes& sizes, const CallRows& rows, const CallPositions& positions,
                 const Mask& mask, const AttentionOptions& options, const StatisticsRequest& request,
                 std::vector<ByteRange> others);

  /// attend_sequences() for the batch rows of a call in their order, their slack behind them, with sources[b] the keys of
  /// batch row b. Errors: as there.
  void run(const std::vector<SequenceQueries>& sequences, const std::vector<PackSource>& sources,
           const AttentionShape& shape, const MaskPlan& mask, ThreadPool& pool, const StopToken* stop);

 private:
  struct Item {
    size_t sequence;
    int kv_head;
    int64_t first_row;
    int rows;
  };
  struct Scratch;
  class Block;

  void add_items(const std::vector<SequenceQueries>& sequences, const AttentionShape& shape, int threads);

  const CallSizes& sizes_;
  const CallRows& call_rows_;
  const AttentionOptions& options_;
  const RowStatistics& to_;
  KeySetBits set_;
  std::vector<KeyColumns> columns_;
  std::vector<Item> items_;
};

}  // namespace regard
