// The examples of a synthetic task as sequences for the trainer.
#pragma once

#include <memory>

#include "train/batches.h"
#include "train/tasks.h"

namespace regard::train_data {

/// Sequence i is example i of a split, padded to the longest that the task has.
class TaskBatches final : public BatchSource {
 public:
  /// A pass of the validation split; training examples never repeat.
  static constexpr int64_t kValidationExamples = 1000;

  TaskBatches(std::shared_ptr<const train_tasks::Task> task, train_tasks::Split split) : task_(std::move(task)), split_(split) {}

  int64_t pass() const override { return kValidationExamples; }
  Sequences sequences() const override { return Sequences::kQuestions; }
  void fill(int64_t first, int64_t count, Batch& out) const override;

 private:
  std::shared_ptr<const train_tasks::Task> task_;
  train_tasks::Split split_;
};

}  // namespace regard::train_data
