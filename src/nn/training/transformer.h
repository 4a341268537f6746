// A Transformer with gradients: decoder, encoder, or both, from one set of modules. Start at forward_backward(); a step is
// embedding, layers and loss forward, and the same backward (stack.h, block.h, loss.h). double is for checks.
#pragma once

#include <memory>
#include <optional>

#include "nn/training/loss.h"
#include "nn/training/stack.h"
#include "nn/training/transformer_config.h"
#include "nn/training_model.h"

namespace regard::nn {

template <class T>
class Transformer {
 public:
  /// With parameters drawn from `seed`. Errors: as completed(); kUnsupported for a precision that the
  /// instruction set in use does not have, or that is not for T; kResourceExhausted.
  Transformer(const TransformerConfig& config, uint64_t seed);

  const TransformerConfig& config() const noexcept { return config_; }
  ParameterStore<T>& parameters() noexcept { return parameters_; }

  /// As TrainingModel has it.
  LossSum forward_backward(ThreadPool& pool, const TokenBatch& batch, const TrainingStep& step, const StopToken* stop = nullptr);
  LossSum evaluate(ThreadPool& pool, const TokenBatch& batch, const StopToken* stop = nullptr);

  /// The logits of every token, [batch, seq, vocab_size or num_classes], without dropout; labels are not looked at. What a model
  /// that decodes step by step computes from the same weights, to the bit. Rows of padding mean nothing.
  void logits(ThreadPool& pool, const TokenBatch& batch, std::span<T> y, const StopToken* stop = nullptr);

  /// Bytes that a step of the last shape takes besides the parameters: what is saved for backward, and scratch.
  training::MemoryPlan memory() const noexcept { return plan_; }

 private:
  using Sequences = training::Sequences;
  struct Inputs {
    Sequences sequences, source;
  };
  enum class Labels { kWanted, kNone };

  void initialise(uint64_t seed);
  Inputs check(const TokenBatch& batch, Labels labels) const;
  void check_side(std::string_view name, int64_t batch, int64_t seq, std::span<const int32_t> tokens, std::span<const int64_t> lengths) const;
  void lay_out(const ThreadPool& pool, const Inputs& inputs);
  /// Runs the stacks; gives the rows that the head reads.
  T* forward(const training::Context<T>& context, const TokenBatch& batch, const Inputs& inputs);
  training::KeySource<T> source_of(const Inputs& inputs, T* gradients) const;
  const training::Stack<T>& top() const { return decoder_ ? *decoder_ : *encoder_; }
  typename training::Stack<T>::Saved& top_saved() { return decoder_ ? decoder_saved_ : encoder_saved_; }
  int64_t classes() const noexcept { return config_.num_classes > 0 ? config_.num_classes : config_.vocab_size; }

  TransformerConfig config_;
  ParameterStore<T> parameters_;
  std::optional<training::Stack<T>> encoder_, decoder_;
  training::LinearCrossEntropy<T> loss_;
  uint64_t passes_ = 0;

  // The layout of the last shape.
  struct Shape {
    int64_t batch = -1, seq = 0, source_seq = 0;
    bool encodings = false;
    int threads = 0;
    bool operator==(const Shape&) const = default;
  };
  Shape shape_;
  training::MemoryPlan plan_;
  AlignedBuffer<std::byte> memory_;
  typename training::Stack<T>::Saved encoder_saved_, decoder_saved_;
  T* dsource_ = nullptr;  // gradient of the encoder's output
  training::Memory scratch_, head_scratch_;
};

extern template class Transformer<float>;
extern template class Transformer<double>;

/// The model that a trainer takes.
std::unique_ptr<TrainingModel> make_transformer(const TransformerConfig& config, uint64_t seed);

}  // namespace regard::nn
