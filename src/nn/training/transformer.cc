#include "nn/training/transformer.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "nn/training/initialise.h"
#include "nn/training/parameter_names.h"

namespace regard::nn {

using training::Context;
using training::KeySource;
using training::Memory;
using training::MemoryPlan;
using training::Stack;
using training::StackKind;

template <class T>
Transformer<T>::Transformer(const TransformerConfig& config, uint64_t seed) : config_(completed(config)) {
  if (!std::is_same_v<T, float> && config_.precision != training::GemmPrecision::kF32)
    fail(Code::kUnsupported, "[Transformer] precision is bf16, which a model of double, made for checks, does not have; use f32");
  const int embedding = parameters_.add(training::embedding_name(config_), {config_.vocab_size, config_.hidden_size}, WeightDecay::kApplied);
  const bool both = config_.architecture == Architecture::kEncoderDecoder;
  if (both || config_.architecture == Architecture::kEncoder) encoder_.emplace(parameters_, config_, StackKind::kEncoder, embedding, 0);
  if (both || config_.architecture == Architecture::kDecoder)
    decoder_.emplace(parameters_, config_, StackKind::kDecoder, embedding, both ? config_.num_encoder_layers : 0);
  using HeadLinear = training::Linear<T>;
  HeadLinear head = config_.head == Head::kTied
                              ? HeadLinear(embedding, config_.hidden_size, config_.vocab_size, config_.precision)
                              : HeadLinear(parameters_, training::head_name(config_), config_.hidden_size, classes(),
                                           {.bias = false, .precision = config_.precision});
  loss_ = training::LinearCrossEntropy<T>(std::move(head), {config_.label_smoothing, config_.z_loss}, config_.head_scale, config_.final_softcap);
  parameters_.allocate();
  initialise(seed);
}

template <class T>
void Transformer<T>::initialise(uint64_t seed) {
  std::vector<int> residual;
  int64_t layers = 0;
  for (const auto* stack : {&encoder_, &decoder_}) {
    if (!*stack) continue;
    const std::vector<int> weights = (*stack)->residual_weights();
    residual.insert(residual.end(), weights.begin(), weights.end());
    layers = std::max<int64_t>(layers, stack == &encoder_ && decoder_ ? config_.num_encoder_layers : config_.num_layers);
  }
  for (int i = 0; i < static_cast<int>(parameters_.parameters().size()); ++i) {
    const Parameter& p = parameters_.parameters()[static_cast<size_t>(i)];
    if (p.shape.size() > 1) {
      const bool into_residual = std::find(residual.begin(), residual.end(), i) != residual.end();
      training::fill_normal(parameters_, i, seed, config_.init_std / (into_residual ? std::sqrt(2.0 * static_cast<double>(layers)) : 1.0));
    } else if (p.name.ends_with(".weight")) {
      std::fill_n(parameters_.value(i), p.size, config_.norm_gain == NormGain::kStored ? T{1} : T{0});  // of a norm, whose gain is 1
    }
  }
}

template <class T>
void Transformer<T>::check_side(std::string_view name, int64_t batch, int64_t seq, std::span<const int32_t> tokens,
                                std::span<const int64_t> lengths) const {
  require(seq >= 0 && seq <= config_.max_positions, "[Transformer] {} sequences of {} tokens; this model has {} positions", name, seq,
          config_.max_positions);
  require(static_cast<int64_t>(tokens.size()) == batch * seq, "[Transformer] {} {} tokens for {} sequences of {}", tokens.size(), name, batch, seq);
  require(lengths.empty() || static_cast<int64_t>(lengths.size()) == batch, "[Transformer] {} {} lengths for {} sequences", lengths.size(), name,
          batch);
  for (const int64_t n : lengths) require(n >= 0 && n <= seq, "[Transformer] a {} length is {}; expected 0 to {}", name, n, seq);
  for (int64_t i = 0; i < batch * seq; ++i) {
    const int32_t id = tokens[static_cast<size_t>(i)];
    if (!lengths.empty() && i % seq >= lengths[static_cast<size_t>(i / seq)]) continue;  // padding is never read
    require(id >= 0 && id < config_.vocab_size, "[Transformer] {} token {} of sequence {} is {}; the vocabulary has {}", name, i % seq, i / seq, id,
            config_.vocab_size);
  }
}

template <class T>
typename Transformer<T>::Inputs Transformer<T>::check(const TokenBatch& batch, Labels labels) const {
  require(batch.batch >= 0, "[Transformer] a batch of {} sequences", batch.batch);
  check_side("input", batch.batch, batch.seq, batch.tokens, batch.lengths);
  const auto tokens = static_cast<size_t>(batch.batch * batch.seq);
  require(batch.documents.empty() || batch.documents.size() == tokens, "[Transformer] {} document numbers for {} tokens", batch.documents.size(),
          tokens);
  require(batch.encoding_positions.empty() || batch.encoding_positions.size() == tokens, "[Transformer] {} positions for {} tokens",
          batch.encoding_positions.size(), tokens);
  for (const int32_t p : batch.encoding_positions)
    require(p >= 0 && p < config_.max_positions, "[Transformer] an encoding position is {}; this model has {}", p, config_.max_positions);
  if (labels == Labels::kWanted) {
    require(batch.labels.size() == tokens, "[Transformer] {} labels for {} tokens", batch.labels.size(), tokens);
    for (const int32_t label : batch.labels)
      require(label == kIgnoredLabel || (label >= 0 && label < classes()), "[Transformer] a label is {}; expected 0 to {}, or {} for none", label,
              classes() - 1, kIgnoredLabel);
  }
  Inputs inputs;
  inputs.sequences = {batch.batch, batch.seq, batch.lengths, batch.documents, batch.encoding_positions};
  if (config_.architecture == Architecture::kEncoderDecoder) {
    check_side("source", batch.batch, batch.source_seq, batch.source, batch.source_lengths);
    inputs.source = {batch.batch, batch.source_seq, batch.source_lengths, {}, {}};
  } else {
    require(batch.source.empty() && batch.source_seq == 0, "[Transformer] a source of {} tokens for a model without cross-attention",
            batch.source.size());
  }
  return inputs;
}

template <class T>
void Transformer<T>::lay_out(const ThreadPool& pool, const Inputs& inputs) {
  const Shape shape{inputs.sequences.batch, inputs.sequences.seq, inputs.source.seq, !inputs.sequences.encoding_positions.empty(), pool.size()};
  if (shape == shape_) return;
  const Sequences& sequences = inputs.sequences;
  const int64_t hidden = config_.hidden_size, rows = sequences.rows(), source_rows = inputs.source.rows();
  const bool both = encoder_ && decoder_;
  const Sequences& encoded = both ? inputs.source : sequences;
  const auto take = [&](Memory& memory) {
    if (encoder_) encoder_->take(memory, encoded, nullptr, encoder_saved_);
    if (decoder_) decoder_->take(memory, sequences, both ? &inputs.source : nullptr, decoder_saved_);
    if (!both) return;
    encoder_->take_out(memory, encoded, encoder_saved_);
    dsource_ = memory.take<T>(source_rows * hidden);
  };
  // What the head reads lies over the scratch of the layers.
  const auto take_head = [&](Memory& memory) { top().take_out(memory, sequences, top_saved()); };
  Memory saved, head;
  take(saved);
  take_head(head);
  MemoryPlan parts{0, head.used() + loss_.plan(pool, rows).scratch};
  if (encoder_) parts = parts + encoder_->plan(pool, encoded, nullptr);
  if (decoder_) parts = parts + decoder_->plan(pool, sequences, both ? &inputs.source : nullptr);
  plan_ = {saved.used(), parts.scratch};
  shape_ = {};  // whatever happens, the old layout is gone
  if (memory_.size() < plan_.saved + plan_.scratch) {
    memory_ = {};  // first give back, then take
    memory_ = AlignedBuffer<std::byte>(plan_.saved + plan_.scratch);
  }
  Memory whole(memory_.data(), plan_.saved);
  take(whole);
  scratch_ = head_scratch_ = Memory(memory_.data() + plan_.saved, plan_.scratch);
  take_head(head_scratch_);
  shape_ = shape;
}

template <class T>
KeySource<T> Transformer<T>::source_of(const Inputs& inputs, T* gradients) const {
  return {&inputs.source, encoder_saved_.out, gradients};
}

template <class T>
T* Transformer<T>::forward(const Context<T>& context, const TokenBatch& batch, const Inputs& inputs) {
  const bool both = encoder_ && decoder_;
  if (encoder_)
    encoder_->forward(context, both ? inputs.source : inputs.sequences, nullptr, both ? batch.source : batch.tokens, encoder_saved_, scratch_);
  if (decoder_) {
    const KeySource<T> source = source_of(inputs, nullptr);
    decoder_->forward(context, inputs.sequences, both ? &source : nullptr, batch.tokens, decoder_saved_, scratch_);
  }
  return top_saved().out;
}

template <class T>
LossSum Transformer<T>::forward_backward(ThreadPool& pool, const TokenBatch& batch, const TrainingStep& step, const StopToken* stop) {
  const Inputs inputs = check(batch, Labels::kWanted);
  lay_out(pool, inputs);
  const Context<T> context{pool, parameters_, ++passes_, {true, step.seed, step.step, batch.first_sequence}, stop};
  T* const x = forward(context, batch, inputs);
  T* const dx = x;  // the gradient of the head's rows takes their place
  const LossSum loss = loss_.run(context, inputs.sequences, x, batch.labels, step.loss_scale, dx, head_scratch_);
  if (loss.counted == 0) return loss;  // nothing was asked: nothing to learn
  if (!decoder_) {
    encoder_->backward(context, inputs.sequences, nullptr, batch.tokens, encoder_saved_, dx, scratch_);
    return loss;
  }
  if (!encoder_) {
    decoder_->backward(context, inputs.sequences, nullptr, batch.tokens, decoder_saved_, dx, scratch_);
    return loss;
  }
  std::fill_n(dsource_, inputs.source.rows() * config_.hidden_size, T{0});
  const KeySource<T> source = source_of(inputs, dsource_);
  decoder_->backward(context, inputs.sequences, &source, batch.tokens, decoder_saved_, dx, scratch_);
  encoder_->backward(context, inputs.source, nullptr, batch.source, encoder_saved_, dsource_, scratch_);
  return loss;
}

template <class T>
LossSum Transformer<T>::evaluate(ThreadPool& pool, const TokenBatch& batch, const StopToken* stop) {
  const Inputs inputs = check(batch, Labels::kWanted);
  lay_out(pool, inputs);
  const Context<T> context{pool, parameters_, ++passes_, {}, stop};
  const T* x = forward(context, batch, inputs);
  return loss_.run(context, inputs.sequences, x, batch.labels, 1, nullptr, head_scratch_);
}

template <class T>
void Transformer<T>::logits(ThreadPool& pool, const TokenBatch& batch, std::span<T> y, const StopToken* stop) {
  const Inputs inputs = check(batch, Labels::kNone);
  require(static_cast<int64_t>(y.size()) == inputs.sequences.rows() * classes(), "[Transformer::logits] room for {} numbers; expected {} x {} x {}",
          y.size(), batch.batch, batch.seq, classes());
  lay_out(pool, inputs);
  const Context<T> context{pool, parameters_, ++passes_, {}, stop};
  const T* x = forward(context, batch, inputs);
  loss_.logits(context, x, inputs.sequences.rows(), y.data(), head_scratch_);
}

template class Transformer<float>;
template class Transformer<double>;

namespace {

class TransformerModel final : public TrainingModel {
 public:
  TransformerModel(const TransformerConfig& config, uint64_t seed) : model_(config, seed) {}
  ParameterStore<float>& parameters() override { return model_.parameters(); }
  LossSum forward_backward(ThreadPool& pool, const TokenBatch& batch, const TrainingStep& step, const StopToken* stop) override {
    return model_.forward_backward(pool, batch, step, stop);
  }
  LossSum evaluate(ThreadPool& pool, const TokenBatch& batch, const StopToken* stop) override { return model_.evaluate(pool, batch, stop); }

 private:
  Transformer<float> model_;
};

}  // namespace

std::unique_ptr<TrainingModel> make_transformer(const TransformerConfig& config, uint64_t seed) {
  return std::make_unique<TransformerModel>(config, seed);
}

}  // namespace regard::nn
