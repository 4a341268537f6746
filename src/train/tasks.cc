// What all tasks share: the table, the split, random numbers by counter.
#include "train/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/rng.h"
#include "train/task_makers.h"

namespace regard::train_tasks {
namespace {

constexpr TaskInfo kTasks[] = {
    {"copy", "digits, then a sign: the digits again", "digits", 16, 1, 512},
    {"reverse", "digits, all seen at once: at each place the digit of the mirrored place", "digits", 16, 2, 512},
    {"sort", "digits: the same in rising order", "digits", 12, 2, 512},
    {"addition", "two numbers: their sum, last digit first", "digits of a number", 3, 1, 9},
    {"modular", "two numbers below a modulus: their sum modulo it", "the modulus", 97, 2, 10000},
    {"recall", "pairs of key and value, then the keys in another order: the value of each", "pairs", 8, 2, 32},
    {"induction", "some different tokens over and over: what comes next, from the second half on", "the longest period", 32, 4, 64},
    {"brackets", "opening brackets of four kinds and places where one closes: which kind it is", "pairs", 16, 1, 256},
    {"pig-latin", "the letters of a word: the word in pig latin", "most syllables of a word", 3, 1, 3},
};

// Random numbers of different purposes never meet: the first number of a stream is that of its task and split.
constexpr uint64_t kStreamTasks = 0x7461736B'00000000u;  // "task"

constexpr uint64_t kHeldOutOneOf = 10;
// A question of a split is found after 10 attempts on average at the rarer side; this many say that there is none.
constexpr uint64_t kMaxAttempts = 100'000;

std::unique_ptr<Task> make(std::string_view name, int64_t length, const TaskOptions& options) {
  if (name == "copy") return make_copy(length);
  if (name == "reverse") return make_reverse(length);
  if (name == "sort") return make_sort(length);
  if (name == "addition") return make_addition(length);
  if (name == "modular") return make_modular(length);
  if (name == "recall") return make_recall(length);
  if (name == "induction") return make_induction(length);
  if (name == "brackets") return make_brackets(length);
  return make_pig_latin(length, options.words);
}

}  // namespace

std::span<const TaskInfo> task_list() { return kTasks; }

bool held_out(std::span<const int32_t> key) {
  // Each token goes through the block function with what stands before it: no two short keys share a hash by their form.
  uint64_t hash = key.size();
  for (const int32_t token : key) hash = random_bits(hash, kStreamTasks, static_cast<uint64_t>(static_cast<uint32_t>(token)));
  return hash % kHeldOutOneOf == 0;
}

int32_t Task::Draw::below(int64_t n) {
  const uint64_t bits = random_bits(key_, attempt_, next_++) >> 32;
  return static_cast<int32_t>(bits * static_cast<uint64_t>(n) >> 32);
}

void Task::Draw::distinct(int64_t n, std::span<int32_t> out) {
  // Floyd's way of drawing a set needs no array of n; the order is then shuffled.
  const auto count = static_cast<int64_t>(out.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t last = n - count + i;
    const int32_t drawn = below(last + 1);
    const std::span<int32_t> before = out.first(static_cast<size_t>(i));
    const bool taken = std::find(before.begin(), before.end(), drawn) != before.end();
    out[static_cast<size_t>(i)] = taken ? static_cast<int32_t>(last) : drawn;
  }
  for (size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
}

void Task::example(Split split, uint64_t index, Example& out) const {
  const uint64_t stream = kStreamTasks + 1 + 2 * static_cast<uint64_t>(info_ - kTasks) + (split == Split::kValidation ? 1 : 0);
  const uint64_t key = random_bits(seed_, stream, index);
  for (uint64_t attempt = 0; attempt < kMaxAttempts; ++attempt) {
    out.tokens.clear(), out.labels.clear(), out.source.clear(), out.key.clear();
    Draw draw(key, attempt);
    make(draw, out);
    if (out.key.empty()) {
      out.key.assign(out.source.begin(), out.source.end());
      out.key.insert(out.key.end(), out.tokens.begin(), out.tokens.end());
    }
    if (held_out(out.key) == (split == Split::kValidation)) return;
  }
  fail(Code::kInvalidArgument, "[Task::example] the task '{}' has no question for {}; set data.task_length to more", info_->name,
       split == Split::kValidation ? "validation" : "training");
}

std::unique_ptr<Task> make_task(std::string_view name, const TaskOptions& options) {
  const auto info = std::find_if(std::begin(kTasks), std::end(kTasks), [&](const TaskInfo& task) { return task.name == name; });
  if (info == std::end(kTasks)) {
    std::vector<std::string_view> names;
    for (const TaskInfo& task : kTasks) names.push_back(task.name);
    fail(Code::kInvalidArgument, "[make_task] there is no task '{}'; there are {}", name, fmt::join(names, ", "));
  }
  const int64_t length = options.length == 0 ? info->usual_length : options.length;
  require(length >= info->min_length && length <= info->max_length, "[make_task] the length of the task '{}' is {} ({}); expected {} to {}",
          name, length, info->length_of, info->min_length, info->max_length);
  require(options.words.empty() || name == "pig-latin", "[make_task] the task '{}' takes no words; pig-latin does", name);
  std::unique_ptr<Task> task = make(name, length, options);
  task->info_ = info;
  task->seed_ = options.seed;
  return task;
}

void ExactMatch::add(std::span<const int32_t> labels, std::span<const int32_t> predicted) {
  require(labels.size() == predicted.size(), "[ExactMatch::add] {} labels and {} predictions; expected as many", labels.size(), predicted.size());
  int64_t asked = 0, right = 0;
  for (size_t t = 0; t < labels.size(); ++t) {
    if (labels[t] == nn::kIgnoredLabel) continue;
    ++asked;
    right += labels[t] == predicted[t] ? 1 : 0;
  }
  if (asked == 0) return;  // nothing was asked: neither right nor wrong
  ++sequences;
  exact += asked == right ? 1 : 0;
  counted += asked;
  correct += right;
}

}  // namespace regard::train_tasks
