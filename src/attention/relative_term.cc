#include "attention/relative_term.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked.h"

namespace regard {

using kernels::kPanelKeys;

namespace {

void copy_rows(const TensorView<const float>& tensor, std::vector<float>& to) {
  to.clear();  // and keeps its memory
  if (tensor.rank == 0) return;
  for (int64_t h = 0; h < tensor.shape[0]; ++h)
    for (int64_t i = 0; i < tensor.shape[1]; ++i) to.push_back(*tensor.at(h, i));
}

}  // namespace

RelativeTerm::RelativeTerm(const TransformerXl* xl, int num_heads, int head_dim) {
  if (xl == nullptr) return;
  num_heads_ = num_heads;
  head_dim_ = head_dim;
  row_.resize(static_cast<size_t>(head_dim));
  set(*xl);
}

void RelativeTerm::set(const TransformerXl& xl) {
  xl_ = xl;
  copy_rows(xl.u, content_bias_);
  copy_rows(xl.v, position_bias_);
  for (Table& table : tables_) fill(table);
}

int64_t RelativeTerm::row_for(int64_t distance) const noexcept {
  int64_t d = -distance;
  if (xl_.clamp > 0) d = std::clamp(d, -xl_.clamp, xl_.clamp);
  const int64_t row = d - xl_.first_distance;
  return row >= 0 && row < xl_.r.shape[0] ? row : -1;
}

size_t RelativeTerm::place(int64_t first, int64_t count) {
  const int64_t panels = ceil_div<int64_t>(count, kPanelKeys), panel_floats = int64_t{kPanelKeys} * head_dim_;
  const auto floats = checked_mul<size_t>(static_cast<size_t>(num_heads_), static_cast<size_t>(panels * panel_floats));
  if (!floats) fail(Code::kResourceExhausted, "[attention] {} distances of {} heads are too many", count, num_heads_);
  tables_.push_back({first, count, AlignedBuffer<float>(*floats)});
  std::memset(tables_.back().panels.data(), 0xFF, *floats * sizeof(float));  // NaN: no vector
  fill(tables_.back());
  return tables_.size() - 1;
}

void RelativeTerm::fill(Table& table) {
  const int64_t panel_floats = int64_t{kPanelKeys} * head_dim_, head_floats = ceil_div<int64_t>(table.count, kPanelKeys) * panel_floats;
  for (int h = 0; h < num_heads_; ++h) {
    float* head = table.panels.data() + h * head_floats;
    for (int64_t x = 0; x < table.count; ++x) {
      const int64_t at = row_for(table.first + x);
      if (at < 0) continue;
      for (int64_t i = 0; i < head_dim_; ++i) row_[static_cast<size_t>(i)] = *xl_.r.at(at, h, i);
      kernels::kernels().attention->pack_keys(row_.data(), 0, 1, head_dim_, head + x / kPanelKeys * panel_floats,
                                              static_cast<int>(x % kPanelKeys));
    }
  }
}

// Column x stands for row r.shape[0] - 1 - x, which is the distance query - key = first_distance + that row.
size_t RelativeTerm::place_all() { return place(-(xl_.first_distance + xl_.r.shape[0] - 1), xl_.r.shape[0]); }

}  // namespace regard
