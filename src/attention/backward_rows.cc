#include "attention/backward_rows.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/math.h"

namespace regard {

using kernels::kBlockRows;
using kernels::kPanelKeys;
using kernels::kPanelsPerTile;

BackwardRows::BackwardRows(const BackwardTensors& tensors, const CallRows& call_rows, const AttentionShape& shape,
                           const MaskPlan& mask, const CallPositions& positions, const std::vector<BackwardKeys>& keys)
    : tensors_(tensors),
      call_rows_(call_rows),
      shape_(shape),
      mask_(mask),
      positions_(positions),
      keys_(keys),
      group_(shape.num_q_heads / shape.num_kv_heads),
      heads_(mask.depends_on_head() ? group_ : 1) {
  for (int64_t b = 0; b < call_rows.batch(); ++b) {
    const int64_t rows = call_rows.q_len(b) * group_;
    first_block_.push_back(size());
    most_blocks_ = std::max(most_blocks_, (rows + kBlockRows - 1) / kBlockRows);
    for (int h = 0; h < shape.num_kv_heads; ++h)
      for (int64_t r = 0; r < rows; r += kBlockRows) {
        BackwardRowBlock block;
        block.batch = b;
        block.kv_head = h;
        block.first_row = r;
        block.rows = static_cast<int>(std::min<int64_t>(kBlockRows, rows - r));
        blocks_.push_back(block);
      }
  }
  first_block_.push_back(size());
  const size_t slots = blocks_.size() * static_cast<size_t>(kBlockRows);
  for (AlignedBuffer<float>* buffer : {&lse_high_, &lse_low_, &delta_}) *buffer = AlignedBuffer<float>(slots);
  for (AlignedBuffer<int64_t>* buffer : {&begin_, &end_}) *buffer = AlignedBuffer<int64_t>(slots);
  saw_ = AlignedBuffer<uint8_t>(slots);
  std::fill_n(saw_.data(), slots, uint8_t{0});
}

int64_t BackwardRows::position(const BackwardRowBlock& block, int r) const noexcept {
  const int64_t* positions = positions_.queries(block.batch);
  const int64_t t = token(block, r);
  return positions == nullptr ? positions_.q_begin(block.batch) + t : positions[t];
}

void BackwardRows::prepare(int64_t i) noexcept {
  BackwardRowBlock& block = blocks_[static_cast<size_t>(i)];
  const BackwardKeys& keys = keys_[static_cast<size_t>(block.batch)];
  int64_t* begin = begin_.data() + at(i);
  int64_t* end = end_.data() + at(i);
  const float* dout[kBlockRows];
  const float* out[kBlockRows];
  Interval seen;
  for (int r = 0; r < block.rows; ++r) {
    const int64_t b = block.batch, h = head(block, r), t = token(block, r), p = position(block, r);
    if (tensors_.dq.data != nullptr) std::fill_n(row_of(tensors_.dq, block, r), shape_.head_dim, 0.0f);
    if (!(heads_ == 1 && r > 0 && t == token(block, r - 1))) {
      seen = p < 0 ? Interval{} : mask_.hull(b, h, p);
      seen = {std::max(seen.begin, keys.hull().begin), std::min(seen.end, keys.hull().end)};
    }
    // An empty row: none of its tensors is read; its lse only where it might see a key.
    const float lse = seen.empty() ? -std::numeric_limits<float>::infinity() : this->lse(block, r);
    const bool empty = lse == -std::numeric_limits<float>::infinity();
    begin[r] = empty ? 0 : seen.begin;
    end[r] = empty ? 0 : seen.end;
    dout[r] = empty ? nullptr : row_of(tensors_.dout, block, r);
    out[r] = empty ? nullptr : row_of(tensors_.out, block, r);
    block.every = r == 0 ? Interval{begin[r], end[r]}
                         : Interval{std::max(block.every.begin, begin[r]), std::min(block.every.end, end[r])};
    if (!empty) {
      block.some = block.some.empty()
                       ? seen
                       : Interval{std::min(block.some.begin, seen.begin), std::max(block.some.end, seen.end)};
      block.queries = block.queries.empty()
                          ? Interval{p, p + 1}
                          : Interval{std::min(block.queries.begin, p), std::max(block.queries.end, p + 1)};
    }
    // lse in units of log2, in two parts so that no more than its own rounding is lost.
    const double lse2 = static_cast<double>(lse) * math::kLog2e;
    const auto high = empty ? 0.0f : static_cast<float>(lse2);
    lse_high_[static_cast<size_t>(at(i) + r)] = high;
    lse_low_[static_cast<size_t>(at(i) + r)] =
        !empty && std::isfinite(high) ? static_cast<float>(lse2 - static_cast<double>(high)) : 0.0f;
  }
  block.key_blocks = keys.blocks_of(block.some);
  float* delta = delta_.data() + at(i);
  kernels::kernels().attention_backward->dot_rows(dout, out, block.rows, shape_.value_dim, delta);
  if (tensors_.dlse.data == nullptr) return;
  for (int r = 0; r < block.rows; ++r)
    if (dout[r] != nullptr) delta[r] -= *row_of(tensors_.dlse, block, r);
}

void BackwardRows::note_sight(int64_t i, int panels, const uint64_t (*seen)[kPanelsPerTile]) noexcept {
  for (int r = 0; r < block(i).rows; ++r) {
    uint64_t any = seen == nullptr ? 1 : 0;
    for (int w = 0; w < panels && seen != nullptr; ++w) any |= seen[r][w];
    if (any != 0) std::atomic_ref<uint8_t>(saw_[static_cast<size_t>(at(i) + r)]).store(1, std::memory_order_relaxed);
  }
}

TileClass BackwardRows::classify(const BackwardRowBlock& block, Interval keys) const noexcept {
  const int first_head = block.kv_head * group_;
  const TileClass first = mask_.classify(block.batch, first_head, block.queries, keys);
  for (int h = 1; h < heads_; ++h)
    if (mask_.classify(block.batch, first_head + h, block.queries, keys) != first) return TileClass::kPartial;
  return first;
}

BlockSight BackwardRows::look(int64_t i, const BackwardKeys& keys, const KeyBlock& key_block, int panels,
                              uint64_t (*seen)[kPanelsPerTile]) const noexcept {
  const BackwardRowBlock& rows = block(i);
  const int64_t base = key_block.base;
  const Interval all{base, base + int64_t{panels} * kPanelKeys};
  const Interval inside{std::max(all.begin, rows.some.begin), std::min(all.end, rows.some.end)};
  if (inside.empty()) return BlockSight::kNothing;
  bool evaluate = false;
  if (!mask_.rows_are_intervals()) {
    const TileClass kind = classify(rows, inside);
    if (kind == TileClass::kEmpty) return BlockSight::kNothing;
    evaluate = kind == TileClass::kPartial;
  }
  uint64_t written[kPanelsPerTile];
  const bool gaps = keys.written(key_block, written);
  if (!evaluate && !gaps && rows.every.begin <= all.begin && rows.every.end >= all.end) return BlockSight::kEverything;

  uint64_t words[kPanelsPerTile], any = 0, missing = 0;
  for (int r = 0; r < rows.rows; ++r) {
    const int64_t begin = begin_[static_cast<size_t>(at(i) + r)], end = end_[static_cast<size_t>(at(i) + r)];
    const bool same = heads_ == 1 && r > 0 && token(rows, r) == token(rows, r - 1);
    if (evaluate && !same) {
      const int64_t p = position(rows, r);
      if (p < 0)
        std::fill_n(words, kPanelsPerTile, uint64_t{0});
      else
        mask_.fill_words(rows.batch, head(rows, r), p, base, panels, words);
    }
    for (int w = 0; w < panels; ++w) {
      uint64_t word = interval_word(begin, end, base + int64_t{w} * kPanelKeys);
      if (evaluate) word &= words[w];
      if (gaps) word &= written[w];
      seen[r][w] = word;
      any |= word;
      missing |= ~word;
    }
  }
  return any == 0 ? BlockSight::kNothing : missing == 0 ? BlockSight::kEverything : BlockSight::kSome;
}

}  // namespace regard
