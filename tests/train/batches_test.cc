// Windows, labels, documents and corruption against brute force.
#include "train/batches.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "regard/error.h"
#include "train/permutation.h"

namespace regard::train_data {
namespace {

using Order = WindowOptions::Order;
using Documents = TrainConfig::Data::Documents;
using Objective = TrainConfig::Data::Objective;

// Token i is i, so a token says where it stands.
TokenData counting(int64_t size, std::vector<int64_t> starts = {}) {
  std::vector<int32_t> ids(static_cast<size_t>(size));
  std::iota(ids.begin(), ids.end(), 0);
  return TokenData(std::move(ids), std::move(starts));
}

TEST(Permutation, IsABijectionThatDependsOnItsKey) {
  for (const uint64_t size : {1u, 2u, 3u, 4u, 5u, 16u, 17u, 63u, 64u, 65u, 1000u, 4097u}) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < size; ++i) seen.insert(permuted(3, 4, size, i));
    EXPECT_EQ(seen.size(), size);
    EXPECT_EQ(*seen.rbegin(), size - 1);
  }
  const auto order = [](uint64_t seed, uint64_t epoch) {
    std::vector<uint64_t> all;
    for (uint64_t i = 0; i < 100; ++i) all.push_back(permuted(seed, epoch, 100, i));
    return all;
  };
  EXPECT_EQ(order(1, 1), order(1, 1));
  EXPECT_NE(order(1, 1), order(1, 2));
  EXPECT_NE(order(1, 1), order(2, 1));
  // Neighbours do not stay together: for a random order of 10,000 about 2 pairs do.
  int neighbours = 0;
  for (uint64_t i = 0; i + 1 < 10000; ++i) neighbours += permuted(5, 0, 10000, i) + 1 == permuted(5, 0, 10000, i + 1) ? 1 : 0;
  EXPECT_LT(neighbours, 12);
  // Each place gets each item about equally often over many epochs.
  std::map<uint64_t, int> first;
  for (uint64_t epoch = 0; epoch < 8000; ++epoch) ++first[permuted(9, epoch, 8, 0)];
  for (uint64_t item = 0; item < 8; ++item) EXPECT_NEAR(first[item], 1000, 150);
}

TEST(Labels, AreTheNextTokens) {
  const std::vector<int32_t> tokens = {5, 6, 7, 8};
  std::vector<int32_t> labels(3);
  shift_labels(tokens, {}, labels);
  EXPECT_EQ(labels, (std::vector<int32_t>{6, 7, 8}));
  const std::vector<int32_t> documents = {0, 0, 1, 1};
  shift_labels(tokens, documents, labels);
  EXPECT_EQ(labels, (std::vector<int32_t>{6, nn::kIgnoredLabel, 8}));
  std::vector<int32_t> wrong(4);
  EXPECT_THROW(shift_labels(tokens, {}, wrong), Error);
}

TEST(Windows, OfAnEpochAreDisjointWholeAndShuffled) {
  const WindowBatches batches(counting(1003), {.seq = 10, .seed = 3});
  EXPECT_EQ(batches.pass(), 99);  // 100 fit into 1002 predictions; one is given for the offset
  std::set<int32_t> offsets;
  std::vector<std::vector<int32_t>> orders;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    std::set<int32_t> seen;
    std::vector<int32_t> begins;
    Batch batch;
    for (int64_t i = 0; i < batches.pass(); i += 33) {
      batches.fill(epoch * batches.pass() + i, 33, batch);
      ASSERT_EQ(batch.tokens.size(), 330u);
      for (int64_t row = 0; row < 33; ++row) {
        const int32_t begin = batch.tokens[static_cast<size_t>(row * 10)];
        begins.push_back(begin);
        EXPECT_EQ(batch.lengths[static_cast<size_t>(row)], 10);
        for (int32_t t = 0; t < 10; ++t) {
          const auto at = static_cast<size_t>(row * 10 + t);
          EXPECT_EQ(batch.tokens[at], begin + t);
          EXPECT_EQ(batch.labels[at], begin + t + 1);
          EXPECT_TRUE(seen.insert(begin + t).second);
        }
      }
    }
    offsets.insert(*seen.begin());
    orders.push_back(begins);
    EXPECT_EQ(*seen.rbegin() - *seen.begin(), 989);
    EXPECT_LE(*seen.rbegin(), 1001);
  }
  EXPECT_GT(offsets.size(), 5u);
  EXPECT_GE(*offsets.begin(), 0);
  EXPECT_LT(*offsets.rbegin(), 10);
  EXPECT_NE(orders[0], orders[1]);
}

TEST(Windows, AreAFunctionOfTheirNumber) {
  const WindowBatches batches(counting(500), {.seq = 7, .seed = 1});
  Batch all, part;
  batches.fill(40, 6, all);
  batches.fill(43, 2, part);
  EXPECT_TRUE(std::equal(part.tokens.begin(), part.tokens.end(), all.tokens.begin() + 21));
  const nn::TokenBatch view = all.view(3, 2);
  EXPECT_EQ(view.batch, 2);
  EXPECT_EQ(view.first_sequence, 3);
  EXPECT_TRUE(std::equal(view.tokens.begin(), view.tokens.end(), part.tokens.begin(), part.tokens.end()));
  EXPECT_EQ(view.lengths.size(), 2u);
  EXPECT_TRUE(view.documents.empty());
}

