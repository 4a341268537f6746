// Transformer-XL's relative term, (q + v) . r[query - key], by index arithmetic: the vectors of the distances that
// occur lie in panels in the order of rising keys, so the term of a row for 256 consecutive keys is 256 consecutive
// columns.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/registry.h"
#include "regard/score_terms.h"

namespace regard {

class RelativeTerm {
 public:
  /// Rows of one call of dots() and the floats that each of them needs: a tile, rows that stand up to kSpread positions
  /// apart, and whole vectors at both ends.
  static constexpr int kRows = kernels::kMaxMicroRows, kSpread = 16;
  static constexpr int kRowFloats = kernels::kTileKeys + kSpread + 2 * kernels::kLanes;

  /// `xl` may be null: nothing. It has been checked.
  RelativeTerm(const TransformerXl* xl, int num_heads, int head_dim);

  /// Other numbers, of the same shapes and distances, also in the tables that have been placed.
  void set(const TransformerXl& xl);

  bool empty() const noexcept { return num_heads_ == 0; }
  /// [heads][head_dim], or null: what is added to a query in front of the keys, and in front of r.
  const float* content_bias(int head) const noexcept { return row_of(content_bias_, head); }
  const float* position_bias(int head) const noexcept { return row_of(position_bias_, head); }

  /// The vectors of `count` distances key - query from `first` on, as panels by head; NaN where there is none. The
  /// number of the table. Errors: kResourceExhausted.
  size_t place(int64_t first, int64_t count);
  /// The same for all vectors that there are: column() says where one is.
  size_t place_all();

  const float* panels(size_t table, int head) const noexcept {
    const AlignedBuffer<float>& all = tables_[table].panels;
    return all.data() + int64_t{head} * static_cast<int64_t>(all.size() / static_cast<size_t>(num_heads_));
  }
  /// Where in the table of place_all() a distance key - query is, or -1.
  int64_t column(int64_t distance) const noexcept {
    const int64_t row = row_for(distance);
    return row < 0 ? -1 : xl_.r.shape[0] - 1 - row;
  }
  bool has(int64_t distance) const noexcept { return row_for(distance) >= 0; }

 private:
  struct Table {
    int64_t first, count;
    AlignedBuffer<float> panels;
  };

  const float* row_of(const std::vector<float>& all, int head) const noexcept {
    return all.empty() ? nullptr : all.data() + int64_t{head} * head_dim_;
  }
  // The row of r for a distance key - query, or -1.
  int64_t row_for(int64_t distance) const noexcept;
  void fill(Table& table);

  TransformerXl xl_{};
  int num_heads_ = 0, head_dim_ = 0;
  std::vector<float> content_bias_, position_bias_, row_;  // row_ is one vector, on its way into panels
  std::vector<Table> tables_;
};

}  // namespace regard
