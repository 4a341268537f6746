// MultiHeadAttention against the formula in f64: grouped heads, other widths, pruning, heads that talk, and refusals.
// What PyTorch gives is compared in tests/model.
#include "regard/multi_head_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "regard/error.h"

namespace regard {
namespace {

struct Numbers {
  std::vector<int64_t> shape;
  std::vector<float> values;

  Numbers(std::vector<int64_t> extents, uint32_t seed) : shape(std::move(extents)) {
    int64_t n = 1;
    for (int64_t e : shape) n *= e;
    for (int64_t i = 0; i < n; ++i)
      values.push_back(static_cast<float>(2 * random_uniform(seed, 3, static_cast<uint64_t>(i)) - 1));
  }
  TensorView<const float> view() const {
    TensorView<const float> v;
    v.data = values.data();
    v.rank = static_cast<int>(shape.size());
    int64_t step = 1;
    for (size_t i = shape.size(); i-- > 0; step *= shape[i]) v.shape[i] = shape[i], v.strides[i] = step;
    return v;
  }
  double at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * shape[1] + j)]; }
  double at(int64_t i, int64_t j, int64_t k) const {
    return values[static_cast<size_t>((i * shape[1] + j) * shape[2] + k)];
  }
};

// A layer with 6 heads of 5 elements over 3 KV heads, and its inputs.
struct Layer {
  static constexpr int64_t kModel = 14, kHeads = 6, kKvHeads = 3, kDim = 5, kKeyWidth = 9, kValueWidth = 11;
  static constexpr int64_t kBatch = 2, kQueries = 7, kKeys = 8;
  Numbers wq{{kHeads * kDim, kModel}, 1}, bq{{kHeads * kDim}, 2}, wk{{kKvHeads * kDim, kKeyWidth}, 3},
      bk{{kKvHeads * kDim}, 4}, wv{{kKvHeads * kDim, kValueWidth}, 5}, bv{{kKvHeads * kDim}, 6},
      wo{{kModel, kHeads* kDim}, 7}, bo{{kModel}, 8};
  Numbers query{{kBatch, kQueries, kModel}, 11}, key{{kBatch, kKeys, kKeyWidth}, 12},
      value{{kBatch, kKeys, kValueWidth}, 13};
  Numbers before{{kHeads, kHeads}, 21}, after{{kHeads, kHeads}, 22};

  MultiHeadAttentionConfig config() const {
    return {.d_model = kModel,
            .num_heads = kHeads,
            .num_kv_heads = kKvHeads,
            .head_dim = kDim,
            .key_width = kKeyWidth,
            .value_width = kValueWidth};
  }
  MultiHeadAttentionWeights weights() const {
    MultiHeadAttentionWeights w;
    w.query = wq.view(), w.query_bias = bq.view(), w.key = wk.view(), w.key_bias = bk.view();
    w.value = wv.view(), w.value_bias = bv.view(), w.output = wo.view(), w.output_bias = bo.view();
    return w;
  }
  MultiHeadAttention make() const { return {config(), weights()}; }

  static AttentionOptions options() {
    AttentionOptions o;
    o.q_begin = {1};
    return o;
  }
  std::vector<float> run(const MultiHeadAttention& layer, const Mask& mask) const {
    std::vector<float> out(static_cast<size_t>(kBatch * kQueries * kModel), -7.0f);
    layer.forward(query.view(), key.view(), value.view(), mask, options(), {out.data(), {kBatch, kQueries, kModel}});
    return out;
  }

