// Beam search: against transformers, against all texts there are, and its promises about ties, threads, batches and memory.
#include "regard/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "generate/logprobs.h"
#include "regard/error.h"
#include "regard/tokenizer.h"
#include "runtime/thread_pool.h"
#include "support/golden.h"

namespace regard {
namespace {

using EarlyStopping = BeamOptions::EarlyStopping;
using Prompts = std::vector<std::vector<int32_t>>;

TEST(BeamSearchGolden, TextsAndScoresAreThoseOfTransformers) {
  std::map<std::string, Model> models;
  int compared = 0;
  for (const auto& c : test::read_json("beams/cases.json")) {
    SCOPED_TRACE(c.dump());
    const std::string name = c["model"];
    if (!models.contains(name)) models.emplace(name, Model::load(test::golden_path("hf/" + name)));
    GenerateOptions options;
    options.end_of_text = GenerateOptions::EndOfText::kStop;
    options.stop_ids = c["stop_ids"].get<std::vector<int32_t>>();
    options.max_tokens = c["max_tokens"];
    options.min_tokens = c.value("min_tokens", 0);
    options.sampling.repetition_penalty = c.value("repetition_penalty", 1.0f);
    options.sampling.no_repeat_ngram = c.value("no_repeat_ngram", 0);
    BeamOptions beams;
    beams.beams = c["beams"];
    beams.num_results = c["num_results"];
    beams.length_penalty = c["length_penalty"];
    beams.early_stopping = c["early_stopping"].is_string() ? EarlyStopping::kNever : c["early_stopping"].get<bool>() ? EarlyStopping::kYes : EarlyStopping::kNo;
    const std::vector<std::vector<int32_t>> prompts = {c["ids"].get<std::vector<int32_t>>()};
    const BeamResult result = beam_search(models.at(name), prompts, options, beams).front();
    const auto sequences = c["sequences"].get<std::vector<std::vector<int32_t>>>();
    ASSERT_EQ(result.texts.size(), sequences.size());
    for (size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_EQ(result.texts[i].ids, sequences[i]) << i;
      if (!c["scores"].is_null()) {
        EXPECT_NEAR(result.texts[i].score, c["scores"][i].get<double>(), 1e-4) << i;
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
}

class BeamSearch : public testing::Test {
 protected:
  static Model load() {
    ModelOptions options;
    options.context = 700;
    return Model::load(test::golden_path("gguf/llama_q4_1.gguf"), options);
  }
  Model model_ = load();
  std::vector<int32_t> prompt_ = model_.tokenizer().encode("the cat");

  GenerateOptions options(int64_t max_tokens) const {
    GenerateOptions o;
    o.max_tokens = max_tokens;
    return o;
  }
  BeamOptions beams(int64_t n) const {
    BeamOptions b;
    b.beams = b.num_results = n;
    return b;
  }
  BeamResult one(const GenerateOptions& o, const BeamOptions& b) const { return beam_search(model_, Prompts{prompt_}, o, b).front(); }

  // The sum of log p of a continuation, from the logits of a pass over all of it.
  double logprob(const std::vector<int32_t>& ids) const {
    std::vector<int32_t> all = prompt_;
    all.insert(all.end(), ids.begin(), ids.end());
    const auto vocab = static_cast<size_t>(model_.info().vocab_size);
    std::vector<float> logits(all.size() * vocab);
    Sequence sequence(model_);
    const Feed feed{&sequence, all, Feed::Rows::kAll};
    model_.forward({&feed, 1}, {}, logits.data());
    double sum = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto row = std::span<const float>(logits).subspan((prompt_.size() - 1 + i) * vocab, vocab);
      double total = 0;
      for (float x : row) total += std::exp(static_cast<double>(x));
      sum += static_cast<double>(row[static_cast<size_t>(ids[i])]) - std::log(total);
    }
    return sum;
  }
  std::string message(const GenerateOptions& o, const BeamOptions& b) const {
    try {
      (void)one(o, b);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      return error.what();
    }
    return "nothing was refused";
  }
};

TEST_F(BeamSearch, OneBeamIsGreedy) {
  for (const bool ignore : {false, true}) {
    GenerateOptions o = options(24);
    o.end_of_text = ignore ? GenerateOptions::EndOfText::kIgnore : GenerateOptions::EndOfText::kStop;
    const Generation greedy = generate(model_, Prompts{prompt_}, o).front();
    const BeamText text = one(o, beams(1)).texts.at(0);
    EXPECT_EQ(text.ids, greedy.ids);
    EXPECT_EQ(text.text, greedy.text);
    EXPECT_EQ(text.finish, greedy.finish);
  }
}

// Three allowed ids, four tokens: with 81 beams nothing is left out, so the order is that of all 81 texts.
TEST_F(BeamSearch, WithABeamForEveryTextTheOrderIsThatOfAllTexts) {
  const std::vector<int32_t> three = {60, 11, 40};
  GenerateOptions o = options(4);
  o.allowed = [&](const TokenChoice& choice) {
    EXPECT_EQ(choice.prompt_size, static_cast<int64_t>(prompt_.size()));
    return std::span<const int32_t>(three);
  };
  std::vector<std::pair<double, std::vector<int32_t>>> all;
  for (int n = 0; n < 81; ++n) {
    const std::vector<int32_t> ids = {three[static_cast<size_t>(n / 27)], three[static_cast<size_t>(n / 9 % 3)], three[static_cast<size_t>(n / 3 % 3)],
                                      three[static_cast<size_t>(n % 3)]};
    all.emplace_back(logprob(ids), ids);
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  const BeamResult result = one(o, beams(100));
  ASSERT_EQ(result.texts.size(), 81u);
  for (size_t i = 0; i < 81; ++i) {
    EXPECT_EQ(result.texts[i].ids, all[i].second) << i;
    EXPECT_NEAR(result.texts[i].logprob, all[i].first, 1e-5);
    EXPECT_NEAR(result.texts[i].score, all[i].first / 4, 1e-5);
    EXPECT_EQ(result.texts[i].finish, FinishReason::kLength);
  }
}

TEST_F(BeamSearch, TheScoreIsTheSumOverTheLengthToThePenalty) {
  BeamOptions b = beams(3);
  b.length_penalty = 0.5;
  for (const BeamText& text : one(options(9), b).texts) {
    EXPECT_EQ(text.ids.size(), 9u);
    EXPECT_NEAR(text.logprob, logprob(text.ids), 1e-4);
    EXPECT_NEAR(text.score, text.logprob / 3, 1e-12);
    EXPECT_EQ(text.text, model_.tokenizer().decode(text.ids));
  }
}

// Without a model's opinion every text is as likely as every other: the bans leave equal numbers. Lower beams and lower ids first.
TEST_F(BeamSearch, TiesGoToTheLowerBeamThenTheLowerId) {
  GenerateOptions o = options(2);
  o.end_of_text = GenerateOptions::EndOfText::kIgnore;
  for (int32_t id = 0; id < model_.info().vocab_size; ++id) o.sampling.logit_bias.emplace_back(id, -3e38f);  // what is added is lost in rounding
  const BeamResult result = one(o, beams(3));
  int32_t lowest = 0;
  while (std::count(model_.eos_ids().begin(), model_.eos_ids().end(), lowest) > 0) ++lowest;
  ASSERT_EQ(result.texts.size(), 3u);
  EXPECT_EQ(result.texts[0].ids, (std::vector<int32_t>{lowest, lowest}));
  EXPECT_EQ(result.texts[1].ids[0], lowest);
  EXPECT_LT(result.texts[1].ids[1], result.texts[2].ids[1]);
}

TEST_F(BeamSearch, TheSameOnAnyNumberOfThreadsAndInAnyBatch) {
  GenerateOptions o = options(14);
  const BeamResult alone = one(o, beams(4));
  const auto expect_same = [&](const BeamResult& other) {
    ASSERT_EQ(other.texts.size(), alone.texts.size());
    for (size_t i = 0; i < alone.texts.size(); ++i) {
      EXPECT_EQ(other.texts[i].ids, alone.texts[i].ids);
      EXPECT_EQ(other.texts[i].score, alone.texts[i].score) << "to the bit";
    }
  };
  const std::vector<std::vector<int32_t>> prompts = {model_.tokenizer().encode("a"), prompt_, {5, 6, 7}, prompt_};
  const auto batch = beam_search(model_, prompts, o, beams(4));
  expect_same(batch[1]);
  expect_same(batch[3]);
  EXPECT_NE(batch[0].texts[0].ids, alone.texts[0].ids);
  const int before = default_pool().size();
  for (int threads : {1, 2, 3, 8}) {
    set_default_pool_size(threads);
    expect_same(one(o, beams(4)));
  }
  set_default_pool_size(before);
}

// Beams that part, across the border of a tile of keys: each text has the score of a pass of its own over all its tokens.
TEST_F(BeamSearch, CachesFollowTheirTexts) {
  prompt_.clear();
  for (int i = 0; i < 250; ++i) prompt_.push_back(3 + i * 37 % 60);
  GenerateOptions o = options(12);
  o.end_of_text = GenerateOptions::EndOfText::kIgnore;
  const BeamResult result = one(o, beams(5));
  ASSERT_EQ(result.texts.size(), 5u);
  for (const BeamText& text : result.texts) EXPECT_NEAR(text.logprob, logprob(text.ids), 1e-4);
  EXPECT_NE(result.texts[0].ids, result.texts[4].ids);
}

TEST_F(BeamSearch, StopStringsMinTokensAndEmptySetsEndTexts) {
  GenerateOptions o = options(10);
  o.end_of_text = GenerateOptions::EndOfText::kIgnore;
  const BeamText whole = one(o, beams(2)).texts[0];
  ASSERT_GT(whole.text.size(), 5u);
  GenerateOptions cut = o;
  cut.stop_strings = {whole.text.substr(3, 2)};
  bool stopped = false;
  for (const BeamText& text : one(cut, beams(2)).texts) {
    EXPECT_EQ(text.text.find(cut.stop_strings[0]), std::string::npos);
    stopped |= text.finish == FinishReason::kStop;
  }
  EXPECT_TRUE(stopped);

  GenerateOptions early = options(8);
  early.stop_ids = {whole.ids[0]};
  early.sampling.logit_bias = {{whole.ids[0], 50.0f}};  // always the likeliest
  EXPECT_TRUE(one(early, beams(1)).texts[0].ids.empty());
  early.min_tokens = 3;
  const BeamText at_least = one(early, beams(1)).texts[0];
  EXPECT_EQ(at_least.ids.size(), 3u);
  EXPECT_EQ(at_least.finish, FinishReason::kStop);
  EXPECT_EQ(generate(model_, Prompts{prompt_}, early).front().ids, at_least.ids) << "generate() has the same rule";

  GenerateOptions none = options(8);
  none.allowed = [&](const TokenChoice& choice) -> std::optional<std::span<const int32_t>> {
    if (choice.history.size() < prompt_.size() + 2) return std::nullopt;
    return std::span<const int32_t>();
  };
  for (const BeamText& text : one(none, beams(3)).texts) {
    EXPECT_EQ(text.ids.size(), 2u);
    EXPECT_EQ(text.finish, FinishReason::kStop);
    EXPECT_NEAR(text.score, logprob(text.ids) / 2, 1e-5);
  }
}

TEST_F(BeamSearch, LimitsAndStopRequests) {
  EXPECT_TRUE(one(options(0), beams(2)).texts.at(0).ids.empty());
  ModelOptions small;
  small.context = static_cast<int64_t>(prompt_.size()) + 3;
  const Model model = Model::load(test::golden_path("gguf/llama_q4_1.gguf"), small);
  GenerateOptions o = options(50);
  o.end_of_text = GenerateOptions::EndOfText::kIgnore;
  const BeamResult short_one = beam_search(model, Prompts{prompt_}, o, beams(2)).front();
  ASSERT_EQ(short_one.texts.size(), 2u);
  for (const BeamText& text : short_one.texts) {
    EXPECT_EQ(text.ids.size(), 3u);
    EXPECT_EQ(text.finish, FinishReason::kLength);
  }
  StopToken stop;
  o.stop = &stop;
  o.allowed = [&](const TokenChoice& choice) -> std::optional<std::span<const int32_t>> {
    if (choice.history.size() == prompt_.size() + 4) stop.request_stop();
    return std::nullopt;
  };
  for (const BeamText& text : one(o, beams(3)).texts) {
    EXPECT_EQ(text.finish, FinishReason::kCancelled);
    EXPECT_EQ(text.ids.size(), 5u) << "what was found so far is kept";
  }
}

TEST_F(BeamSearch, WrongOptionsAreNamed) {
  EXPECT_NE(message(options(3), beams(0)).find("beams is 0; expected 1 to 1024"), std::string::npos);
  BeamOptions b = beams(2);
  b.num_results = 3;
  EXPECT_NE(message(options(3), b).find("num_results is 3; expected 1 to 2"), std::string::npos);
  b = beams(2);
  for (const double penalty : {double{NAN}, 24.5, -100.0}) {
    b.length_penalty = penalty;
    EXPECT_NE(message(options(3), b).find("length_penalty"), std::string::npos);
  }
  GenerateOptions o = options(3);
  o.sampling.temperature = 1;
  EXPECT_NE(message(o, beams(2)).find("temperature"), std::string::npos);
  o = options(3);
  o.min_tokens = -1;
  EXPECT_NE(message(o, beams(2)).find("min_tokens is -1"), std::string::npos);
  GenerateOptions banned = options(3);
  for (int32_t id = 0; id < model_.info().vocab_size; ++id) banned.sampling.logit_bias.emplace_back(id, -INFINITY);
  EXPECT_THROW((void)one(banned, beams(2)), Error);
}

}  // namespace
}  // namespace regard
