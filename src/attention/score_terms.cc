// Lowering: from terms to rows of biases. Checks and tables are in score_terms_place.cc, Transformer-XL's relative term
// in score_terms_relative.cc.
#include "attention/score_terms.h"

#include <algorithm>
#include <cmath>

namespace regard {

using kernels::AttentionState;
using kernels::AttentionTile;
using kernels::kBlockRows;
using kernels::kTileKeys;

TermScratch ScoreTerms::carve(Carver& carver) const {
  constexpr size_t kRows = kBlockRows;
  TermScratch s;
  if (adds()) {
    s.bias = carver.take<float>(kRows * kTileKeys);
    s.rows = carver.take<const float*>(kRows);
    s.term = carver.take<float>(kTileKeys);
  }
  if (!relative_.empty()) {
    s.relative_q = carver.take<float>(kRows * static_cast<size_t>(head_dim_));
    s.relative = carver.take<float>(kRows * RelativeTerm::kRowFloats);
    s.relative_rows = carver.take<const float*>(kRows);
  }
  if (drops()) {
    s.keys = carver.take<kernels::DropoutKey>(kRows);
    s.keep =
        reinterpret_cast<uint64_t(*)[kernels::kPanelsPerTile]>(carver.take<uint64_t>(kRows * kernels::kPanelsPerTile));
  }
  if (!sinks_.empty()) {
    s.sinks = carver.take<float>(kRows);
    s.empty = carver.take<uint8_t>(kRows);
  }
  return s;
}

void ScoreTerms::begin(const SequenceQueries& queries, const RowBlock& block, float factor, const TermScratch& scratch,
                       float* q) const noexcept {
  for (int r = 0; r < block.rows(); ++r) {
    if (drops())
      scratch.keys[r] = kernels::dropout_row_key(dropout_.seed, dropout_.first_batch_row + queries.batch_row,
                                                 block.head(r), block.position(r));
    if (relative_.empty()) continue;
    const float* row = queries.q + block.token(r) * queries.q_token_stride + block.head(r) * queries.q_head_stride;
    const float *u = relative_.content_bias(block.head(r)), *v = relative_.position_bias(block.head(r));
    float *content = q + int64_t{r} * head_dim_, *position = scratch.relative_q + int64_t{r} * head_dim_;
    for (int i = 0; i < head_dim_; ++i) {
      if (u != nullptr) content[i] = (row[i] + u[i]) * factor;
      position[i] = (v == nullptr ? row[i] : row[i] + v[i]) * scale_;
    }
  }
}

const float* ScoreTerms::distance_row(const Placed& placed, int64_t index, int64_t base, int head, int64_t query,
                                      int lo, int hi, float* into) const noexcept {
  if (placed.distances > 0)
    return tables_.data() + placed.table + head * placed.distances + (base - query - placed.first_distance);
  const int64_t* encoding =
      placed.encoding_of_column.empty() ? nullptr : placed.encoding_of_column.data() + index * kTileKeys;
  for (int j = lo; j < hi; ++j)
    into[j] = by_distance_.value(head, (encoding == nullptr ? base + j : encoding[j]) - query);
  return into;
}

const float* ScoreTerms::dense_row(const Placed& placed, int64_t batch_row, int64_t index, int64_t base, int head,
                                   int64_t token, int lo, int hi, float* into) const noexcept {
  const float* row = dense_.at(batch_row, head, placed.slots.first_query + token, placed.slots.first_key);
  const int64_t stride = dense_.strides[3];
  if (!placed.key_of_column.empty()) {
    const int64_t* key = placed.key_of_column.data() + index * kTileKeys;
    for (int j = lo; j < hi; ++j) into[j] = key[j] < 0 ? 0.0f : row[key[j] * stride];
    return into;
  }
  const int64_t first = base - placed.k_begin;  // number of the key at the tile's begin; may lie outside
  if (stride == 1 && first >= 0 && first + kTileKeys <= placed.kv_len) return row + first;
  for (int j = lo; j < hi; ++j) into[j] = row[(first + j) * stride];
  return into;
}

void ScoreTerms::lower(size_t sequence, const SequenceQueries& queries, const RowBlock& block, int64_t index,
                       const TermScratch& scratch, AttentionTile& tile) const noexcept {
  if (drops()) {
    for (int r = 0; r < block.rows(); ++r)
      if (tile.lo == nullptr || tile.lo[r] < tile.hi[r])
        kernels::dropout_keep_words(scratch.keys[r], queries.keys.tile_id(index),
                                    kernels::dropout_threshold(dropout_.rate), scratch.keep[r]);
    tile.keep = scratch.keep;
  }
  if (!adds()) return;
  const Placed& placed = placed_[sequence];
  const int64_t base = queries.keys.tile_id(index) * kTileKeys;
  if (!relative_.empty()) relative_rows(placed, block, index, base, scratch, tile);
  for (int r = 0; r < block.rows(); ++r) {
    float* into = scratch.bias + int64_t{r} * kTileKeys;
    scratch.rows[r] = into;  // whatever lies there, for a row that sees nothing
    const int lo = tile.lo == nullptr ? 0 : tile.lo[r], hi = tile.hi == nullptr ? kTileKeys : tile.hi[r];
    if (lo >= hi) continue;
    const int64_t token = block.token(r);
    const int head = block.head(r);
    const float* sum = nullptr;
    const auto add = [&](const float* term) {
      if (sum != nullptr) {
        for (int j = lo; j < hi; ++j) into[j] = sum[j] + term[j];
        term = into;
      }
      sum = term;
    };
    if (!by_distance_.empty())
      add(distance_row(placed, index, base, head, query_encoding(placed, block, r), lo, hi, into));
    if (dense_.data != nullptr)
      add(dense_row(placed, queries.batch_row, index, base, head, token, lo, hi, sum == nullptr ? into : scratch.term));
    if (!relative_.empty()) add(scratch.relative_rows[r]);
    scratch.rows[r] = sum;
  }
  tile.bias = scratch.rows;
}

void ScoreTerms::finish(const RowBlock& block, const AttentionState& state, int value_dim, const TermScratch& scratch,
                        float* const* out, float* lse) const noexcept {
  const kernels::AttentionKernels& kernel = *kernels::kernels().attention;
  const int rows = block.rows();
  if (!sinks_.empty()) {
    for (int r = 0; r < rows; ++r) {
      scratch.sinks[r] = sinks_[static_cast<size_t>(block.head(r))];
      scratch.empty[r] = state.l[r] == 0.0f;
    }
    kernel.fold_sink(state, scratch.sinks, rows, kernels::padded_dim(value_dim));
  }
  kernel.finish(state, rows, value_dim, out, lse);
  if (drops())
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < value_dim; ++c) out[r][c] *= keep_scale();
  if (sinks_.empty()) return;
  // The logit of a sink that stands alone is known better than by way of log2.
  for (int r = 0; r < rows; ++r)
    if (scratch.empty[r] != 0 && std::isfinite(scratch.sinks[r])) lse[r] = scratch.sinks[r];
}

}  // namespace regard
