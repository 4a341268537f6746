// The keys of one batch row as the backward pass takes them: in blocks of consecutive positions, each packed by the
// thread that works on it, so that no packed copy of all keys is ever made.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/packed_kv.h"
#include "kernels/attention_backward.h"
#include "regard/mask.h"
#include "runtime/workspace.h"

namespace regard {

/// The keys at positions base ... base + 64 * panels - 1.
struct KeyBlock {
  int64_t base = 0;
  int64_t first = 0;  ///< the first of them in rising position
  int count = 0;      ///< how many there are; the other positions hold no key
};

/// Scratch of one thread for one block.
struct KeyScratch {
  float* k = nullptr;       // [panels][head_dim][64]
  float* v = nullptr;       // [panels][value_dim][64]
  float* k_rows = nullptr;  // [64 * panels][padded head_dim]
  float* dk = nullptr;      // likewise
  float* dv = nullptr;      // [64 * panels][padded value_dim]
  static KeyScratch carve(Carver& carver, int panels, int head_dim, int value_dim);
};

class BackwardKeys {
 public:
  /// Blocks of `panels` panels, at multiples of their size. Errors: as sort_keys().
  BackwardKeys(const PackSource& source, int64_t batch_row, int panels);

  /// Other rows of the same length and positions.
  void set_rows(const KvRows& rows) noexcept { source_.rows = rows; }

  const std::vector<KeyBlock>& blocks() const noexcept { return blocks_; }
  /// No key stands outside.
  Interval hull() const noexcept { return hull_; }
  /// The blocks that hold keys of `positions`: [begin, end).
  Interval blocks_of(Interval positions) const noexcept;

  /// Whether slots and positions follow each other alike.
  bool in_order() const noexcept { return source_.positions == nullptr; }
  /// The slot of the i-th key in rising position.
  int64_t slot(int64_t i) const noexcept {
    return source_.positions == nullptr ? i : order_.slot[static_cast<size_t>(i)];
  }
  int64_t position(int64_t i) const noexcept {
    return source_.positions == nullptr ? source_.k_begin + i : order_.position[static_cast<size_t>(i)];
  }
  /// Which positions of a block hold a key, as bits. False when all between the ends of hull() do.
  bool written(const KeyBlock& block, uint64_t (&words)[kernels::kPanelsPerTile]) const noexcept;

  /// Packs one head's keys and values of a block.
  void pack(const KeyBlock& block, int kv_head, int head_dim, int value_dim, const KeyScratch& scratch) const noexcept;

 private:
  PackSource source_;
  int panels_;
  KeyOrder order_;
  Interval hull_;
  std::vector<KeyBlock> blocks_;
};

}  // namespace regard
