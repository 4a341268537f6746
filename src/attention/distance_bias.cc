#include "attention/distance_bias.h"

namespace regard {

DistanceBias::DistanceBias(const Alibi* alibi, const T5Bias* t5) {
  if (alibi != nullptr) slopes_ = alibi->slopes;
  if (t5 == nullptr) return;
  reach_ = t5->max_distance;
  table_.resize(static_cast<size_t>(t5->table.shape[1] * (2 * reach_ + 1)));
  set_t5(*t5);
}

void DistanceBias::set_t5(const T5Bias& t5) {
  size_t at = 0;
  for (int64_t h = 0; h < t5.table.shape[1]; ++h)
    for (int64_t d = -reach_; d <= reach_; ++d)
      table_[at++] = *t5.table.at(t5_bucket(d, t5.table.shape[0], t5.max_distance, t5.direction), h);
}

float DistanceBias::value(int head, int64_t distance) const noexcept {
  if (table_.empty()) return alibi(head, distance);
  return slopes_.empty() ? t5(head, distance) : alibi(head, distance) + t5(head, distance);
}

void DistanceBias::fill(int head, int64_t first, int64_t count, float* out) const noexcept {
  if (table_.empty())
    for (int64_t i = 0; i < count; ++i) out[i] = alibi(head, first + i);
  else if (slopes_.empty())
    for (int64_t i = 0; i < count; ++i) out[i] = t5(head, first + i);
  else
    for (int64_t i = 0; i < count; ++i) out[i] = alibi(head, first + i) + t5(head, first + i);
}

}  // namespace regard
