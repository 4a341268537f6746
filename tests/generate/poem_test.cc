// Acrostics by a tiny random model whose tokens are characters: it knows no verse, so whatever is right about the form comes from the
// masks. What is expected is worked out from the text alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/math.h"
#include "generate/verse_vocabulary.h"
#include "regard/error.h"
#include "regard/poem.h"
#include "regard/tokenizer_training.h"
#include "runtime/thread_pool.h"
#include "support/refusal.h"
#include "support/tiny_poet.h"
#include "text/utf8.h"

namespace regard {
namespace {

using test::message_of;

std::u32string characters(std::string_view text) {
  std::u32string out;
  while (!text.empty()) {
    const Utf8Char c = next_char(text);
    EXPECT_TRUE(c.valid());
    out += c.code_point;
    text.remove_prefix(c.size);
  }
  return out;
}

std::string utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

class PoemTest : public testing::Test {
 protected:
  test::TinyPoet poet_;
  const Model& model_ = poet_.model();

  static PoemOptions options(VerseForm form, uint64_t seed, int64_t candidates) {
    PoemOptions o;
    o.form = form;
    o.sampling.seed = seed;
    o.candidates = candidates;
    return o;
  }

  void expect_form(const Poem& poem, const std::u32string& acrostic, size_t width) const {
    ASSERT_TRUE(poem.complete);
    const std::u32string text = characters(poem.text);
    ASSERT_EQ(text.size(), acrostic.size() * (width + 1));
    std::string joined;
    for (const std::string& verse : poem.verses) joined += verse;
    EXPECT_EQ(joined, poem.text);
    EXPECT_EQ(model_.tokenizer().decode(poem.ids), poem.text);
    for (size_t i = 0; i < text.size(); ++i) {
      const size_t verse = i / (width + 1), column = i % (width + 1);
      if (column == 0) EXPECT_EQ(text[i], acrostic[verse]);
      else if (column == width) EXPECT_EQ(text[i], verse % 2 == 0 ? U'\uFF0C' : U'\u3002');
      else EXPECT_TRUE(text[i] >= U'\u4E00' && text[i] <= U'\u9FFF') << std::hex << static_cast<uint32_t>(text[i]);
    }
  }
};

TEST_F(PoemTest, EveryRuleOfTheFormHoldsForManySeeds) {
  std::set<std::string> seen;
  for (const VerseForm form : {VerseForm::kFive, VerseForm::kSeven})
    for (const std::u32string acrostic : {U"\u6625", U"\u6625\u5C71", U"\u6708\u6708\u6708", U"\u6625\u590F\u79CB\u51AC"})
      for (uint64_t seed = 0; seed < 8; ++seed) {
        PoemOptions o = options(form, seed, 4);
        o.sampling.temperature = seed % 2 == 0 ? 0.7f : 3.0f;
        for (const Poem& poem : write_acrostic(model_, utf8(acrostic), o)) {
          expect_form(poem, acrostic, static_cast<size_t>(form));
          seen.insert(poem.text);
        }
      }
  EXPECT_GT(seen.size(), 200u) << "candidates and seeds differ";
}

TEST_F(PoemTest, TheModelWouldBreakTheFormByItself) {
  // Without the masks the same model writes its marks, Latin letters and line ends anywhere.
  GenerateOptions free;
  free.sampling.temperature = 3;
  free.max_tokens = 60;
  const std::vector<std::vector<int32_t>> prompt = {model_.tokenizer().encode("\u6625")};
  const std::string text = generate(model_, prompt, free).front().text;
  EXPECT_NE(text.find_first_of("abc\n"), std::string::npos) << text;
}

TEST_F(PoemTest, GreedyTakesTheLargestAllowedLogitOfEachPlace) {
  PoemOptions o = options(VerseForm::kFive, 0, 1);
  o.sampling.temperature = 0;
  const Poem poem = write_acrostic(model_, "\u6625\u5C71", o).front();
  ASSERT_EQ(poem.start, model_.tokenizer().encode("\n"));
  std::vector<int32_t> ids = poem.start;
  ids.push_back(poem.ids[0]);
  for (size_t place = 1; place < poem.ids.size(); ++place) {
    Sequence sequence(model_);
    std::vector<float> logits(static_cast<size_t>(model_.info().vocab_size));
    const Feed feed{&sequence, ids, Feed::Rows::kLast};
    model_.forward({&feed, 1}, {}, logits.data());
    if (place % 6 != 0 && place % 6 != 5) {
      int32_t best = -1;
      for (int32_t id = 0; id < model_.tokenizer().vocab_size(); ++id) {
        const std::u32string c = characters(model_.tokenizer().token_bytes(id));
        if (c.size() == 1 && c[0] >= U'\u4E00' && c[0] <= U'\u9FFF' && (best < 0 || logits[static_cast<size_t>(id)] > logits[static_cast<size_t>(best)])) best = id;
      }
      EXPECT_EQ(poem.ids[place], best) << place;
    }
    ids.push_back(poem.ids[place]);
  }
}

TEST_F(PoemTest, SeedsDecideAndThreadsDoNot) {
  const auto texts = [&](uint64_t seed, int64_t candidates) {
    std::map<int64_t, std::string> out;
    for (const Poem& poem : write_acrostic(model_, "\u6625\u590F\u79CB\u51AC", options(VerseForm::kSeven, seed, candidates))) out[poem.candidate] = poem.text;
    return out;
  };
  const auto first = texts(5, 6);
  EXPECT_EQ(first.size(), 6u);
  EXPECT_NE(first, texts(6, 6));
  EXPECT_EQ(first.at(0), texts(5, 1).at(0)) << "a candidate does not depend on the others";
  EXPECT_EQ(first.at(2), texts(5, 3).at(2));
  const int before = default_pool().size();
  for (const int threads : {1, 3}) {
    set_default_pool_size(threads);
    EXPECT_EQ(texts(5, 6), first) << threads;
  }
  set_default_pool_size(before);
}

// The rule in its own words: log-probabilities from teacher forcing in f64, repetitions from the text.
TEST_F(PoemTest, CandidatesAreRankedByTheRule) {
  PoemOptions o = options(VerseForm::kSeven, 3, 12);
  o.repetition_cost = 0.75;
  const std::vector<Poem> poems = write_acrostic(model_, "\u6625\u6625\u5C71", o);
  ASSERT_EQ(poems.size(), 12u);
  const auto vocab = static_cast<size_t>(model_.info().vocab_size);
  std::set<int64_t> repetitions;
  for (const Poem& poem : poems) {
    std::vector<int32_t> ids = poem.start;
    ids.insert(ids.end(), poem.ids.begin(), poem.ids.end());
    std::vector<float> logits(ids.size() * vocab);
    Sequence sequence(model_);
    const Feed feed{&sequence, ids, Feed::Rows::kAll};
    model_.forward({&feed, 1}, {}, logits.data());
    const std::u32string text = characters(poem.text);
    double nats = 0;
    int64_t repeated = 0, free = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      if (i % 8 == 0 || i % 8 == 7) continue;
      ++free;
      const float* row = logits.data() + (poem.start.size() + i - 1) * vocab;
      double sum = 0;
      for (size_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(row[v]));
      nats += static_cast<double>(row[poem.ids[i]]) - std::log(sum);
      const std::u32string before = text.substr(0, i);
      const bool doubled = text[i - 1] == text[i] && before.find(text[i]) == i - 1;
      if (before.find(text[i]) != std::u32string::npos && !doubled) ++repeated;
    }
    EXPECT_EQ(free, 18);
    EXPECT_NEAR(poem.mean_logprob, nats / 18, 1e-5);
    EXPECT_EQ(poem.repetitions, repeated) << poem.text;
    EXPECT_NEAR(poem.score, nats / 18 - 0.75 * static_cast<double>(repeated) / 18, 1e-5);
    repetitions.insert(repeated);
  }
  EXPECT_GT(repetitions.size(), 1u) << "the rule has something to decide";
  for (size_t i = 1; i < poems.size(); ++i) EXPECT_GE(poems[i - 1].score, poems[i].score);
}

TEST_F(PoemTest, OneCandidateIsStreamedCharacterByCharacter) {
  std::string streamed;
  int calls = 0;
  const std::vector<Poem> poems = write_acrostic(model_, "\u6625\u5C71", options(VerseForm::kSeven, 2, 1), [&](std::string_view text) {
    streamed += text;
    ++calls;
  });
  ASSERT_EQ(poems.size(), 1u);
  EXPECT_EQ(streamed, poems[0].text);
  EXPECT_EQ(calls, 16);
}

TEST_F(PoemTest, AStopRequestKeepsWhatIsThere) {
  StopToken stop;
  PoemOptions o = options(VerseForm::kSeven, 2, 1);
  o.stop = &stop;
  int calls = 0;
  const std::vector<Poem> poems = write_acrostic(model_, "\u6625\u5C71", o, [&](std::string_view) {
    if (++calls == 5) stop.request_stop();
  });
  ASSERT_EQ(poems.size(), 1u);
  EXPECT_FALSE(poems[0].complete);
  EXPECT_EQ(poems[0].ids.size(), 5u);
}

TEST_F(PoemTest, UnknownCharactersAreNamedTogether) {
  const PoemOptions o = options(VerseForm::kSeven, 0, 1);
  const std::string unknown = message_of([&] { (void)write_acrostic(model_, "\u6625\u9F8D\u5C71\u9CF3\u9F8Dz", o); }, Code::kInvalidArgument);
  for (const char* part : {"\u9F8D U+9F8D", "\u9CF3 U+9CF3", "z U+007A"}) EXPECT_NE(unknown.find(part), std::string::npos) << unknown;
  EXPECT_EQ(unknown.find("\u9F8D", unknown.find("\u9F8D") + 1), std::string::npos) << "each one once: " << unknown;
  EXPECT_EQ(unknown.find("\u6625"), std::string::npos) << "known ones are not: " << unknown;
  const std::string others = message_of([&] { (void)write_acrostic(model_, "a\u6625\uFF0C", o); }, Code::kInvalidArgument);
  for (const char* part : {"a U+0061", "\uFF0C U+FF0C"}) EXPECT_NE(others.find(part), std::string::npos) << others;
  message_of([&] { (void)write_acrostic(model_, "", o); }, Code::kInvalidArgument);
  message_of([&] { (void)write_acrostic(model_, "\u6625\xE6\x98", o); }, Code::kInvalidArgument);
}

TEST_F(PoemTest, OptionsOutOfRangeAreRefused) {
  const auto refused = [&](const PoemOptions& o) { return message_of([&] { (void)write_acrostic(model_, "\u6625", o); }, Code::kInvalidArgument); };
  PoemOptions o = options(VerseForm::kSeven, 0, 0);
  refused(o);
  o.candidates = 2;
  o.sampling.temperature = 0;
  refused(o);
  o = options(static_cast<VerseForm>(6), 0, 1);
  refused(o);
  o = options(VerseForm::kSeven, 0, 1);
  o.repetition_cost = -1;
  refused(o);
  std::string acrostic;
  for (int i = 0; i < 16; ++i) acrostic += "\u6625";
  const std::string longer = message_of([&] { (void)write_acrostic(model_, acrostic, options(VerseForm::kSeven, 0, 1)); }, Code::kInvalidArgument);
  EXPECT_NE(longer.find("129"), std::string::npos) << longer;
  EXPECT_NE(longer.find("128"), std::string::npos) << longer;
  acrostic.resize(15 * 3);
  EXPECT_TRUE(write_acrostic(model_, acrostic, options(VerseForm::kSeven, 0, 1)).front().complete);
}

TEST(Poem, AVocabularyWithoutTheMarksIsRefused) {
  const test::TinyPoet poet("\u6625\u590F\n\uFF0C");
  const std::string refused = message_of([&] { (void)write_acrostic(poet.model(), "\u6625", {}); }, Code::kUnsupported);
  EXPECT_NE(refused.find("U+3002"), std::string::npos) << refused;
}

TEST(Poem, AVocabularyWithoutLineEndsBeginsWithTheAcrostic) {
  const test::TinyPoet poet("\u6625\u590F\u79CB\u51AC\u6708\u5C71\uFF0C\u3002");
  const Poem poem = write_acrostic(poet.model(), "\u6625\u5C71", {}).front();
  EXPECT_TRUE(poem.start.empty());
  EXPECT_TRUE(poem.complete);
  EXPECT_EQ(poem.ids.size(), 16u);
}

TEST(Poem, HanCharactersAreThoseOfTheBlocks) {
  for (const char32_t c : {U'\u3007', U'\u3400', U'\u4E00', U'\u9FFF', U'\uF900', U'\U00020000', U'\U000323AF'}) EXPECT_TRUE(is_han(c)) << static_cast<uint32_t>(c);
  for (const char32_t c : {U'a', U'\u3002', U'\u3042', U'\u4DC0', U'\uAC00', U'\uFF0C', U'\u33FF', U'\uA000', U'\U000323B0'}) EXPECT_FALSE(is_han(c)) << static_cast<uint32_t>(c);
}

// The hook that the form rests on, by itself.
TEST(AllowedTokens, DecideWhatMayBeWrittenAndWhenItEnds) {
  const test::TinyPoet poet;
  const Model& model = poet.model();
  const std::vector<std::vector<int32_t>> prompts = {{1}, {2}};
  GenerateOptions plain;
  plain.sampling.temperature = 1.5f;
  plain.max_tokens = 12;
  plain.top_logprobs = 0;
  const std::vector<Generation> usual = generate(model, prompts, plain);

  GenerateOptions o = plain;
  o.allowed = [](const TokenChoice&) -> std::optional<std::span<const int32_t>> { return std::nullopt; };
  const std::vector<Generation> same = generate(model, prompts, o);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(same[i].ids, usual[i].ids);

  const std::vector<int32_t> few = {3, 9, 4}, single = {7};
  std::vector<int64_t> asked;
  o.allowed = [&](const TokenChoice& choice) -> std::optional<std::span<const int32_t>> {
    const int64_t n = static_cast<int64_t>(choice.history.size()) - choice.prompt_size;
    asked.push_back(choice.index);
    EXPECT_EQ(choice.history.front(), choice.index + 1);
    if (n == 2) return single;
    return n < 5 ? std::span<const int32_t>(few) : std::span<const int32_t>();
  };
  for (const Generation& text : generate(model, prompts, o)) {
    ASSERT_EQ(text.ids.size(), 5u);
    EXPECT_EQ(text.finish, FinishReason::kStop);
    for (size_t n = 0; n < 5; ++n) EXPECT_TRUE(n == 2 ? text.ids[n] == 7 : std::find(few.begin(), few.end(), text.ids[n]) != few.end());
    EXPECT_EQ(text.logprobs.size(), 5u);
  }
  EXPECT_EQ(std::count(asked.begin(), asked.end(), 1), 6);

  const std::vector<int32_t> outside = {static_cast<int32_t>(model.info().vocab_size)};
  o.allowed = [&](const TokenChoice&) -> std::optional<std::span<const int32_t>> { return outside; };
  message_of([&] { (void)generate(model, prompts, o); }, Code::kInvalidArgument);
}

TEST(AllowedTokens, TextsOfABatchMayHaveStreamsOfTheirOwn) {
  const test::TinyPoet poet;
  GenerateOptions o;
  o.sampling.temperature = 2;
  o.max_tokens = 20;
  o.streams = GenerateOptions::Streams::kByIndex;
  const std::vector<std::vector<int32_t>> prompts(3, std::vector<int32_t>{1, 2});
  const std::vector<Generation> texts = generate(poet.model(), prompts, o);
  for (uint64_t i = 0; i < 3; ++i) {
    Sequence sequence(poet.model());
    EXPECT_EQ(generate(poet.model(), sequence, prompts[0], o, {}, i).ids, texts[i].ids) << i;
  }
  EXPECT_NE(texts[0].ids, texts[1].ids);
}

}  // namespace
}  // namespace regard
