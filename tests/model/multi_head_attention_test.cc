// The module against torch.nn.MultiheadAttention in float64, from its own files (tools/golden/multi_head_attention.py).
#include <gtest/gtest.h>

#include <cmath>

#include "regard/error.h"
#include "regard/multi_head_attention_file.h"
#include "support/golden.h"

namespace regard {
namespace {

struct Input {
  test::Array array;
  std::vector<float> values;
  explicit Input(const std::string& name) : array(test::read_array("mha/" + name + ".npy")), values(array.floats()) {}
  TensorView<const float> view() const {
    return TensorView<const float>(values.data(), {array.shape[0], array.shape[1], array.shape[2]});
  }
};

TEST(MultiHeadAttentionGolden, EqualsPyTorch) {
  int count = 0;
  for (const auto& c : test::read_json("mha/cases.json")) {
    const std::string name = c["name"];
    SCOPED_TRACE(name);
    const auto heads = c["heads"].get<int64_t>();
    const MultiHeadAttention layer =
        load_multi_head_attention(test::golden_path("mha/" + name + ".safetensors"), "layer.", heads);
    const Input query(name + ".query"), want(name + ".out");
    AttentionOptions options;
    if (!c["lengths"].is_null()) options.limits.key_lengths = c["lengths"].get<std::vector<int64_t>>();
    const std::vector<float> zeros(static_cast<size_t>(heads), 0.0f);
    if (c["zero_attn"].get<bool>()) options.sink = TensorView<const float>(zeros.data(), {heads});
    std::vector<float> got(want.values.size(), -7.0f);
    const TensorView<float> out(got.data(), {want.array.shape[0], want.array.shape[1], want.array.shape[2]});
    const Mask mask = Mask::parse(c["mask"].get<std::string>());
    if (c["self"].get<bool>()) {
      layer.forward(query.view(), mask, options, out);
    } else {
      const Input key(name + ".key"), value(name + ".value");
      layer.forward(query.view(), key.view(), value.view(), mask, options, out);
    }
    double largest = 0;
    for (const double x : want.array.values) largest = std::max(largest, std::fabs(x));
    ASSERT_GT(largest, 0.5);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want.array.values[i], 2e-6 * (1 + largest)) << i;
    ++count;
  }
  EXPECT_EQ(count, 5);
}

TEST(MultiHeadAttentionFile, NamesWhatIsMissing) {
  const std::string path = test::golden_path("mha/fused.safetensors");
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "not refused";
  };
  EXPECT_NE(message([&] { load_multi_head_attention(path, "other.", 4); }).find("other.out_proj.weight"),
            std::string::npos);
  EXPECT_NE(message([&] { load_multi_head_attention(path, "", 4); }).find("layer."), std::string::npos);
  EXPECT_NE(message([&] { load_multi_head_attention(path, "layer.", 7); }).find("24 cannot be cut into 7 heads"),
            std::string::npos);
  EXPECT_NE(message([&] { load_multi_head_attention(path + ".gone", "layer.", 4); }).find("gone"), std::string::npos);
}

}  // namespace
}  // namespace regard
