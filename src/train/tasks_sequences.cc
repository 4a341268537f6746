// Tasks about order: copy, reverse, sort, induction, associative recall.
#include <fmt/format.h>

#include <algorithm>

#include "train/task_makers.h"

namespace regard::train_tasks {
namespace {

using nn::kIgnoredLabel;

/// Tokens and labels of "prompt, then answer": the answer's tokens are given but for the last, and asked one place earlier.
void ask(Example& out, std::span<const int32_t> answer) {
  out.labels.assign(out.tokens.size() - 1, kIgnoredLabel);
  out.labels.insert(out.labels.end(), answer.begin(), answer.end());
  out.tokens.insert(out.tokens.end(), answer.begin(), answer.end() - 1);
}

/// Digits 0 to 9 are tokens 0 to 9.
class DigitTask : public Task {
 public:
  explicit DigitTask(int64_t length) : length_(length) {}
  int32_t vocab_size() const override { return 10; }
  std::string token_text(int32_t id) const override { return id < 10 ? fmt::format("{}", id) : "="; }

 protected:
  void draw_digits(Draw& draw, std::vector<int32_t>& out) const {
    for (int64_t i = 0; i < length_; ++i) out.push_back(draw.below(10));
  }
  int64_t length_;
};

// d_1 ... d_n = d_1 ... d_n
class CopyTask final : public DigitTask {
 public:
  using DigitTask::DigitTask;
  int32_t vocab_size() const override { return 11; }
  int64_t seq() const override { return 2 * length_; }

 protected:
  void make(Draw& draw, Example& out) const override {
    draw_digits(draw, out.key);
    out.tokens = out.key;
    out.tokens.push_back(10);
    ask(out, out.key);
  }
};

// The label at t is the digit at n - 1 - t. Each of n places asks for another one, so one look at the whole is enough.
class ReverseTask final : public DigitTask {
 public:
  using DigitTask::DigitTask;
  Sight sight() const override { return Sight::kBoth; }
  int64_t seq() const override { return length_; }

 protected:
  void make(Draw& draw, Example& out) const override {
    draw_digits(draw, out.tokens);
    out.labels.assign(out.tokens.rbegin(), out.tokens.rend());
  }
};

// d_1 ... d_n, then the same in rising order. The answer begins at a known place, so no sign is needed between.
class SortTask final : public DigitTask {
 public:
  using DigitTask::DigitTask;
  int64_t seq() const override { return 2 * length_ - 1; }

 protected:
  void make(Draw& draw, Example& out) const override {
    draw_digits(draw, out.tokens);
    out.key = out.tokens;
    std::sort(out.key.begin(), out.key.end());  // another order of a held-out question is held out with it
    ask(out, out.key);
  }
};

// n different tokens of 64, n drawn between half the longest period and all of it, again and again. What follows a token is what
// followed it before. The period differs from sequence to sequence because of one that is always the same a single layer could
// learn the distance; so it takes a head that finds the token after the last occurrence, which needs two layers.
class InductionTask final : public Task {
 public:
  explicit InductionTask(int64_t longest) : longest_(longest) {}
  int32_t vocab_size() const override { return 64; }
  int64_t seq() const override { return 2 * longest_ - 1; }
  std::string token_text(int32_t id) const override { return fmt::format("t{}", id); }

 protected:
  void make(Draw& draw, Example& out) const override {
    const int64_t shortest = longest_ / 2;
    out.key.resize(static_cast<size_t>(shortest + draw.below(longest_ - shortest + 1)));
    draw.distinct(vocab_size(), out.key);
    for (int64_t t = 0; t < seq(); ++t) {
      out.tokens.push_back(token(out.key, t));
      out.labels.push_back(t < longest_ ? kIgnoredLabel : token(out.key, t + 1));  // by then every token was seen before
    }
  }

 private:
  static int32_t token(const std::vector<int32_t>& block, int64_t t) { return block[static_cast<size_t>(t) % block.size()]; }
  int64_t longest_;
};

// k_1 v_1 ... k_n v_n, then the keys in another order; at each of these the label is its value. Keys and values are different
// tokens of their own 32, so that guessing one of the values is right once in n, and no answer is given that would help with the next.
class RecallTask final : public Task {
 public:
  explicit RecallTask(int64_t pairs) : pairs_(pairs) {}
  int32_t vocab_size() const override { return 2 * kEach; }
  int64_t seq() const override { return 3 * pairs_; }
  std::string token_text(int32_t id) const override { return fmt::format("{}{}", id < kEach ? "k" : "v", id % kEach); }

 protected:
  void make(Draw& draw, Example& out) const override {
    const auto n = static_cast<size_t>(pairs_);
    out.key.resize(3 * n);
    const std::span<int32_t> all = out.key, keys = all.first(n), values = all.subspan(n, n), order = all.last(n);
    draw.distinct(kEach, keys);
    draw.distinct(kEach, values);
    draw.distinct(pairs_, order);
    for (size_t i = 0; i < n; ++i) {
      out.tokens.push_back(keys[i]);
      out.tokens.push_back(kEach + values[i]);
    }
    out.labels.assign(2 * n, kIgnoredLabel);
    for (const int32_t i : order) {
      out.tokens.push_back(keys[static_cast<size_t>(i)]);
      out.labels.push_back(kEach + values[static_cast<size_t>(i)]);
    }
  }

 private:
  static constexpr int32_t kEach = 32;
  int64_t pairs_;
};

}  // namespace

std::unique_ptr<Task> make_copy(int64_t length) { return std::make_unique<CopyTask>(length); }
std::unique_ptr<Task> make_reverse(int64_t length) { return std::make_unique<ReverseTask>(length); }
std::unique_ptr<Task> make_sort(int64_t length) { return std::make_unique<SortTask>(length); }
std::unique_ptr<Task> make_induction(int64_t length) { return std::make_unique<InductionTask>(length); }
std::unique_ptr<Task> make_recall(int64_t length) { return std::make_unique<RecallTask>(length); }

}  // namespace regard::train_tasks
