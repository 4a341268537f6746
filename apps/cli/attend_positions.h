// Where the queries and keys of `attend` stand: positions, packed sequences, rotary embeddings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "option.h"
#include "tensor_input.h"

namespace regard::cli {

/// A number for every slot: [n] or [batch, n], no axes where nothing was given.
struct Slots {
  std::vector<int64_t> values;
  std::vector<int64_t> shape;

  TensorView<const int64_t> view() const;
  int64_t of(int64_t batch, int64_t slot, int64_t length) const {
    return values[static_cast<size_t>((shape.size() == 2 && shape[0] > 1 ? batch * length : 0) + slot)];
  }
};

/// Where the slots of one side stand: the first position for all batch rows or one for each, or the position of every slot.
struct Positions {
  std::vector<int64_t> offsets;  ///< of packed sequences, each of which is a batch row; empty: not packed
  std::vector<int64_t> begin;
  Slots slots, encoding;

  /// The batch rows of a tensor, and the slots of the longest one.
  int64_t batch(const Tensor& tensor) const;
  int64_t longest(const Tensor& tensor) const;
  /// The position of a slot of an entry of the batch axis; -1 stands nowhere.
  int64_t of(int64_t entry, int64_t slot, int64_t length) const;
  /// What rotary embeddings and biases take for it.
  int64_t encoding_of(int64_t entry, int64_t slot, int64_t length) const;
};

std::vector<Option> position_options();

/// The options of one side, 'q' or 'k'. Errors: UsageError, naming the option.
Positions read_positions(const Arguments& arguments, char side, const Tensor& tensor);

/// Which way vectors are turned: gradients go back the way that their vectors came.
enum class Turn { kForth, kBack };

/// --rope: turns every query and key, of `dim` elements, by its position. A tensor without a shape is left out.
void turn_by_rope(const Arguments& arguments, const Positions& q_positions, const Positions& k_positions, int64_t dim, Turn turn, Tensor& q,
                  Tensor& k);

}  // namespace regard::cli
