// Attention in float: what the public attend() and attend_backward() do, on a given pool, over rows that lie side by side.
#include "attention/backward.h"
#include "attention/score_terms.h"
#include "nn/training/attention_core.h"
#include "regard/attention_backward.h"

namespace regard::nn::training {
namespace {

// [batch, heads, seq, head_dim] over rows of heads.
template <class T>
TensorView<T> as_tensor(HeadRows<T> rows, const Sequences& sequences, int64_t heads, int64_t dim) {
  TensorView<T> view(rows.data, {sequences.batch, heads, sequences.seq, dim});
  view.strides = {sequences.seq * rows.row_stride, dim, rows.row_stride, 1};
  return view;
}

TensorView<const int64_t> positions(const Sequences& sequences, std::vector<int64_t>& memory) {
  if (sequences.encoding_positions.empty()) return {};
  memory.assign(sequences.encoding_positions.begin(), sequences.encoding_positions.end());
  return {memory.data(), {sequences.batch, sequences.seq}};
}

// The options of a call and the memory they point into.
struct Options {
  AttentionOptions options;
  std::vector<int64_t> q_encodings, k_encodings;

  Options(const Context<float>& context, const AttentionCoreConfig& config, const CoreCall<float>& call) {
    const Sequences &queries = *call.queries, &keys = *call.keys;
    options.scale = config.scale;
    options.stop = context.stop;
    options.query_lengths.assign(queries.lengths.begin(), queries.lengths.end());
    options.limits.key_lengths.assign(keys.lengths.begin(), keys.lengths.end());
    if (call.queries == call.keys && !queries.documents.empty()) {
      const MaskList ids = MaskList::per_row({queries.documents.begin(), queries.documents.end()}, queries.batch, queries.seq);
      options.limits.documents = DocumentLimit{ids, ids};
    }
    if (context.dropout.on && call.dropout > 0)
      options.dropout = Dropout{.rate = call.dropout, .seed = call.dropout_seed, .first_batch_row = context.dropout.first_sequence};
    if (!config.alibi_slopes.empty()) options.alibi = Alibi{config.alibi_slopes};
    if (call.terms.t5_table != nullptr)
      options.t5 = T5Bias{{call.terms.t5_table, {config.t5_buckets, config.num_q_heads}}, config.t5_direction, config.t5_max_distance};
    if (call.terms.xl_r != nullptr) {
      TransformerXl xl;
      xl.u = {call.terms.xl_u, {config.num_q_heads, config.head_dim}};
      xl.v = {call.terms.xl_v, {config.num_q_heads, config.head_dim}};
      xl.r = {call.terms.xl_r, {call.terms.distances, config.num_q_heads, config.head_dim}};
      xl.first_distance = call.terms.first_distance;
      options.xl = xl;
    }
    if (options.alibi || options.t5 || options.xl) {
      options.q_encoding_positions = positions(queries, q_encodings);
      options.k_encoding_positions = positions(keys, k_encodings);
    }
  }
};

// A call, checked and planned.
struct Call {
  static constexpr std::string_view kName = "AttentionCore";
  CallSizes sizes;
  AttentionShape shape;
  CallRows rows;
  CallPositions positions;
  ScoreTerms terms;
  MaskPlan plan;

