// Tasks with a rule to compute: addition, modular addition, brackets.
#include <fmt/format.h>

#include <algorithm>

#include "train/task_makers.h"

namespace regard::train_tasks {
namespace {

using nn::kIgnoredLabel;

// The n digits of a, the n digits of b, then the n + 1 digits of a + b from the last to the first. The answer's order is that of
// carrying; with the first digit first the same model learns it far later. Source: Lee, Sreenivasan, Lee, Lee, Papailiopoulos 2023,
// "Teaching arithmetic to small transformers".
class AdditionTask final : public Task {
 public:
  explicit AdditionTask(int64_t digits) : digits_(digits) {
    for (int64_t i = 0; i < digits; ++i) bound_ *= 10;
  }
  int32_t vocab_size() const override { return 10; }
  int64_t seq() const override { return 3 * digits_; }
  std::string token_text(int32_t id) const override { return fmt::format("{}", id); }

 protected:
  void make(Draw& draw, Example& out) const override {
    const int32_t a = draw.below(bound_), b = draw.below(bound_);
    out.key = {std::min(a, b), std::max(a, b)};  // b + a is no other question than a + b
    for (const int32_t number : {a, b}) {
      for (int64_t unit = bound_ / 10; unit > 0; unit /= 10) out.tokens.push_back(static_cast<int32_t>(number / unit % 10));
    }
    out.labels.assign(out.tokens.size() - 1, kIgnoredLabel);
    int64_t sum = int64_t{a} + b;
    for (int64_t i = 0; i <= digits_; ++i) {
      const auto digit = static_cast<int32_t>(sum % 10);
      sum /= 10;
      out.labels.push_back(digit);
      if (i < digits_) out.tokens.push_back(digit);
    }
  }

 private:
  int64_t digits_, bound_ = 1;
};

// a b =, with the label (a + b) mod m at the sign.
class ModularTask final : public Task {
 public:
  explicit ModularTask(int64_t modulus) : modulus_(static_cast<int32_t>(modulus)) {}
  int32_t vocab_size() const override { return modulus_ + 1; }
  int64_t seq() const override { return 3; }
  std::string token_text(int32_t id) const override { return id == modulus_ ? "=" : fmt::format("{}", id); }

 protected:
  void make(Draw& draw, Example& out) const override {
    const int32_t a = draw.below(modulus_), b = draw.below(modulus_);
    out.key = {std::min(a, b), std::max(a, b)};
    out.tokens = {a, b, modulus_};
    out.labels = {kIgnoredLabel, kIgnoredLabel, (a + b) % modulus_};
  }

 private:
  int32_t modulus_;
};

// A balanced text of n pairs of brackets of four kinds. Opening ones are given as they are, closing ones as one sign for all kinds;
// the label there is the closing bracket that belongs. At each place the text goes deeper with probability 1/2, where it may.
class BracketTask final : public Task {
 public:
  explicit BracketTask(int64_t pairs) : pairs_(pairs) {}
  int32_t vocab_size() const override { return 2 * kKinds + 1; }
  int64_t seq() const override { return 2 * pairs_; }
  std::string token_text(int32_t id) const override { return std::string(1, "([{<)]}>?"[id]); }

 protected:
  void make(Draw& draw, Example& out) const override {
    int64_t opened = 0, depth = 0;
    for (int64_t t = 0; t < seq(); ++t) {
      const bool may_open = opened < pairs_, may_close = depth > 0;
      if (may_open && (!may_close || draw.below(2) == 0)) {
        out.key.push_back(draw.below(kKinds));  // the brackets that are open
        out.tokens.push_back(out.key.back());
        out.labels.push_back(kIgnoredLabel);
        ++opened, ++depth;
      } else {
        out.tokens.push_back(kClosing);
        out.labels.push_back(kKinds + out.key.back());
        out.key.pop_back();
        --depth;
      }
    }
  }

 private:
  static constexpr int32_t kKinds = 4, kClosing = 2 * kKinds;
  int64_t pairs_;
};

}  // namespace

std::unique_ptr<Task> make_addition(int64_t digits) { return std::make_unique<AdditionTask>(digits); }
std::unique_ptr<Task> make_modular(int64_t modulus) { return std::make_unique<ModularTask>(modulus); }
std::unique_ptr<Task> make_brackets(int64_t pairs) { return std::make_unique<BracketTask>(pairs); }

}  // namespace regard::train_tasks
