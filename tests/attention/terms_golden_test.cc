// Score terms against PyTorch in float64 (tools/golden/attention_terms.py).
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "regard/attention.h"
#include "support/golden.h"

namespace regard {
namespace {

struct Inputs {
  std::map<std::string, std::vector<int64_t>> shapes;
  std::map<std::string, std::vector<float>> values;
  test::Array out, lse;
  std::vector<uint8_t> table;

  explicit Inputs(const std::string& shape) {
    for (const char* name : {"q", "k", "v", "dense", "dense_keys", "table_t5", "u", "v_bias", "r", "sink"}) {
      const test::Array array = test::read_array("terms/" + shape + "." + name + ".npy");
      shapes[name] = array.shape;
      values[name] = array.floats();
    }
    for (double x : test::read_array("terms/" + shape + ".table.npy").values) table.push_back(x != 0);
    out = test::read_array("terms/" + shape + ".out.npy");
    lse = test::read_array("terms/" + shape + ".lse.npy");
  }
  TensorView<const float> view(const std::string& name) const {
    TensorView<const float> v;
    v.data = values.at(name).data();
    const std::vector<int64_t>& s = shapes.at(name);
    v.rank = static_cast<int>(s.size());
    int64_t step = 1;
    for (size_t i = s.size(); i-- > 0; step *= s[i]) v.shape[i] = s[i], v.strides[i] = step;
    return v;
  }
  Mask mask(const std::string& name) const {
    if (name != "table") return Mask::parse(name);
    const int64_t n = shapes.at("q")[2], s = shapes.at("k")[2];
    // Its rows are the queries, which stand at the end of the keys.
    std::vector<uint8_t> rows(static_cast<size_t>((s - n) * s), 0);
    rows.insert(rows.end(), table.begin(), table.end());
    return Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(rows.data(), {s, s}));
  }
};

AttentionOptions options_of(const nlohmann::json& c, const Inputs& in) {
  AttentionOptions o;
  o.q_begin = {c["q_begin"].get<int64_t>()};
  o.softcap = c.value("softcap", 0.0);
  if (c.contains("dense")) o.bias = in.view(c["dense"].get<std::string>());
  if (c.contains("alibi")) o.alibi = Alibi{alibi_slopes(in.shapes.at("q")[1])};
  if (c.contains("t5"))
    o.t5 = T5Bias{in.view("table_t5"), c["t5"] == "causal" ? T5Direction::kCausal : T5Direction::kBidirectional, 128};
  if (c.contains("xl"))
    o.xl = TransformerXl{.u = in.view("u"), .v = in.view("v_bias"), .r = in.view("r"), .clamp = c["xl"].get<int64_t>()};
  if (c.contains("sink")) o.sink = in.view("sink");
  if (c.contains("dropout")) o.dropout = Dropout{.rate = c["dropout"], .seed = c["seed"]};
  return o;
}

TEST(TermsGolden, EqualPyTorch) {
  const std::map<std::string, Inputs> inputs = {{"short", Inputs("short")}, {"long", Inputs("long")}};
  int64_t compared = 0;
  for (const auto& c : test::read_json("terms/cases.json")) {
    const Inputs& in = inputs.at(c["shape"].get<std::string>());
    const AttentionOptions options = options_of(c, in);
    const int64_t index = c["index"].get<int64_t>(), b = in.out.shape[1], h = in.out.shape[2], n = in.out.shape[3],
                  dv = in.out.shape[4], rows = b * h * n;
    std::vector<float> out(static_cast<size_t>(rows * dv)), lse(static_cast<size_t>(rows));
    attend(in.view("q"), in.view("k"), in.view("v"), in.mask(c["mask"].get<std::string>()), options,
           {out.data(), {b, h, n, dv}}, {lse.data(), {b, h, n}});
    for (int64_t r = 0; r < rows; ++r) {
      const double want = in.lse.values[static_cast<size_t>(index * rows + r)];
      if (std::isinf(want))
        ASSERT_EQ(lse[static_cast<size_t>(r)], -INFINITY) << c["name"];
      else
        ASSERT_NEAR(lse[static_cast<size_t>(r)], want, 3e-6 * (1 + std::fabs(want))) << c["name"] << " row " << r;
    }
    for (int64_t i = 0; i < rows * dv; ++i)
      ASSERT_NEAR(out[static_cast<size_t>(i)], in.out.values[static_cast<size_t>(index * rows * dv + i)], 6e-6)
          << c["name"] << " element " << i;
    ++compared;
  }
  EXPECT_GE(compared, 80);
}

}  // namespace
}  // namespace regard
