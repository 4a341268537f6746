#include "nn/attention_layer.h"

#include <array>
#include <cmath>

#include "attention/score_terms.h"
#include "base/check.h"
#include "kernels/registry.h"
#include "nn/rows.h"

namespace regard::nn {

AttentionLayerConfig completed(AttentionLayerConfig c) {
  require(c.hidden_size > 0 && c.num_q_heads > 0 && c.num_kv_heads > 0, "[AttentionLayer] hidden size {}, {} query heads, {} key/value heads; expected at least 1 of each",
          c.hidden_size, c.num_q_heads, c.num_kv_heads);
  require(c.num_q_heads % c.num_kv_heads == 0, "[AttentionLayer] {} query heads cannot share {} key/value heads evenly", c.num_q_heads, c.num_kv_heads);
  if (c.head_dim == 0) {
    require(c.hidden_size % c.num_q_heads == 0, "[AttentionLayer] hidden size {} cannot be cut into {} heads evenly; state head_dim or change one of them",
            c.hidden_size, c.num_q_heads);
    c.head_dim = c.hidden_size / c.num_q_heads;
  }
  require(c.head_dim >= 1 && c.head_dim <= kernels::kMaxHeadDim, "[AttentionLayer] head_dim {}; expected 1 to {}", c.head_dim, kernels::kMaxHeadDim);
  require(std::isfinite(c.scale) && std::isfinite(c.softcap) && c.softcap >= 0, "[AttentionLayer] scale {} and softcap {}; expected finite numbers, softcap 0 or more",
          c.scale, c.softcap);
  if (c.scale == 0) c.scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
  const auto heads = static_cast<size_t>(c.num_q_heads);
  require(c.alibi_slopes.empty() || c.alibi_slopes.size() == heads, "[AttentionLayer] {} slopes for {} query heads", c.alibi_slopes.size(), heads);
  require(c.t5_table.size() % heads == 0, "[AttentionLayer] a table of {} biases for {} query heads", c.t5_table.size(), heads);
  const size_t q_width = heads * static_cast<size_t>(c.head_dim);
  require(c.xl.r.size() % q_width == 0 && (c.xl.r.empty() || (c.xl.u.size() == q_width && c.xl.v.size() == q_width)),
          "[AttentionLayer] Transformer-XL's u, v and r have {}, {} and {} numbers; expected {}, as many, and a multiple of it", c.xl.u.size(), c.xl.v.size(),
          c.xl.r.size(), q_width);
  return c;
}

AttentionShape shape_of(const AttentionLayerConfig& c) {
  const auto dim = static_cast<int>(c.head_dim);
  return {static_cast<int>(c.num_q_heads), static_cast<int>(c.num_kv_heads), dim, dim, static_cast<double>(c.scale), static_cast<double>(c.softcap)};
}

SequenceQueries queries_of(const SequenceRows& rows, const AttentionLayerConfig& config, const KvCache& keys, float* q, int64_t stride) {
  SequenceQueries queries;
  queries.q = queries.out = q + rows.first_row * stride;  // every query is read before its result is written
  queries.q_token_stride = queries.out_token_stride = stride;
  queries.q_head_stride = queries.out_head_stride = config.head_dim;
  queries.tokens = rows.rows;
  queries.first_position = rows.first_position;
  queries.keys = keys.view();
  return queries;
}

namespace {

// The biases of a layer for all sequences of a pass; keys are those of the caches, which stand at positions 0, 1, 2 ...
void place_terms(const AttentionLayerConfig& config, std::span<const SequenceQueries> queries, std::span<const SequenceRows> sequences,
                 double scale, std::optional<ScoreTerms>& terms) {
  const AttentionOptions options = attention_options(config);
  if (!options.alibi && !options.t5 && !options.xl) return;
  CallSizes sizes;
  sizes.batch = static_cast<int64_t>(queries.size());
  sizes.num_q_heads = config.num_q_heads;
  sizes.num_kv_heads = config.num_kv_heads;
  sizes.head_dim = sizes.value_dim = config.head_dim;
  terms.emplace("AttentionLayer", sizes, options, scale);
  for (size_t i = 0; i < queries.size(); ++i) {
    PackSource keys;
    keys.kv_len = sequences[i].cache->size();
    terms->place(queries[i], keys, {});
  }
}

}  // namespace

AttentionLayer::AttentionLayer(AttentionLayerConfig config, AttentionLayerWeights weights)
    : config_(completed(std::move(config))), weights_(std::move(weights)), plan_(config_.mask, {}, 1, config_.num_q_heads) {
  const int64_t q = config_.num_q_heads * config_.head_dim, kv = config_.num_kv_heads * config_.head_dim;
  const auto fits = [](const Linear& layer, const char* name, int64_t out, int64_t in) {
    require(layer.out() == out && layer.in() == in, "[AttentionLayer] the {} projection is {} x {}; expected {} x {}", name, layer.out(), layer.in(), out, in);
  };
  if (weights_.fused.out() > 0) {
    fits(weights_.fused, "fused", q + 2 * kv, config_.hidden_size);
  } else {
    fits(weights_.query, "query", q, config_.hidden_size);
    fits(weights_.key, "key", kv, config_.hidden_size);
    fits(weights_.value, "value", kv, config_.hidden_size);
  }
  fits(weights_.output, "output", config_.hidden_size, q);
  for (const auto* norm : {&weights_.query_norm, &weights_.key_norm})
    if (*norm) require((*norm)->config().size == config_.head_dim, "[AttentionLayer] a query or key norm has {} elements, a head {}", (*norm)->config().size, config_.head_dim);
}

void AttentionLayer::forward(const Pass& pass, const float* x, const RopeAngles& angles, std::span<const SequenceRows> sequences, float* y) const {
  const int64_t rows = pass.rows, hidden = config_.hidden_size, dim = config_.head_dim;
  const int64_t q_width = config_.num_q_heads * dim, kv_width = config_.num_kv_heads * dim;
  const bool fused = weights_.fused.out() > 0;
  // Row strides: the fused projection leaves q, k and v of a row side by side.
  const int64_t q_stride = fused ? q_width + 2 * kv_width : q_width, kv_stride = fused ? q_stride : kv_width;
  float* q = pass.scratch.get(Scratch::kQuery, rows * q_stride);
  float* k = fused ? q + q_width : pass.scratch.get(Scratch::kKey, rows * kv_width);
  float* v = fused ? k + kv_width : pass.scratch.get(Scratch::kValue, rows * kv_width);
  const TensorView<const float> input(x, {rows, hidden});
  if (fused) {
    weights_.fused.forward(pass.pool, input, {q, {rows, q_stride}}, pass.stop);
  } else {
    const std::array<LinearOutput, 3> outputs = {LinearOutput{&weights_.query, {q, {rows, q_width}}}, LinearOutput{&weights_.key, {k, {rows, kv_width}}},
                                                 LinearOutput{&weights_.value, {v, {rows, kv_width}}}};
    forward_many(pass.pool, input, outputs, pass.stop);
  }

  const auto* kernel = kernels::kernels().elementwise;
  const auto rotate = config_.rope_order == RopeOrder::kHalfSplit ? kernel->rotate_half : kernel->rotate_interleaved;
  const auto prepare = [&](float* head, const std::optional<Norm>& norm, int64_t row) {
    if (norm) norm->row(head, head);
    if (angles.half > 0) rotate(head, angles.cos + row * angles.half, angles.sin + row * angles.half, angles.half);
  };
  for_each_row(pass.pool, rows, 2 * (q_width + kv_width), [&](int64_t r) {
    for (int64_t h = 0; h < config_.num_q_heads; ++h) prepare(q + r * q_stride + h * dim, weights_.query_norm, r);
    for (int64_t h = 0; h < config_.num_kv_heads; ++h) prepare(k + r * kv_stride + h * dim, weights_.key_norm, r);
  });

  std::vector<KvAppend> appends;
  std::vector<SequenceQueries> queries;
  for (const SequenceRows& s : sequences) {
    const float *keys = k + s.first_row * kv_stride, *values = v + s.first_row * kv_stride;
    appends.push_back({s.cache, KvRows{keys, kv_stride, dim, values, kv_stride, dim}, s.rows});
  }
  append_all(appends.data(), static_cast<int64_t>(appends.size()), pass.pool);
  for (const SequenceRows& s : sequences) queries.push_back(queries_of(s, config_, *s.cache, q, q_stride));
  AttentionShape shape = shape_of(config_);
  std::optional<ScoreTerms> terms;
  place_terms(config_, queries, sequences, shape.scale, terms);
  if (terms) shape.terms = &*terms;
  std::optional<AttentionLooks> looks;
  if (pass.observer != nullptr) looks.emplace(config_, queries);
  attend_sequences(queries, shape, plan_, pass.scratch.attention, pass.pool, pass.stop);
  if (looks) looks->show(*pass.observer);

  TensorView<const float> context(q, {rows, q_width});
  context.strides[0] = q_stride;
  weights_.output.forward(pass.pool, context, {y, {rows, hidden}}, pass.stop);
}

}  // namespace regard::nn
