// Norms, activations and softmax against PyTorch in f64 (tools/golden/numeric.py).
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/registry.h"
#include "support/golden.h"

namespace regard::kernels {
namespace {

TEST(ElementwiseGolden, Activations) {
  const ElementwiseKernels& k = *kernels().elementwise;
  const std::pair<const char*, void (*)(const float*, int64_t, float*) noexcept> kinds[] = {
      {"silu", k.silu}, {"gelu_erf", k.gelu_erf}, {"gelu_tanh", k.gelu_tanh}};
  for (const auto& [kind, row] : kinds)
    for (const auto& c : test::numeric_cases(kind)) {
      const std::vector<float> x = test::numeric_array(c, "x").floats();
      const test::Array want = test::numeric_array(c, "y");
      std::vector<float> y(x.size());
      row(x.data(), static_cast<int64_t>(x.size()), y.data());
      for (size_t i = 0; i < x.size(); ++i) {
        if (std::isnan(want.values[i])) {
          EXPECT_TRUE(std::isnan(y[i])) << kind << " " << x[i];
        } else if (std::isinf(want.values[i])) {
          EXPECT_EQ(y[i], static_cast<float>(want.values[i])) << kind << " " << x[i];
        } else {
          EXPECT_NEAR(y[i], want.values[i], 4 * 0x1p-24 * std::fabs(x[i]) + 1e-38) << kind << " " << x[i];
        }
      }
    }
}

TEST(ElementwiseGolden, Norms) {
  for (const char* kind : {"rms_norm", "layer_norm"})
    for (const auto& c : test::numeric_cases(kind)) {
      SCOPED_TRACE(c["name"].get<std::string>());
      const test::Array x = test::numeric_array(c, "x"), want = test::numeric_array(c, "y");
      const std::vector<float> xs = x.floats(), w = test::numeric_array(c, "weight").floats();
      const int64_t n = x.shape.back();
      const auto eps = static_cast<float>(c["eps"].get<double>());
      std::vector<float> y(xs.size()), bias(w.size());
      const bool layer = std::string(kind) == "layer_norm";
      if (layer) bias = test::numeric_array(c, "bias").floats();
      for (size_t r = 0; r < xs.size(); r += static_cast<size_t>(n))
        layer ? kernels().elementwise->layer_norm(&xs[r], w.data(), bias.data(), eps, n, &y[r])
              : kernels().elementwise->rms_norm(&xs[r], w.data(), eps, n, &y[r]);
      // Where a row is nearly constant, the subtraction of its mean magnifies the rounding of the inputs: the bound follows
      // the size of what was subtracted.
      for (size_t r = 0; r < xs.size(); r += static_cast<size_t>(n)) {
        double mean = 0, squares = 0, size = 0;
        for (size_t i = r; i < r + static_cast<size_t>(n); ++i) mean += layer ? x.values[i] / static_cast<double>(n) : 0, size = std::max(size, std::fabs(x.values[i]));
        for (size_t i = r; i < r + static_cast<size_t>(n); ++i) squares += (x.values[i] - mean) * (x.values[i] - mean);
        const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(eps));
        for (size_t i = 0; i < static_cast<size_t>(n); ++i)
          EXPECT_NEAR(y[r + i], want.values[r + i], 0x1p-24 * (8 * size * factor * (1 + std::fabs(want.values[r + i])) * std::fabs(w[i]) + 4 * std::fabs(bias[i])) + 1e-45) << r << " " << i;
      }
    }
}

TEST(ElementwiseGolden, Softmax) {
  for (const auto& c : test::numeric_cases("softmax")) {
    const test::Array x = test::numeric_array(c, "x"), want = test::numeric_array(c, "y");
    const std::vector<float> xs = x.floats();
    const int64_t n = x.shape.back();
    std::vector<float> y(xs.size());
    for (size_t r = 0; r < xs.size(); r += static_cast<size_t>(n)) kernels().elementwise->softmax(&xs[r], n, &y[r]);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], want.values[i], 1e-6 * want.values[i] + 1e-40) << c["name"] << " " << i;
  }
}

}  // namespace
}  // namespace regard::kernels
