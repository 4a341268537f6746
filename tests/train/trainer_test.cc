// The loop with a model of a page: does it learn, what does it write, what does it notice.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "format/tensor_source.h"
#include "regard/error.h"
#include "run_fixture.h"

namespace regard::train_test {
namespace {

namespace fs = std::filesystem;
using testing_support::TempDir;

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<nlohmann::json> log_of(const std::string& directory) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(directory + "/log.jsonl");
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

template <class F>
Error thrown_by(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(Code::kInternal, "");
}

TEST(Trainer, LearnsALanguageToItsEntropy) {
  const TempDir directory;
  TrainConfig config = small_config();
  config.run.steps = 600;
  config.optimizer.weight_decay = 0;
  config.optimizer.outlier_deviations = 0;
  SmallRun run(config, directory.path("run"), TrainStart::kNew);
  const TrainResult result = run.go();
  // Four in five tokens follow the rule, the others are uniform over 12: the rule's own token has 0.8 + 0.2 / 12.
  const double rule = 0.8 + 0.2 / kVocab, other = 0.2 / kVocab;
  const double entropy = -rule * std::log(rule) - (kVocab - 1) * other * std::log(other);
  EXPECT_EQ(result.end, TrainEnd::kComplete);
  EXPECT_EQ(result.step, 600);
  EXPECT_EQ(result.tokens, 600 * 32);
  EXPECT_LT(result.best_loss, entropy + 0.35) << "uniform is " << std::log(kVocab);
  EXPECT_GT(result.best_loss, entropy - 0.35);
  EXPECT_LE(result.best_loss, result.validation_loss);
}

TEST(Trainer, WritesWhatItPromises) {
  const TempDir directory;
  SmallRun run(small_config(), directory.path("run"), TrainStart::kNew);
  std::vector<TrainEvent> events;
  run.options.on_event = [&](const TrainEvent& event) { events.push_back(event); };
  const TrainResult result = run.go();
  const std::string root = directory.path("run");
  EXPECT_EQ(text_of(root + "/train.json"), train_config_json(small_config()));
  EXPECT_EQ(fs::read_symlink(root + "/latest"), "step-000000060");
  EXPECT_EQ(result.checkpoint, root + "/step-000000060");
  EXPECT_EQ(fs::read_symlink(root + "/best").string(), fmt::format("step-{:09}", result.best_step));
  EXPECT_EQ(text_of(root + "/latest/config.json"), "{}\n");
  EXPECT_EQ(text_of(root + "/latest/tokenizer.json"), run.tokenizer);
  EXPECT_EQ(text_of(root + "/loss.png").substr(1, 3), "PNG");
  EXPECT_NE(text_of(root + "/loss.svg").find("<polyline"), std::string::npos);
  EXPECT_FALSE(draw_loss_curve(root + "/log.jsonl", 80, 20).empty());
  int checkpoints = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    EXPECT_FALSE(name.starts_with(".")) << name;
    checkpoints += name.starts_with("step-") ? 1 : 0;
  }
  EXPECT_LE(checkpoints, 3);  // keep 2, and the best

  // The weights of others are the average, the state's are the parameters themselves.
  auto source = TensorSource::open(root + "/latest/model.safetensors").value_or_throw();
  ASSERT_EQ(source.tensors().size(), 2u);
  EXPECT_EQ(source.tensors()[0].name, "weight");
  EXPECT_EQ(source.tensors()[0].shape, (std::vector<int64_t>{kVocab, kVocab}));
  std::vector<float> weight(static_cast<size_t>(kVocab * kVocab));
  ASSERT_TRUE(source.read(source.tensors()[0], {reinterpret_cast<uint8_t*>(weight.data()), weight.size() * 4}));
  EXPECT_NE(weight[0], run.values()[0]);
  EXPECT_NEAR(weight[0], run.values()[0], 0.2);

