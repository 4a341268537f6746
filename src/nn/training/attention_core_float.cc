// Attention in float: the tensors of a layer as views, and the kernels of attention/.
#include "attention/in_pool.h"
#include "nn/training/attention_core.h"
#include "nn/training/memory.h"

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

struct Sizes {
  int64_t t5 = 0, uv = 0, r = 0;
  Sizes(const AttentionCoreConfig& config, const CoreTerms<const float>& terms) {
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
  const Options o(context, config_, call);
  const int64_t dim = config_.head_dim;
  attend_in_pool(context.pool, as_tensor(call.q, *call.queries, config_.num_q_heads, dim), as_tensor(call.k, *call.keys, config_.num_kv_heads, dim),
                 as_tensor(call.v, *call.keys, config_.num_kv_heads, dim), config_.mask, o.options,
                 as_tensor(out, *call.queries, config_.num_q_heads, dim), {lse, {call.queries->batch, config_.num_q_heads, call.queries->seq}});
}

template <>
size_t AttentionCore<float>::scratch(const CoreTerms<const float>& terms) const {
  const Sizes sizes(config_, terms);
  Memory measure;
  for (const int64_t n : {sizes.t5, sizes.uv, sizes.uv, sizes.r}) measure.take<float>(n);
  return measure.used();
}

template <>
void AttentionCore<float>::backward(const Context<float>& context, const CoreCall<float>& call, HeadRows<const float> out, const float* lse,
                                    HeadRows<const float> dout, const CoreGradients<float>& gradients, Memory scratch) const {
  const Options o(context, config_, call);
  const int64_t dim = config_.head_dim, heads = config_.num_q_heads, kv_heads = config_.num_kv_heads;
  const Sizes sizes(config_, call.terms);
  float *t5 = scratch.take<float>(sizes.t5), *u = scratch.take<float>(sizes.uv), *v = scratch.take<float>(sizes.uv),
        *r = scratch.take<float>(sizes.r);
  ScoreTermGradients terms;
  if (sizes.t5 > 0) terms.t5_table = {t5, {config_.t5_buckets, heads}};
  if (sizes.r > 0) {
    terms.xl_u = {u, {heads, dim}};
    terms.xl_v = {v, {heads, dim}};
    terms.xl_r = {r, {call.terms.distances, heads, dim}};
  }
  attend_backward_in_pool(context.pool, as_tensor(call.q, *call.queries, heads, dim), as_tensor(call.k, *call.keys, kv_heads, dim),
                          as_tensor(call.v, *call.keys, kv_heads, dim), as_tensor(out, *call.queries, heads, dim),
                          {lse, {call.queries->batch, heads, call.queries->seq}}, as_tensor(dout, *call.queries, heads, dim), config_.mask,
                          o.options, as_tensor(gradients.dq, *call.queries, heads, dim), as_tensor(gradients.dk, *call.keys, kv_heads, dim),
                          as_tensor(gradients.dv, *call.keys, kv_heads, dim), terms);
  add(t5, sizes.t5, gradients.terms.t5_table);
  add(u, sizes.uv, gradients.terms.xl_u);
  add(v, sizes.uv, gradients.terms.xl_v);
  add(r, sizes.r, gradients.terms.xl_r);
}

}  // namespace regard::nn::training
