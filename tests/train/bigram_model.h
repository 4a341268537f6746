// The smallest model that can be trained: logits = W[token] + b. Its gradient is exact and short enough to be read, and like
// dropout it depends on seed, step and sequence by a counter, so that a run which goes on at the wrong step is noticed.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "nn/training_model.h"

namespace regard::train_test {

class BigramModel final : public nn::TrainingModel {
 public:
  explicit BigramModel(int64_t vocab_size, uint64_t seed = 7) : vocab_(vocab_size) {
    weight_ = store_.add("weight", {vocab_, vocab_}, nn::WeightDecay::kApplied);
    bias_ = store_.add("bias", {vocab_}, nn::WeightDecay::kNone);
    store_.allocate();
    for (int64_t i = 0; i < vocab_ * vocab_; ++i) {
      store_.value(weight_)[i] = static_cast<float>(random_uniform(seed, 1, static_cast<uint64_t>(i)) - 0.5);
    }
  }

  nn::ParameterStore<float>& parameters() override { return store_; }

  nn::LossSum forward_backward(ThreadPool&, const nn::TokenBatch& batch, const nn::TrainingStep& step, const StopToken* stop) override {
    ++calls;
    if (stop != nullptr && stop->stop_requested()) fail(Code::kCancelled, "[BigramModel] stopped");
    if (no_memory) fail(Code::kResourceExhausted, "[BigramModel] no memory");
    if (step.step == nan_at) store_.gradient(bias_)[0] = NAN;
    return pass(batch, &step);
  }

  nn::LossSum evaluate(ThreadPool&, const nn::TokenBatch& batch, const StopToken* stop) override {
    if (stop != nullptr && stop->stop_requested()) fail(Code::kCancelled, "[BigramModel] stopped");
    return pass(batch, nullptr);
  }

  int64_t calls = 0;
  bool no_memory = false;
  int64_t nan_at = -1;  // the step whose gradient is not a number

 private:
  nn::LossSum pass(const nn::TokenBatch& batch, const nn::TrainingStep* step) {
    nn::LossSum sum;
    for (int64_t b = 0; b < batch.batch; ++b) {
      const auto sequence = static_cast<uint64_t>(batch.first_sequence + b);
      // Some weight for each sequence of each step, in the place of dropout.
      const double weight = step == nullptr ? 1 : 0.5 + random_uniform(step->seed, 1000 + static_cast<uint64_t>(step->step), sequence);
      for (int64_t t = 0; t < batch.seq; ++t) {
        const auto at = static_cast<size_t>(b * batch.seq + t);
        if (batch.labels[at] != nn::kIgnoredLabel) one(batch.tokens[at], batch.labels[at], step == nullptr ? 0 : step->loss_scale * weight, sum);
      }
    }
    return sum;
  }

  void one(int32_t token, int32_t label, double scale, nn::LossSum& sum) {
    const int64_t row = int64_t{token} * vocab_;
    std::vector<double> logits(static_cast<size_t>(vocab_));
    for (int64_t v = 0; v < vocab_; ++v) {
      logits[static_cast<size_t>(v)] = static_cast<double>(store_.value(weight_)[row + v]) + static_cast<double>(store_.value(bias_)[v]);
    }
    const auto top = std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (const double logit : logits) total += std::exp(logit - *top);
    const double loss = *top + std::log(total) - logits[static_cast<size_t>(label)];
    sum.nats += loss;
    sum.objective += loss;
    sum.counted += 1;
    sum.correct += top - logits.begin() == label ? 1 : 0;
    for (int64_t v = 0; v < vocab_ && scale != 0; ++v) {
      const double p = std::exp(logits[static_cast<size_t>(v)] - *top) / total;
      const auto g = static_cast<float>((p - (v == label ? 1 : 0)) * scale);
      store_.gradient(weight_)[row + v] += g;
      store_.gradient(bias_)[v] += g;
    }
  }

  int64_t vocab_;
  nn::ParameterStore<float> store_;
  int weight_ = 0, bias_ = 0;
};

/// A text of a simple language: the next token is (3 x token + 1) mod vocab, or now and then any.
inline std::vector<int32_t> bigram_text(int64_t size, int32_t vocab, uint64_t seed = 11) {
  std::vector<int32_t> ids;
  int32_t token = 0;
  for (int64_t i = 0; i < size; ++i) {
    const uint64_t bits = random_bits(seed, 2, static_cast<uint64_t>(i));
    token = bits % 5 == 0 ? static_cast<int32_t>(bits / 5 % static_cast<uint64_t>(vocab)) : (3 * token + 1) % vocab;
    ids.push_back(token);
  }
  return ids;
}

}  // namespace regard::train_test
