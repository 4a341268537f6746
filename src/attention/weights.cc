// Weights on demand: rebuilt for a rectangle from q, k and lse, with the scores that the kernels compute.
#include <algorithm>
#include <cmath>

#include "attention/call.h"
#include "attention/row_block.h"
#include "attention/score_terms.h"
#include "attention/tensor_check.h"
#include "base/check.h"
#include "base/math.h"
#include "regard/attention.h"
#include "runtime/thread_pool.h"

namespace regard {

using kernels::AttentionTile;
using kernels::kMaxBlockRows;
using kernels::kTileKeys;

namespace {

constexpr std::string_view kName = "attention_weights";

// One call: item = (batch row, KV head, block of rows). The queries and keys of the sequences are those of the
// rectangle.
struct WeightsCall {
  const std::vector<SequenceQueries>& sequences;
  const std::vector<PackSource>& sources;
  const AttentionShape& shape;
  const MaskPlan& plan;
  const TensorView<const float>& lse;
  const TensorView<float>& weights;
  int64_t first_query;
  Workspace& workspace;
  int64_t blocks;
  bool after_dropout;
  const StopToken* stop;

  struct Scratch {
    RowScratch rows;
    TermScratch terms;
    float *high, *low, *tile;
    int64_t* column;  // of the rectangle, for each key of a tile; -1: none
    static Scratch carve(Carver& carver, const AttentionShape& shape) {
      return {RowScratch::carve(carver, shape.head_dim, kernels::kLanes),
              shape.terms == nullptr ? TermScratch{} : shape.terms->carve(carver), carver.take<float>(kMaxBlockRows),
              carver.take<float>(kMaxBlockRows), carver.take<float>(size_t{kMaxBlockRows} * kTileKeys),
              carver.take<int64_t>(kTileKeys)};
    }
  };

  float* row(const RowBlock& block, int64_t b, int r) const noexcept {
    return weights.at(b, block.head(r), block.token(r));
  }

  void operator()(int64_t item, int thread) const {
    if (stop != nullptr && stop->stop_requested()) return;
    const int group = shape.num_q_heads / shape.num_kv_heads;
    const int64_t b = item / (blocks * shape.num_kv_heads), first_row = item % blocks * kMaxBlockRows;
    const int kv_head = static_cast<int>(item / blocks % shape.num_kv_heads);
    const SequenceQueries& s = sequences[static_cast<size_t>(b)];
    const int rows = static_cast<int>(std::min<int64_t>(kMaxBlockRows, s.tokens * group - first_row));
    Carver carver(workspace.arena(thread));
    const Scratch scratch = Scratch::carve(carver, shape);
    RowBlock block(s, shape, plan, kv_head, first_row, rows, scratch.rows);
    const auto factor = static_cast<float>(shape.scale * math::kLog2e);
    block.load_queries(factor);
    if (shape.terms != nullptr) shape.terms->begin(s, block, factor, scratch.terms, scratch.rows.q);
    for (int r = 0; r < rows; ++r) {
      // lse in units of log2, in two parts so that no more than its own rounding is lost.
      const double lse2 = static_cast<double>(*lse.at(b, block.head(r), first_query + block.token(r))) * math::kLog2e;
      scratch.high[r] = static_cast<float>(lse2);
      scratch.low[r] =
          std::isfinite(scratch.high[r]) ? static_cast<float>(lse2 - static_cast<double>(scratch.high[r])) : 0.0f;
      float* out = row(block, b, r);
      for (int64_t j = 0; j < weights.shape[3]; ++j) out[j * weights.strides[3]] = 0.0f;
    }
    const TileRange tiles = tile_range(s, shape, plan, kv_head, first_row, rows);
    AttentionTile tile{};
    tile.q = scratch.rows.q;
    tile.rows = rows;
    tile.head_dim = shape.head_dim;
    tile.softcap = static_cast<float>(shape.softcap * math::kLog2e);
    tile.scores = scratch.rows.scores;
    for (int64_t t = tiles.begin; t < tiles.end; ++t) {
      if (!block.lower(t, tile)) continue;
      if (shape.terms != nullptr) shape.terms->lower(static_cast<size_t>(b), s, block, t, scratch.terms, tile);
      kernels::kernels().attention->weights(tile, scratch.high, scratch.low, scratch.tile);
      if (after_dropout) drop(tile, shape.terms->keep_scale(), scratch.tile);
      locate(sources[static_cast<size_t>(b)], s.keys.tile_id(t) * kTileKeys, scratch.column);
      for (int r = 0; r < rows; ++r)
        for (int j = 0; j < kTileKeys; ++j)
          if (scratch.column[j] >= 0)
            row(block, b, r)[scratch.column[j] * weights.strides[3]] = scratch.tile[r * kTileKeys + j];
    }
  }

  static void drop(const AttentionTile& tile, float keep_scale, float* weights) noexcept {
    for (int r = 0; r < tile.rows; ++r)
      for (int j = 0; j < kTileKeys; ++j, ++weights)
        *weights = *weights != 0.0f && (tile.keep[r][j / 64] >> (j % 64) & 1) != 0 ? *weights * keep_scale : 0.0f;
  }

