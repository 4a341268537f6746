// The tasks: labels against what the printed question asks for, worked out here from its text; splits; determinism.
#include "train/tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "regard/error.h"

namespace regard::train_tasks {
namespace {

using nn::kIgnoredLabel;

std::vector<std::string> printed(const Task& task, const std::vector<int32_t>& ids) {
  std::vector<std::string> out;
  for (const int32_t id : ids) out.push_back(id == kIgnoredLabel ? "." : task.token_text(id));
  return out;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += part;
  return out;
}

/// What `task` asks for in the sequence of `tokens` (and `source`), by its description alone; "." where nothing is asked.
std::vector<std::string> expected_labels(const std::string& name, const std::vector<std::string>& tokens, const std::vector<std::string>& source) {
  const size_t size = tokens.size();
  std::vector<std::string> labels(size, ".");
  if (name == "copy") {
    const size_t n = static_cast<size_t>(std::find(tokens.begin(), tokens.end(), "=") - tokens.begin());
    for (size_t i = 0; i < n; ++i) labels[n + i] = tokens[i];
  } else if (name == "reverse") {
    labels.assign(tokens.rbegin(), tokens.rend());
  } else if (name == "sort") {
    const size_t n = (size + 1) / 2;
    std::vector<std::string> sorted(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n));
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < n; ++i) labels[n - 1 + i] = sorted[i];
  } else if (name == "addition") {
    const size_t n = size / 3;
    const std::string text = joined(tokens);
    std::string sum = std::to_string(1000000000000 + std::stoll(text.substr(0, n)) + std::stoll(text.substr(n, n)));
    for (size_t i = 0; i <= n; ++i) labels[2 * n - 1 + i] = std::string(1, sum[sum.size() - 1 - i]);
  } else if (name == "modular") {
    labels[2] = std::to_string((std::stoi(tokens[0]) + std::stoi(tokens[1])) % 97);
  } else if (name == "recall") {
    std::map<std::string, std::string> values;
    const size_t n = size / 3;
    for (size_t i = 0; i < n; ++i) values[tokens[2 * i]] = tokens[2 * i + 1];
    for (size_t i = 2 * n; i < size; ++i) labels[i] = values.at(tokens[i]);
  } else if (name == "induction") {
    const size_t half = (size + 1) / 2;
    for (size_t t = half; t < size; ++t) {
      size_t before = t - 1;
      while (tokens[before] != tokens[t]) --before;
      labels[t] = tokens[before + 1];
    }
  } else if (name == "brackets") {
    std::string open;
    const std::string opening = "([{<", closing = ")]}>";
    for (size_t t = 0; t < size; ++t) {
      if (tokens[t] != "?") {
        open += tokens[t];
      } else {
        labels[t] = std::string(1, closing[opening.find(open.back())]);
        open.pop_back();
      }
    }
    EXPECT_TRUE(open.empty());
  } else {
    const std::string word = joined(source);
    size_t first = 0;
    while (first < word.size()) {
      const bool vowel = std::string("aeiou").find(word[first]) != std::string::npos || (word[first] == 'y' && first > 0);
      if (vowel && !(word[first] == 'u' && first > 0 && word[first - 1] == 'q')) break;
      ++first;
    }
    const std::string latin = first == 0 ? word + "way" : word.substr(first) + word.substr(0, first) + "ay";
    EXPECT_EQ(joined(tokens), "^" + latin);
    for (size_t i = 0; i < latin.size(); ++i) labels[i] = std::string(1, latin[i]);
    labels.back() = "$";
  }
  return labels;
}