  const auto lines = log_of(root);
  int64_t steps = 0, evaluations = 0, last = 0;
  for (const auto& line : lines) {
    EXPECT_GE(line["step"].get<int64_t>(), last);
    last = line["step"];
    if (line.contains("loss")) ++steps;
    if (line.contains("validation_loss")) ++evaluations;
  }
  EXPECT_EQ(steps, 60);
  EXPECT_EQ(evaluations, 4);
  EXPECT_EQ(lines.back()["validation_loss"].get<double>(), result.validation_loss);
  EXPECT_EQ(std::count_if(events.begin(), events.end(), [](const TrainEvent& e) { return e.kind == TrainEvent::Kind::kEvaluation; }), 4);
}

// The loss of a step is the mean over all its counted labels, however they lie in micro-batches. A mean of the parts' means
// differs as soon as the parts count differently, which documents see to here.
TEST(Trainer, MicroBatchesChangeNothingButRounding) {
  std::vector<std::vector<float>> results;
  std::vector<double> losses;
  for (const int64_t micro : {0, 1, 3, 4, 100}) {
    const TempDir directory;
    TrainConfig config = small_config();
    config.run.micro_batch = micro;
    config.run.steps = 20;
    SmallRun run(config, directory.path("run"), TrainStart::kNew);
    std::vector<int64_t> starts;
    for (int64_t i = 0; i < 900; i += i < 450 ? 90 : 2) starts.push_back(i);
    const train_data::WindowBatches uneven(train_data::TokenData(bigram_text(900, kVocab), starts),
                                           {.seq = 8, .seed = 1, .documents = TrainConfig::Data::Documents::kMask});
    train_loop::TrainerParts parts{run.model, uneven, nullptr, "{}", "", 0};
    losses.push_back(train_loop::Trainer(config, parts, run.options, run.pool, unsynced_layer()).run().loss);
    results.push_back(run.values());
    EXPECT_EQ(run.model.calls, 20 * (micro == 1 ? 4 : micro == 3 ? 2 : 1));
  }
  for (size_t i = 1; i < results.size(); ++i) {
    EXPECT_NEAR(losses[i], losses[0], 1e-6);
    double worst = 0;
    for (size_t k = 0; k < results[0].size(); ++k) worst = std::max(worst, std::abs(static_cast<double>(results[i][k] - results[0][k])));
    EXPECT_LT(worst, 2e-5);
  }
}

TEST(Trainer, ThreadsChangeNoBit) {
  for (const int threads : {2, 3}) {
    const TempDir directory;
    SmallRun run(small_config(), directory.path("run"), TrainStart::kNew);
    run.pool.resize(threads);
    run.go();
    EXPECT_EQ(run.values(), uninterrupted());
  }
}

TEST(Trainer, WithoutLabelsNothingMoves) {
  const TempDir directory;
  TrainConfig config = small_config();
  config.run.steps = 3;
  SmallRun run(config, directory.path("run"), TrainStart::kNew);
  const std::vector<float> before = run.values();
  std::vector<int64_t> starts(900);
  std::iota(starts.begin(), starts.end(), 0);  // every token is a document of its own: none predicts another
  const train_data::WindowBatches empty(train_data::TokenData(bigram_text(900, kVocab), starts),
                                        {.seq = 8, .documents = TrainConfig::Data::Documents::kMask});
  train_loop::TrainerParts parts{run.model, empty, nullptr, "{}", "", 0};
  EXPECT_EQ(train_loop::Trainer(config, parts, run.options, run.pool, unsynced_layer()).run().tokens, 0);
  EXPECT_EQ(run.values(), before);
}

TEST(Trainer, KeepsTheLastGoodStateWhenAGradientIsNoNumber) {
  const TempDir directory;
  SmallRun run(small_config(), directory.path("run"), TrainStart::kNew);
  run.model.nan_at = 27;
  const Error error = thrown_by([&] { run.go(); });
  EXPECT_EQ(error.code(), Code::kNumeric);
  EXPECT_NE(std::string(error.what()).find("step 27"), std::string::npos) << error.what();
  EXPECT_EQ(fs::read_symlink(directory.path("run/latest")), "step-000000020");
  for (const float value : run.values()) EXPECT_TRUE(std::isfinite(value));
  // What is there can be gone on from, and ends as if nothing had been.
  SmallRun again(small_config(), directory.path("run"), TrainStart::kResume);
  again.go();
  EXPECT_EQ(again.values(), uninterrupted());
}

TEST(Trainer, LeavesOutliersOut) {
  const TempDir directory;
  TrainConfig config = small_config();
  config.optimizer.outlier_deviations = 1.5;
  config.run.steps = 200;
  SmallRun run(config, directory.path("run"), TrainStart::kNew);
  run.go();
  int64_t skipped = 0;
  for (const auto& line : log_of(directory.path("run"))) skipped += line.contains("skipped") ? 1 : 0;
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 60);
}

