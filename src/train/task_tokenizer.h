// The tokenizer of a task, so that a model that was trained on it reads and writes text.
#pragma once

#include <optional>
#include <string>

#include "regard/tokenizer.h"
#include "train/tasks.h"

namespace regard::train_tasks {

struct TaskTokenizer {
  Tokenizer tokenizer;
  std::string json;  ///< the file tokenizer.json
};

/// A token is a character, as the task prints it; those of its frame are special tokens, which text never becomes. Nothing for tasks with
/// tokens of several characters.
std::optional<TaskTokenizer> make_task_tokenizer(const Task& task);

}  // namespace regard::train_tasks
