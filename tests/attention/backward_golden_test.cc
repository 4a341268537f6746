// Gradients against autograd of PyTorch in float64 (tools/golden/attention_backward.py).
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "regard/attention_backward.h"
#include "support/golden.h"

namespace regard {
namespace {

TensorView<float> view_of(const std::vector<int64_t>& shape, float* data) {
  TensorView<float> v;
  v.data = data;
  v.rank = static_cast<int>(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0; step *= shape[i]) v.shape[i] = shape[i], v.strides[i] = step;
  return v;
}

struct Inputs {
  std::map<std::string, std::vector<int64_t>> shapes;
  std::map<std::string, std::vector<float>> values;
  std::vector<int64_t> ids;
  std::vector<uint8_t> table;
  test::Array dq, dk, dv;

  explicit Inputs(const std::string& shape) {
    const auto file = [&](const char* name) { return "backward/" + shape + "." + name + ".npy"; };
    for (const char* name : {"q", "k", "v", "dout", "dlse", "dense", "dense_qk", "dense_keys", "dense_rows",
                             "dense_one", "table_t5", "sink"}) {
      const test::Array array = test::read_array(file(name));
      shapes[name] = array.shape;
      values[name] = array.floats();
    }
    ids = test::read_array(file("ids")).integers();
    for (double x : test::read_array(file("table")).values) table.push_back(x != 0);
    dq = test::read_array(file("dq"));
    dk = test::read_array(file("dk"));
    dv = test::read_array(file("dv"));
  }
  TensorView<const float> view(const std::string& name) const {
    return view_of(shapes.at(name), const_cast<float*>(values.at(name).data()));
  }
  Mask mask(const std::string& name) const {
    if (name == "documents") return Mask::documents(ids);
    if (name != "table") return Mask::parse(name);
    const int64_t n = shapes.at("q")[2], s = shapes.at("k")[2];
    // Its rows are the queries, which stand at the end of the keys.
    std::vector<uint8_t> rows(static_cast<size_t>((s - n) * s), 0);
    rows.insert(rows.end(), table.begin(), table.end());
    return Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(rows.data(), {s, s}));
  }
};

struct Gradient {
  std::vector<int64_t> shape;
  std::vector<float> values;
  explicit Gradient(const std::vector<int64_t>& extents = {}) : shape(extents) {
    size_t count = 1;
    for (int64_t extent : shape) count *= static_cast<size_t>(extent);
    values.assign(shape.empty() ? 0 : count, -7.0f);
  }
  TensorView<float> view() { return shape.empty() ? TensorView<float>{} : view_of(shape, values.data()); }

  // Within 2e-6 of the largest gradient of the array, or of the numbers that cancelled in it.
  void expect_near(const double* want, const nlohmann::json& c, const char* what) const {
    double top = 1;
    for (size_t i = 0; i < values.size(); ++i) top = std::max(top, std::fabs(want[i]));
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], want[i], 2e-6 * top) << c["name"] << " " << what << " element " << i;
  }
};

TEST(BackwardGolden, EqualsPyTorch) {
  const std::map<std::string, Inputs> inputs = {{"short", Inputs("short")}, {"long", Inputs("long")}};
  int64_t compared = 0, term_gradients = 0;
  for (const auto& c : test::read_json("backward/cases.json")) {
    const std::string shape = c["shape"].get<std::string>();
    const Inputs& in = inputs.at(shape);
    AttentionOptions o;
    o.q_begin = {c["q_begin"].get<int64_t>()};
    o.softcap = c.value("softcap", 0.0);
    Gradient dense, t5, sink, dq(in.shapes.at("q")), dk(in.shapes.at("k")), dv(in.shapes.at("v"));
    if (c.contains("dense")) {
      const std::string name = c["dense"].get<std::string>();
      o.bias = in.view(name);
      dense = Gradient(in.shapes.at(name));
    }
    if (c.contains("t5")) {
      o.t5 = T5Bias{in.view("table_t5"), T5Direction::kCausal, 20};
      t5 = Gradient(in.shapes.at("table_t5"));
    }
    if (c.contains("sink")) {
      o.sink = in.view("sink");
      sink = Gradient(in.shapes.at("sink"));
    }
    const Mask mask = in.mask(c["mask"].get<std::string>());
    const std::vector<int64_t>& q = in.shapes.at("q");
    Gradient out({q[0], q[1], q[2], in.shapes.at("v")[3]}), lse({q[0], q[1], q[2]});
    attend(in.view("q"), in.view("k"), in.view("v"), mask, o, out.view(), lse.view());
    attend_backward(in.view("q"), in.view("k"), in.view("v"), out.view(), lse.view(), in.view("dout"),
                    c.contains("dlse") ? in.view("dlse") : TensorView<const float>{}, mask, o, dq.view(), dk.view(),
                    dv.view(), {.bias = dense.view(), .t5_table = t5.view(), .sink = sink.view()});
    const size_t index = c["index"].get<size_t>();
    dq.expect_near(in.dq.values.data() + index * dq.values.size(), c, "dq");
    dk.expect_near(in.dk.values.data() + index * dk.values.size(), c, "dk");
    dv.expect_near(in.dv.values.data() + index * dv.values.size(), c, "dv");
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
