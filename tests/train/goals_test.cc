// Small models learn what they must, and do not learn what they cannot: short forms of tools/train-suite, from the same
// configurations; and a checkpoint that is asked again answers as the run said.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "../support/temp_dir.h"
#include "regard/error.h"
#include "regard/model.h"
#include "regard/train.h"
#include "train/tasks.h"

namespace regard::train_test {
namespace {

using testing_support::TempDir;

TrainConfig example_config(const std::string& name) {
  const std::string path = std::string(REGARD_TEST_DATA) + "/../examples/train/" + name + ".json";
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::stringstream text;
  text << in.rdbuf();
  return parse_train_config(text.str(), path);
}

struct Outcome {
  TrainResult result;
  TrainEvent evaluation;  // the last
};

Outcome go(const TrainConfig& config, const std::string& directory) {
  Outcome outcome;
  TrainOptions options;
  options.directory = directory;
  options.on_event = [&](const TrainEvent& event) {
    if (event.kind == TrainEvent::Kind::kEvaluation) outcome.evaluation = event;
  };
  outcome.result = train(config, options);
  return outcome;
}

TrainConfig short_addition() {
  TrainConfig config = example_config("addition");
  config.data.task_length = 2;
  config.run.steps = 150;
  config.run.evaluate_every = config.run.save_every = 0;
  return config;
}

// Reversing takes a look at what comes later. With it every question is solved; without it the first half of the places is left
// with guessing one digit of ten, and nothing is solved.
TEST(Goals, ReverseNeedsToSeeTheWhole) {
  for (const char* mask : {"full", "causal"}) {
    const TempDir directory;
    TrainConfig config = example_config("reverse");
    config.model.mask = mask;
    config.run.steps = 60;
    config.run.evaluate_every = config.run.save_every = 0;
    const Outcome outcome = go(config, directory.path("run"));
    EXPECT_EQ(outcome.evaluation.questions, 1000);
    if (std::string(mask) == "full") {
      EXPECT_EQ(outcome.evaluation.solved, 1000);
    } else {
      EXPECT_EQ(outcome.evaluation.solved, 0);
      EXPECT_NEAR(outcome.evaluation.accuracy, 0.5 + 0.5 / 10, 0.02);
    }
  }
}

// The answers that a model writes by itself, digit after digit, are those that were counted with the right digits before them.
TEST(Goals, AdditionIsLearntAndWritten) {
  const TempDir directory;
  const TrainConfig config = short_addition();
  const Outcome outcome = go(config, directory.path("run"));
  EXPECT_GE(outcome.evaluation.solved, 950);

  const Model model = Model::load(directory.path("run/latest"));
  const auto task = train_tasks::make_task("addition", {.seed = config.run.seed, .length = 2, .words = {}});
  constexpr int64_t kAsked = 200;
  int64_t solved = 0;
  train_tasks::Example example;
  for (int64_t i = 0; i < kAsked; ++i) {
    task->example(train_tasks::Split::kValidation, static_cast<uint64_t>(i), example);
    std::vector<int32_t> next(example.tokens.begin(), example.tokens.begin() + 4);
    const int32_t sum = next[0] * 10 + next[1] + next[2] * 10 + next[3];
    Sequence sequence(model);
    std::vector<float> logits(10);
    bool right = true;
    for (const int32_t digit : {sum % 10, sum / 10 % 10, sum / 100}) {
      const Feed feeds[] = {{&sequence, next, Feed::Rows::kLast}};
      model.forward(feeds, {}, logits.data());
      const auto written = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      right = right && written == digit;
      next = {written};
    }
    solved += right ? 1 : 0;
  }
  TaskEvalOptions options;
  options.questions = kAsked;
  EXPECT_EQ(evaluate_task(directory.path("run"), options).solved, solved);
}

TEST(TaskScore, IsThatOfTheRun) {
  const TempDir directory;
  TrainConfig config = short_addition();
  config.run.steps = 30;
  const Outcome outcome = go(config, directory.path("run"));
  const TaskScore score = evaluate_task(directory.path("run"));
  EXPECT_EQ(score.task, "addition");
  EXPECT_EQ(score.questions, 1000);
  EXPECT_EQ(score.labels, 3000);
  EXPECT_EQ(score.loss, outcome.evaluation.loss);
  EXPECT_EQ(score.solved, outcome.evaluation.solved);
  EXPECT_EQ(static_cast<double>(score.correct) / 3000, outcome.evaluation.accuracy);
  EXPECT_GT(score.correct, 300);
  EXPECT_LT(score.solved, 900);  // so short a run leaves mistakes to count

  // Weights that were saved rounded are other weights, but not very.
  config.run.save_as = TrainConfig::Run::SaveAs::kBf16;
  go(config, directory.path("rounded"));
  TaskEvalOptions best;
  best.checkpoint = TaskEvalOptions::Checkpoint::kBest;
  const TaskScore rounded = evaluate_task(directory.path("rounded"), best);
  EXPECT_NE(rounded.loss, score.loss);
  EXPECT_NEAR(rounded.loss, score.loss, 0.02);
}

TEST(TaskScore, RefusesWhatIsNoRunOfATask) {
  const TempDir directory;
  const auto refused = [&](const std::string& name, Code code, const std::string& part, int64_t questions = 10) {
    TaskEvalOptions options;
    options.questions = questions;
    try {
      evaluate_task(directory.path(name), options);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused("nowhere", Code::kNotFound, "train.json");
  TrainConfig config = short_addition();
  config.run.steps = 1;
  go(config, directory.path("run"));
  refused("run", Code::kInvalidArgument, "0 questions", 0);

  // A configuration that is not the one of the weights.
  std::ofstream(directory.path("run/train.json")) << "{\"model\": {\"hidden_size\": 32, \"heads\": 4, \"layers\": 2}, \"data\": {\"task\": \"addition\", \"task_length\": 2}}";
  refused("run", Code::kCorruptData, "wte");
  std::ofstream(directory.path("run/train.json")) << "{\"data\": {\"files\": [\"text\"]}}";
  refused("run", Code::kInvalidArgument, "not on a task");
  std::ofstream(directory.path("run/train.json")) << "{\"data\": ";
  refused("run", Code::kCorruptData, "train.json");
}

}  // namespace
}  // namespace regard::train_test