  Call(const AttentionCoreConfig& config, const CoreCall<float>& call, const AttentionOptions& options)
      : sizes{call.queries->batch, config.num_q_heads, config.num_kv_heads, call.queries->seq, call.keys->seq, config.head_dim, config.head_dim},
        shape(check_numbers(kName, sizes, options)),
        rows(kName, sizes, options),
        positions(kName, sizes, rows, config.mask, options),
        terms(kName, sizes, options, config.scale),
        plan(config.mask, options.limits, sizes.batch, config.num_q_heads) {
    positions.check_queries(plan);
  }
};

struct TermSizes {
  int64_t t5 = 0, uv = 0, r = 0;
  TermSizes(const AttentionCoreConfig& config, const CoreTerms<const float>& terms) {
    if (terms.t5_table != nullptr) t5 = config.t5_buckets * config.num_q_heads;
    if (terms.xl_r == nullptr) return;
    uv = config.num_q_heads * config.head_dim;
    r = terms.distances * uv;
  }
};

void add(const float* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

}  // namespace

template <>
void AttentionCore<float>::forward(const Context<float>& context, const CoreCall<float>& call, HeadRows<float> out, float* lse) const {
  const int64_t batch = call.queries->batch, seq = call.queries->seq, kv_seq = call.keys->seq, dim = config_.head_dim;
  if (batch == 0 || seq == 0) return;
  const Options o(context, config_, call);
  Call c(config_, call, o.options);
  std::vector<PackSource> sources;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t row = b * kv_seq;
    sources.push_back({.rows = {.k = call.k.data + row * call.k.row_stride,
                                .k_token_stride = call.k.row_stride,
                                .k_head_stride = dim,
                                .v = call.v.data + row * call.v.row_stride,
                                .v_token_stride = call.v.row_stride,
                                .v_head_stride = dim},
                       .kv_len = kv_seq});
  }
  const PackedKv packed({.num_kv_heads = c.shape.num_kv_heads, .head_dim = c.shape.head_dim, .value_dim = c.shape.value_dim}, sources, context.pool);
  std::vector<SequenceQueries> sequences;
  for (int64_t b = 0; b < batch; ++b) {
    SequenceQueries s;
    s.q = call.q.data + b * seq * call.q.row_stride;
    s.q_token_stride = call.q.row_stride;
    s.out = out.data + b * seq * out.row_stride;
    s.out_token_stride = out.row_stride;
    s.q_head_stride = s.out_head_stride = dim;
    s.lse = lse + b * config_.num_q_heads * seq;
    s.lse_token_stride = 1;
    s.lse_head_stride = seq;
    s.tokens = seq;
    s.positions = c.positions.queries(b);
    s.keys = packed.view(b);
    s.batch_row = b;
    sequences.push_back(s);
    c.terms.place(s, sources[static_cast<size_t>(b)], {.q_encoding = c.positions.query_encodings(b), .k_encoding = c.positions.key_encodings(b)});
  }
  if (!c.terms.empty()) c.shape.terms = &c.terms;
  AttentionWorkspace workspace;
  attend_sequences(sequences, c.shape, c.plan, workspace, context.pool, context.stop);
  c.terms.check_distances(Call::kName);
}

template <>
size_t AttentionCore<float>::scratch(const CoreTerms<const float>& terms) const {
  const TermSizes sizes(config_, terms);
  Memory measure;
  for (const int64_t n : {sizes.t5, sizes.uv, sizes.uv, sizes.r}) measure.take<float>(n);
  return measure.used();
}

template <>
void AttentionCore<float>::backward(const Context<float>& context, const CoreCall<float>& call, HeadRows<const float> out, const float* lse,
                                    HeadRows<const float> dout, const CoreGradients<float>& gradients, Memory scratch) const {
  const Sequences &queries = *call.queries, &keys = *call.keys;
  if (queries.batch == 0) return;
  const Options o(context, config_, call);
  const Call c(config_, call, o.options);
  const int64_t dim = config_.head_dim, heads = config_.num_q_heads, kv_heads = config_.num_kv_heads;
  const TermSizes sizes(config_, call.terms);
  float *t5 = scratch.take<float>(sizes.t5), *u = scratch.take<float>(sizes.uv), *v = scratch.take<float>(sizes.uv),
        *r = scratch.take<float>(sizes.r);
  ScoreTermGradients wanted;
  if (sizes.t5 > 0) wanted.t5_table = {t5, {config_.t5_buckets, heads}};
  if (sizes.r > 0) {
    wanted.xl_u = {u, {heads, dim}};
    wanted.xl_v = {v, {heads, dim}};
    wanted.xl_r = {r, {call.terms.distances, heads, dim}};
  }
  const BackwardTensors tensors{.q = as_tensor(call.q, queries, heads, dim),
                                .k = as_tensor(call.k, keys, kv_heads, dim),
                                .v = as_tensor(call.v, keys, kv_heads, dim),
                                .out = as_tensor(out, queries, heads, dim),
                                .lse = {lse, {queries.batch, heads, queries.seq}},
                                .dout = as_tensor(dout, queries, heads, dim),
                                .dlse = {},
                                .dq = as_tensor(gradients.dq, queries, heads, dim),
                                .dk = as_tensor(gradients.dk, keys, kv_heads, dim),
                                .dv = as_tensor(gradients.dv, keys, kv_heads, dim)};
  BackwardTermCall terms;
  if (!c.terms.empty()) terms = {.terms = &c.terms, .options = &o.options, .wanted = &wanted};
  backward_tensors(tensors, c.sizes, c.rows, c.shape, c.plan, c.positions, context.pool, context.stop, terms);
  add(t5, sizes.t5, gradients.terms.t5_table);
  add(u, sizes.uv, gradients.terms.xl_u);
  add(v, sizes.uv, gradients.terms.xl_v);
  add(r, sizes.r, gradients.terms.xl_r);
}

}  // namespace regard::nn::training
