// What the tests of attention's goldens share (tools/golden/attention_cases.py has their scripts' part): the arrays of a shape, the
// masks of the cases, and outputs that are compared.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "regard/mask.h"
#include "support/golden.h"

namespace regard::testing_attention {

template <class T>
TensorView<T> view_of(const std::vector<int64_t>& shape, T* data) {
  TensorView<T> v;
  v.data = data;
  v.rank = static_cast<int>(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0; step *= shape[i]) v.shape[i] = shape[i], v.strides[i] = step;
  return v;
}

/// The arrays NAME of a shape of cases, SHAPE.NAME.npy in `directory`; "table" may be asked for as a mask.
struct GoldenArrays {
  std::map<std::string, test::Array> arrays;
  std::map<std::string, std::vector<float>> values;

  GoldenArrays(const std::string& directory, const std::string& shape, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      arrays[name] = test::read_array(directory + "/" + shape + "." + name + ".npy");
      values[name] = arrays[name].floats();
    }
  }
  const std::vector<int64_t>& shape(const std::string& name) const { return arrays.at(name).shape; }
  TensorView<const float> view(const std::string& name) const { return view_of(shape(name), values.at(name).data()); }

  Mask mask(const std::string& name) const {
    if (name == "documents") return Mask::documents(arrays.at("ids").integers());
    if (name != "table") return Mask::parse(name);
    const int64_t n = shape("q")[2], s = shape("k")[2];
    // Its rows are the queries, which stand at the end of the keys.
    std::vector<uint8_t> rows(static_cast<size_t>((s - n) * s), 0);
    for (double x : arrays.at("table").values) rows.push_back(x != 0);
    return Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(rows.data(), {s, s}));
  }
};

/// An output of a call; without extents it is not asked for.
struct GoldenOutput {
  std::vector<int64_t> shape;
  std::vector<float> values;

  explicit GoldenOutput(const std::vector<int64_t>& extents = {}) : shape(extents) {
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

}  // namespace regard::testing_attention
