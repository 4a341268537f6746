// The loop around the model: stopping, streaming, batches, cancellation, limits; on a tiny model with a tokenizer.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "regard/error.h"
#include "regard/generate.h"
#include "regard/model.h"
#include "regard/tokenizer.h"
#include "runtime/thread_pool.h"
#include "support/golden.h"

namespace regard {
namespace {

class Generate : public testing::Test {
 protected:
  static Model load(const char* name, int64_t context) {
    ModelOptions options;
    options.context = context;
    return Model::load(test::golden_path(name), options);
  }

  Model model_ = load("gguf/llama_q4_1.gguf", 128);
  std::vector<int32_t> prompt_ = model_.tokenizer().encode("the cat");

  Generation one(const GenerateOptions& options, const OnToken& on_token = {}) const {
    return generate(model_, std::vector<std::vector<int32_t>>{prompt_}, options, on_token).front();
  }
  GenerateOptions sampled(uint64_t seed) const {
    GenerateOptions options;
    options.sampling.temperature = 1;
    options.sampling.seed = seed;
    options.max_tokens = 30;
    options.end_of_text = GenerateOptions::EndOfText::kIgnore;
    return options;
  }
  static Code code_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return Code::kFailedCheck;
  }
};

TEST_F(Generate, GreedyEqualsChoosingTheLargestLogitByHand) {
  GenerateOptions options;
  options.max_tokens = 20;
  options.end_of_text = GenerateOptions::EndOfText::kIgnore;
  const Generation got = one(options);
  std::vector<int32_t> history = prompt_;
  const auto vocab = static_cast<size_t>(model_.info().vocab_size);
  for (int i = 0; i < 20; ++i) {
    Sequence sequence(model_);
    std::vector<float> logits(vocab);
    const Feed feed{&sequence, history, Feed::Rows::kLast};
    model_.forward({&feed, 1}, {}, logits.data());
    for (int32_t id : model_.eos_ids()) logits[static_cast<size_t>(id)] = -INFINITY;
    history.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  EXPECT_EQ(got.ids, std::vector<int32_t>(history.begin() + static_cast<std::ptrdiff_t>(prompt_.size()), history.end()));
  EXPECT_EQ(got.finish, FinishReason::kLength);
  EXPECT_EQ(got.prompt_tokens, static_cast<int64_t>(prompt_.size()));
  EXPECT_EQ(got.text, model_.tokenizer().decode(got.ids));
}

TEST_F(Generate, TheSameSeedGivesTheSameTextAloneInABatchAndOnAnyNumberOfThreads) {
  const Generation alone = one(sampled(11));
  EXPECT_NE(alone.ids, one(sampled(12)).ids);
  std::vector<std::vector<int32_t>> prompts = {model_.tokenizer().encode("a"), prompt_, model_.tokenizer().encode("what is this about, then?"), prompt_};
  const auto batch = generate(model_, prompts, sampled(11));
  EXPECT_EQ(batch[1].ids, alone.ids);
  EXPECT_EQ(batch[3].ids, alone.ids);
  EXPECT_EQ(batch[1].text, alone.text);
  const int before = default_pool().size();
  for (int threads : {1, 2, 3, 8}) {
    set_default_pool_size(threads);
    EXPECT_EQ(one(sampled(11)).ids, alone.ids) << threads;
  }
  set_default_pool_size(before);
  GenerateOptions small_chunks = sampled(11);
  small_chunks.prefill_chunk = 1;
  EXPECT_EQ(one(small_chunks).ids, alone.ids);
}

TEST_F(Generate, PiecesOfTheStreamAddUpToTheText) {
  std::string streamed;
  std::vector<int32_t> ids;
  const Generation got = one(sampled(5), [&](const TokenEvent& event) {
    streamed += event.text;
    ids.push_back(event.id);
    return true;
  });
  EXPECT_EQ(streamed, got.text);
  EXPECT_EQ(ids, got.ids);
}

TEST_F(Generate, AStopStringEndsTheTextBeforeIt) {
  const Generation whole = one(sampled(3));
  ASSERT_GT(whole.text.size(), 8u);
  GenerateOptions options = sampled(3);
  options.stop_strings = {whole.text.substr(5, 3)};
  const size_t at = whole.text.find(options.stop_strings[0]);
  std::string streamed;
  const Generation cut = one(options, [&](const TokenEvent& event) {
    streamed += event.text;
    return true;
  });
  EXPECT_EQ(cut.text, whole.text.substr(0, at));
  EXPECT_EQ(streamed, cut.text) << "no byte of a stop string may be shown";
  EXPECT_EQ(cut.finish, FinishReason::kStop);
}

TEST_F(Generate, AStopIdEndsTheText) {
  const Generation whole = one(sampled(3));
  GenerateOptions options = sampled(3);
  options.stop_ids = {whole.ids[4]};
  const auto first = std::find(whole.ids.begin(), whole.ids.end(), whole.ids[4]);
  const Generation cut = one(options);
  EXPECT_EQ(cut.ids, std::vector<int32_t>(whole.ids.begin(), first));
  EXPECT_EQ(cut.finish, FinishReason::kStop);
}

TEST_F(Generate, LogprobsComeFromTheRawLogits) {
  GenerateOptions options = sampled(9);
  options.sampling.temperature = 0.1f;
  options.sampling.repetition_penalty = 2;
  options.top_logprobs = 3;
  const Generation got = one(options);
  ASSERT_EQ(got.logprobs.size(), got.ids.size());
  ASSERT_EQ(got.top.size(), got.ids.size());
  Sequence sequence(model_);
  std::vector<float> logits(static_cast<size_t>(model_.info().vocab_size));
  const Feed feed{&sequence, prompt_, Feed::Rows::kLast};
  model_.forward({&feed, 1}, {}, logits.data());
  double sum = 0;
  for (float x : logits) sum += std::exp(static_cast<double>(x));
  EXPECT_NEAR(got.logprobs[0], logits[static_cast<size_t>(got.ids[0])] - std::log(sum), 1e-5);
  EXPECT_EQ(got.top[0].size(), 3u);
  EXPECT_GE(got.top[0][0].logprob, got.top[0][1].logprob);
}

TEST_F(Generate, AFullContextEndsWithLength) {
  GenerateOptions options = sampled(1);
  options.max_tokens = 1000;
  const Generation got = one(options);
  EXPECT_EQ(got.finish, FinishReason::kLength);
  EXPECT_EQ(static_cast<int64_t>(got.ids.size() + prompt_.size()), model_.context());
}

TEST_F(Generate, APromptThatDoesNotFitIsRefusedWithBothNumbers) {
  const std::vector<std::vector<int32_t>> prompts = {std::vector<int32_t>(129, 5)};
  try {
    generate(model_, prompts, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("129"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("128"), std::string::npos);
  }
  EXPECT_EQ(generate(model_, std::vector<std::vector<int32_t>>{std::vector<int32_t>(127, 5)}, sampled(1)).front().ids.size(), 1u);
  EXPECT_TRUE(generate(model_, std::vector<std::vector<int32_t>>{std::vector<int32_t>(128, 5)}, sampled(1)).front().ids.empty());
}

TEST_F(Generate, RefusesBadPromptsAndOptions) {
  const auto prompts = [](std::vector<int32_t> ids) { return std::vector<std::vector<int32_t>>{std::move(ids)}; };
  EXPECT_EQ(code_of([&] { generate(model_, prompts({}), {}); }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([&] { generate(model_, prompts({-1}), {}); }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([&] { generate(model_, prompts({static_cast<int32_t>(model_.info().vocab_size)}), {}); }), Code::kInvalidArgument);
  GenerateOptions options;
  options.max_tokens = -1;
  EXPECT_EQ(code_of([&] { one(options); }), Code::kInvalidArgument);
  options = {};
  options.stop_strings = {""};
  EXPECT_EQ(code_of([&] { one(options); }), Code::kInvalidArgument);
  options = {};
  options.prefill_chunk = 0;
  EXPECT_EQ(code_of([&] { one(options); }), Code::kInvalidArgument);
  options = {};
  options.max_tokens = 0;
  EXPECT_TRUE(one(options).ids.empty());
  EXPECT_TRUE(generate(model_, std::vector<std::vector<int32_t>>{}, {}).empty());
}

TEST_F(Generate, CancellationKeepsWhatWasGenerated) {
  StopToken stop;
  GenerateOptions options = sampled(2);
  options.stop = &stop;
  int tokens = 0;
  const Generation by_token = one(options, [&](const TokenEvent&) {
    if (++tokens == 5) stop.request_stop();
    return true;
  });
  EXPECT_EQ(by_token.finish, FinishReason::kCancelled);
  EXPECT_EQ(by_token.ids.size(), 5u);
  const Generation at_once = one(options);
  EXPECT_EQ(at_once.finish, FinishReason::kCancelled);
  EXPECT_TRUE(at_once.ids.empty());
  options.stop = nullptr;
  tokens = 0;
  EXPECT_EQ(one(options, [&](const TokenEvent&) { return ++tokens < 3; }).ids.size(), 3u);
}

TEST_F(Generate, AForwardThatIsCancelledLeavesTheSequenceAsItWas) {
  Sequence sequence(model_);
  std::vector<float> logits(static_cast<size_t>(model_.info().vocab_size)), again(logits.size());
  const Feed feed{&sequence, prompt_, Feed::Rows::kLast};
  StopToken stop;
  stop.request_stop();
  ForwardOptions options;
  options.stop = &stop;
  EXPECT_EQ(code_of([&] { model_.forward({&feed, 1}, options, logits.data()); }), Code::kCancelled);
  EXPECT_EQ(sequence.size(), 0);
  stop.reset();
  model_.forward({&feed, 1}, options, logits.data());
  Sequence fresh(model_);
  const Feed other{&fresh, prompt_, Feed::Rows::kLast};
  model_.forward({&other, 1}, {}, again.data());
  EXPECT_EQ(logits, again);
}

TEST_F(Generate, AChatKeepsItsCache) {
  Sequence sequence(model_);
  GenerateOptions options = sampled(4);
  options.max_tokens = 6;
  const Generation first = generate(model_, sequence, prompt_, options);
  std::vector<int32_t> second_turn(first.ids.end() - 1, first.ids.end());  // the last token is not in the cache yet
  second_turn.insert(second_turn.end(), prompt_.begin(), prompt_.end());
  const Generation second = generate(model_, sequence, second_turn, options, {}, 1);
  std::vector<int32_t> everything = prompt_;
  everything.insert(everything.end(), first.ids.begin(), first.ids.end());
  everything.insert(everything.end(), prompt_.begin(), prompt_.end());
  Sequence fresh(model_);
  EXPECT_EQ(generate(model_, fresh, everything, options, {}, 1).ids, second.ids);
}

TEST_F(Generate, EvaluationByWindows) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 200; ++i) ids.push_back(3 + (i * 7) % 60);
  // By hand: every window from an empty sequence, the log-probability of each next token.
  const auto by_hand = [&](int64_t window, int64_t stride) {
    double nats = 0;
    int64_t scored = 0, done = 0;
    for (int64_t begin = 0; done < 200; begin += stride) {
      const int64_t end = std::min<int64_t>(begin + window, 200);
      for (int64_t t = std::max(done, begin + 1); t < end; ++t) {
        Sequence sequence(model_);
        std::vector<float> logits(static_cast<size_t>(model_.info().vocab_size));
        const Feed feed{&sequence, std::span<const int32_t>(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(t - begin)), Feed::Rows::kLast};
        model_.forward({&feed, 1}, {}, logits.data());
        double sum = 0;
        for (float x : logits) sum += std::exp(static_cast<double>(x));
        nats += std::log(sum) - static_cast<double>(logits[static_cast<size_t>(ids[static_cast<size_t>(t)])]);
        ++scored;
      }
      done = end;
    }
    return std::pair(nats, scored);
  };
  for (const auto& [window, stride] : {std::pair<int64_t, int64_t>{64, 64}, {64, 16}, {128, 50}, {100, 0}}) {
    EvalOptions options;
    options.window = window;
    options.stride = stride;
    const EvalState got = evaluate(model_, ids, options);
    const auto [nats, scored] = by_hand(window, stride == 0 ? window : stride);
    EXPECT_EQ(got.scored_tokens, scored) << window << " " << stride;
    EXPECT_NEAR(got.nats, nats, 1e-4) << window << " " << stride;
    // Stopped after the first window and resumed: the same sum.
    StopToken stop;
    EvalOptions interrupted = options;
    interrupted.stop = &stop;
    interrupted.progress = [&](int64_t, int64_t, double) { stop.request_stop(); };
    EvalState state = evaluate(model_, ids, interrupted);
    EXPECT_LT(state.next_token, 200);
    state = evaluate(model_, ids, options, state);
    EXPECT_EQ(state.scored_tokens, got.scored_tokens);
    EXPECT_DOUBLE_EQ(state.nats, got.nats);
  }
  EvalOptions bad;
  bad.window = 1;
  EXPECT_EQ(code_of([&] { evaluate(model_, ids, bad); }), Code::kInvalidArgument);
}

}  // namespace
}  // namespace regard
