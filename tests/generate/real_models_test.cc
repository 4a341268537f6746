// The two example models of tools/get-model, when REGARD_MODELS names the directory that holds them: greedy text and logits
// of transformers on the dequantised weights (tools/golden/model_greedy.py). Skipped otherwise; make test-models fetches them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "generate/sampler.h"
#include "regard/generate.h"
#include "regard/model.h"
#include "regard/tokenizer.h"
#include "support/golden.h"

namespace regard {
namespace {

class RealModel : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* directory = std::getenv("REGARD_MODELS");
    if (directory == nullptr) GTEST_SKIP() << "REGARD_MODELS is not set";
    golden_ = test::read_json(std::string("models/") + GetParam() + ".json");
    path_ = std::filesystem::path(directory) / golden_["file"].get<std::string>();
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << path_ << " is not there";
  }

  nlohmann::json golden_;
  std::filesystem::path path_;
};

TEST_P(RealModel, GreedyIdsAndLogitsOfTransformers) {
  const Model model = Model::load(path_.string());
  const auto vocab = static_cast<size_t>(model.info().vocab_size);
  const auto sampled = golden_["sampled_ids"].get<std::vector<int32_t>>();
  int compared = 0, ties = 0;
  double worst = 0;
  for (const auto& prompt : golden_["prompts"]) {
    SCOPED_TRACE(prompt["text"].get<std::string>());
    std::vector<int32_t> history = prompt["ids"];
    const auto greedy = prompt["greedy"].get<std::vector<int32_t>>();
    const auto margins = prompt["margins"].get<std::vector<double>>();
    std::vector<float> logits(vocab);
    Sequence sequence(model);
    std::span<const int32_t> next = history;
    const size_t prompt_size = history.size();
    for (size_t step = 0; step < greedy.size(); ++step) {
      const Feed feed{&sequence, next, Feed::Rows::kLast};
      model.forward({&feed, 1}, {}, logits.data());
      if (step == 0) {
        const double bound = 1e-3 * prompt["max_abs_logit"].get<double>();
        const auto compare = [&](const std::vector<int32_t>& ids, const std::vector<double>& want) {
          for (size_t i = 0; i < ids.size(); ++i) {
            const double difference = std::fabs(static_cast<double>(logits[static_cast<size_t>(ids[i])]) - want[i]);
            worst = std::max(worst, difference / prompt["max_abs_logit"].get<double>());
            ASSERT_LE(difference, bound) << ids[i];
          }
        };
        compare(prompt["top_ids"], prompt["top_logits"]);
        compare(sampled, prompt["sampled_logits"]);
      }
      const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      if (best != greedy[step]) {
        ASSERT_LT(margins[step], 1e-3) << "step " << step << ": " << best << " instead of " << greedy[step];
        ++ties;
        break;  // after a tie the texts may part
      }
      ++compared;
      history.push_back(best);
      next = std::span<const int32_t>(history).last(1);
    }
    EXPECT_GE(history.size() - prompt_size, 30u);
  }
  std::printf("%s: %d greedy ids equal, %d ties, logits within %.1e of the largest\n", GetParam(), compared, ties, worst);
  EXPECT_GE(compared, 10 * 40 - 10);
}

INSTANTIATE_TEST_SUITE_P(Models, RealModel, testing::Values("smollm2", "gemma3"), [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace regard
