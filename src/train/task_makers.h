// The makers of tasks, for the table in tasks.cc. `length` is in the range of the task's line there.
#pragma once

#include <memory>

#include "train/tasks.h"

namespace regard::train_tasks {

// tasks_sequences.cc
std::unique_ptr<Task> make_copy(int64_t length);
std::unique_ptr<Task> make_reverse(int64_t length);
std::unique_ptr<Task> make_sort(int64_t length);
std::unique_ptr<Task> make_induction(int64_t length);
std::unique_ptr<Task> make_recall(int64_t length);
// tasks_rules.cc
std::unique_ptr<Task> make_addition(int64_t digits);
std::unique_ptr<Task> make_modular(int64_t modulus);
std::unique_ptr<Task> make_brackets(int64_t pairs);
// tasks_words.cc
std::unique_ptr<Task> make_pig_latin(int64_t syllables, const std::vector<std::string>& words);

}  // namespace regard::train_tasks
