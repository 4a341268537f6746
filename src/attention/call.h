// A public call made ready: its numbers checked, its slots given positions, its mask compiled. attend.cc and weights.cc
// start here.
#pragma once

#include <string_view>
#include <vector>

#include "attention/attention.h"
#include "attention/packed_kv.h"
#include "mask/plan.h"
#include "regard/attention.h"

namespace regard {

struct CallSizes {
  int64_t batch = 0, num_q_heads = 0, num_kv_heads = 0, q_len = 0, kv_len = 0, head_dim = 0, value_dim = 0;
};

/// Errors: kInvalidArgument, kUnsupported for sizes that do not go together.
CallSizes check_sizes(std::string_view function, const TensorView<const float>& q, const TensorView<const float>& k,
                      const TensorView<const float>* v);

/// Scale and soft-cap of a call. Errors: kInvalidArgument.
AttentionShape check_numbers(std::string_view function, const CallSizes& sizes, const AttentionOptions& options);

/// Where the slots of each batch row stand.
class CallPositions {
 public:
  /// Errors: kInvalidArgument for lists of another size, positions out of range, and a placement that is not stated
  /// although the mask needs it.
  CallPositions(std::string_view function, const CallSizes& sizes, const Mask& mask, const AttentionOptions& options);

  int64_t q_begin(int64_t b) const noexcept { return q_begin_[static_cast<size_t>(b)]; }
  int64_t k_begin(int64_t b) const noexcept { return k_begin_[static_cast<size_t>(b)]; }
  /// [q_len] or [kv_len] positions, or null when they follow q_begin or k_begin.
  const int64_t* queries(int64_t b) const noexcept {
    return q_positions_.empty() ? nullptr : q_positions_.data() + b * sizes_.q_len;
  }
  const int64_t* keys(int64_t b) const noexcept {
    return k_positions_.empty() ? nullptr : k_positions_.data() + b * sizes_.kv_len;
  }

  /// [q_len] or [kv_len] encoding positions, or null when they are the positions.
  const int64_t* query_encodings(int64_t b) const noexcept {
    return q_encodings_.empty() ? nullptr : q_encodings_.data() + b * sizes_.q_len;
  }
  const int64_t* key_encodings(int64_t b) const noexcept {
    return k_encodings_.empty() ? nullptr : k_encodings_.data() + b * sizes_.kv_len;
  }

  /// Errors: kInvalidArgument when a query stands beyond a list of the mask.
  void check_queries(const MaskPlan& plan) const;

 private:
  CallSizes sizes_;
  std::vector<int64_t> q_begin_, k_begin_;
  std::vector<int64_t> q_positions_, k_positions_, q_encodings_, k_encodings_;
};

}  // namespace regard
