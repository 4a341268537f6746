#include "attention/relative_term.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checked.h"

namespace regard {

using kernels::kPanelKeys;

namespace {

std::vector<float> dense_copy(const TensorView<const float>& tensor) {
  std::vector<float> copy;
  if (tensor.rank == 0) return copy;
  for (int64_t h = 0; h < tensor.shape[0]; ++h)
    for (int64_t i = 0; i < tensor.shape[1]; ++i) copy.push_back(*tensor.at(h, i));
  return copy;
}

}  // namespace

RelativeTerm::RelativeTerm(const TransformerXl* xl, int num_heads, int head_dim) {
  if (xl == nullptr) return;
  xl_ = *xl;
  num_heads_ = num_heads;
  head_dim_ = head_dim;
  content_bias_ = dense_copy(xl->u);
  position_bias_ = dense_copy(xl->v);
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
  AlignedBuffer<float> table(*floats);
  std::memset(table.data(), 0xFF, *floats * sizeof(float));  // NaN: no vector
  std::vector<float> row(static_cast<size_t>(head_dim_));
  for (int h = 0; h < num_heads_; ++h) {
    float* head = table.data() + h * panels * panel_floats;
    for (int64_t x = 0; x < count; ++x) {
      const int64_t at = row_for(first + x);
      if (at < 0) continue;
      for (int64_t i = 0; i < head_dim_; ++i) row[static_cast<size_t>(i)] = *xl_.r.at(at, h, i);
      kernels::kernels().attention->pack_keys(row.data(), 0, 1, head_dim_, head + x / kPanelKeys * panel_floats,
                                              static_cast<int>(x % kPanelKeys));
    }
  }
  tables_.push_back(std::move(table));
  return tables_.size() - 1;
}

// Column x stands for row r.shape[0] - 1 - x, which is the distance query - key = first_distance + that row.
size_t RelativeTerm::place_all() { return place(-(xl_.first_distance + xl_.r.shape[0] - 1), xl_.r.shape[0]); }

}  // namespace regard
