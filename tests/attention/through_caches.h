// A problem's tokens run through caches of any kind and type, as the tests of promise 4 do it.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "attention/caches.h"
#include "attention/sequences.h"
#include "runtime/thread_pool.h"

namespace regard::testing_attention {

inline KvGeometry geometry_of(const Problem& p, DType type = DType::kF32, int scale_block = 0) {
  return geometry(static_cast<int>(p.num_kv_heads), static_cast<int>(p.d), static_cast<int>(p.dv), type, scale_block);
}

// Appends the token behind the last one, all of its numbers `with`, and takes it back: the slots behind the end are no
// keys, whatever they hold. A ring that has wrapped has older keys there.
inline void poison(KvStore& cache, float with) {
  if (cache.begin() > 0 || cache.size() % kernels::kPanelKeys == 0) return;
  const KvGeometry& g = cache.geometry();
  const std::vector<float> row(static_cast<size_t>(std::max(g.head_dim, g.value_dim)), with);
  const int64_t size = cache.size(), last = (size / kernels::kPanelKeys + 1) * kernels::kPanelKeys;
  cache.append({.k = row.data(), .v = row.data()}, last - size);
  cache.truncate(size);
}

// Whole chunks of every batch row's tokens: appended, then attended to by their own queries.
inline Result through_caches(const Problem& p, const Mask& mask, const CacheKind& kind, int64_t chunk, ThreadPool& pool,
                             float poisoned = 0, DType type = DType::kF32, int scale_block = 0) {
  Result result(p);
  const MaskPlan plan(mask, {}, p.batch, p.num_q_heads);
  AttentionWorkspace workspace;
  std::vector<std::unique_ptr<KvStore>> caches;
  for (int64_t b = 0; b < p.batch; ++b) caches.push_back(kind.make(geometry_of(p, type, scale_block), p.kv_len, mask));
  for (int64_t at = 0; at < p.q_len; at += chunk) {
    const int64_t n = std::min(chunk, p.q_len - at);
    std::vector<KvAppend> appends;
    for (int64_t b = 0; b < p.batch; ++b)
      appends.push_back({caches[static_cast<size_t>(b)].get(), rows_of(p, b, at), n});
    append_all(appends.data(), p.batch, pool);
    std::vector<SequenceQueries> sequences;
    for (int64_t b = 0; b < p.batch; ++b) {
      KvStore& cache = *caches[static_cast<size_t>(b)];
      if (poisoned != 0) poison(cache, poisoned);
      sequences.push_back(queries(p, b, at, n, cache, result));
    }
    attend_sequences(sequences, shape_of(p), plan, workspace, pool);
  }
  return result;
}

}  // namespace regard::testing_attention