TEST(Tasks, LabelsAreWhatTheQuestionAsksFor) {
  for (const TaskInfo& info : task_list()) {
    SCOPED_TRACE(info.name);
    TaskOptions options;
    options.seed = 5;
    const auto task = make_task(info.name, options);
    Example example;
    for (uint64_t i = 0; i < 400; ++i) {
      task->example(i % 2 == 0 ? Split::kTraining : Split::kValidation, i, example);
      ASSERT_EQ(example.labels.size(), example.tokens.size());
      const auto tokens = printed(*task, example.tokens), source = printed(*task, example.source);
      ASSERT_EQ(printed(*task, example.labels), expected_labels(std::string(info.name), tokens, source)) << joined(tokens) << " " << joined(source);
      ASSERT_LE(static_cast<int64_t>(example.tokens.size()), task->seq());
      ASSERT_LE(static_cast<int64_t>(example.source.size()), task->source_seq());
      for (const int32_t id : example.tokens) ASSERT_TRUE(id >= 0 && id < task->vocab_size());
      for (const int32_t id : example.labels) ASSERT_TRUE(id == kIgnoredLabel || (id >= 0 && id < task->vocab_size()));
      // An answer is not given before it is asked, where the model sees the past alone.
      if (task->sight() == Sight::kCausal && task->source_seq() == 0 && info.name != "recall" && info.name != "brackets" && info.name != "induction") {
        const auto first = static_cast<size_t>(std::find_if(example.labels.begin(), example.labels.end(), [](int32_t l) { return l != kIgnoredLabel; }) -
                                               example.labels.begin());
        for (size_t t = first; t + 1 < example.tokens.size(); ++t) ASSERT_EQ(example.tokens[t + 1], example.labels[t]);
      }
    }
  }
}

TEST(Tasks, QuestionsOfTheSplitsNeverMeet) {
  for (const TaskInfo& info : task_list()) {
    SCOPED_TRACE(info.name);
    std::set<std::vector<int32_t>> sets[2];
    Example example;
    for (const uint64_t seed : {1, 2}) {  // of different seeds neither
      TaskOptions options;
      options.seed = seed;
      if (info.name == "copy" || info.name == "reverse" || info.name == "sort") options.length = 4;  // few questions, seen again and again
      if (info.name == "brackets") options.length = 4;
      if (info.name == "pig-latin") options.length = 1;
      const auto task = make_task(info.name, options);
      for (const Split split : {Split::kTraining, Split::kValidation}) {
        for (uint64_t i = 0; i < 3000; ++i) {
          task->example(split, i, example);
          std::vector<int32_t> question = example.source;
          for (size_t t = 0; t < example.tokens.size(); ++t) {
            if (info.name == "pig-latin") break;
            question.push_back(example.tokens[t]);
          }
          if (info.name == "addition") {  // either order is the same question
            const auto n = static_cast<std::ptrdiff_t>(question.size() / 3);
            const std::vector<int32_t> a(question.begin(), question.begin() + n), b(question.begin() + n, question.begin() + 2 * n);
            question = std::min(a, b);
            question.insert(question.end(), std::max(a, b).begin(), std::max(a, b).end());
          }
          sets[split == Split::kValidation].insert(question);
        }
      }
    }
    size_t common = 0;
    for (const auto& question : sets[1]) common += sets[0].count(question);
    EXPECT_EQ(common, 0u) << sets[0].size() << " and " << sets[1].size();
    EXPECT_GT(sets[1].size(), 50u);
  }
}

TEST(Tasks, ExamplesAreAFunctionOfSeedSplitAndIndex) {
  for (const TaskInfo& info : task_list()) {
    SCOPED_TRACE(info.name);
    TaskOptions options;
    options.seed = 9;
    const auto one = make_task(info.name, options), two = make_task(info.name, options);
    options.seed = 10;
    const auto other = make_task(info.name, options);
    Example a, b;
    std::set<std::pair<std::vector<int32_t>, std::vector<int32_t>>> seen;
    size_t same = 0;
    for (const uint64_t i : {0, 1, 2, 3, 50, 51, 52, 1000000007}) {
      one->example(Split::kTraining, i, a);
      two->example(Split::kTraining, i, b);
      EXPECT_EQ(std::tie(a.tokens, a.labels, a.source), std::tie(b.tokens, b.labels, b.source));
      seen.emplace(a.tokens, a.source);
      other->example(Split::kTraining, i, b);
      same += a.tokens == b.tokens && a.source == b.source ? 1 : 0;
    }
    EXPECT_GE(seen.size(), 7u);
    EXPECT_LE(same, 1u);
  }
}

