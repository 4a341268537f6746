// Tasks that are made up from a seed: what a model must do can be said exactly, and so can whether it does. Start at make_task;
// the rules of each task stand with its maker in tasks_*.cc and in docs/training.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/training_model.h"

namespace regard::train_tasks {

/// A question belongs to one split for good, whatever the seed: a hash of it decides, and one of ten is kept for validation.
enum class Split { kTraining, kValidation };

/// What a model of the task may see: a label at t is to be told from tokens up to t, or from the whole sequence.
enum class Sight { kCausal, kBoth };

/// One sequence, without padding. labels[t] is what the model is to say at t (already shifted); nn::kIgnoredLabel where nothing is
/// asked. Its vectors keep their memory from call to call.
struct Example {
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;  ///< as many as tokens
  std::vector<int32_t> source;  ///< what the encoder reads; empty for tasks without one
  std::vector<int32_t> key;     ///< what makes the question what it is, for the split
};

struct TaskOptions {
  uint64_t seed = 0;
  /// How long or hard a question is; what it counts differs from task to task. 0: as task_list() says.
  int64_t length = 0;
  /// Pig latin: the words to take, of letters a to z. Empty: words made of syllables.
  std::vector<std::string> words{};
};

struct TaskInfo {
  std::string_view name;
  std::string_view summary;   ///< one line: what is given and what is asked
  std::string_view length_of;  ///< what TaskOptions::length counts
  int64_t usual_length = 0, min_length = 0, max_length = 0;
};

/// All tasks in the order of the documentation.
std::span<const TaskInfo> task_list();

class Task {
 public:
  virtual ~Task() = default;

  const TaskInfo& info() const noexcept { return *info_; }
  virtual Sight sight() const { return Sight::kCausal; }
  virtual int32_t vocab_size() const = 0;
  /// The most tokens of a sequence, and of what the encoder reads (0: there is no encoder).
  virtual int64_t seq() const = 0;
  virtual int64_t source_seq() const { return 0; }
  /// Tokens that are no part of a text: padding, what the decoder begins with, what ends its text. Nothing for tasks without an encoder.
  struct Frame {
    int32_t padding, begin, end;
  };
  virtual std::optional<Frame> frame() const { return {}; }
  /// How a token is printed.
  virtual std::string token_text(int32_t id) const = 0;

  /// Example `index` of a split: a function of seed, split and index. Threads: any number at once, each with its own `out`.
  void example(Split split, uint64_t index, Example& out) const;

 protected:
  /// Random numbers of one attempt at an example.
  class Draw {
   public:
    Draw(uint64_t key, uint64_t attempt) : key_(key), attempt_(attempt) {}
    /// Uniform in [0, n), but for a bias of n / 2^32; n < 2^32.
    int32_t below(int64_t n);
    /// Fills `out` with different numbers of [0, n), in random order; out.size() <= n.
    void distinct(int64_t n, std::span<int32_t> out);

   private:
    uint64_t key_, attempt_, next_ = 0;
  };

  /// Makes some question with its answer. `out` comes empty; a key that stays empty is source and tokens.
  virtual void make(Draw& draw, Example& out) const = 0;

 private:
  friend std::unique_ptr<Task> make_task(std::string_view name, const TaskOptions& options);
  const TaskInfo* info_ = nullptr;
  uint64_t seed_ = 0;
};

/// Errors: kInvalidArgument for an unknown name (with the known ones), a length outside the task's range, words that do not fit or
/// leave a split without any.
std::unique_ptr<Task> make_task(std::string_view name, const TaskOptions& options = {});

/// Whether a question with this key is one for validation.
bool held_out(std::span<const int32_t> key);

/// How many sequences are answered without a mistake.
struct ExactMatch {
  int64_t sequences = 0, exact = 0;
  int64_t counted = 0, correct = 0;  ///< single labels

  /// One more sequence. predicted[t] is the model's answer at t; where labels are ignored it may be anything. With the right answers so far
  /// as tokens (teacher forcing) a sequence without a mistake is one that greedy generation gives too: it never sees another prefix.
  void add(std::span<const int32_t> labels, std::span<const int32_t> predicted);
  double share() const { return sequences > 0 ? static_cast<double>(exact) / static_cast<double>(sequences) : 0; }
};

}  // namespace regard::train_tasks
