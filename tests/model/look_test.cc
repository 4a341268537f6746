// What layers look at: weights against a softmax in f64 over the queries and keys that were handed out, and the promise that
// looking changes no bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "regard/error.h"
#include "regard/model_attention.h"
#include "support/golden.h"
#include "support/tiny_poet.h"

namespace regard {
namespace {

std::vector<int32_t> some_ids(const Model& model, int64_t n) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>((7 * i * i + 3 * i + 1) % model.info().vocab_size));
  return ids;
}

std::vector<float> logits(const Model& model, std::span<const int32_t> ids, int64_t chunk, const OnLayerAttention& on_layer) {
  Sequence sequence(model);
  std::vector<float> out((ids.size() + 1) * static_cast<size_t>(model.info().vocab_size));
  const Feed feed{&sequence, ids, Feed::Rows::kAll};
  ForwardOptions options;
  options.chunk = chunk;
  if (on_layer) watch_forward(model, feed, options, on_layer, out.data());
  else model.forward({&feed, 1}, options, out.data());
  // One more token, unwatched: the cache is as it would be, too.
  const Feed next{&sequence, ids.first(1), Feed::Rows::kLast};
  model.forward({&next, 1}, {}, out.data() + ids.size() * static_cast<size_t>(model.info().vocab_size));
  return out;
}

// [heads][rows][keys] of causal attention in f64. Checks lse by the way.
std::vector<double> softmax(const LayerAttention& seen, double scale) {
  const int64_t heads = seen.q.shape[1], rows = seen.q.shape[2], dim = seen.q.shape[3], keys = seen.k.shape[2], first = seen.options.q_begin.front();
  const int64_t group = heads / seen.k.shape[1];
  std::vector<double> weights(static_cast<size_t>(heads * rows * keys));
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < rows; ++i) {
      double* row = weights.data() + (h * rows + i) * keys;
      double sum = 0;
      for (int64_t j = 0; j <= first + i; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < dim; ++d) dot += static_cast<double>(*seen.q.at(0, h, i, d)) * static_cast<double>(*seen.k.at(0, h / group, j, d));
        sum += row[j] = std::exp(dot * scale);
      }
      for (int64_t j = 0; j <= first + i; ++j) row[j] /= sum;
      EXPECT_NEAR(*seen.lse.at(0, h, i), std::log(sum), 1e-5 * (1 + std::fabs(std::log(sum))));
    }
  return weights;
}

void expect_softmax(const Model& model) {
  const int64_t n = 70, layers = model.info().num_layers, heads = model.info().num_q_heads;
  const std::vector<int32_t> ids = some_ids(model, n);
  std::vector<std::vector<double>> all;
  (void)logits(model, ids, 512, [&](const LayerAttention& seen) {
    EXPECT_EQ(seen.layer, static_cast<int64_t>(all.size()));
    all.push_back(softmax(seen, 1 / std::sqrt(static_cast<double>(model.info().head_dim))));
  });
  ASSERT_EQ(all.size(), static_cast<size_t>(layers));
  const auto expect = [&](LookOptions options) {
    const std::vector<float> weights = look(model, ids, options);
    ASSERT_EQ(weights.size(), static_cast<size_t>(n * n));
    for (int64_t i = 0; i < n; ++i) {
      double row = 0;
      for (int64_t j = 0; j < n; ++j) {
        double wanted = 0;
        int64_t terms = 0;
        for (int64_t l = 0; l < layers; ++l)
          for (int64_t h = 0; h < heads; ++h)
            if ((options.layer < 0 || l == options.layer) && (options.head < 0 || h == options.head)) {
              wanted += all[static_cast<size_t>(l)][static_cast<size_t>((h * n + i) * n + j)];
              ++terms;
            }
        const auto got = static_cast<double>(weights[static_cast<size_t>(i * n + j)]);
        ASSERT_NEAR(got, wanted / static_cast<double>(terms), 1e-5) << i << " " << j;
        ASSERT_TRUE(j <= i || got == 0) << i << " " << j;
        row += got;
      }
      ASSERT_NEAR(row, 1, 1e-5) << i;
    }
  };
  expect({});
  expect({layers - 1, -1, nullptr});
  expect({-1, heads - 1, nullptr});
  expect({0, 1, nullptr});
}

