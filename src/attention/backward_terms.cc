// Biases of rows and blocks of keys. What becomes of their gradients is in backward_term_sums.cc.
#include "attention/backward_terms.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked.h"

namespace regard {

using kernels::kBlockRows;
using kernels::kPanelKeys;
using kernels::kPanelsPerTile;
using kernels::kTileKeys;
using kernels::kWeightStride;

BackwardTerms::BackwardTerms(const ScoreTerms& terms, const AttentionOptions& options, const ScoreTermGradients& wanted,
                             const CallRows& call_rows, const CallPositions& positions,
                             const std::vector<BackwardKeys>& keys, float scale, int64_t row_blocks)
    : call_rows_(call_rows),
      sizes_(call_rows.widest()),
      group_(static_cast<int>(sizes_.num_q_heads / sizes_.num_kv_heads)),
      positions_(positions),
      dense_(terms.dense()),
      by_distance_(terms.by_distance()),
      sinks_(terms.sinks()),
      dropout_(terms.dropout()),
      keep_scale_(terms.drops() ? terms.keep_scale() : 1.0f),
      wanted_(wanted),
      bias_(wanted.bias) {
  if (options.xl) relative_.emplace(*options.xl, wanted, call_rows, scale, row_blocks);
  if (!by_distance_.empty())
    for (int64_t b = 0; b < sizes_.batch; ++b) place_table(b, keys[static_cast<size_t>(b)]);
  if (wanted.bias.data != nullptr) {
    for (size_t i = 0; i < 4; ++i)
      if (bias_.shape[i] == 1) bias_.strides[i] = 0;
    over_queries_ = bias_.shape[2] == 1 && sizes_.q_len > 1;
    const bool over_heads =
        (bias_.shape[0] == 1 && sizes_.batch > 1) || (bias_.shape[1] == 1 && sizes_.num_q_heads > 1);
    if (over_queries_) {
      const auto count = checked_mul<size_t>(static_cast<size_t>(sizes_.batch * sizes_.num_q_heads),
                                             static_cast<size_t>(sizes_.kv_len));
      if (!count) fail(Code::kResourceExhausted, "[attend_backward] no memory for the gradient of bias");
      columns_ = AlignedBuffer<float>(*count);
      std::fill_n(columns_.data(), *count, 0.0f);
    } else {
      turns_ = over_heads ? Turns::kItems : bias_.shape[3] == 1 && sizes_.kv_len > 1 ? Turns::kKeyBlocks : Turns::kNone;
    }
    for (int64_t b = 0; b < bias_.shape[0]; ++b)
      for (int64_t h = 0; h < bias_.shape[1]; ++h)
        for (int64_t i = 0; i < bias_.shape[2]; ++i)
          for (int64_t j = 0; j < bias_.shape[3]; ++j) *bias_.at(b, h, i, j) = 0.0f;
  }
  if (wanted.t5_table.data != nullptr) {
    buckets_ = wanted.t5_table.shape[0];
    reach_ = options.t5->max_distance;
    for (int64_t d = -reach_; d <= reach_; ++d)
      bucket_of_.push_back(static_cast<int32_t>(t5_bucket(d, buckets_, reach_, options.t5->direction)));
  }
}

BackwardTermScratch BackwardTerms::carve(Carver& carver) const {
  constexpr size_t kRows = kBlockRows;
  BackwardTermScratch s;
  if (adds()) {
    s.bias = carver.take<float>(kRows * kTileKeys);
    s.rows = carver.take<const float*>(kRows);
    s.term = carver.take<float>(kTileKeys);
  }
  if (adds() || wants_pairs()) {
    s.slot = carver.take<int64_t>(kTileKeys);
    s.encoding = carver.take<int64_t>(kTileKeys);
  }
  if (dropout_.rate > 0)
    s.keep = reinterpret_cast<uint64_t(*)[kPanelsPerTile]>(carver.take<uint64_t>(kRows * kPanelsPerTile));
  if (relative_) s.relative = relative_->carve(carver);
  if (wants_pairs()) s.db = carver.take<float>(kRows * kWeightStride);
  if (over_queries_) s.columns = carver.take<float>(static_cast<size_t>(group_) * kTileKeys);
  if (buckets_ > 0) s.table = carver.take<double>(static_cast<size_t>(group_ * buckets_));
  return s;
}

int64_t BackwardTerms::query_encoding(int64_t b, int64_t token) const noexcept {
  if (const int64_t* encoding = positions_.query_encodings(b)) return encoding[token];
  const int64_t* positions = positions_.queries(b);
  return positions == nullptr ? positions_.q_begin(b) + token : positions[token];
}

// The distances that occur between written slots of a batch row, unless they are far more than there are slots.
void BackwardTerms::place_table(int64_t b, const BackwardKeys& keys) {
  Table table;
  int64_t low = INT64_MAX, high = INT64_MIN;
  for (int64_t i = 0; i < call_rows_.q_len(b); ++i) {
    const int64_t* positions = positions_.queries(b);
    if (positions != nullptr && positions[i] < 0) continue;
    low = std::min(low, query_encoding(b, i));
    high = std::max(high, query_encoding(b, i));
  }
  if (low <= high && !keys.blocks().empty() && positions_.key_encodings(b) == nullptr) {
    const int64_t first = keys.blocks().front().base - high;
    const int64_t distances = keys.blocks().back().base + kTileKeys - low - first;
    if (distances <= 4 * (sizes_.q_len + sizes_.kv_len + 2 * kTileKeys)) {
      table = {first, distances, numbers_.size()};
      const auto same = std::find_if(tables_.begin(), tables_.end(), [&](const Table& other) {
        return other.first == first && other.distances == distances;
      });
      if (same != tables_.end()) {
        table.begin = same->begin;
      } else {
        numbers_.resize(numbers_.size() + static_cast<size_t>(sizes_.num_q_heads * distances));
        for (int h = 0; h < sizes_.num_q_heads; ++h)
          by_distance_.fill(h, first, distances, numbers_.data() + table.begin + h * distances);
      }
    }
  }
  tables_.push_back(table);
}

void BackwardTerms::refill() {
  if (relative_) relative_->refill();
  for (const Table& table : tables_)
    for (int h = 0; h < sizes_.num_q_heads && table.distances > 0; ++h)
      by_distance_.fill(h, table.first, table.distances, numbers_.data() + table.begin + h * table.distances);
}

void BackwardTerms::begin(const BackwardStep& step, const BackwardKeys& keys,
                          const BackwardTermScratch& scratch) const noexcept {
  if (scratch.slot != nullptr) {
    std::fill_n(scratch.slot, kTileKeys, int64_t{-1});
    const int64_t* encodings = positions_.key_encodings(step.batch);
    for (int64_t i = step.keys->first; i < step.keys->first + step.keys->count; ++i) {
      const int64_t column = keys.position(i) - step.keys->base;
      scratch.slot[column] = keys.slot(i);
      scratch.encoding[column] = encodings == nullptr ? keys.position(i) : encodings[keys.slot(i)];
    }
  }
  if (relative_) relative_->begin(step.panels * kPanelKeys, scratch.slot, scratch.encoding, scratch.relative);
  if (over_queries_) std::fill_n(scratch.columns, group_ * kTileKeys, 0.0f);
  if (buckets_ > 0) std::fill_n(scratch.table, group_ * buckets_, 0.0);
}

const float* BackwardTerms::distance_row(int64_t b, int head, int64_t query, const KeyBlock& block, int lo, int hi,
                                         const int64_t* encoding, float* into) const noexcept {
  const Table& table = tables_[static_cast<size_t>(b)];
  if (table.distances > 0)
    return numbers_.data() + table.begin + head * table.distances + (block.base - query - table.first);
  for (int j = lo; j < hi; ++j) into[j] = by_distance_.value(head, encoding[j] - query);
  return into;
}

const float* BackwardTerms::dense_row(int64_t b, int head, int64_t token, const BackwardKeys& keys, int lo, int hi,
                                      const int64_t* slot, float* into) const noexcept {
  const float* row = dense_.at(b, head, token);
  const int64_t stride = dense_.strides[3];
  // Keys that follow each other, and enough of them for whole vectors: in place.
  const int64_t first = slot[0];
  if (stride == 1 && first >= 0 && keys.in_order() && first + kTileKeys <= dense_.shape[3]) return row + first;
  for (int j = lo; j < hi; ++j) into[j] = slot[j] < 0 ? 0.0f : row[slot[j] * stride];
  return into;
}

// The sum of the terms in the order of attend(), for the keys between the ends of each row.
const float* const* BackwardTerms::lower(const BackwardStep& step, const BackwardRows& rows, const BackwardKeys& keys,
                                         const BackwardTermScratch& scratch) const noexcept {
  if (!adds()) return nullptr;
  const BackwardRowBlock& block = rows.block(step.row_block);
  if (relative_) {
    for (int r = 0; r < block.rows; ++r)
      scratch.relative.query[r] = query_encoding(step.batch, rows.token(block, r));
    relative_->multiply(step, rows, scratch.relative);
  }
  const int columns = step.panels * kPanelKeys;
  for (int r = 0; r < block.rows; ++r) {
    float* into = scratch.bias + int64_t{r} * kTileKeys;
    scratch.rows[r] = into;  // whatever lies there, for a row that sees nothing
    const Interval span = rows.span(step.row_block, r);
    const auto lo = static_cast<int>(std::clamp<int64_t>(span.begin - step.keys->base, 0, columns));
    const auto hi = static_cast<int>(std::clamp<int64_t>(span.end - step.keys->base, 0, columns));
    if (lo >= hi) continue;
    const int64_t token = rows.token(block, r);
    const int head = rows.head(block, r);
    const float* sum = nullptr;
    if (!by_distance_.empty())
      sum =
          distance_row(step.batch, head, query_encoding(step.batch, token), *step.keys, lo, hi, scratch.encoding, into);
    if (dense_.data != nullptr) {
      const float* term =
          dense_row(step.batch, head, token, keys, lo, hi, scratch.slot, sum == nullptr ? into : scratch.term);
      if (sum != nullptr) {
        for (int j = lo; j < hi; ++j) into[j] = sum[j] + term[j];
        term = into;
      }
      sum = term;
    }
    if (relative_) {
      const float* term = relative_->term(step, head, r, lo, hi, scratch.encoding,
                                          sum == nullptr ? into : scratch.term, scratch.relative);
      if (sum != nullptr) {
        for (int j = lo; j < hi; ++j) into[j] = sum[j] + term[j];
        term = into;
      }
      sum = term;
    }
    scratch.rows[r] = sum;
  }
  return scratch.rows;
}

const uint64_t (*BackwardTerms::keep(const BackwardStep& step, const BackwardRows& rows,
                                     const BackwardTermScratch& scratch) const noexcept)[kPanelsPerTile] {
  if (dropout_.rate <= 0) return nullptr;
  const BackwardRowBlock& block = rows.block(step.row_block);
  const int64_t tile = step.keys->base / kTileKeys, panel = step.keys->base % kTileKeys / kPanelKeys;
  uint64_t words[kPanelsPerTile];
  for (int r = 0; r < block.rows; ++r) {
    if (!rows.takes_part(step.row_block, r)) continue;
    const kernels::DropoutKey key =
        kernels::dropout_row_key(dropout_.seed, dropout_.first_batch_row + step.batch, rows.head(block, r),
                                 rows.position(block, r));
    kernels::dropout_keep_words(key, tile, kernels::dropout_threshold(dropout_.rate), words);
    for (int w = 0; w < step.panels; ++w) scratch.keep[r][w] = words[panel + w];
  }
  return scratch.keep;
}

}  // namespace regard
