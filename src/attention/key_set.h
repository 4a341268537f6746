// Sets of keys (KeySet) as bits of tiles, and what keys stand in a tile at all: for statistics of rows.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "attention/call.h"
#include "regard/attention_weights.h"

namespace regard {

/// The numbers of the keys of a sequence by where they stand in the tiles of its view.
class KeyColumns {
 public:
  KeyColumns() = default;
  /// `first` is the number of the source's first key.
  KeyColumns(const KvView& view, const PackSource& source, int64_t first);

  /// Of key j of tile `index`, which begins at position `base`; -1: none stands there.
  int64_t number(int64_t index, int64_t base, int j) const noexcept {
    if (!columns_.empty()) return columns_[static_cast<size_t>(index * kernels::kTileKeys + j)];
    const int64_t key = base + j - k_begin_;
    return key >= 0 && key < kv_len_ ? first_ + key : -1;
  }

 private:
  int64_t k_begin_ = 0, kv_len_ = 0, first_ = 0;
  std::vector<int64_t> columns_;  // by tile and key; empty: keys follow each other
};

class KeySetBits {
 public:
  /// For a call under `mask` and `options`. Errors: kInvalidArgument for a set that does not fit it.
  KeySetBits(std::string_view function, const CallSizes& sizes, const CallRows& rows, const CallPositions& positions,
             const KeySet& set, const Mask& mask, const AttentionOptions& options);

  bool given() const noexcept { return plan_ || bits_.rank > 0; }

  /// Words of the tile that begins at `base`: which of its keys belong to the set for a query of a batch row. column(j)
  /// is the number of key j among those of the tensors' batch entry, or negative.
  template <class Column>
  void fill(int64_t batch_row, int64_t entry, int head, int64_t position, int64_t base, Column&& column,
            uint64_t* words) const noexcept {
    if (plan_) {
      plan_->fill_words(batch_row, head, position, base, kernels::kPanelsPerTile, words);
      return;
    }
    for (int w = 0; w < kernels::kPanelsPerTile; ++w) words[w] = 0;
    for (int j = 0; j < kernels::kTileKeys; ++j)
      if (const int64_t key = column(j); key >= 0 && *at(entry, key) != 0)
        words[j / kernels::kPanelKeys] |= uint64_t{1} << (j % kernels::kPanelKeys);
  }

 private:
  const uint8_t* at(int64_t b, int64_t key) const noexcept {
    return bits_.rank == 1 ? bits_.at(key) : bits_.at(bits_.shape[0] == 1 ? 0 : b, key);
  }

  std::optional<MaskPlan> plan_;
  TensorView<const uint8_t> bits_;
};

}  // namespace regard
