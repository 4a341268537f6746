#include "nn/training/stack.h"

#include <algorithm>
#include <cmath>

#include "nn/training/parameter_names.h"

namespace regard::nn::training {
namespace {

// One sinusoid per position from `first` on.
template <class T>
std::vector<T> sinusoids(Sinusoidal layout, int64_t first, int64_t count, int64_t hidden) {
  std::vector<float> one(static_cast<size_t>(hidden));
  std::vector<T> all;
  for (int64_t p = first; p < first + count; ++p) {
    sinusoidal(layout, p, one);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

enum class Sees { kAll, kWindow };

AttentionCoreConfig core_of(const TransformerConfig& config, StackKind kind, Sees sees) {
  AttentionCoreConfig core;
  core.num_q_heads = config.num_q_heads;
  core.num_kv_heads = config.num_kv_heads;
  core.head_dim = config.head_dim;
  core.scale = config.attention_scale;
  core.softcap = config.attention_softcap;
  core.mask = kind == StackKind::kDecoder ? config.mask : config.encoder_mask;
  if (sees == Sees::kWindow) core.mask = core.mask & Mask::window(config.window - 1, 0);
  if (config.position == PositionKind::kAlibi) core.alibi_slopes = alibi_slopes(config.num_q_heads);
  if (config.position == PositionKind::kT5) {
    core.t5_buckets = config.t5_buckets;
    core.t5_max_distance = config.t5_max_distance;
    core.t5_direction = kind == StackKind::kDecoder ? T5Direction::kCausal : T5Direction::kBidirectional;
  }
  return core;
}

// A decoder looks at all of what the encoder gave; where they stand to each other means nothing.
AttentionCoreConfig cross_core_of(const TransformerConfig& config) {
  AttentionCoreConfig core;
  core.num_q_heads = config.num_q_heads;
  core.num_kv_heads = config.num_kv_heads;
  core.head_dim = config.head_dim;
  core.scale = config.attention_scale;
  core.softcap = config.attention_softcap;
  core.mask = Mask::full();
  return core;
}

}  // namespace

template <class T>
Stack<T>::Stack(ParameterStore<T>& store, const TransformerConfig& config, StackKind kind, int tokens, int64_t first_layer)
    : hidden_(config.hidden_size),
      recompute_(config.recompute),
      group_rows_(config.group_rows),
      whole_batches_((kind == StackKind::kDecoder ? config.mask : config.encoder_mask).depends_on_batch() || config.position == PositionKind::kXl),
      embedding_dropout_(config.embedding_dropout),
      first_layer_(first_layer) {
  const StackNames names = stack_names(config, kind);
  tables_.max_positions = config.max_positions;
  int learned = -1;
  std::vector<T> fixed;
  switch (config.position) {
    case PositionKind::kLearned: learned = store.add(names.positions, {config.max_positions, hidden_}, WeightDecay::kApplied); break;
    case PositionKind::kSinusoidal:
      fixed = sinusoids<T>(config.sinusoidal, first_position(config.sinusoidal), config.max_positions, hidden_);
      break;
    case PositionKind::kRope: tables_.rope = rope_table<T>(config.rope, config.max_positions); break;
    case PositionKind::kT5:
      tables_.t5_table = store.add(names.t5_table, {config.t5_buckets, config.num_q_heads}, WeightDecay::kApplied);
      break;
    case PositionKind::kXl:
      tables_.sinusoids = sinusoids<T>(config.sinusoidal, 1 - config.max_positions, 2 * config.max_positions - 1, hidden_);
      break;
    case PositionKind::kNone:
    case PositionKind::kAlibi: break;
  }
  const auto self = std::make_shared<const AttentionCore<T>>(core_of(config, kind, Sees::kAll));
  const auto cross = std::make_shared<const AttentionCore<T>>(cross_core_of(config));
  tables_.causal = self->config().mask == Mask::causal();
  std::shared_ptr<const AttentionCore<T>> windowed;
  if (kind == StackKind::kDecoder && !config.windowed.empty()) {
    windowed_ = config.windowed;
    windowed = std::make_shared<const AttentionCore<T>>(core_of(config, kind, Sees::kWindow));
    windowed_tables_ = tables_;
    if (config.position == PositionKind::kRope) windowed_tables_.rope = rope_table<T>(config.windowed_rope, config.max_positions);
  }
  embedding_ = Embedding<T>(tokens, learned, std::move(fixed), hidden_, config.embedding_scale);
  const int64_t layers = kind == StackKind::kEncoder && config.architecture == Architecture::kEncoderDecoder ? config.num_encoder_layers : config.num_layers;
  for (int64_t i = 0; i < layers; ++i)
    blocks_.emplace_back(store, config, block_names(config, kind, i), windowed != nullptr && is_windowed(config, i) ? windowed : self, cross, first_layer + i);
  if (config.placement != NormPlacement::kPost) norm_.emplace(store, names.norm, NormStyle{config.norm, config.norm_eps, config.norm_gain}, hidden_);
}

// As even as whole sequences are. Where these are odd a group has an even number of them, as products in bf16 go over pairs of rows.
template <class T>
int64_t Stack<T>::group_of(const Sequences& sequences, const Sequences* source) const {
  if (whole_batches_ || sequences.batch == 0) return sequences.batch;
  const int64_t seq = source == nullptr ? sequences.seq : std::max(sequences.seq, source->seq);
  const int64_t fit = std::max<int64_t>(1, group_rows_ / std::max<int64_t>(1, seq));
  const int64_t even = ceil_div(sequences.batch, ceil_div(sequences.batch, fit));
  const bool odd = sequences.seq % 2 != 0 || (source != nullptr && source->seq % 2 != 0);
  return std::min(sequences.batch, odd ? even + even % 2 : even);
}

template <class T>
template <class F>
void Stack<T>::for_each_group(const Context<T>& context, const Sequences& sequences, const KeySource<T>* source, F f) const {
  const int64_t group = group_of(sequences, source == nullptr ? nullptr : source->sequences);
  for (int64_t first = 0; first < sequences.batch; first += group) {
    const int64_t count = std::min(group, sequences.batch - first);
    const Sequences part = sequences.part(first, count);
    if (source == nullptr) {
      f(context.from(first), part, nullptr, first * sequences.seq, int64_t{0});
      continue;
    }
    const Sequences source_part = source->sequences->part(first, count);
    const KeySource<T> from = source->from(source_part, first, hidden_);
    f(context.from(first), part, &from, first * sequences.seq, first * source->sequences->seq);
  }
}

template <class T>
typename Block<T>::Saved Stack<T>::saved_of(const Saved& saved, size_t layer, int64_t row, int64_t source_row) const {
  const bool one = recompute_ == Recompute::kFull;
  typename Block<T>::Saved block = one ? saved.blocks.front() : blocks_[layer].from(saved.blocks[layer], row, source_row);
  block.self.input = saved.inputs[layer] + row * hidden_;
  return block;
}

template <class T>
void Stack<T>::take(Memory& memory, const Sequences& sequences, const Sequences* source, Saved& saved) const {
  const int64_t rows = sequences.rows();
  const int64_t kept = recompute_ == Recompute::kFull ? group_of(sequences, source) : sequences.batch;
  saved.inputs.resize(blocks_.size() + 1);
  for (T*& x : saved.inputs) x = memory.take<T>(rows * hidden_);
  saved.blocks.resize(recompute_ == Recompute::kFull ? 1 : blocks_.size());
  for (auto& block : saved.blocks)
    block = blocks_.front().take(memory, kept * sequences.seq, source == nullptr ? 0 : kept * source->seq, recompute_);
  if (norm_) saved.norm = Norm<T>::take(memory, rows);
}

template <class T>
void Stack<T>::take_out(Memory& memory, const Sequences& sequences, Saved& saved) const {
  saved.out = norm_ ? memory.take<T>(sequences.rows() * hidden_) : saved.inputs.back();
}

template <class T>
MemoryPlan Stack<T>::plan(const ThreadPool& pool, const Sequences& sequences, const Sequences* source) const {
  const int64_t group = group_of(sequences, source);
  const Sequences part = sequences.part(0, group), source_part = source == nullptr ? Sequences{} : source->part(0, group);
  Memory scratch;
  if (recompute_ == Recompute::kFull) scratch.take<T>(part.rows() * hidden_);  // a block's output, computed again
  return {0, scratch.used() + blocks_.front().plan(pool, tables_, part, source == nullptr ? nullptr : &source_part, recompute_).scratch};
}

template <class T>
void Stack<T>::forward(const Context<T>& context, const Sequences& sequences, const KeySource<T>* source, std::span<const int32_t> ids,
                       Saved& saved, Memory scratch) const {
  embedding_.forward(context, sequences, ids, embedding_seed(context), embedding_dropout_, saved.inputs.front());
  for (size_t i = 0; i < blocks_.size(); ++i)
    for_each_group(context, sequences, source, [&](const Context<T>& here, const Sequences& part, const KeySource<T>* from, int64_t row, int64_t source_row) {
      blocks_[i].forward(here, tables_of(i), part, from, saved_of(saved, i, row, source_row), saved.inputs[i + 1] + row * hidden_, scratch);
    });
  if (norm_) norm_->forward(context, saved.inputs.back(), sequences.rows(), saved.norm, saved.out);
}

template <class T>
void Stack<T>::backward(const Context<T>& context, const Sequences& sequences, const KeySource<T>* source, std::span<const int32_t> ids,
                        const Saved& saved, T* dout, Memory scratch) const {
  T* dx = dout;
  if (norm_) {
    dx = saved.inputs.back();  // which nothing else reads
    norm_->backward(context, saved.inputs.back(), saved.norm, dout, sequences.rows(), dx, Accumulate::kOverwrite);
  }
  const int64_t group = group_of(sequences, source == nullptr ? nullptr : source->sequences);
  T* again = recompute_ == Recompute::kFull ? scratch.take<T>(group * sequences.seq * hidden_) : nullptr;
  for (size_t i = blocks_.size(); i-- > 0;)
    for_each_group(context, sequences, source, [&](const Context<T>& here, const Sequences& part, const KeySource<T>* from, int64_t row, int64_t source_row) {
      const typename Block<T>::Saved block = saved_of(saved, i, row, source_row);
      if (again != nullptr) blocks_[i].forward(here, tables_of(i), part, from, block, again, scratch);
      blocks_[i].backward(here, tables_of(i), part, from, block, dx + row * hidden_, scratch);
    });
  embedding_.backward(context, sequences, ids, embedding_seed(context), embedding_dropout_, dx);
}

template <class T>
std::vector<int> Stack<T>::residual_weights() const {
  std::vector<int> all;
  for (const Block<T>& block : blocks_) {
    const std::vector<int> weights = block.residual_weights();
    all.insert(all.end(), weights.begin(), weights.end());
  }
  return all;
}

template class Stack<float>;
template class Stack<double>;

}  // namespace regard::nn::training
