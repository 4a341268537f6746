// What a trainer needs of a model: its parameters, and the loss of a batch with its gradients. Nothing of layers or files.
#pragma once

#include <cstdint>
#include <span>

#include "nn/parameters.h"
#include "regard/stop_token.h"
#include "runtime/thread_pool.h"

namespace regard::nn {

/// A label that is not counted: padding, prompts, tokens that a masked language model was not asked for.
inline constexpr int32_t kIgnoredLabel = -100;

/// The sequences of one micro-batch. labels[b][t] is what tokens up to [b][t] are to predict (teacher forcing: already
/// shifted). Spans that are empty mean: every sequence is whole, one document, positions 0, 1, 2 ...
struct TokenBatch {
  int64_t batch = 0;
  int64_t seq = 0;
  std::span<const int32_t> tokens;              ///< [batch, seq]
  std::span<const int32_t> labels;              ///< [batch, seq]
  std::span<const int64_t> lengths;             ///< [batch]: tokens behind are padding: not seen, not counted
  std::span<const int32_t> documents;           ///< [batch, seq]: a token sees its own document alone
  std::span<const int32_t> encoding_positions;  ///< [batch, seq]: for position encodings, when documents restart them

  /// Encoder-decoder models: what the encoder reads.
  int64_t source_seq = 0;
  std::span<const int32_t> source;          ///< [batch, source_seq]
  std::span<const int64_t> source_lengths;  ///< [batch]

  /// The number, within the whole step, of the first sequence here. Dropout is a function of it, so that it does not depend on
  /// how a step was cut into micro-batches.
  int64_t first_sequence = 0;
};

/// What stays the same for all micro-batches of a step.
struct TrainingStep {
  uint64_t seed = 0;       ///< of the run: with `step`, sequence and element it decides dropout
  int64_t step = 0;
  double loss_scale = 1;   ///< gradients are those of the summed loss times this: 1 / labels counted in the whole step
};

/// Sums over the counted labels of a batch.
struct LossSum {
  double nats = 0;      ///< cross-entropy, without smoothing and z-loss: comparable between runs
  double objective = 0; ///< what is trained: with smoothing and z-loss
  int64_t counted = 0;
  int64_t correct = 0;  ///< the label had the highest logit (ties: the lowest id)
  int64_t sequences = 0;  ///< with a counted label at all
  int64_t exact = 0;      ///< of these, with every counted label correct
};

class TrainingModel {
 public:
  virtual ~TrainingModel() = default;

  virtual ParameterStore<float>& parameters() = 0;

  /// The loss of a batch; adds its gradients to parameters().gradients(). Dropout is on. Deterministic: the bits do not depend
  /// on the number of threads. Once a batch of a shape was seen, later ones of that shape allocate nothing.
  /// Errors: kInvalidArgument for tokens outside the vocabulary, labels outside it, lengths outside [0, seq] or a seq longer
  /// than the model's positions; kCancelled when `stop` was requested (gradients are unspecified then).
  virtual LossSum forward_backward(ThreadPool& pool, const TokenBatch& batch, const TrainingStep& step, const StopToken* stop = nullptr) = 0;

  /// The loss without dropout and without gradients.
  virtual LossSum evaluate(ThreadPool& pool, const TokenBatch& batch, const StopToken* stop = nullptr) = 0;
};

}  // namespace regard::nn
