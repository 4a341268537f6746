// What a configuration with a task asks for: the task, and the shape of the model that it fills in.
#pragma once

#include <cstdint>
#include <memory>

#include "regard/train.h"
#include "train/tasks.h"

namespace regard::train_loop {

struct TaskRun {
  std::shared_ptr<const train_tasks::Task> task;
  TrainConfig shape_config;  ///< the configuration with the sequences of the task
  int64_t vocab_size = 0;
};

/// Errors: kInvalidArgument for an unknown task, one that is set beside files, and an architecture that cannot do it.
TaskRun task_run(const TrainConfig& config);

}  // namespace regard::train_loop