  // The formula, with the heads in `silent` giving zeros, and mixed by `before` and `after` when `talk`.
  std::vector<double> exact(const Mask& mask, const std::vector<int64_t>& silent = {}, bool talk = false) const {
    const auto project = [](const Numbers& w, const Numbers& b, const Numbers& x, int64_t batch, int64_t row,
                            int64_t out) {
      double sum = b.values[static_cast<size_t>(out)];
      for (int64_t c = 0; c < w.shape[1]; ++c) sum += w.at(out, c) * x.at(batch, row, c);
      return sum;
    };
    std::vector<double> result;
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t i = 0; i < kQueries; ++i) {
        double s[kHeads][kKeys] = {}, w[kHeads][kKeys] = {}, context[kHeads * kDim] = {};
        for (int64_t h = 0; h < kHeads; ++h)
          for (int64_t j = 0; j < kKeys; ++j)
            for (int64_t c = 0; c < kDim; ++c)
              s[h][j] += project(wq, bq, query, b, i, h * kDim + c) * project(wk, bk, key, b, j, h / 2 * kDim + c) /
                         std::sqrt(5.0);
        for (int64_t h = 0; h < kHeads; ++h) {
          double total = 0;
          for (int64_t j = 0; j < kKeys; ++j) {
            double score = talk ? 0 : s[h][j];
            for (int64_t g = 0; talk && g < kHeads; ++g) score += s[g][j] * before.at(g, h);
            w[h][j] = mask.allowed(b, h, i + 1, j) ? std::exp(score) : 0;
            total += w[h][j];
          }
          for (int64_t j = 0; j < kKeys; ++j) w[h][j] = total == 0 ? 0 : w[h][j] / total;
        }
        for (int64_t o = 0; o < kHeads; ++o) {
          if (std::find(silent.begin(), silent.end(), o) != silent.end()) continue;
          for (int64_t j = 0; j < kKeys; ++j) {
            double weight = talk ? 0 : w[o][j];
            for (int64_t h = 0; talk && h < kHeads; ++h) weight += w[h][j] * after.at(h, o);
            for (int64_t c = 0; c < kDim; ++c)
              context[o * kDim + c] += weight * project(wv, bv, value, b, j, o / 2 * kDim + c);
          }
        }
        for (int64_t y = 0; y < kModel; ++y) {
          double sum = bo.values[static_cast<size_t>(y)];
          for (int64_t c = 0; c < kHeads * kDim; ++c) sum += wo.at(y, c) * context[c];
          result.push_back(sum);
        }
      }
    return result;
  }
};

void expect_near(const std::vector<float>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << i;
}

std::vector<Mask> masks() {
  return {Mask::full(), Mask::causal(), Mask::window(2, 0) & ~Mask::prefix(3),
          Mask::lengths({8, 3})};
}

TEST(MultiHeadAttention, EqualsTheFormulaWithGroupedHeadsAndOtherWidths) {
  const Layer layer;
  for (const Mask& mask : masks()) expect_near(layer.run(layer.make(), mask), layer.exact(mask));
  // A row that sees nothing is the bias of the output.
  const std::vector<float> none = layer.run(layer.make(), Mask::none());
  for (size_t i = 0; i < none.size(); ++i) EXPECT_EQ(none[i], layer.bo.values[i % Layer::kModel]);
}

TEST(MultiHeadAttention, AFusedProjectionIsTheSeparateOnes) {
  const Numbers w({3 * 12, 12}, 31), b({3 * 12}, 32), out({12, 12}, 33), x({2, 5, 12}, 34);
  const MultiHeadAttentionConfig config{.d_model = 12, .num_heads = 4};
  MultiHeadAttentionWeights fused, separate;
  fused.fused = w.view(), fused.fused_bias = b.view(), fused.output = separate.output = out.view();
  TensorView<const float>*parts[] = {&separate.query, &separate.key, &separate.value},
                   *biases[] = {&separate.query_bias, &separate.key_bias, &separate.value_bias};
  for (int64_t i = 0; i < 3; ++i) {
    *parts[i] = TensorView<const float>(w.values.data() + i * 144, {12, 12});
    *biases[i] = TensorView<const float>(b.values.data() + i * 12, {12});
  }
  std::vector<float> a(120), c(120), d(120);
  MultiHeadAttention(config, fused).forward(x.view(), Mask::causal(), {}, {a.data(), {2, 5, 12}});
  MultiHeadAttention(config, separate)
      .forward(x.view(), x.view(), x.view(), Mask::causal(), {}, {c.data(), {2, 5, 12}});
  EXPECT_EQ(a, c);
  // [tokens, batch, width] by strides, written over its own input.
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t i = 0; i < 5; ++i)
      for (int64_t k = 0; k < 12; ++k)
        d[static_cast<size_t>((i * 2 + n) * 12 + k)] = x.values[static_cast<size_t>((n * 5 + i) * 12 + k)];
  TensorView<float> turned(d.data(), {2, 5, 12});
  turned.strides = {12, 24, 1, 0};
  MultiHeadAttention(config, fused).forward(turned, Mask::causal(), {}, turned);
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t i = 0; i < 5; ++i)
      for (int64_t k = 0; k < 12; ++k) EXPECT_EQ(*turned.at(n, i, k), a[static_cast<size_t>((n * 5 + i) * 12 + k)]);
}

