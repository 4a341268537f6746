// Parts of a Problem as sequences that look into caches.
#pragma once

#include "attention/attention.h"
#include "attention/kv_store.h"
#include "attention/testing.h"

namespace regard::testing_attention {

inline AttentionShape shape_of(const Problem& p) {
  return {static_cast<int>(p.num_q_heads),
          static_cast<int>(p.num_kv_heads),
          static_cast<int>(p.d),
          static_cast<int>(p.dv),
          p.scale,
          p.softcap};
}

inline KvRows rows_of(const Problem& p, int64_t b, int64_t first) {
  return {.k = p.key(b, 0, first),
          .k_token_stride = p.d,
          .k_head_stride = p.kv_len * p.d,
          .v = p.value(b, 0, first),
          .v_token_stride = p.dv,
          .v_head_stride = p.kv_len * p.dv};
}

// Queries [first, first + tokens) of batch row b; results go to their place in `result`.
inline SequenceQueries queries(const Problem& p, int64_t b, int64_t first, int64_t tokens, const KvStore& cache,
                               Result& result) {
  SequenceQueries s;
  s.q = p.query(b, 0, first);
  s.q_token_stride = p.d;
  s.q_head_stride = p.q_len * p.d;
  s.out = result.out.data() + (b * p.num_q_heads * p.q_len + first) * p.dv;
  s.out_token_stride = p.dv;
  s.out_head_stride = p.q_len * p.dv;
  s.lse = result.lse.data() + b * p.num_q_heads * p.q_len + first;
  s.lse_token_stride = 1;
  s.lse_head_stride = p.q_len;
  s.tokens = tokens;
  s.first_position = p.q_begin + first;
  s.keys = cache.view();
  s.batch_row = b;
  return s;
}

}  // namespace regard::testing_attention