TEST(Tasks, InductionHasPeriodsOfAllLengths) {
  const auto task = make_task("induction");
  std::set<size_t> periods;
  Example example;
  for (uint64_t i = 0; i < 500; ++i) {
    task->example(Split::kTraining, i, example);
    const std::set<int32_t> different(example.tokens.begin(), example.tokens.end());
    periods.insert(different.size());
  }
  EXPECT_EQ(*periods.begin(), 16u);
  EXPECT_EQ(*periods.rbegin(), 32u);
  EXPECT_EQ(periods.size(), 17u);
}

TEST(Tasks, EveryLengthWorks) {
  for (const TaskInfo& info : task_list()) {
    SCOPED_TRACE(info.name);
    for (const int64_t length : {info.min_length, info.usual_length, info.max_length}) {
      TaskOptions options;
      options.length = length;
      const auto task = make_task(info.name, options);
      Example example;
      for (uint64_t i = 0; i < 20; ++i) task->example(Split::kTraining, i, example);
      EXPECT_FALSE(example.tokens.empty());
    }
    TaskOptions options;
    options.length = info.max_length + 1;
    EXPECT_THROW(make_task(info.name, options), Error);
  }
  EXPECT_THROW(make_task("juggling"), Error);
}

TEST(Tasks, PigLatinTakesWordsAndKeepsSomeForValidation) {
  TaskOptions options;
  for (const char* word : {"queen", "apple", "string", "yellow", "rhythm", "my", "shh", "square", "eye", "trumpet", "banana", "unit", "glove",
                           "whale", "cat", "dog", "house", "tree", "river", "stone"})
    options.words.emplace_back(word);
  const auto task = make_task("pig-latin", options);
  const std::map<std::string, std::string> known = {{"queen", "eenquay"}, {"apple", "appleway"}, {"string", "ingstray"}, {"yellow", "ellowyay"},
                                                    {"rhythm", "ythmrhay"}, {"my", "ymay"}, {"shh", "shhay"}, {"square", "aresquay"},
                                                    {"eye", "eyeway"}, {"trumpet", "umpettray"}};
  std::set<std::string> words[2];
  Example example;
  for (uint64_t i = 0; i < 400; ++i) {
    const Split split = i % 2 == 0 ? Split::kTraining : Split::kValidation;
    task->example(split, i, example);
    const std::string word = joined(printed(*task, example.source));
    words[i % 2].insert(word);
    if (known.contains(word)) {
      EXPECT_EQ(joined(printed(*task, example.labels)), known.at(word) + "$");
    }
  }
  EXPECT_EQ(words[0].size() + words[1].size(), options.words.size());
  EXPECT_GE(words[1].size(), 1u);
  options.words = {"Cat"};
  EXPECT_THROW(make_task("pig-latin", options), Error);
  options.words = {"cat"};
  EXPECT_THROW(make_task("pig-latin", options), Error);
  EXPECT_THROW(make_task("copy", options), Error);
}

TEST(Tasks, OneInTenIsKept) {
  int64_t kept = 0;
  for (int32_t i = 0; i < 20000; ++i) kept += held_out(std::vector<int32_t>{i / 100, i % 100}) ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(kept), 2000, 5 * 42.4);  // five standard deviations of a coin with 1/10
}

TEST(ExactMatch, CountsSequencesWithoutAMistake) {
  constexpr int32_t x = kIgnoredLabel;
  ExactMatch match;
  match.add(std::vector<int32_t>{x, 1, 2}, std::vector<int32_t>{7, 1, 2});
  match.add(std::vector<int32_t>{x, 1, 2}, std::vector<int32_t>{1, 1, 3});
  match.add(std::vector<int32_t>{x, x, x}, std::vector<int32_t>{1, 1, 3});
  EXPECT_EQ(match.sequences, 2);
  EXPECT_EQ(match.exact, 1);
  EXPECT_EQ(match.counted, 4);
  EXPECT_EQ(match.correct, 3);
  EXPECT_DOUBLE_EQ(match.share(), 0.5);
  EXPECT_THROW(match.add(std::vector<int32_t>{1}, std::vector<int32_t>{}), Error);
}

}  // namespace
}  // namespace regard::train_tasks
