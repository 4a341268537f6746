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

/// Whether a function takes an arithmetic other than f32.
enum class Arithmetics { kF32, kAll };

/// Scale, soft-cap and arithmetic of a call. Errors: kInvalidArgument; kUnsupported for an arithmetic that the function,
/// the instruction set in use or another option does not allow.
AttentionShape check_numbers(std::string_view function, const CallSizes& sizes, const AttentionOptions& options,
                             Arithmetics taken = Arithmetics::kF32);

/// Which slots of the tensors a batch row has: all of its own entry on the batch axis, or a stretch of packed ones.
class CallRows {
 public:
  /// Errors: kInvalidArgument for offsets that do not fit the tensors.
  CallRows(std::string_view function, const CallSizes& sizes, const AttentionOptions& options);

  bool packed() const noexcept { return packed_; }
  int64_t batch() const noexcept { return batch_; }
  /// On the tensors' batch axis.
  int64_t entry(int64_t b) const noexcept { return packed_ ? 0 : b; }
  int64_t first_query(int64_t b) const noexcept { return packed_ ? q_offsets_[static_cast<size_t>(b)] : 0; }
  int64_t first_key(int64_t b) const noexcept { return packed_ ? k_offsets_[static_cast<size_t>(b)] : 0; }
  int64_t q_len(int64_t b) const noexcept { return packed_ ? first_query(b + 1) - first_query(b) : sizes_.q_len; }
  int64_t kv_len(int64_t b) const noexcept { return packed_ ? first_key(b + 1) - first_key(b) : sizes_.kv_len; }
  /// The batch row of a query of an entry; -1 behind the last sequence.
  int64_t row_of(int64_t entry, int64_t query) const noexcept;
  /// Queries behind the last sequence.
  int64_t slack() const noexcept { return packed_ ? sizes_.q_len - q_offsets_.back() : 0; }

  /// The sizes with a batch row for each sequence, of the longest ones.
  CallSizes widest() const noexcept;

 private:
  CallSizes sizes_;
  bool packed_;
  int64_t batch_;
  std::vector<int64_t> q_offsets_, k_offsets_;
};

/// Where the slots of each batch row stand.
class CallPositions {
 public:
  /// Errors: kInvalidArgument for lists of another size, positions out of range, and a placement that is not stated
  /// although the mask needs it.
  CallPositions(std::string_view function, const CallSizes& sizes, const Mask& mask, const AttentionOptions& options)
      : CallPositions(function, sizes, CallRows(function, sizes, {}), mask, options) {}
  CallPositions(std::string_view function, const CallSizes& sizes, const CallRows& rows, const Mask& mask,
                const AttentionOptions& options);

  int64_t q_begin(int64_t b) const noexcept { return q_begin_[static_cast<size_t>(b)]; }
  int64_t k_begin(int64_t b) const noexcept { return k_begin_[static_cast<size_t>(b)]; }
  /// [q_len] or [kv_len] positions, or null when they follow q_begin or k_begin.
  const int64_t* queries(int64_t b) const noexcept {
    return q_positions_.empty() ? nullptr : q_positions_.data() + first_query(b);
  }
  const int64_t* keys(int64_t b) const noexcept {
    return k_positions_.empty() ? nullptr : k_positions_.data() + first_key(b);
  }

  /// [q_len] or [kv_len] encoding positions, or null when they are the positions.
  const int64_t* query_encodings(int64_t b) const noexcept {
    return q_encodings_.empty() ? nullptr : q_encodings_.data() + first_query(b);
  }
  const int64_t* key_encodings(int64_t b) const noexcept {
    return k_encodings_.empty() ? nullptr : k_encodings_.data() + first_key(b);
  }

  /// Errors: kInvalidArgument when a query stands beyond a list of the mask.
  void check_queries(const MaskPlan& plan) const;

 private:
  int64_t first_query(int64_t b) const noexcept { return rows_.entry(b) * sizes_.q_len + rows_.first_query(b); }
  int64_t first_key(int64_t b) const noexcept { return rows_.entry(b) * sizes_.kv_len + rows_.first_key(b); }

  CallSizes sizes_;
  CallRows rows_;
  std::vector<int64_t> q_begin_, k_begin_;
  std::vector<int64_t> q_positions_, k_positions_, q_encodings_, k_encodings_;
};

}  // namespace regard