TEST(MultiHeadAttention, WithoutHeadsIsTheirOutputsAtZero) {
  const Layer layer;
  const Mask mask = Mask::causal();
  for (const std::vector<int64_t>& gone :
       std::vector<std::vector<int64_t>>{{0}, {2, 3}, {0, 2, 5}, {1, 2, 3, 4, 5}, {0, 1, 2}, {}}) {
    const MultiHeadAttention pruned = layer.make().without_heads(gone);
    EXPECT_EQ(pruned.config().num_heads, 6 - static_cast<int64_t>(gone.size()));
    expect_near(layer.run(pruned, mask), layer.exact(mask, gone));
  }
  // Whole KV heads go, an uneven rest gives each head its own, numbers stay those of the whole.
  EXPECT_EQ(layer.make().without_heads(std::vector<int64_t>{2, 3}).config().num_kv_heads, 2);
  EXPECT_EQ(layer.make().without_heads(std::vector<int64_t>{0, 2, 5}).config().num_kv_heads, 3);
  EXPECT_EQ(layer.make().without_heads(std::vector<int64_t>{0}).config().num_kv_heads, 5);
  const MultiHeadAttention twice =
      layer.make().without_heads(std::vector<int64_t>{0}).without_heads(std::vector<int64_t>{4, 5});
  EXPECT_EQ(twice.heads(), (std::vector<int64_t>{1, 2, 3}));
  expect_near(layer.run(twice, mask), layer.exact(mask, {0, 4, 5}));
}

TEST(MultiHeadAttention, HeadsThatTalk) {
  const Layer layer;
  MultiHeadAttentionWeights w = layer.weights();
  w.talking = {.before = layer.before.view(), .after = layer.after.view()};
  const MultiHeadAttention talking(layer.config(), w);
  for (const Mask& mask : masks()) expect_near(layer.run(talking, mask), layer.exact(mask, {}, true));
}

template <class F>
std::string refusal(Code code, F&& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "not refused";
}

#define EXPECT_NAMES(text, word) EXPECT_NE((text).find(word), std::string::npos) << (text)

TEST(MultiHeadAttention, RefusalsNameTheNumbers) {
  const Layer layer;
  const auto with = [&](auto change) {
    return refusal(Code::kInvalidArgument, [&] {
      MultiHeadAttentionConfig config = layer.config();
      MultiHeadAttentionWeights w = layer.weights();
      change(config, w);
      MultiHeadAttention(config, w);
    });
  };
  EXPECT_NAMES(with([](auto& c, auto&) { c.head_dim = 0; }), "d_model 14 cannot be cut into 6 heads");
  EXPECT_NAMES(with([](auto& c, auto&) { c.num_kv_heads = 4; }), "6 query heads cannot share 4");
  EXPECT_NAMES(with([](auto& c, auto&) { c.key_width = 0; }), "key has shape [15, 9], expected [15, 14]");
  EXPECT_NAMES(with([](auto&, auto& w) { w.output_bias = w.query_bias; }), "output_bias has shape [30], expected [14]");
  EXPECT_NAMES(with([](auto&, auto& w) { w.fused = w.query; }), "both a fused projection");
  EXPECT_NAMES(with([](auto&, auto& w) { w.value = {}; }), "value has shape []");
  const MultiHeadAttention made = layer.make();
  const auto prune = [&](std::vector<int64_t> heads) {
    return refusal(Code::kInvalidArgument, [&] { made.without_heads(heads); });
  };
  EXPECT_NAMES(prune({6}), "head 6");
  EXPECT_NAMES(prune({0, 1, 2, 3, 4, 5}), "no head would be left");
  MultiHeadAttentionWeights w = layer.weights();
  w.talking.before = layer.before.view();
  EXPECT_NAMES(refusal(Code::kUnsupported,
                       [&] { MultiHeadAttention(layer.config(), w).without_heads(std::vector<int64_t>{1}); }),
               "talk");

  const Numbers bias_k({1, 1, 12}, 1), fused({36, 12}, 2), out({12, 12}, 3);
  MultiHeadAttention::Tensors tensors = {
      {"a.in_proj_weight", fused.view()}, {"a.out_proj.weight", out.view()}, {"b.else", out.view()}};
  EXPECT_EQ(MultiHeadAttention::from_torch(tensors, "a.", 3).config().head_dim, 4);
  EXPECT_NAMES(refusal(Code::kNotFound, [&] { MultiHeadAttention::from_torch(tensors, "c.", 3); }),
               "c.out_proj.weight");
  EXPECT_NAMES(refusal(Code::kUnsupported, [&] { MultiHeadAttention::from_torch(tensors, "b.", 3); }), "b.else");
  tensors["a.bias_k"] = bias_k.view();
  EXPECT_NAMES(refusal(Code::kUnsupported, [&] { MultiHeadAttention::from_torch(tensors, "a.", 3); }), "a.bias_k");
}

}  // namespace
}  // namespace regard
