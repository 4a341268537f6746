// n-grams against the formula evaluated on counts that are searched for in the whole text.
#include "regard/ngram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>

#include "base/rng.h"
#include "regard/error.h"

namespace regard {
namespace {

using Ids = std::vector<int32_t>;

/// p(w | h) by definition, for any h: every place of the text is looked at, once per length of h.
class Counted {
 public:
  Counted(const Ids& text, int64_t order, int64_t vocab_size) : vocab_size_(vocab_size) {
    for (size_t n = 0; n < static_cast<size_t>(order); ++n)
      for (size_t t = n; t < text.size(); ++t)
        ++followers_[Ids(text.begin() + static_cast<std::ptrdiff_t>(t - n), text.begin() + static_cast<std::ptrdiff_t>(t))][text[t]];
  }
  double probability(Ids context, int32_t token) const {
    const double lower = context.empty() ? 1.0 / static_cast<double>(vocab_size_) : probability(Ids(context.begin() + 1, context.end()), token);
    const auto found = followers_.find(context);
    if (found == followers_.end()) return lower;
    double all = 0;
    for (const auto& [follower, count] : found->second) all += count;
    const auto same = found->second.find(token);
    const double count = same == found->second.end() ? 0 : same->second, different = static_cast<double>(found->second.size());
    return (count + different * lower) / (all + different);
  }

 private:
  int64_t vocab_size_;
  std::map<Ids, std::map<int32_t, double>> followers_;
};

Ids excerpt() {
  std::ifstream in(std::string(REGARD_TEST_DATA) + "/golden/text/shakespeare.txt", std::ios::binary);
  EXPECT_TRUE(in.good());
  Ids ids;
  for (auto it = std::istreambuf_iterator<char>(in); it != std::istreambuf_iterator<char>(); ++it) ids.push_back(static_cast<uint8_t>(*it));
  return ids;
}

NgramModel counted(const Ids& text, int64_t order, int64_t vocab_size) {
  NgramOptions options;
  options.order = order;
  options.vocab_size = vocab_size;
  return NgramModel::count(text, options);
}

TEST(Ngram, ProseGivesTheFormulaOnCountsOfTheWholeText) {
  const Ids all = excerpt(), train(all.begin(), all.begin() + 40000), held_out(all.begin() + 40000, all.begin() + 44000);
  const NgramModel model = counted(train, kMaxNgramOrder, 128);
  const std::vector<double> nats = model.nats(held_out);
  ASSERT_EQ(nats.size(), 9u);
  EXPECT_NEAR(nats[0], 4000 * std::log(128.0), 1e-6);
  const Counted formula(train, kMaxNgramOrder, 128);
  for (int64_t order = 1; order <= kMaxNgramOrder; ++order) {
    double sum = 0;
    for (size_t t = 0; t < held_out.size(); ++t) {
      const size_t before = std::min(t, static_cast<size_t>(order - 1));
      const auto at = held_out.begin() + static_cast<std::ptrdiff_t>(t);
      sum -= std::log(formula.probability(Ids(at - static_cast<std::ptrdiff_t>(before), at), held_out[t]));
    }
    EXPECT_NEAR(nats[static_cast<size_t>(order)], sum, 1e-9 * sum) << order;
    EXPECT_NEAR(counted(train, order, 128).nats(held_out).back(), sum, 1e-9 * sum) << order;  // a lower order is part of a higher one
  }
}

TEST(Ngram, ProbabilitiesAreThoseOfTheFormulaAndSumToOne) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const int64_t order = 1 + static_cast<int64_t>(seed % kMaxNgramOrder), vocab_size = 5;
    Ids text;
    for (uint64_t i = 0; i < 10 * seed; ++i) text.push_back(static_cast<int32_t>(random_bits(seed, 0, i) % 4));  // token 4 never occurs
    const NgramModel model = counted(text, order, vocab_size);
    const Counted formula(text, order, vocab_size);
    for (uint64_t c = 0; c < 60; ++c) {
      Ids context;
      for (uint64_t i = 0; i < c % 10; ++i) context.push_back(static_cast<int32_t>(random_bits(seed, 1 + c, i) % 5));
      const Ids seen(context.end() - std::min<std::ptrdiff_t>(order - 1, std::ssize(context)), context.end());
      double sum = 0;
      for (int32_t token = 0; token < vocab_size; ++token) {
        const double p = model.probability(context, token);
        EXPECT_NEAR(p, formula.probability(seen, token), 1e-14);
        EXPECT_GT(p, 0);
        sum += p;
      }
      EXPECT_NEAR(sum, 1, 1e-14);
    }
  }
}

TEST(Ngram, WithoutATextEverythingIsUniform) {
  const NgramModel model = counted({}, 3, 7);
  EXPECT_DOUBLE_EQ(model.probability(Ids{1, 2, 3}, 4), 1.0 / 7);
  EXPECT_TRUE(std::ranges::all_of(model.nats({}), [](double x) { return x == 0; }));
}

TEST(Ngram, RefusesWhatDoesNotFit) {
  EXPECT_THROW(counted({0}, 0, 2), Error);
  EXPECT_THROW(counted({0}, kMaxNgramOrder + 1, 2), Error);
  EXPECT_THROW(counted({0}, 2, 0), Error);
  EXPECT_THROW(counted({2}, 2, 2), Error);
  EXPECT_THROW(counted({-1}, 2, 2), Error);
  const NgramModel model = counted({0, 1}, 2, 2);
  EXPECT_THROW(model.nats(Ids{2}), Error);
  EXPECT_THROW(model.probability(Ids{2}, 0), Error);
  EXPECT_THROW(model.probability({}, 2), Error);
  StopToken stop;
  stop.request_stop();
  EXPECT_THROW(model.nats(Ids{0}, &stop), Error);
  NgramOptions options;
  options.vocab_size = 2;
  options.stop = &stop;
  EXPECT_THROW(NgramModel::count(Ids{0}, options), Error);
}

}  // namespace
}  // namespace regard