TEST(Windows, InOrderCountEveryTokenOnce) {
  for (const int64_t size : {2, 3, 10, 11, 12, 21, 22, 95}) {
    const WindowBatches batches(counting(size), {.seq = 10, .order = Order::kInOrder});
    Batch batch;
    batches.fill(0, batches.pass(), batch);
    std::vector<int32_t> labels;
    for (size_t i = 0; i < batch.labels.size(); ++i) {
      if (batch.labels[i] == nn::kIgnoredLabel) continue;
      EXPECT_EQ(batch.labels[i], batch.tokens[i] + 1);
      labels.push_back(batch.labels[i]);
    }
    std::vector<int32_t> want(static_cast<size_t>(size - 1));
    std::iota(want.begin(), want.end(), 1);
    EXPECT_EQ(labels, want) << size;
    EXPECT_EQ(batch.counted(), size - 1);
    EXPECT_EQ(std::accumulate(batch.lengths.begin(), batch.lengths.end(), int64_t{0}), size - 1);
  }
}

TEST(Windows, AreCutWhereDocumentsBegin) {
  const std::vector<int64_t> starts = {0, 4, 5, 13};
  const WindowBatches batches(counting(20, starts),
                              {.seq = 8, .order = Order::kInOrder, .documents = Documents::kMaskAndRestart});
  Batch batch;
  batches.fill(0, batches.pass(), batch);
  const auto document_of = [&](int64_t token) { return std::upper_bound(starts.begin(), starts.end(), token) - starts.begin(); };
  for (int64_t row = 0; row < batch.batch; ++row) {
    for (int64_t t = 0; t < batch.lengths[static_cast<size_t>(row)]; ++t) {
      const auto at = static_cast<size_t>(row * 8 + t);
      const int64_t token = row * 8 + t;
      ASSERT_EQ(batch.tokens[at], token);
      EXPECT_EQ(batch.labels[at], document_of(token) == document_of(token + 1) ? token + 1 : nn::kIgnoredLabel) << token;
      for (int64_t u = 0; u < batch.lengths[static_cast<size_t>(row)]; ++u) {
        EXPECT_EQ(batch.documents[at] == batch.documents[static_cast<size_t>(row * 8 + u)], document_of(token) == document_of(row * 8 + u));
      }
      const int64_t begin = std::max(starts[static_cast<size_t>(document_of(token) - 1)], row * 8);
      EXPECT_EQ(batch.encoding_positions[at], token - begin) << token;
    }
  }
  const WindowBatches masked(counting(20, starts), {.seq = 8, .order = Order::kInOrder, .documents = Documents::kMask});
  masked.fill(0, 1, batch);
  EXPECT_TRUE(batch.encoding_positions.empty());
  EXPECT_EQ(batch.documents.size(), 8u);
}

TEST(Windows, SayWhenThereIsTooLittle) {
  EXPECT_THROW(WindowBatches(counting(10), {.seq = 10}), Error);
  EXPECT_NO_THROW(WindowBatches(counting(11), {.seq = 10}));
  EXPECT_THROW(WindowBatches(counting(1), {.seq = 10, .order = Order::kInOrder}), Error);
  EXPECT_NO_THROW(WindowBatches(counting(10), {.seq = 10, .objective = Objective::kMaskedToken}));
}

TEST(Corruption, HasTheSharesOfThePaper) {
  const Corruption corruption{.seed = 5, .rate = 0.15, .mask_id = 1000, .vocab_size = 1000};
  std::vector<int32_t> clean(200000), labels(clean.size());
  for (size_t i = 0; i < clean.size(); ++i) clean[i] = static_cast<int32_t>(i % 1000);
  std::vector<int32_t> tokens = clean;
  corrupt_tokens(corruption, 3, tokens, labels);
  double chosen = 0, masked = 0, same = 0, random = 0;
  for (size_t i = 0; i < clean.size(); ++i) {
    if (labels[i] == nn::kIgnoredLabel) {
      EXPECT_EQ(tokens[i], clean[i]);
      continue;
    }
    EXPECT_EQ(labels[i], clean[i]);
    ++chosen;
    if (tokens[i] == 1000) ++masked;
    else if (tokens[i] == clean[i]) ++same;
    else ++random;
  }
  const double n = static_cast<double>(clean.size());
  EXPECT_NEAR(chosen / n, 0.15, 0.004);  // five standard deviations
  EXPECT_NEAR(masked / chosen, 0.8, 0.012);
  EXPECT_NEAR(same / chosen, 0.1, 0.009);
  EXPECT_NEAR(random / chosen, 0.1, 0.009);
  std::vector<int32_t> again = clean, other = clean;
  corrupt_tokens(corruption, 3, again, labels);
  EXPECT_EQ(again, tokens);
  corrupt_tokens(corruption, 4, other, labels);
  EXPECT_NE(other, tokens);
}

TEST(Corruption, IsPartOfTheWindows) {
  WindowOptions options{.seq = 16, .seed = 2, .objective = Objective::kMaskedToken};
  options.corruption = {.seed = 2, .rate = 0.5, .mask_id = 400, .vocab_size = 400};
  const WindowBatches batches(counting(400), options);
  Batch batch, later;
  batches.fill(0, 10, batch);
  EXPECT_NEAR(static_cast<double>(batch.counted()), 80, 32);
  batches.fill(batches.pass(), 10, later);
  EXPECT_NE(batch.labels, later.labels);
}

}  // namespace
}  // namespace regard::train_data
