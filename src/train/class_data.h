// Texts that have a class each, from JSON lines: {"text": "...", "label": "..."}. Start at load_class_data().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/stop_token.h"
#include "regard/tokenizer.h"
#include "regard/train.h"
#include "train/batches.h"

namespace regard::train_data {

/// The ids of text i are [starts[i], starts[i + 1]): as the tokenizer wants them around a text, and no more of them than run.sequence.
struct ClassTexts {
  std::vector<int32_t> ids;
  std::vector<int64_t> starts = {0};
  std::vector<int32_t> classes;

  int64_t size() const noexcept { return static_cast<int64_t>(classes.size()); }
};

struct ClassData {
  ClassTexts training, validation;
  std::vector<std::string> names;  ///< of the classes: whole numbers by their size, other names by their bytes

  /// A number of all of it.
  uint64_t hash() const;
};

/// Reads data.files, and data.validation_files or the end of data.files, as data.validation_fraction says. Members data.field and
/// data.label; a class is a text or a whole number. Errors: kInvalidArgument (files other than JSON lines, fewer than two classes, a class to measure on that
/// none of the texts to train on has, a text without tokens), kCorruptData (a line without the members), kNotFound, kIo, kCancelled.
ClassData load_class_data(const TrainConfig& config, const Tokenizer& tokenizer, const StopToken* stop = nullptr);

/// Reads files whose classes have names already. Errors: as load_class_data(); kInvalidArgument for a class of another name.
ClassTexts load_class_texts(const std::vector<std::string>& files, const TrainConfig& config, const Tokenizer& tokenizer, const std::vector<std::string>& names,
                            const StopToken* stop = nullptr);

/// A text each, padded to `seq` tokens. Its class is the label of its first token, or of its last one in a decoder, where no other has
/// seen all of it.
class ClassBatches final : public BatchSource {
 public:
  enum class LabelAt { kFirst, kLast };
  enum class Order { kShuffled, kInOrder };
  ClassBatches(ClassTexts texts, int64_t seq, LabelAt label_at, Order order, uint64_t seed);

  int64_t pass() const override { return texts_.size(); }
  Sequences sequences() const override { return Sequences::kQuestions; }
  void fill(int64_t first, int64_t count, Batch& out) const override;

 private:
  ClassTexts texts_;
  int64_t seq_;
  LabelAt label_at_;
  Order order_;
  uint64_t seed_;
};

/// Where the model of a configuration has the class of a text.
ClassBatches::LabelAt label_place(const TrainConfig& config);

}  // namespace regard::train_data