TEST(Trainer, EndsWhenNothingImproves) {
  const TempDir directory;
  TrainConfig config = small_config();
  config.run.patience = 2;
  config.run.min_improvement = 10;  // more than any loss can fall
  SmallRun run(config, directory.path("run"), TrainStart::kNew);
  const TrainResult result = run.go();
  EXPECT_EQ(result.end, TrainEnd::kNoImprovement);
  EXPECT_EQ(result.step, 45);  // the first evaluation is the best, two more are not
  EXPECT_EQ(result.best_step, 15);
  SmallRun again(config, directory.path("run"), TrainStart::kResume);
  EXPECT_EQ(again.go().step, 45);
}

TEST(Trainer, RefusesAnotherRunsDirectory) {
  const TempDir directory;
  SmallRun first(small_config(), directory.path("run"), TrainStart::kNew);
  first.stop_after(12);
  EXPECT_EQ(first.go().end, TrainEnd::kStopped);
  const auto expect = [&](SmallRun& run, Code code, const std::string& part) {
    const Error error = thrown_by([&] { run.go(); });
    EXPECT_EQ(error.code(), code);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  };
  SmallRun fresh(small_config(), directory.path("run"), TrainStart::kNew);
  expect(fresh, Code::kInvalidArgument, "holds a run already");
  TrainConfig other = small_config();
  other.optimizer.learning_rate = 0.06;
  SmallRun changed(other, directory.path("run"), TrainStart::kResume);
  expect(changed, Code::kInvalidArgument, "optimizer.learning_rate is '0.06'");
  SmallRun other_words(small_config(), directory.path("run"), TrainStart::kResume);
  other_words.tokenizer = "{\"b\": 1}";
  expect(other_words, Code::kInvalidArgument, "the tokenizer is not what");
  SmallRun other_data(small_config(), directory.path("run"), TrainStart::kResume);
  other_data.data = train_data::TokenData({1, 2, 3}, {});
  expect(other_data, Code::kInvalidArgument, "the data are not what");
  SmallRun nothing(small_config(), directory.path("other"), TrainStart::kResume);
  expect(nothing, Code::kNotFound, "no checkpoint");
  SmallRun nowhere(small_config(), directory.path("a/b/c"), TrainStart::kNew);
  expect(nowhere, Code::kNotFound, "cannot make the directory");
  // What decides no number may change.
  other = small_config();
  other.run.keep = 7;
  other.run.log_every = 3;
  SmallRun same(other, directory.path("run"), TrainStart::kResume);
  same.go();
  EXPECT_EQ(same.values(), uninterrupted());
}

TEST(Trainer, TwoOnOneDirectoryRefuse) {
  const TempDir directory;
  const auto held = train_loop::RunDirectory::open(directory.path("run"));
  ASSERT_TRUE(held);
  SmallRun run(small_config(), directory.path("run"), TrainStart::kNew);
  const Error error = thrown_by([&] { run.go(); });
  EXPECT_EQ(error.code(), Code::kUnavailable);
}

}  // namespace
}  // namespace regard::train_test
