#include "attention/backward_keys.h"

#include <algorithm>
#include <cstring>

namespace regard {

using kernels::kPanelKeys;
using kernels::kPanelsPerTile;
using kernels::padded_dim;

KeyScratch KeyScratch::carve(Carver& carver, int panels, int head_dim, int value_dim) {
  const auto keys = static_cast<size_t>(panels * kPanelKeys), dim = static_cast<size_t>(padded_dim(head_dim)),
             value = static_cast<size_t>(padded_dim(value_dim));
  KeyScratch s;
  s.k = carver.take<float>(keys * static_cast<size_t>(head_dim));
  s.v = carver.take<float>(keys * static_cast<size_t>(value_dim));
  s.k_rows = carver.take<float>(keys * dim);
  s.dk = carver.take<float>(keys * dim);
  s.dv = carver.take<float>(keys * value);
  return s;
}

BackwardKeys::BackwardKeys(const PackSource& source, int64_t batch_row, int panels)
    : source_(source), panels_(panels), order_(sort_keys(source, batch_row)) {
  const int64_t keys = source.positions == nullptr ? source.kv_len : static_cast<int64_t>(order_.slot.size());
  const int64_t size = int64_t{panels} * kPanelKeys;
  if (keys == 0) return;
  hull_ = {position(0), position(keys - 1) + 1};
  for (int64_t i = 0; i < keys;) {
    KeyBlock block{position(i) / size * size, i, 0};
    int64_t end;
    if (source.positions == nullptr)
      end = std::min(keys, block.base + size - source.k_begin);
    else
      end = std::lower_bound(order_.position.begin() + i, order_.position.end(), block.base + size) -
            order_.position.begin();
    block.count = static_cast<int>(end - i);
    blocks_.push_back(block);
    i = end;
  }
}

Interval BackwardKeys::blocks_of(Interval positions) const noexcept {
  if (positions.empty()) return {};
  const int64_t size = int64_t{panels_} * kPanelKeys;
  const auto ends_before = [size](const KeyBlock& block, int64_t p) { return block.base + size <= p; };
  const auto begins_before = [](const KeyBlock& block, int64_t p) { return block.base < p; };
  const auto first = std::lower_bound(blocks_.begin(), blocks_.end(), positions.begin, ends_before);
  const auto last = std::lower_bound(first, blocks_.end(), positions.end, begins_before);
  return {first - blocks_.begin(), last - blocks_.begin()};
}

bool BackwardKeys::written(const KeyBlock& block, uint64_t (&words)[kPanelsPerTile]) const noexcept {
  if (source_.positions == nullptr) return false;
  std::fill_n(words, kPanelsPerTile, uint64_t{0});
  for (int64_t i = block.first; i < block.first + block.count; ++i) {
    const int64_t at = position(i) - block.base;
    words[at / kPanelKeys] |= uint64_t{1} << (at % kPanelKeys);
  }
  return true;
}

void BackwardKeys::pack(const KeyBlock& block, int kv_head, int head_dim, int value_dim,
                        const KeyScratch& scratch) const noexcept {
  const kernels::KernelSet& set = kernels::kernels();
  const KvRows& rows = source_.rows;
  const int64_t keys = int64_t{panels_} * kPanelKeys, dim = padded_dim(head_dim);
  // Positions that hold no key are NaN: nothing of them may enter a result.
  if (block.count < keys) {
    std::memset(scratch.k, 0xFF, static_cast<size_t>(keys * head_dim) * sizeof(float));
    std::memset(scratch.v, 0xFF, static_cast<size_t>(keys * value_dim) * sizeof(float));
    std::memset(scratch.k_rows, 0xFF, static_cast<size_t>(keys * dim) * sizeof(float));
  }
  for (int64_t i = block.first; i < block.first + block.count;) {
    // A run: positions and slots that follow each other, inside one panel.
    const int64_t at = position(i) - block.base, token = slot(i);
    int64_t n = 1;
    while (i + n < block.first + block.count && (at + n) % kPanelKeys != 0 && position(i + n) - block.base == at + n &&
           slot(i + n) == token + n)
      ++n;
    const float* k = rows.k + token * rows.k_token_stride + kv_head * rows.k_head_stride;
    const float* v = rows.v + token * rows.v_token_stride + kv_head * rows.v_head_stride;
    const int64_t panel = at / kPanelKeys * kPanelKeys;
    const auto column = static_cast<int>(at % kPanelKeys), count = static_cast<int>(n);
    set.attention->pack_keys(k, rows.k_token_stride, count, head_dim, scratch.k + panel * head_dim, column);
    set.attention->pack_keys(v, rows.v_token_stride, count, value_dim, scratch.v + panel * value_dim, column);
    const float* from[kPanelKeys];
    for (int64_t j = 0; j < n; ++j) from[j] = k + j * rows.k_token_stride;
    set.attention_backward->load_rows(from, count, head_dim, 1.0f, scratch.k_rows + at * dim);
    i += n;
  }
}

}  // namespace regard
