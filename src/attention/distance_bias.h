// ALiBi and T5's buckets: biases that depend on the head and on the distance from query to key alone.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/score_terms.h"

namespace regard {

class DistanceBias {
 public:
  /// Both may be null: nothing. They have been checked and are copied.
  DistanceBias(const Alibi* alibi, const T5Bias* t5);

  /// Other numbers in T5's table, of the same shape, directions and distances.
  void set_t5(const T5Bias& t5);

  bool empty() const noexcept { return slopes_.empty() && table_.empty(); }

  /// The bias of a pair in natural units: alibi + t5 in f32, distance = key - query.
  float value(int head, int64_t distance) const noexcept;

  /// out[i] = value(head, first + i).
  void fill(int head, int64_t first, int64_t count, float* out) const noexcept;

 private:
  float alibi(int head, int64_t distance) const noexcept {
    const auto size = static_cast<double>(distance < 0 ? -distance : distance);
    return static_cast<float>(-static_cast<double>(slopes_[static_cast<size_t>(head)]) * size);
  }
  // Beyond these ends T5's buckets do not change any more.
  float t5(int head, int64_t distance) const noexcept {
    const int64_t at = distance < -reach_ ? -reach_ : distance > reach_ ? reach_ : distance;
    return table_[static_cast<size_t>(head * (2 * reach_ + 1) + at + reach_)];
  }

  std::vector<float> slopes_;  // by head
  std::vector<float> table_;   // [head][2 reach + 1]: T5's number for each distance
  int64_t reach_ = 0;
};

}  // namespace regard
