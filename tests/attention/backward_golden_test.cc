// Gradients against autograd of PyTorch in float64 (tools/golden/attention_backward.py).
#include <gtest/gtest.h>

#include "attention/golden_arrays.h"
#include "regard/attention_backward.h"

namespace regard {
namespace {

using testing_attention::GoldenArrays;
using Gradient = testing_attention::GoldenOutput;

GoldenArrays inputs_of(const std::string& shape) {
  return {"backward", shape,
          {"q", "k", "v", "dout", "dlse", "dense", "dense_qk", "dense_keys", "dense_rows", "dense_one", "table_t5", "sink", "ids", "table", "dq", "dk", "dv"}};
}

TEST(BackwardGolden, EqualsPyTorch) {
  const std::map<std::string, GoldenArrays> inputs = {{"short", inputs_of("short")}, {"long", inputs_of("long")}};
  int64_t compared = 0, term_gradients = 0;
  for (const auto& c : test::read_json("backward/cases.json")) {
    const std::string shape = c["shape"].get<std::string>();
    const GoldenArrays& in = inputs.at(shape);
    AttentionOptions o;
    o.q_begin = {c["q_begin"].get<int64_t>()};
    o.softcap = c.value("softcap", 0.0);
    Gradient dense, t5, sink, dq(in.shape("q")), dk(in.shape("k")), dv(in.shape("v"));
    if (c.contains("dense")) {
      const std::string name = c["dense"].get<std::string>();
      o.bias = in.view(name);
      dense = Gradient(in.shape(name));
    }
    if (c.contains("t5")) {
      o.t5 = T5Bias{in.view("table_t5"), T5Direction::kCausal, 20};
      t5 = Gradient(in.shape("table_t5"));
    }
    if (c.contains("sink")) {
      o.sink = in.view("sink");
      sink = Gradient(in.shape("sink"));
    }
    const Mask mask = in.mask(c["mask"].get<std::string>());
    const std::vector<int64_t>& q = in.shape("q");
    Gradient out({q[0], q[1], q[2], in.shape("v")[3]}), lse({q[0], q[1], q[2]});
    attend(in.view("q"), in.view("k"), in.view("v"), mask, o, out.view(), lse.view());
    attend_backward(in.view("q"), in.view("k"), in.view("v"), out.view(), lse.view(), in.view("dout"),
                    c.contains("dlse") ? in.view("dlse") : TensorView<const float>{}, mask, o, dq.view(), dk.view(),
                    dv.view(), {.bias = dense.view(), .t5_table = t5.view(), .sink = sink.view()});
    const size_t index = c["index"].get<size_t>();
    dq.expect_near(in.arrays.at("dq").values.data() + index * dq.values.size(), c, "dq");
    dk.expect_near(in.arrays.at("dk").values.data() + index * dk.values.size(), c, "dk");
    dv.expect_near(in.arrays.at("dv").values.data() + index * dv.values.size(), c, "dv");
    for (const auto& [gradient, name] : {std::pair{&dense, "dense"}, {&t5, "t5"}, {&sink, "sink"}}) {
      if (gradient->shape.empty()) continue;
      const test::Array want =
          test::read_array("backward/" + shape + "." + std::to_string(index) + "." + name + ".npy");
      ASSERT_EQ(want.shape, gradient->shape);
      gradient->expect_near(want.values.data(), c, name);
      ++term_gradients;
    }
    ++compared;
  }
  EXPECT_GE(compared, 30);
  EXPECT_GE(term_gradients, 25);
}

}  // namespace
}  // namespace regard
