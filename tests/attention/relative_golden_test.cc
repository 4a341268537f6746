// Transformer-XL's term, forward and backward, against transformers' XLNet in float64 (tools/golden/attention_relative.py).
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "regard/attention_backward.h"
#include "support/golden.h"

namespace regard {
namespace {

template <class T>
TensorView<T> view_of(const std::vector<int64_t>& shape, T* data) {
  TensorView<T> v;
  v.data = data;
  v.rank = static_cast<int>(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0; step *= shape[i]) v.shape[i] = shape[i], v.strides[i] = step;
  return v;
}

struct Inputs {
  std::map<std::string, test::Array> arrays;
  std::map<std::string, std::vector<float>> values;

  explicit Inputs(const std::string& shape) {
    for (const char* name : {"q", "k", "v", "dout", "dlse", "u", "v_bias", "r", "table", "out", "lse", "dq", "dk", "dv"}) {
      arrays[name] = test::read_array("relative/" + shape + "." + name + ".npy");
      values[name] = arrays[name].floats();
    }
  }
  const std::vector<int64_t>& shape(const std::string& name) const { return arrays.at(name).shape; }
  TensorView<const float> view(const std::string& name) const { return view_of(shape(name), values.at(name).data()); }
  Mask mask(const std::string& name) const {
    if (name != "table") return Mask::parse(name);
    const int64_t n = shape("q")[2], s = shape("k")[2];
    // Its rows are the queries, which stand at the end of the keys.
    std::vector<uint8_t> rows(static_cast<size_t>((s - n) * s), 0);
    for (double x : arrays.at("table").values) rows.push_back(x != 0);
    return Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(rows.data(), {s, s}));
  }
};

struct Output {
  std::vector<int64_t> shape;
  std::vector<float> values;
  explicit Output(const std::vector<int64_t>& extents = {}) : shape(extents) {
    size_t count = 1;
    for (int64_t extent : shape) count *= static_cast<size_t>(extent);
    values.assign(shape.empty() ? 0 : count, -7.0f);
  }
  TensorView<float> view() { return shape.empty() ? TensorView<float>{} : view_of(shape, values.data()); }

  // Within 2e-6 of the largest number of the array, or of those that cancelled in it.
  void expect_near(const double* want, const nlohmann::json& c, const char* what) const {
    double top = 1;
    for (size_t i = 0; i < values.size(); ++i) top = std::max(top, std::fabs(want[i]));
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], want[i], 2e-6 * top) << c["name"] << " " << what << " element " << i;
  }
};

TEST(RelativeGolden, ForwardAndBackwardEqualPyTorch) {
  const std::map<std::string, Inputs> inputs = {{"short", Inputs("short")}, {"long", Inputs("long")}};
  int64_t compared = 0, term_gradients = 0;
  for (const auto& c : test::read_json("relative/cases.json")) {
    const std::string shape = c["shape"].get<std::string>();
    const Inputs& in = inputs.at(shape);
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
