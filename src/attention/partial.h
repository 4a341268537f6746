// The memory of a PartialAttention (regard/attention_merge.h): rows as the kernels keep them between two tiles.
#pragma once

#include <string_view>

#include "attention/attention.h"
#include "attention/call.h"
#include "base/aligned_buffer.h"
#include "regard/attention_merge.h"

namespace regard {

struct PartialStore {
  int64_t batch = 0, num_q_heads = 0, q_len = 0, value_dim = 0;
  AlignedBuffer<float> m, l, o;  // [batch][head][query], o with rows of padded_dim(value_dim)

  int64_t num_rows() const noexcept { return batch * num_q_heads * q_len; }
  int padded() const noexcept { return kernels::padded_dim(static_cast<int>(value_dim)); }

  /// Those of batch row b, from its query `query` on.
  PartialRows rows(int64_t b, int64_t query) noexcept {
    const int64_t first = b * num_q_heads * q_len + query;
    return {m.data() + first, l.data() + first, o.data() + first * padded(), q_len};
  }

  /// Errors: kInvalidArgument when a call has other sizes.
  void check(std::string_view function, const CallSizes& sizes) const;
};

struct PartialAttention::Impl {
  PartialStore store;
};

}  // namespace regard
