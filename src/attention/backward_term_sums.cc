// The gradients of score terms, added up in an order that does not depend on threads; see backward_terms.h.
#include <algorithm>
#include <bit>
#include <cmath>

#include "attention/backward_terms.h"
#include "base/math.h"

namespace regard {

using kernels::kPanelKeys;
using kernels::kTileKeys;
using kernels::kWeightStride;

namespace {

// Calls f(r, j) for every row and key that see each other: rows rising, and for each its keys.
template <class F>
void for_each_pair(const BackwardStep& step, int rows, F f) {
  for (int r = 0; r < rows; ++r)
    for (int w = 0; w < step.panels; ++w)
      for (uint64_t left = step.seen == nullptr ? ~uint64_t{0} : step.seen[r][w]; left != 0; left &= left - 1)
        f(r, kPanelKeys * w + std::countr_zero(left));
}

}  // namespace

void BackwardTerms::reserve(int64_t items) {
  table_parts_ = AlignedBuffer<double>(static_cast<size_t>(items * group_ * buckets_));
  head_of_item_.resize(static_cast<size_t>(items));
}

void BackwardTerms::add_bias(const BackwardStep& step, const BackwardRows& rows, const float* db,
                             const BackwardTermScratch& scratch) const noexcept {
  const BackwardRowBlock& block = rows.block(step.row_block);
  const int64_t stride = bias_.strides[3];
  for_each_pair(step, block.rows, [&](int r, int j) {
    float* to = bias_.at(step.batch, rows.head(block, r), rows.token(block, r));
    to[scratch.slot[j] * stride] += db[int64_t{r} * kWeightStride + j];
  });
}

void BackwardTerms::add(const BackwardStep& step, const BackwardRows& rows, const float* db,
                        const BackwardTermScratch& scratch) const noexcept {
  const BackwardRowBlock& block = rows.block(step.row_block);
  if (over_queries_)
    for_each_pair(step, block.rows, [&](int r, int j) {
      scratch.columns[(rows.head(block, r) - block.kv_head * group_) * kTileKeys + j] +=
          db[int64_t{r} * kWeightStride + j];
    });
  else if (bias_.data != nullptr && turns_ == Turns::kNone)
    add_bias(step, rows, db, scratch);
  if (relative_) relative_->add(step, rows, scratch.encoding, db, scratch.relative);
  if (buckets_ == 0) return;
  for_each_pair(step, block.rows, [&](int r, int j) {
    const int64_t distance = scratch.encoding[j] - query_encoding(step.batch, rows.token(block, r));
    const int64_t bucket = bucket_of_[static_cast<size_t>(std::clamp(distance, -reach_, reach_) + reach_)];
    scratch.table[(rows.head(block, r) - block.kv_head * group_) * buckets_ + bucket] +=
        static_cast<double>(db[int64_t{r} * kWeightStride + j]);
  });
}

void BackwardTerms::add_in_turn(const BackwardStep& step, const BackwardRows& rows, const float* db,
                                const BackwardTermScratch& scratch) const noexcept {
  if (turns_ != Turns::kNone) add_bias(step, rows, db, scratch);
}

void BackwardTerms::add_queries_in_turn(const BackwardStep& step, const BackwardRows& rows, const float* db,
                                        const BackwardTermScratch& scratch) noexcept {
  if (relative_) relative_->add_in_turn(step, rows, scratch.encoding, db, scratch.relative);
}

void BackwardTerms::end(const BackwardStep& step, const BackwardTermScratch& scratch) noexcept {
  if (over_queries_)
    for (int g = 0; g < group_; ++g) {
      const int64_t head = step.batch * sizes_.num_q_heads + int64_t{step.kv_head} * group_ + g;
      for (int j = 0; j < step.panels * kPanelKeys; ++j)
        if (scratch.slot[j] >= 0)
          columns_[static_cast<size_t>(head * sizes_.kv_len + scratch.slot[j])] = scratch.columns[g * kTileKeys + j];
    }
  if (buckets_ == 0) return;
  std::copy_n(scratch.table, group_ * buckets_, table_parts_.data() + step.item * group_ * buckets_);
  head_of_item_[static_cast<size_t>(step.item)] = step.kv_head;
}

// Partial sums per head and key: over keys, heads and batch rows where the bias is repeated on them.
void BackwardTerms::finish_bias() const noexcept {
  const int64_t batches = bias_.shape[0] == 1 ? sizes_.batch : 1, heads = bias_.shape[1] == 1 ? sizes_.num_q_heads : 1,
                keys = bias_.shape[3] == 1 ? sizes_.kv_len : 1;
  for (int64_t b = 0; b < bias_.shape[0]; ++b)
    for (int64_t h = 0; h < bias_.shape[1]; ++h)
      for (int64_t j = 0; j < bias_.shape[3]; ++j) {
        double sum = 0;
        for (int64_t more_b = 0; more_b < batches; ++more_b)
          for (int64_t more_h = 0; more_h < heads; ++more_h)
            for (int64_t more_j = 0; more_j < keys; ++more_j)
              sum += static_cast<double>(columns_[static_cast<size_t>(
                  ((b + more_b) * sizes_.num_q_heads + h + more_h) * sizes_.kv_len + j + more_j)]);
        *bias_.at(b, h, 0, j) = static_cast<float>(sum);
      }
}

// d sink = -sum over rows of exp(sink - lse) delta. A row that saw no key has the sink as its lse, and out does not
// depend on anything: only what comes in at lse is left.
void BackwardTerms::finish_sink(const BackwardRows& rows, const TensorView<const float>& dlse) const noexcept {
  std::vector<double> sums(static_cast<size_t>(sizes_.num_q_heads), 0.0);
  for (int64_t i = 0; i < rows.size(); ++i) {
    const BackwardRowBlock& block = rows.block(i);
    for (int r = 0; r < block.rows; ++r) {
      const int head = rows.head(block, r);
      const double sink = static_cast<double>(sinks_[static_cast<size_t>(head)]);
      if (rows.position(block, r) < 0 || sink == -HUGE_VAL) continue;
      double& sum = sums[static_cast<size_t>(head)];
      if (rows.saw(i, r))
        sum -= math::exp(sink - static_cast<double>(rows.lse(block, r))) * static_cast<double>(rows.delta(i)[r]);
      else if (dlse.data != nullptr)
        sum += static_cast<double>(*rows.row_of(dlse, block, r));
    }
  }
  for (int64_t h = 0; h < sizes_.num_q_heads; ++h)
    *wanted_.sink.at(h) = static_cast<float>(sums[static_cast<size_t>(h)]);
}

void BackwardTerms::finish(const BackwardRows& rows, const TensorView<const float>& dlse) const {
  if (relative_) relative_->finish(rows);
  if (over_queries_) finish_bias();
  if (wanted_.sink.data != nullptr) finish_sink(rows, dlse);
  if (buckets_ == 0) return;
  for (int64_t h = 0; h < sizes_.num_q_heads; ++h)
    for (int64_t bucket = 0; bucket < buckets_; ++bucket) {
      double sum = 0;
      for (size_t item = 0; item < head_of_item_.size(); ++item)
        if (head_of_item_[item] == h / group_)
          sum += table_parts_[(item * static_cast<size_t>(group_) + static_cast<size_t>(h % group_)) *
                                  static_cast<size_t>(buckets_) +
                              static_cast<size_t>(bucket)];
      *wanted_.t5_table.at(bucket, h) = static_cast<float>(sum);
    }
}

}  // namespace regard
