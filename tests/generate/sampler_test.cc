// Choosing tokens: the distributions of Hugging Face transformers (tools/golden/sampling.py), and the promises of our own.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>

#include "generate/logprobs.h"
#include "generate/sampler.h"
#include "regard/error.h"
#include "support/golden.h"

namespace regard {
namespace {

SamplingOptions options_of(const nlohmann::json& o) {
  SamplingOptions options;
  options.temperature = o.value("temperature", 0.0f);
  options.top_k = o.value("top_k", 0);
  options.top_p = o.value("top_p", 1.0f);
  options.min_p = o.value("min_p", 0.0f);
  options.typical_p = o.value("typical_p", 1.0f);
  options.repetition_penalty = o.value("repetition_penalty", 1.0f);
  options.frequency_penalty = o.value("frequency_penalty", 0.0f);
  options.presence_penalty = o.value("presence_penalty", 0.0f);
  options.no_repeat_ngram = o.value("no_repeat_ngram", 0);
  if (o.contains("logit_bias"))
    for (const auto& pair : o["logit_bias"]) options.logit_bias.emplace_back(pair[0].get<int32_t>(), pair[1].get<float>());
  return options;
}

TEST(Sampler, DistributionsOfTransformers) {
  std::ifstream in(test::golden_path("sampling/cases.jsonl"));
  std::string line;
  int cases = 0;
  while (std::getline(in, line)) {
    const auto c = nlohmann::json::parse(line);
    SCOPED_TRACE(c["options"].dump());
    const auto logits = c["logits"].get<std::vector<float>>();
    const auto history = c["history"].get<std::vector<int32_t>>();
    const auto want = c["probs"].get<std::vector<double>>();
    std::vector<double> got(want.size());
    for (const Candidate& x : candidates(logits, history, c["prompt_size"], options_of(c["options"]))) got[static_cast<size_t>(x.id)] = x.prob;
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-6) << i;
    ++cases;
  }
  EXPECT_EQ(cases, 57);
}

TEST(Sampler, GreedyTakesTheLargestAndTiesGoToTheLowestId) {
  const std::vector<float> logits = {1, 5, -2, 5, 4.9f};
  EXPECT_EQ(sample(logits, {}, 0, {}, 0, 0), 1);
  SamplingOptions banned;
  banned.logit_bias = {{1, -INFINITY}};
  EXPECT_EQ(sample(logits, {}, 0, banned, 0, 0), 3);
  SamplingOptions hot;
  hot.temperature = 1;
  hot.top_k = 1;
  EXPECT_EQ(sample(logits, {}, 0, hot, 0, 0), 1) << "ties are broken the same way by the filters";
}

TEST(Sampler, ADrawIsAFunctionOfSeedChoiceAndIndex) {
  std::vector<float> logits(500);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i));
  SamplingOptions options;
  options.temperature = 1;
  options.seed = 7;
  std::map<int32_t, int> seen;
  for (int64_t t = 0; t < 200; ++t) {
    const int32_t id = sample(logits, {}, 0, options, 3, t);
    EXPECT_EQ(id, sample(logits, {}, 0, options, 3, t));
    ++seen[id];
  }
  EXPECT_GT(seen.size(), 50u);
  int differ = 0;
  for (int64_t t = 0; t < 50; ++t) differ += sample(logits, {}, 0, options, 3, t) != sample(logits, {}, 0, options, 4, t);
  EXPECT_GT(differ, 30) << "another choice is another stream";
}

TEST(Sampler, FrequenciesFollowTheProbabilities) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  SamplingOptions options;
  options.temperature = 1;
  std::array<int, 3> count{};
  constexpr int kDraws = 20000;
  for (int64_t t = 0; t < kDraws; ++t) ++count[static_cast<size_t>(sample(logits, {}, 0, options, 0, t))];
  // Five standard deviations of a binomial count.
  EXPECT_NEAR(count[0], 0.5 * kDraws, 5 * std::sqrt(kDraws * 0.25));
  EXPECT_NEAR(count[1], 0.3 * kDraws, 5 * std::sqrt(kDraws * 0.21));
}

TEST(Sampler, RefusesNonsense) {
  const std::vector<float> logits = {1, 2, 3};
  const auto code = [&](const std::vector<float>& row, SamplingOptions o) {
    try {
      sample(row, {}, 0, o, 0, 0);
      return Code::kInternal;
    } catch (const Error& error) {
      return error.code();
    }
  };
  SamplingOptions o;
  o.temperature = -1;
  EXPECT_EQ(code(logits, o), Code::kInvalidArgument);
  o = {};
  o.temperature = NAN;
  EXPECT_EQ(code(logits, o), Code::kInvalidArgument);
  o = {};
  o.top_p = 0;
  EXPECT_EQ(code(logits, o), Code::kInvalidArgument);
  o = {};
  o.top_p = 1.0001f;
  EXPECT_EQ(code(logits, o), Code::kInvalidArgument);
  o = {};
  o.top_k = -1;
  EXPECT_EQ(code(logits, o), Code::kInvalidArgument);
  o = {};
  o.repetition_penalty = 0;
  EXPECT_EQ(code(logits, o), Code::kInvalidArgument);
  o = {};
  o.logit_bias = {{3, 1.0f}};
  EXPECT_EQ(code(logits, o), Code::kInvalidArgument);
  EXPECT_EQ(code({1, NAN, 2}, {}), Code::kNumeric);
  EXPECT_EQ(code({-INFINITY, -INFINITY}, {}), Code::kNumeric);
  EXPECT_EQ(code({0, INFINITY}, {}), Code::kNumeric);
}

TEST(Logprobs, AgainstF64) {
  std::vector<float> logits(3000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = 20 * std::sin(static_cast<float>(i) * 0.7f);
  double sum = 0;
  for (float x : logits) sum += std::exp(static_cast<double>(x));
  const double want = std::log(sum), got = log_sum_exp(logits);
  EXPECT_NEAR(got, want, 1e-6);
  const auto top = top_logprobs(logits, got, 5);
  ASSERT_EQ(top.size(), 5u);
  for (size_t i = 1; i < top.size(); ++i) EXPECT_LE(top[i].logprob, top[i - 1].logprob);
  EXPECT_NEAR(top[0].logprob, *std::max_element(logits.begin(), logits.end()) - want, 1e-5);
  EXPECT_EQ(top_logprobs(logits, got, 100000).size(), logits.size());
}

}  // namespace
}  // namespace regard
