#include "nn/cross_attention.h"

#include <array>
#include <utility>

#include "base/check.h"

namespace regard::nn {
namespace {

AttentionLayerConfig of_sources(AttentionLayerConfig config) {
  config.mask = Mask::full();
  config.alibi_slopes.clear();
  config.t5_table.clear();
  config.xl = {};
  return completed(std::move(config));
}

}  // namespace

CrossAttention::CrossAttention(AttentionLayerConfig config, CrossAttentionWeights weights)
    : config_(of_sources(std::move(config))), weights_(std::move(weights)), plan_(config_.mask, {}, 1, config_.num_q_heads) {
  const int64_t q = config_.num_q_heads * config_.head_dim, kv = config_.num_kv_heads * config_.head_dim;
  const auto fits = [](const Linear& layer, const char* name, int64_t out, int64_t in) {
    require(layer.out() == out && layer.in() == in, "[CrossAttention] the {} projection is {} x {}; expected {} x {}", name, layer.out(), layer.in(), out, in);
  };
  fits(weights_.query, "query", q, config_.hidden_size);
  fits(weights_.key, "key", kv, config_.hidden_size);
  fits(weights_.value, "value", kv, config_.hidden_size);
  fits(weights_.output, "output", config_.hidden_size, q);
}

void CrossAttention::remember(const Pass& pass, const float* encoded, KvCache& cache) const {
  const int64_t rows = pass.rows, width = config_.num_kv_heads * config_.head_dim;
  float* k = pass.scratch.get(Scratch::kKey, rows * width);
  float* v = pass.scratch.get(Scratch::kValue, rows * width);
  const std::array<LinearOutput, 2> outputs = {LinearOutput{&weights_.key, {k, {rows, width}}}, LinearOutput{&weights_.value, {v, {rows, width}}}};
  forward_many(pass.pool, {encoded, {rows, config_.hidden_size}}, outputs, pass.stop);
  const KvAppend append{&cache, KvRows{k, width, config_.head_dim, v, width, config_.head_dim}, rows};
  append_all(&append, 1, pass.pool);
}

void CrossAttention::forward(const Pass& pass, const float* x, std::span<const SequenceRows> sequences, float* y) const {
  const int64_t rows = pass.rows, hidden = config_.hidden_size, width = config_.num_q_heads * config_.head_dim;
  float* q = pass.scratch.get(Scratch::kQuery, rows * width);
  weights_.query.forward(pass.pool, {x, {rows, hidden}}, {q, {rows, width}}, pass.stop);
  std::vector<SequenceQueries> queries;
  for (const SequenceRows& s : sequences) {
    require(s.source != nullptr, "[CrossAttention] a sequence has no source to look at");
    queries.push_back(queries_of(s, config_, *s.source, q, width));
  }
  attend_sequences(queries, shape_of(config_), plan_, pass.scratch.attention, pass.pool, pass.stop);
  weights_.output.forward(pass.pool, {q, {rows, width}}, {y, {rows, hidden}}, pass.stop);
}

}  // namespace regard::nn
