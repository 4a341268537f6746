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

AttentionCoreConfig core_of(const TransformerConfig& config, StackKind kind) {
  AttentionCoreConfig core;
  core.num_q_heads = config.num_q_heads;
  core.num_kv_heads = config.num_kv_heads;
  core.head_dim = config.head_dim;
  core.scale = config.attention_scale;
  core.mask = kind == StackKind::kDecoder ? config.mask : config.encoder_mask;
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
  core.mask = Mask::full();
  return core;
}

}  // namespace

template <class T>
Stack<T>::Stack(ParameterStore<T>& store, const TransformerConfig& config, StackKind kind, int tokens, int64_t first_layer)
    : hidden_(config.hidden_size), recompute_(config.recompute), embedding_dropout_(config.embedding_dropout), first_layer_(first_layer) {
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
  const auto self = std::make_shared<const AttentionCore<T>>(core_of(config, kind));
  const auto cross = std::make_shared<const AttentionCore<T>>(cross_core_of(config));
  tables_.causal = self->config().mask == Mask::causal();
  embedding_ = Embedding<T>(tokens, learned, std::move(fixed), hidden_, config.embedding_scale);
  const int64_t layers = kind == StackKind::kEncoder && config.architecture == Architecture::kEncoderDecoder ? config.num_encoder_layers : config.num_layers;
  for (int64_t i = 0; i < layers; ++i)
    blocks_.emplace_back(store, config, block_names(config, kind, i), self, cross, first_layer + i);
  if (config.placement == NormPlacement::kPre) norm_.emplace(store, names.norm, config.norm, config.norm_eps, hidden_);
}

template <class T>
void Stack<T>::take(Memory& memory, const Sequences& sequences, const Sequences* source, Saved& saved) const {
  const int64_t rows = sequences.rows(), source_rows = source == nullptr ? 0 : source->rows();
  saved.inputs.resize(blocks_.size() + 1);
  for (T*& x : saved.inputs) x = memory.take<T>(rows * hidden_);
  saved.blocks.resize(recompute_ == Recompute::kFull ? 1 : blocks_.size());
  for (auto& block : saved.blocks) block = blocks_.front().take(memory, rows, source_rows, recompute_);
  if (norm_) saved.norm = Norm<T>::take(memory, rows);
  saved.out = norm_ ? memory.take<T>(rows * hidden_) : saved.inputs.back();
}

template <class T>
MemoryPlan Stack<T>::plan(const ThreadPool& pool, const Sequences& sequences, const Sequences* source) const {
  Memory scratch;
  if (norm_) scratch.take<T>(sequences.rows() * hidden_);                              // the gradient of a block's output
  if (recompute_ == Recompute::kFull) scratch.take<T>(sequences.rows() * hidden_);  // a block's output, computed again
  return {0, scratch.used() + blocks_.front().plan(pool, tables_, sequences, source, recompute_).scratch};
}

template <class T>
void Stack<T>::forward(const Context<T>& context, const Sequences& sequences, const KeySource<T>* source, std::span<const int32_t> ids,
                       Saved& saved, Memory scratch) const {
  embedding_.forward(context, sequences, ids, embedding_seed(context), embedding_dropout_, saved.inputs.front());
  for (size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].forward(context, tables_, sequences, source, saved.inputs[i], saved.blocks[saved.blocks.size() == 1 ? 0 : i], saved.inputs[i + 1],
                       scratch);
  if (norm_) norm_->forward(context, saved.inputs.back(), sequences.rows(), saved.norm, saved.out);
}

template <class T>
void Stack<T>::backward(const Context<T>& context, const Sequences& sequences, const KeySource<T>* source, std::span<const int32_t> ids,
                        Saved& saved, T* dout, Memory scratch) const {
  const int64_t rows = sequences.rows();
  T* dx = dout;
  if (norm_) {
    dx = scratch.take<T>(rows * hidden_);
    std::fill_n(dx, rows * hidden_, T{0});
    norm_->backward(context, saved.inputs.back(), saved.norm, dout, rows, dx);
  }
  T* again = recompute_ == Recompute::kFull ? scratch.take<T>(rows * hidden_) : nullptr;
  for (size_t i = blocks_.size(); i-- > 0;) {
    auto& block = saved.blocks[recompute_ == Recompute::kFull ? 0 : i];
    if (again != nullptr) blocks_[i].forward(context, tables_, sequences, source, saved.inputs[i], block, again, scratch);
    blocks_[i].backward(context, tables_, sequences, source, block, dx, scratch);
  }
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
