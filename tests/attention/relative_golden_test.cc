// Transformer-XL's term, forward and backward, against transformers' XLNet in float64 (tools/golden/attention_relative.py).
#include <gtest/gtest.h>

#include "attention/golden_arrays.h"
#include "regard/attention_backward.h"

namespace regard {
namespace {

using testing_attention::GoldenArrays;
using Output = testing_attention::GoldenOutput;

GoldenArrays inputs_of(const std::string& shape) {
  return {"relative", shape, {"q", "k", "v", "dout", "dlse", "u", "v_bias", "r", "table", "out", "lse", "dq", "dk", "dv"}};
}

TEST(RelativeGolden, ForwardAndBackwardEqualPyTorch) {
  const std::map<std::string, GoldenArrays> inputs = {{"short", inputs_of("short")}, {"long", inputs_of("long")}};
  int64_t compared = 0, term_gradients = 0;
  for (const auto& c : test::read_json("relative/cases.json")) {
    const std::string shape = c["shape"].get<std::string>();
    const GoldenArrays& in = inputs.at(shape);
    const std::vector<int64_t>& q = in.shape("q");
    const int64_t count = c["count"].get<int64_t>();
    TransformerXl xl;
    xl.r = in.view("r");
    xl.r.shape[0] = count;
    xl.first_distance = c["first"].get<int64_t>();
    xl.clamp = c["clamp"].get<int64_t>();
    Output u, v_bias, r({count, q[1], q[3]}), dq(q), dk(in.shape("k")), dv(in.shape("v"));
    if (c.contains("u")) xl.u = in.view("u"), u = Output(in.shape("u"));
    if (c.contains("v_bias")) xl.v = in.view("v_bias"), v_bias = Output(in.shape("v_bias"));
    AttentionOptions o;
    o.q_begin = {in.shape("k")[2] - q[2]};
    o.xl = xl;
    const Mask mask = in.mask(c["mask"].get<std::string>());
    Output out({q[0], q[1], q[2], in.shape("v")[3]}), lse({q[0], q[1], q[2]});
    attend(in.view("q"), in.view("k"), in.view("v"), mask, o, out.view(), lse.view());
    attend_backward(in.view("q"), in.view("k"), in.view("v"), out.view(), lse.view(), in.view("dout"),
                    c.contains("dlse") ? in.view("dlse") : TensorView<const float>{}, mask, o, dq.view(), dk.view(),
                    dv.view(), {.xl_u = u.view(), .xl_v = v_bias.view(), .xl_r = r.view()});
    const size_t index = c["index"].get<size_t>();
    for (const auto& [output, name] : {std::pair{&out, "out"}, {&lse, "lse"}, {&dq, "dq"}, {&dk, "dk"}, {&dv, "dv"}})
      output->expect_near(in.arrays.at(name).values.data() + index * output->values.size(), c, name);
    for (const auto& [gradient, name] : {std::pair{&r, "dr"}, {&u, "du"}, {&v_bias, "dv_bias"}}) {
      if (gradient->shape.empty()) continue;
      const test::Array want = test::read_array("relative/" + shape + "." + std::to_string(index) + "." + name + ".npy");
      ASSERT_EQ(want.shape, gradient->shape);
      gradient->expect_near(want.values.data(), c, name);
      ++term_gradients;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 28);
  EXPECT_EQ(term_gradients, 76);
}

}  // namespace
}  // namespace regard
