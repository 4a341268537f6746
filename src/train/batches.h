// The sequences of a step as a function of their numbers. Nothing here has a state: a run that goes on needs to know the
// number of its step and nothing more.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/training_model.h"
#include "train/token_data.h"

namespace regard::train_data {

/// Memory for sequences; what is empty is not used. See nn::TokenBatch for the meaning.
struct Batch {
  int64_t batch = 0, seq = 0, source_seq = 0;
  int64_t first_sequence = 0;
  std::vector<int32_t> tokens, labels;
  std::vector<int64_t> lengths;
  std::vector<int32_t> documents, encoding_positions;
  std::vector<int32_t> source;
  std::vector<int64_t> source_lengths;

  /// `count` sequences from `first` on, numbered by their place in the step.
  nn::TokenBatch view(int64_t first, int64_t count) const;
  /// Labels that are not nn::kIgnoredLabel.
  int64_t counted() const;
};

/// An endless row of sequences, or one pass over something.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  /// Sequences of one pass: of an epoch, or of a validation split.
  virtual int64_t pass() const = 0;
  /// What a sequence is: a question that is solved or not as a whole, or a piece of a text, where that says nothing.
  enum class Sequences { kText, kQuestions };
  virtual Sequences sequences() const { return Sequences::kText; }
  /// Fills `out` with sequences [first, first + count). Numbers beyond a pass are those of the next ones.
  virtual void fill(int64_t first, int64_t count, Batch& out) const = 0;
};

/// The labels of next-token prediction: labels[t] = tokens[t + 1], for labels.size() + 1 tokens. Where `documents` (one per
/// token, or empty) says that the next token belongs to another document, it is not to be predicted.
void shift_labels(std::span<const int32_t> tokens, std::span<const int32_t> documents, std::span<int32_t> labels);

/// What a masked language model is asked: each token is chosen with probability `rate` and becomes a label; it is replaced by
/// `mask_id` (80 %), by any id below `vocab_size` (10 %), or left (10 %). A function of (seed, sequence, place) alone.
/// Source: Devlin et al. 2019, "BERT", section 3.1.
struct Corruption {
  uint64_t seed = 0;
  double rate = 0.15;
  int32_t mask_id = 0;
  int32_t vocab_size = 0;
};
void corrupt_tokens(const Corruption& corruption, int64_t sequence, std::span<int32_t> tokens, std::span<int32_t> labels);

struct WindowOptions {
  enum class Order {
    kShuffled,  ///< for training: an order and an offset of its own for each epoch; whole windows only
    kInOrder,   ///< for measuring: every token once, the last window may be shorter
  };
  int64_t seq = 0;
  uint64_t seed = 0;
  Order order = Order::kShuffled;
  TrainConfig::Data::Documents documents = TrainConfig::Data::Documents::kNone;
  TrainConfig::Data::Objective objective = TrainConfig::Data::Objective::kNextToken;
  Corruption corruption = {};  ///< of kMaskedToken
};

/// Windows of `seq` tokens over a text. With documents a window is cut wherever a document begins: tokens see their own
/// alone, and positions may begin anew there.
class WindowBatches final : public BatchSource {
 public:
  /// Errors: kInvalidArgument when the data is shorter than one window (kShuffled) or than what has a label.
  WindowBatches(TokenData data, const WindowOptions& options);

  int64_t pass() const override { return windows_; }
  void fill(int64_t first, int64_t count, Batch& out) const override;

 private:
  /// The place in the data where sequence `number` begins.
  int64_t begin_of(int64_t number) const;
  void fill_one(int64_t number, int64_t row, Batch& out) const;

  TokenData data_;
  WindowOptions options_;
  int64_t usable_ = 0;   // tokens that can begin a prediction
  int64_t windows_ = 0;  // of a pass
};

}  // namespace regard::train_data