  // Which key of the rectangle stands at each position of a tile.
  static void locate(const PackSource& source, int64_t base, int64_t* column) noexcept {
    std::fill_n(column, kTileKeys, int64_t{-1});
    if (source.positions == nullptr) {
      const int64_t begin = std::max(base, source.k_begin),
                    end = std::min(base + kTileKeys, source.k_begin + source.kv_len);
      for (int64_t p = begin; p < end; ++p) column[p - base] = p - source.k_begin;
      return;
    }
    for (int64_t j = 0; j < source.kv_len; ++j)
      if (const int64_t p = source.positions[j]; p >= base && p - base < kTileKeys) column[p - base] = j;
  }
};

}  // namespace

void attention_weights(TensorView<const float> q, TensorView<const float> k, TensorView<const float> lse,
                       const Mask& mask, const AttentionOptions& options, Interval queries, Interval keys,
                       TensorView<float> weights) {
  std::vector<ByteRange> ranges = {check_tensor(kName, "q", q, 4), check_tensor(kName, "k", k, 4),
                                   check_tensor(kName, "lse", lse, 3)};
  const CallSizes sizes = check_sizes(kName, q, k, nullptr);
  AttentionShape shape = check_numbers(kName, sizes, options);
  refuse_packed(kName, options);
  ScoreTerms terms(kName, sizes, options, shape.scale);
  ranges.insert(ranges.end(), terms.ranges().begin(), terms.ranges().end());
  require(lse.shape[0] == sizes.batch && lse.shape[1] == sizes.num_q_heads && lse.shape[2] == sizes.q_len,
          "[attention_weights] lse has shape {}, expected [{}, {}, {}]", shape_text(lse), sizes.batch,
          sizes.num_q_heads, sizes.q_len);
  require(queries.begin >= 0 && queries.begin <= queries.end && queries.end <= sizes.q_len,
          "[attention_weights] queries {} to {} are not within 0 to {}", queries.begin, queries.end, sizes.q_len);
  require(keys.begin >= 0 && keys.begin <= keys.end && keys.end <= sizes.kv_len,
          "[attention_weights] keys {} to {} are not within 0 to {}", keys.begin, keys.end, sizes.kv_len);
  const int64_t rows = queries.end - queries.begin, columns = keys.end - keys.begin;
  const ByteRange range = check_tensor(kName, "weights", weights, 4);
  require(weights.shape[0] == sizes.batch && weights.shape[1] == sizes.num_q_heads && weights.shape[2] == rows &&
              weights.shape[3] == columns,
          "[attention_weights] weights has shape {}, expected [{}, {}, {}, {}]", shape_text(weights), sizes.batch,
          sizes.num_q_heads, rows, columns);
  check_no_self_overlap(kName, "weights", weights);
  for (const ByteRange& input : ranges)
    require(!range.overlaps(input),
            "[attention_weights] the memory of weights overlaps that of an input: give it its own");
  const CallPositions positions(kName, sizes, mask, options);
  if (weights.size() == 0) return;
  const MaskPlan plan(mask, options.limits, sizes.batch, sizes.num_q_heads);
  positions.check_queries(plan);

  AlignedBuffer<float> q_copy, k_copy;
  q = with_dense_rows(q, q_copy);
  k = with_dense_rows(k, k_copy);
  std::vector<PackSource> sources;
  for (int64_t b = 0; b < sizes.batch; ++b) {
    PackSource source;
    source.rows = {.k = k.at(b, 0, keys.begin), .k_token_stride = k.strides[2], .k_head_stride = k.strides[1]};
    source.kv_len = columns;
    source.k_begin = positions.k_begin(b) + keys.begin;
    source.positions = positions.keys(b) == nullptr ? nullptr : positions.keys(b) + keys.begin;
    sources.push_back(source);
  }
  ThreadPool& pool = default_pool();
  const PackedKv packed({.num_kv_heads = shape.num_kv_heads, .head_dim = shape.head_dim, .value_dim = 0}, sources,
                        pool);
  std::vector<SequenceQueries> sequences;
  for (int64_t b = 0; b < sizes.batch; ++b) {
    SequenceQueries s;
    s.q = q.at(b, 0, queries.begin);
    s.q_token_stride = q.strides[2];
    s.q_head_stride = q.strides[1];
    s.tokens = rows;
    s.first_position = positions.q_begin(b) + queries.begin;
    s.positions = positions.queries(b) == nullptr ? nullptr : positions.queries(b) + queries.begin;
    s.keys = packed.view(b);
    s.batch_row = b;
    sequences.push_back(s);
    const auto from = [](const int64_t* list, int64_t first) { return list == nullptr ? nullptr : list + first; };
    terms.place(s, sources[static_cast<size_t>(b)],
                {.q_encoding = from(positions.query_encodings(b), queries.begin),
                 .k_encoding = from(positions.key_encodings(b), keys.begin),
                 .first_query = queries.begin,
                 .first_key = keys.begin});
  }
  if (!terms.empty()) shape.terms = &terms;
  Workspace workspace;
  Carver measure(nullptr);
  WeightsCall::Scratch::carve(measure, shape);
  workspace.reserve(pool.size(), measure.used());
  const int64_t blocks = (rows * (sizes.num_q_heads / sizes.num_kv_heads) + kMaxBlockRows - 1) / kMaxBlockRows;
  WeightsCall call{sequences, sources, shape, plan, lse, weights, queries.begin, workspace, blocks,
                   terms.drops() && options.dropout->weights == Dropout::Weights::kAfter, options.stop};
  pool.for_each(sizes.batch * sizes.num_kv_heads * blocks, call, options.stop);
  terms.check_distances(kName);
}

}  // namespace regard
