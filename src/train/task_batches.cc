#include "train/task_batches.h"

#include <algorithm>

namespace regard::train_data {

void TaskBatches::fill(int64_t first, int64_t count, Batch& out) const {
  out.batch = count;
  out.seq = task_->seq();
  out.source_seq = task_->source_seq();
  out.first_sequence = 0;
  const auto size = static_cast<size_t>(count * out.seq), source_size = static_cast<size_t>(count * out.source_seq);
  out.tokens.assign(size, 0);
  out.labels.assign(size, nn::kIgnoredLabel);
  out.lengths.assign(static_cast<size_t>(count), 0);
  out.documents.clear();
  out.encoding_positions.clear();
  out.source.assign(source_size, 0);
  out.source_lengths.assign(source_size > 0 ? static_cast<size_t>(count) : 0, 0);
  train_tasks::Example example;
  for (int64_t row = 0; row < count; ++row) {
    task_->example(split_, static_cast<uint64_t>(first + row), example);
    std::copy(example.tokens.begin(), example.tokens.end(), out.tokens.begin() + row * out.seq);
    std::copy(example.labels.begin(), example.labels.end(), out.labels.begin() + row * out.seq);
    out.lengths[static_cast<size_t>(row)] = static_cast<int64_t>(example.tokens.size());
    if (source_size == 0) continue;
    std::copy(example.source.begin(), example.source.end(), out.source.begin() + row * out.source_seq);
    out.source_lengths[static_cast<size_t>(row)] = static_cast<int64_t>(example.source.size());
  }
}

}  // namespace regard::train_data
