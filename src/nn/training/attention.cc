#include "nn/training/attention.h"

#include <algorithm>

namespace regard::nn::training {

template <class T>
Attention<T>::Attention(ParameterStore<T>& store, Kind kind, const AttentionNames& names, int64_t hidden,
                        std::shared_ptr<const AttentionCore<T>> core, const LinearStyle& style, const LinearStyle& output_style,
                        const NormStyle& norm)
    : kind_(kind),
      hidden_(hidden),
      q_width_(core->config().num_q_heads * core->config().head_dim),
      kv_width_(core->config().num_kv_heads * core->config().head_dim),
      core_(std::move(core)) {
  if (!names.fused.empty()) {
    fused_ = Linear<T>(store, names.fused, hidden, q_width_ + 2 * kv_width_, style);
  } else {
    query_ = Linear<T>(store, names.query, hidden, q_width_, style);
    key_ = Linear<T>(store, names.key, hidden, kv_width_, style);
    value_ = Linear<T>(store, names.value, hidden, kv_width_, style);
  }
  output_ = Linear<T>(store, names.output, q_width_, hidden, output_style);
  if (!names.query_norm.empty()) {
    query_norm_.emplace(store, names.query_norm, norm, core_->config().head_dim);
    key_norm_.emplace(store, names.key_norm, norm, core_->config().head_dim);
  }
  if (names.relative.empty()) return;
  relative_ = Linear<T>(store, names.relative, hidden, q_width_, {.bias = false, .precision = style.precision});
  const std::vector<int64_t> by_head = {core_->config().num_q_heads, core_->config().head_dim};
  content_bias_ = store.add(names.content_bias, by_head, WeightDecay::kNone);
  position_bias_ = store.add(names.position_bias, by_head, WeightDecay::kNone);
}

// Side by side, as a fused projection writes them; each dense where norms read and write them.
template <class T>
typename Attention<T>::Projected Attention<T>::take_projected(Memory& memory, int64_t rows, int64_t key_rows) const {
  Projected p;
  if (normed()) return {memory.take<T>(rows * q_width_), memory.take<T>(key_rows * kv_width_), memory.take<T>(key_rows * kv_width_), q_width_, kv_width_};
  p.q_stride = self() ? q_width_ + 2 * kv_width_ : q_width_;
  p.kv_stride = self() ? p.q_stride : 2 * kv_width_;
  p.q = memory.take<T>(rows * p.q_stride);
  T* keys = self() ? p.q : memory.take<T>(key_rows * p.kv_stride);
  if (keys == nullptr) return p;  // only measured
  p.k = self() ? keys + q_width_ : keys;
  p.v = p.k + kv_width_;
  return p;
}

template <class T>
typename Attention<T>::Saved Attention<T>::take(Memory& memory, int64_t rows, int64_t key_rows) const {
  Saved s;
  s.projected = take_projected(memory, rows, key_rows);
  if (normed()) {
    s.raw_q = memory.take<T>(rows * q_width_);
    s.raw_k = memory.take<T>(key_rows * kv_width_);
    s.q_norm = Norm<T>::take(memory, rows * core_->config().num_q_heads);
    s.k_norm = Norm<T>::take(memory, key_rows * core_->config().num_kv_heads);
  }
  s.out = memory.take<T>(rows * q_width_);
  s.lse = memory.take<T>(rows * core_->config().num_q_heads);
  return s;
}

template <class T>
typename Attention<T>::Distances Attention<T>::distances(const PositionTables<T>& tables, const Sequences& sequences, Memory& memory) const {
  Distances d;
  if (!relative()) return d;
  const bool counted = sequences.encoding_positions.empty();
  const int64_t span = counted ? sequences.seq : tables.max_positions;
  d.first = counted && tables.causal ? 0 : -(span - 1);
  d.count = span - d.first;
  d.sinusoids = tables.sinusoids.data() + (tables.max_positions - 1 + d.first) * hidden_;
  d.projected = memory.take<T>(d.count * q_width_);
  return d;
}

template <class T>
MemoryPlan Attention<T>::plan(const ThreadPool& pool, const PositionTables<T>& tables, const Sequences& sequences, const Sequences& keys) const {
  const int64_t rows = sequences.rows(), key_rows = keys.rows();
  Memory saved, scratch;
  take(saved, rows, key_rows);
  const Distances d = distances(tables, sequences, scratch);
  if (relative()) scratch.take<T>(d.count * q_width_);  // gradients
  scratch.take<T>(rows * q_width_);                      // of the output of attention
  take_projected(scratch, rows, key_rows);               // of queries, keys and values
  const MemoryPlan linear = fused_.plan(pool, rows) + query_.plan(pool, rows) + key_.plan(pool, key_rows) + value_.plan(pool, key_rows) +
                            output_.plan(pool, rows) + relative_.plan(pool, d.count);
  return {saved.used(), scratch.used() + std::max(linear.scratch, core_->scratch(keys))};
}

template <class T>
CoreCall<T> Attention<T>::call(const Context<T>& context, const PositionTables<T>& tables, const Sequences& sequences,
                               const KeySource<T>* source, const DropoutOf& dropout, const Saved& saved, const Distances& distances) const {
  CoreCall<T> c;
  c.queries = &sequences;
  c.keys = source == nullptr ? &sequences : source->sequences;
  c.q = {saved.projected.q, saved.projected.q_stride};
  c.k = {saved.projected.k, saved.projected.kv_stride};
  c.v = {saved.projected.v, saved.projected.kv_stride};
  c.dropout = dropout.rate;
  c.dropout_seed = dropout.seed;
  if (self() && tables.t5_table >= 0) c.terms.t5_table = context.parameters.value(tables.t5_table);
  if (!relative()) return c;
  c.terms.xl_u = context.parameters.value(content_bias_);
  c.terms.xl_v = context.parameters.value(position_bias_);
  c.terms.xl_r = distances.projected;
  c.terms.first_distance = distances.first;
  c.terms.distances = distances.count;
  return c;
}

template <class T>
void Attention<T>::forward(const Context<T>& context, const PositionTables<T>& tables, const Sequences& sequences, const T* x,
                           const KeySource<T>* source, const DropoutOf& dropout, const Saved& saved, T* y, Memory scratch) const {
  const int64_t rows = sequences.rows(), key_rows = source == nullptr ? rows : source->sequences->rows();
  const TensorView<const T> input(x, {rows, hidden_}), keys(source == nullptr ? x : source->rows, {key_rows, hidden_});
  const auto strided = [](T* data, int64_t n, int64_t width, int64_t stride) {
    TensorView<T> view(data, {n, width});
    view.strides[0] = stride;
    return view;
  };
  const Projected& p = saved.projected;
  if (fused_.out() > 0) {
    fused_.forward(context, input, {p.q, {rows, p.q_stride}}, scratch);
  } else {
    query_.forward(context, input, strided(normed() ? saved.raw_q : p.q, rows, q_width_, p.q_stride), scratch);
    key_.forward(context, keys, strided(normed() ? saved.raw_k : p.k, key_rows, kv_width_, p.kv_stride), scratch);
    value_.forward(context, keys, strided(p.v, key_rows, kv_width_, p.kv_stride), scratch);
  }
  const AttentionCoreConfig& core = core_->config();
  if (normed()) {
    query_norm_->forward(context, saved.raw_q, rows * core.num_q_heads, saved.q_norm, p.q);
    key_norm_->forward(context, saved.raw_k, key_rows * core.num_kv_heads, saved.k_norm, p.k);
  }
  if (self() && tables.rope.half > 0) {
    rotate_rows<T>(context, sequences, tables.rope, Turn::kForward, core.num_q_heads, core.head_dim, p.q, p.q_stride);
    rotate_rows<T>(context, sequences, tables.rope, Turn::kForward, core.num_kv_heads, core.head_dim, p.k, p.kv_stride);
  }
  const Distances d = distances(tables, sequences, scratch);
  if (relative()) relative_.forward(context, {d.sinusoids, {d.count, hidden_}}, {d.projected, {d.count, q_width_}}, scratch);
  core_->forward(context, call(context, tables, sequences, source, dropout, saved, d), {saved.out, q_width_}, saved.lse, scratch);
  project_out(context, saved, rows, y, scratch);
}

template <class T>
void Attention<T>::backward(const Context<T>& context, const PositionTables<T>& tables, const Sequences& sequences, const T* x,
                            const KeySource<T>* source, const DropoutOf& dropout, const Saved& saved, const T* dy, T* dx,
                            Memory scratch) const {
  const int64_t rows = sequences.rows(), key_rows = source == nullptr ? rows : source->sequences->rows();
  const AttentionCoreConfig& core = core_->config();
  const Distances d = distances(tables, sequences, scratch);
  T* dprojected = relative() ? scratch.take<T>(d.count * q_width_) : nullptr;
  T* dout = scratch.take<T>(rows * q_width_);
  const Projected gradients = take_projected(scratch, rows, key_rows);
  output_.backward(context, {saved.out, {rows, q_width_}}, {dy, {rows, hidden_}}, {dout, {rows, q_width_}}, scratch);

  CoreGradients<T> into;
  into.dq = {gradients.q, gradients.q_stride};
  into.dk = {gradients.k, gradients.kv_stride};
  into.dv = {gradients.v, gradients.kv_stride};
  if (self() && tables.t5_table >= 0) into.terms.t5_table = context.parameters.gradient(tables.t5_table);
  if (relative()) {
    relative_.forward(context, {d.sinusoids, {d.count, hidden_}}, {d.projected, {d.count, q_width_}}, scratch);
    std::fill_n(dprojected, d.count * q_width_, T{0});
    into.terms.xl_u = context.parameters.gradient(content_bias_);
    into.terms.xl_v = context.parameters.gradient(position_bias_);
    into.terms.xl_r = dprojected;
  }
  core_->backward(context, call(context, tables, sequences, source, dropout, saved, d), {saved.out, q_width_}, saved.lse, {dout, q_width_}, into);
  if (relative()) relative_.backward(context, {d.sinusoids, {d.count, hidden_}}, {dprojected, {d.count, q_width_}}, {}, scratch);
  if (self() && tables.rope.half > 0) {
    rotate_rows<T>(context, sequences, tables.rope, Turn::kBack, core.num_q_heads, core.head_dim, gradients.q, gradients.q_stride);
    rotate_rows<T>(context, sequences, tables.rope, Turn::kBack, core.num_kv_heads, core.head_dim, gradients.k, gradients.kv_stride);
  }
  if (normed()) {
    query_norm_->backward(context, saved.raw_q, saved.q_norm, gradients.q, rows * core.num_q_heads, gradients.q, Accumulate::kOverwrite);
    key_norm_->backward(context, saved.raw_k, saved.k_norm, gradients.k, key_rows * core.num_kv_heads, gradients.k, Accumulate::kOverwrite);
  }

  const TensorView<const T> input(x, {rows, hidden_}), keys(source == nullptr ? x : source->rows, {key_rows, hidden_});
  const auto strided = [](const T* data, int64_t n, int64_t width, int64_t stride) {
    TensorView<const T> view(data, {n, width});
    view.strides[0] = stride;
    return view;
  };
  if (fused_.out() > 0) {
    fused_.backward(context, input, {gradients.q, {rows, gradients.q_stride}}, {dx, {rows, hidden_}}, scratch);
    return;
  }
  T* dkeys = source == nullptr ? dx : source->gradients;
  query_.backward(context, input, strided(gradients.q, rows, q_width_, gradients.q_stride), {dx, {rows, hidden_}}, scratch);
  key_.backward(context, keys, strided(gradients.k, key_rows, kv_width_, gradients.kv_stride), {dkeys, {key_rows, hidden_}}, scratch,
                Accumulate::kAdd);
  value_.backward(context, keys, strided(gradients.v, key_rows, kv_width_, gradients.kv_stride), {dkeys, {key_rows, hidden_}}, scratch,
                  Accumulate::kAdd);
}

template class Attention<float>;
template class Attention<double>;

}  // namespace regard::nn::training