TEST(Look, WeightsAreTheSoftmaxOfWhatIsHandedOut) {
  expect_softmax(test::TinyPoet().model());                        // learned positions, fused projection
  expect_softmax(Model::load(test::golden_path("hf/llama")));      // rotated, grouped heads
}

TEST(Look, ThePoetLooksAtSomething) {
  // Even weights would hide a mistake in the order of heads or keys.
  const test::TinyPoet poet;
  const std::vector<int32_t> ids = some_ids(poet.model(), 20);
  const std::vector<float> weights = look(poet.model(), ids, {1, 2, nullptr});
  float largest = 0;
  for (size_t j = 0; j < 20; ++j) largest = std::max(largest, weights[19 * 20 + j]);
  EXPECT_GT(largest, 0.15f);
}

TEST(Look, ChangesNoBit) {
  const test::TinyPoet poet;
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8})
    for (const std::string& path : {poet.path(), test::golden_path("hf/llama"), test::golden_path("hf/gemma3")}) {
      ModelOptions options;
      options.cache_type = type;
      const Model model = Model::load(path, options);
      const std::vector<int32_t> ids = some_ids(model, 60);
      const std::vector<float> usual = logits(model, ids, 512, {});
      for (const int64_t chunk : {int64_t{512}, int64_t{7}}) {
        int64_t calls = 0, rows = 0;
        const std::vector<float> watched = logits(model, ids, chunk, [&](const LayerAttention& seen) {
          ++calls;
          rows += seen.q.shape[2];
          EXPECT_EQ(seen.k.shape[2], seen.options.q_begin.front() + seen.q.shape[2]);
        });
        EXPECT_EQ(rows, 60 * model.info().num_layers);
        EXPECT_EQ(calls, model.info().num_layers * (chunk == 7 ? 9 : 1));
        EXPECT_EQ(std::memcmp(watched.data(), usual.data(), usual.size() * sizeof(float)), 0) << path << " " << static_cast<int>(type);
      }
    }
}

TEST(Look, RowsSumToOneWithEveryCacheTypeAndWindow) {
  // Keys that are not those the cache has rounded would not fit the lse, and the sums would be off.
  const test::TinyPoet poet;
  for (const DType type : {DType::kF16, DType::kBF16, DType::kI8})
    for (const std::string& path : {poet.path(), test::golden_path("hf/gemma3")}) {
      ModelOptions options;
      options.cache_type = type;
      const Model model = Model::load(path, options);
      const std::vector<int32_t> ids = some_ids(model, 60);
      for (int64_t layer = 0; layer < model.info().num_layers; ++layer) {
        const std::vector<float> weights = look(model, ids, {layer, 0, nullptr});
        for (size_t i = 0; i < 60; ++i) {
          double row = 0;
          for (size_t j = 0; j < 60; ++j) row += static_cast<double>(weights[i * 60 + j]);
          EXPECT_NEAR(row, 1, 1e-5) << layer << " " << i << " " << path;
        }
      }
    }
}

TEST(Look, LayersAndHeadsOutOfRangeAreRefused) {
  const test::TinyPoet poet;
  const std::vector<int32_t> ids = {1, 2};
  for (const LookOptions& options : {LookOptions{2, -1, nullptr}, LookOptions{-2, -1, nullptr}, LookOptions{-1, 3, nullptr}, LookOptions{-1, -2, nullptr}})
    EXPECT_THROW((void)look(poet.model(), ids, options), Error);
  EXPECT_TRUE(look(poet.model(), {}, {}).empty());
}

}  // namespace
}  // namespace regard
