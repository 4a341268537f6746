// Weights on demand: whole rectangles, the largest of each row, sums of columns. How they are rebuilt is in
// weight_tiles.h; statistics of rows are in row_statistics.cc.
#include <algorithm>

#include "attention/weight_tiles.h"
#include "base/check.h"
#include "regard/attention_weights.h"

namespace regard {

using kernels::kTileKeys;

void attention_weights(TensorView<const float> q, TensorView<const float> k, TensorView<const float> lse,
                       const Mask& mask, const AttentionOptions& options, Interval queries, Interval keys,
                       TensorView<float> weights) {
  WeightTiles tiles("attention_weights", {q, k, lse, mask, options, queries, keys});
  const CallSizes& sizes = tiles.sizes();
  tiles.check_output("weights", weights, {sizes.batch, sizes.num_q_heads, tiles.rows(), tiles.columns()});
  if (weights.size() == 0) return;
  tiles.prepare(0);
  tiles.for_each_block([&](WeightTiles::Block& block) {
    const int64_t stride = weights.strides[3];
    const auto row = [&](int r) { return weights.at(block.entry(), block.head(r), block.query(r)); };
    for (int r = 0; r < block.rows(); ++r) {
      float* out = row(r);
      for (int64_t j = 0; j < weights.shape[3]; ++j) out[j * stride] = 0.0f;
    }
    while (block.next())
      for (int r = 0; r < block.rows(); ++r) {
        const float* from = block.weights(r);
        float* out = row(r);
        for (int j = 0; j < kTileKeys; ++j)
          if (const int64_t column = block.column(j); column >= 0) out[column * stride] = from[j];
      }
  });
}

void attention_column_sums(TensorView<const float> q, TensorView<const float> k, TensorView<const float> lse,
                           const Mask& mask, const AttentionOptions& options, Interval queries,
                           TensorView<float> sums) {
  WeightTiles tiles("attention_column_sums", {q, k, lse, mask, options, queries, {0, k.rank == 4 ? k.shape[2] : 0}});
  const CallSizes& sizes = tiles.sizes();
  tiles.check_output("sums", sums, {sizes.batch, sizes.num_q_heads, sizes.kv_len});
  for (int64_t b = 0; b < sizes.batch; ++b)
    for (int64_t h = 0; h < sizes.num_q_heads; ++h)
      for (int64_t j = 0; j < sizes.kv_len; ++j) *sums.at(b, h, j) = 0.0f;
  if (sums.size() == 0 || tiles.rows() == 0) return;
  const int64_t group = sizes.num_q_heads / sizes.num_kv_heads;
  const auto size = static_cast<size_t>(group * kTileKeys);
  tiles.prepare(size * sizeof(double));
  // One thread adds up all rows of a tile, in f64 and in their order.
  const auto total = [](const WeightTiles::Block& block) { return reinterpret_cast<double*>(block.extra()); };
  tiles.for_each_tile([&](const WeightTiles::Block& block, int) { std::fill_n(total(block), size, 0.0); },
                      [&](const WeightTiles::Block& block) {
                        for (int r = 0; r < block.rows(); ++r) {
                          double* into = total(block) + block.head(r) % group * kTileKeys;
                          const float* from = block.weights(r);
                          for (int j = 0; j < kTileKeys; ++j) into[j] += static_cast<double>(from[j]);
                        }
                      },
                      [&](const WeightTiles::Block& block, int kv_head) {
                        for (int64_t h = 0; h < group; ++h)
                          for (int j = 0; j < kTileKeys; ++j)
                            if (const int64_t column = block.column(j); column >= 0)
                              *sums.at(block.entry(), kv_head * group + h, column) =
                                  static_cast<float>(total(block)[h * kTileKeys + j]);
                      });
}

namespace {

struct Found {
  float weight;
  int64_t key;
};
// The one that stands first in a row's list.
bool before(const Found& a, const Found& b) { return a.weight > b.weight || (a.weight == b.weight && a.key < b.key); }

// The best `capacity` of what it is offered: a heap whose first element is the one that goes next.
void offer(Found* heap, int64_t& count, int64_t capacity, const Found& found) {
  if (count == capacity) {
    if (!before(found, heap[0])) return;
    std::pop_heap(heap, heap + count, before);
    heap[count - 1] = found;
  } else {
    heap[count++] = found;
  }
  std::push_heap(heap, heap + count, before);
}

}  // namespace

void attention_top_keys(TensorView<const float> q, TensorView<const float> k, TensorView<const float> lse,
                        const Mask& mask, const AttentionOptions& options, Interval queries, TensorView<int64_t> keys,
                        TensorView<float> weights) {
  WeightTiles tiles("attention_top_keys", {q, k, lse, mask, options, queries, {0, k.rank == 4 ? k.shape[2] : 0}});
  const CallSizes& sizes = tiles.sizes();
  const int64_t n = keys.rank == 4 ? keys.shape[3] : 0;
  tiles.check_output("keys", keys, {sizes.batch, sizes.num_q_heads, tiles.rows(), n});
  tiles.check_output("weights", weights, {sizes.batch, sizes.num_q_heads, tiles.rows(), n});
  if (keys.size() == 0) return;
  const int64_t capacity = std::min(n, sizes.kv_len);
  const int64_t rows =
      std::min<int64_t>(kernels::kBlockRows, tiles.rows() * (sizes.num_q_heads / sizes.num_kv_heads));
  tiles.prepare(static_cast<size_t>(rows * capacity) * sizeof(Found));
  tiles.for_each_block([&](WeightTiles::Block& block) {
    Found* found = reinterpret_cast<Found*>(block.extra());
    int64_t count[kernels::kBlockRows] = {};
    while (block.next())
      for (int r = 0; r < block.rows(); ++r) {
        const float* from = block.weights(r);
        for (int j = 0; j < kTileKeys; ++j)
          if (from[j] > 0) offer(found + r * capacity, count[r], capacity, {from[j], block.column(j)});
      }
    for (int r = 0; r < block.rows(); ++r) {
      Found* heap = found + r * capacity;
      std::sort_heap(heap, heap + count[r], before);
      for (int64_t i = 0; i < n; ++i) {
        const Found one = i < count[r] ? heap[i] : Found{0.0f, -1};
        *keys.at(block.entry(), block.head(r), block.query(r), i) = one.key;
        *weights.at(block.entry(), block.head(r), block.query(r), i) = one.weight;
      }
    }
  });
}

}  // namespace regard
