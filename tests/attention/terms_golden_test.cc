// Score terms against PyTorch in float64 (tools/golden/attention_terms.py).
#include <gtest/gtest.h>

#include "attention/golden_arrays.h"
#include "regard/attention.h"

namespace regard {
namespace {

using testing_attention::GoldenArrays;

GoldenArrays inputs_of(const std::string& shape) {
  return {"terms", shape, {"q", "k", "v", "dense", "dense_keys", "table_t5", "u", "v_bias", "r", "sink", "table", "out", "lse"}};
}

AttentionOptions options_of(const nlohmann::json& c, const GoldenArrays& in) {
  AttentionOptions o;
  o.q_begin = {c["q_begin"].get<int64_t>()};
  o.softcap = c.value("softcap", 0.0);
  if (c.contains("dense")) o.bias = in.view(c["dense"].get<std::string>());
  if (c.contains("alibi")) o.alibi = Alibi{alibi_slopes(in.shape("q")[1])};
  if (c.contains("t5"))
    o.t5 = T5Bias{in.view("table_t5"), c["t5"] == "causal" ? T5Direction::kCausal : T5Direction::kBidirectional, 128};
  if (c.contains("xl"))
    o.xl = TransformerXl{.u = in.view("u"), .v = in.view("v_bias"), .r = in.view("r"), .clamp = c["xl"].get<int64_t>()};
  if (c.contains("sink")) o.sink = in.view("sink");
  if (c.contains("dropout")) o.dropout = Dropout{.rate = c["dropout"], .seed = c["seed"]};
  return o;
}

TEST(TermsGolden, EqualPyTorch) {
  const std::map<std::string, GoldenArrays> inputs = {{"short", inputs_of("short")}, {"long", inputs_of("long")}};
  int64_t compared = 0;
  for (const auto& c : test::read_json("terms/cases.json")) {
    const GoldenArrays& in = inputs.at(c["shape"].get<std::string>());
    const AttentionOptions options = options_of(c, in);
    const test::Array &all_out = in.arrays.at("out"), &all_lse = in.arrays.at("lse");
    const int64_t index = c["index"].get<int64_t>(), b = all_out.shape[1], h = all_out.shape[2], n = all_out.shape[3],
                  dv = all_out.shape[4], rows = b * h * n;
    std::vector<float> out(static_cast<size_t>(rows * dv)), lse(static_cast<size_t>(rows));
    attend(in.view("q"), in.view("k"), in.view("v"), in.mask(c["mask"].get<std::string>()), options,
           {out.data(), {b, h, n, dv}}, {lse.data(), {b, h, n}});
    for (int64_t r = 0; r < rows; ++r) {
      const double want = all_lse.values[static_cast<size_t>(index * rows + r)];
      if (std::isinf(want))
        ASSERT_EQ(lse[static_cast<size_t>(r)], -INFINITY) << c["name"];
      else
        ASSERT_NEAR(lse[static_cast<size_t>(r)], want, 3e-6 * (1 + std::fabs(want))) << c["name"] << " row " << r;
    }
    for (int64_t i = 0; i < rows * dv; ++i)
      ASSERT_NEAR(out[static_cast<size_t>(i)], all_out.values[static_cast<size_t>(index * rows * dv + i)], 6e-6)
          << c["name"] << " element " << i;
    ++compared;
  }
  EXPECT_GE(compared, 80);
}

}  // namespace
}  // namespace regard
