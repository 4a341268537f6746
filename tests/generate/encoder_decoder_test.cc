// Texts of encoder-decoders: against transformers on tiny T5 checkpoints (tools/golden/t5.py), and the promises that decoders have.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "regard/beam_search.h"
#include "regard/error.h"
#include "regard/generate.h"
#include "runtime/thread_pool.h"
#include "support/golden.h"

namespace regard {
namespace {

using EarlyStopping = BeamOptions::EarlyStopping;
using Prompts = std::vector<std::vector<int32_t>>;

TEST(EncoderDecoderGolden, TextsAndScoresAreThoseOfTransformers) {
  std::map<std::string, Model> models;
  int greedy = 0, searched = 0;
  for (const auto& c : test::read_json("t5/cases.json")) {
    SCOPED_TRACE(c.dump());
    const std::string name = c["model"];
    if (!models.contains(name)) models.emplace(name, Model::load(test::golden_path("hf/" + name)));
    GenerateOptions options;
    options.stop_ids = c["stop_ids"].get<std::vector<int32_t>>();
    options.max_tokens = c["max_tokens"];
    options.min_tokens = c.value("min_tokens", 0);
    options.sampling.repetition_penalty = c.value("repetition_penalty", 1.0f);
    const Prompts prompts = {c["source"].get<std::vector<int32_t>>()};
    const auto sequences = c["sequences"].get<std::vector<std::vector<int32_t>>>();
    if (c["beams"] == 1) {
      EXPECT_EQ(generate(models.at(name), prompts, options).front().ids, sequences[0]);
      ++greedy;
    }
    BeamOptions beams;
    beams.beams = c["beams"];
    beams.num_results = c["num_results"];
    beams.length_penalty = c["length_penalty"];
    beams.early_stopping = c["early_stopping"].is_string() ? EarlyStopping::kNever : c["early_stopping"].get<bool>() ? EarlyStopping::kYes : EarlyStopping::kNo;
    const BeamResult result = beam_search(models.at(name), prompts, options, beams).front();
    EXPECT_EQ(result.prompt_tokens, static_cast<int64_t>(prompts[0].size()));
    ASSERT_EQ(result.texts.size(), sequences.size());
    for (size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_EQ(result.texts[i].ids, sequences[i]) << i;
      if (c["scores"].is_null()) continue;
      EXPECT_NEAR(result.texts[i].score, c["scores"][i].get<double>(), 1e-4) << i;
      ++searched;
    }
  }
  EXPECT_GE(greedy, 2);
  EXPECT_GT(searched, 40);
}

class EncoderDecoder : public testing::Test {
 protected:
  Model model_ = Model::load(test::golden_path("hf/t5_gated"));
  std::vector<int32_t> source_ = {5, 44, 12, 71, 30, 8};

  GenerateOptions options(double temperature) const {
    GenerateOptions o;
    o.max_tokens = 16;
    o.end_of_text = GenerateOptions::EndOfText::kIgnore;
    o.sampling.temperature = static_cast<float>(temperature);
    o.sampling.seed = 4;
    return o;
  }
  std::vector<int32_t> one(const GenerateOptions& o) const { return generate(model_, Prompts{source_}, o).front().ids; }
};

TEST_F(EncoderDecoder, GreedyIsTheLargestLogitUnderTeacherForcing) {
  const std::vector<int32_t> ids = one(options(0));
  ASSERT_EQ(ids.size(), 16u);
  std::vector<int32_t> fed = {*model_.decoder_start()};
  fed.insert(fed.end(), ids.begin(), ids.end() - 1);
  const auto vocab = static_cast<size_t>(model_.info().vocab_size);
  std::vector<float> logits(fed.size() * vocab);
  Sequence sequence(model_, source_);
  const Feed feed{&sequence, fed, Feed::Rows::kAll};
  model_.forward({&feed, 1}, {}, logits.data());
  for (size_t i = 0; i < ids.size(); ++i) {
    auto row = std::span(logits).subspan(i * vocab, vocab);
    for (int32_t id : model_.eos_ids()) row[static_cast<size_t>(id)] = -INFINITY;
    EXPECT_EQ(ids[i], std::max_element(row.begin(), row.end()) - row.begin()) << i;
  }
}

TEST_F(EncoderDecoder, SampledTextsAreTheSameInAnyBatchAndOnAnyNumberOfThreads) {
  const std::vector<int32_t> alone = one(options(1.5));
  EXPECT_NE(alone, one(options(0)));
  const auto batch = generate(model_, Prompts{{9}, source_, {3, 3, 3, 3, 3, 3, 3, 3, 3, 3}, source_}, options(1.5));
  EXPECT_EQ(batch[1].ids, alone);
  EXPECT_EQ(batch[3].ids, alone);
  EXPECT_NE(batch[0].ids, alone) << "the source has to matter";
  const int before = default_pool().size();
  for (int threads : {1, 3, 8}) {
    set_default_pool_size(threads);
    EXPECT_EQ(one(options(1.5)), alone) << threads;
  }
  set_default_pool_size(before);
}

TEST_F(EncoderDecoder, PenaltiesAndAllowedSetsSeeTheTextAndNotItsSource) {
  GenerateOptions o = options(0);
  std::vector<int32_t> history;
  o.allowed = [&](const TokenChoice& choice) -> std::optional<std::span<const int32_t>> {
    EXPECT_EQ(choice.prompt_size, 2);
    history.assign(choice.history.begin(), choice.history.end());
    return std::nullopt;
  };
  o.start_ids = {0, 17};
  const std::vector<int32_t> ids = one(o);
  ASSERT_EQ(history.size(), 2 + ids.size() - 1);
  EXPECT_EQ(history[1], 17);
  EXPECT_EQ(history[2], ids[0]);
  EXPECT_NE(ids, one(options(0)));
}

TEST_F(EncoderDecoder, AStopRequestIsNoError) {
  StopToken stop;
  stop.request_stop();
  GenerateOptions o = options(0);
  o.stop = &stop;
  const Generation generation = generate(model_, Prompts{source_}, o).front();
  EXPECT_EQ(generation.finish, FinishReason::kCancelled);
  EXPECT_TRUE(generation.ids.empty());
  EXPECT_EQ(beam_search(model_, Prompts{source_}, o, {}).front().texts.at(0).finish, FinishReason::kCancelled);
}

TEST_F(EncoderDecoder, WrongPromptsAreNamed) {
  const auto message = [&](const Model& model, std::vector<int32_t> prompt, std::vector<int32_t> start) {
    GenerateOptions o = options(0);
    o.start_ids = std::move(start);
    try {
      (void)generate(model, Prompts{std::move(prompt)}, o);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_NE(message(model_, {}, {}).find("prompt 1 is empty"), std::string::npos);
  EXPECT_NE(message(model_, {80}, {}).find("id 80"), std::string::npos);
  EXPECT_NE(message(model_, std::vector<int32_t>(513, 4), {}).find("513"), std::string::npos);
  EXPECT_NE(message(model_, {5}, {80}).find("start_ids hold 80"), std::string::npos);
  EXPECT_NE(message(Model::load(test::golden_path("hf/llama")), {5}, {5}).find("start_ids"), std::string::npos);
}

}  // namespace
}  // namespace regard
