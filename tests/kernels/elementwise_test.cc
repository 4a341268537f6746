// Rows of norms, activations and softmax against f64, on the instruction set in use.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/rng.h"
#include "kernels/registry.h"

namespace regard::kernels {
namespace {

double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  const float rounded = static_cast<float>(want);
  if (rounded == got) return 0;
  if (std::isinf(rounded) || std::isinf(got)) return INFINITY;
  const double ulp = std::nextafter(std::fabs(rounded), INFINITY) - std::fabs(rounded);
  return std::fabs(got - want) / ulp;
}

std::vector<float> ramp(double low, double high, int n) {
  std::vector<float> x;
  for (int i = 0; i < n; ++i) x.push_back(static_cast<float>(low + (high - low) * i / (n - 1)));
  return x;
}

using Row = void (*)(const float*, int64_t, float*) noexcept;
double worst_ulp(Row row, const std::vector<float>& x, double (*exact)(double)) {
  std::vector<float> y(x.size());
  row(x.data(), static_cast<int64_t>(x.size()), y.data());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, ulps(y[i], exact(x[i])));
  return worst;
}

TEST(Elementwise, ForcedInstructionSetIsTheOneInUse) {
  EXPECT_EQ(kernels().isa, chosen_isa());
  RecordProperty("isa", std::string(isa_name(kernels().isa)));
  for (Isa isa : kAllIsas) {
    if (!cpu_supports(isa)) continue;
    const ForcedIsa forced(isa);
    EXPECT_EQ(kernels().isa, isa);
  }
}

TEST(Elementwise, TranscendentalsWithinTheirStatedUlp) {
  const ElementwiseKernels& k = *kernels().elementwise;
  EXPECT_LE(worst_ulp(k.exp, ramp(-103, 88.7, 400001), [](double x) { return std::exp(x); }), 2.0);
  EXPECT_LE(worst_ulp(k.exp, ramp(-1, 1, 100001), [](double x) { return std::exp(x); }), 2.0);
  EXPECT_LE(worst_ulp(k.exp2, ramp(-149, 0, 400001), [](double x) { return std::exp2(x); }), kernels().isa == Isa::kBaseline ? 1.2 : 1.0);
  EXPECT_LE(worst_ulp(k.exp2, ramp(-1, 127, 400001), [](double x) { return std::exp2(x); }), kernels().isa == Isa::kBaseline ? 1.2 : 1.0);
  EXPECT_LE(worst_ulp(k.tanh, ramp(-10, 10, 400001), [](double x) { return std::tanh(x); }), 2.0);
  EXPECT_LE(worst_ulp(k.erf, ramp(-5, 5, 400001), [](double x) { return std::erf(x); }), 2.5);
  EXPECT_LE(worst_ulp(k.silu, ramp(-80, 80, 400001), [](double x) { return x / (1 + std::exp(-x)); }), 4.0);
}

TEST(Elementwise, TranscendentalsAtTheEdges) {
  const ElementwiseKernels& k = *kernels().elementwise;
  const float inf = INFINITY;
  const std::vector<float> x = {0.0f, -inf, inf, NAN, -1e30f, 1e30f, -0.0f};
  std::vector<float> y(x.size());
  const auto n = static_cast<int64_t>(x.size());
  for (Row row : {k.exp, k.exp2}) {
    row(x.data(), n, y.data());
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_EQ(y[2], inf);
    EXPECT_TRUE(std::isnan(y[3]));
    EXPECT_EQ(y[4], 0.0f);
    EXPECT_EQ(y[5], inf);
    EXPECT_EQ(y[6], 1.0f);
  }
  k.tanh(x.data(), n, y.data());
  EXPECT_EQ(y[1], -1.0f);
  EXPECT_EQ(y[2], 1.0f);
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_TRUE(std::signbit(y[6]));
  k.relu(x.data(), n, y.data());
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_TRUE(std::isnan(y[3]));
}

double gelu(double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }
double gelu_tanh(double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

// The tail of GELU is a difference of nearly equal numbers, so its error is absolute, in units of |x| eps.
TEST(Elementwise, GeluAgainstItsDefinition) {
  const std::vector<float> x = ramp(-12, 12, 200001);
  std::vector<float> y(x.size()), z(x.size());
  kernels().elementwise->gelu_erf(x.data(), static_cast<int64_t>(x.size()), y.data());
  kernels().elementwise->gelu_tanh(x.data(), static_cast<int64_t>(x.size()), z.data());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(y[i], gelu(x[i]), 3 * 0x1p-24 * std::fabs(x[i]) + 1e-38) << x[i];
    ASSERT_NEAR(z[i], gelu_tanh(x[i]), 4 * 0x1p-24 * std::fabs(x[i]) + 1e-38) << x[i];
  }
}

// Lengths around the vector width; memory behind the row is poisoned and must neither matter nor change.
class Rows : public testing::TestWithParam<int> {
 protected:
  std::vector<float> gaussian(uint64_t stream, double mean, double deviation) const {
    std::vector<float> x(static_cast<size_t>(GetParam()) + 40, NAN);
    for (int i = 0; i < GetParam(); ++i) {
      const double u = random_uniform(7, stream, static_cast<uint64_t>(2 * i)), v = random_uniform(7, stream, static_cast<uint64_t>(2 * i + 1));
      x[i] = static_cast<float>(mean + deviation * std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * M_PI * v));
    }
    return x;
  }
};

TEST_P(Rows, NormsAgainstF64) {
  const int n = GetParam();
  const std::vector<float> x = gaussian(0, 1, 2), w = gaussian(1, 1, 0.3), b = gaussian(2, 0, 1);
  std::vector<float> rms(x.size(), 77.0f), layer(x.size(), 77.0f);
  kernels().elementwise->rms_norm(x.data(), w.data(), 1e-5f, n, rms.data());
  kernels().elementwise->layer_norm(x.data(), w.data(), b.data(), 1e-5f, n, layer.data());
  double squares = 0, sum = 0, variance = 0;
  for (int i = 0; i < n; ++i) squares += double(x[i]) * x[i], sum += x[i];
  const double mean = sum / n;
  for (int i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
  const double r = 1 / std::sqrt(squares / n + 1e-5f), l = 1 / std::sqrt(variance / n + 1e-5f);
  for (int i = 0; i < n; ++i) {
    ASSERT_NEAR(rms[i], x[i] * r * w[i], 8 * 0x1p-24 * std::fabs(x[i] * r * w[i])) << i;
    ASSERT_NEAR(layer[i], (x[i] - mean) * l * w[i] + b[i], 16 * 0x1p-24 * ((std::fabs(x[i]) + std::fabs(mean)) * l * std::fabs(w[i]) + std::fabs(b[i]))) << i;
  }
  EXPECT_EQ(rms[n], 77.0f);
  EXPECT_EQ(layer[n], 77.0f);
}

TEST_P(Rows, SoftmaxAgainstF64) {
  const int n = GetParam();
  const std::vector<float> x = gaussian(3, 0, 5);
  std::vector<float> y(x.size(), 77.0f);
  kernels().elementwise->softmax(x.data(), n, y.data());
  double top = -INFINITY, sum = 0;
  for (int i = 0; i < n; ++i) top = std::max(top, double(x[i]));
  for (int i = 0; i < n; ++i) sum += std::exp(x[i] - top);
  for (int i = 0; i < n; ++i) {
    const double want = std::exp(x[i] - top) / sum;
    ASSERT_NEAR(y[i], want, 0x1p-24 * (8 + std::fabs(x[i] - top)) * want + 1e-45) << i;
  }
  EXPECT_EQ(y[n], 77.0f);
}

TEST_P(Rows, RotationsTurnEachPair) {
  const int n = GetParam();
  const std::vector<float> x = gaussian(4, 0, 1), y = gaussian(5, 0, 1), angle = gaussian(6, 0, 3);
  std::vector<float> c(n), s(n), halves, pairs;
  for (int i = 0; i < n; ++i) c[i] = std::cos(angle[i]), s[i] = std::sin(angle[i]);
  halves.assign(x.begin(), x.begin() + n);
  halves.insert(halves.end(), y.begin(), y.begin() + n);
  for (int i = 0; i < n; ++i) pairs.push_back(x[i]), pairs.push_back(y[i]);
  kernels().elementwise->rotate_half(halves.data(), c.data(), s.data(), n);
  kernels().elementwise->rotate_interleaved(pairs.data(), c.data(), s.data(), n);
  for (int i = 0; i < n; ++i) {
    const double a = double(x[i]) * c[i] - double(y[i]) * s[i], b = double(y[i]) * c[i] + double(x[i]) * s[i];
    const double bound = 4 * 0x1p-24 * (std::fabs(x[i]) + std::fabs(y[i]));
    ASSERT_NEAR(halves[i], a, bound);
    ASSERT_NEAR(halves[n + i], b, bound);
    ASSERT_EQ(pairs[2 * i], halves[i]) << "the two orders must round alike";
    ASSERT_EQ(pairs[2 * i + 1], halves[n + i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths, Rows, testing::Values(1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 576, 640, 1000));

TEST(Elementwise, SoftmaxOfEmptyAndExtremeRows) {
  const auto softmax = kernels().elementwise->softmax;
  std::vector<float> y(3, 5.0f);
  softmax(nullptr, 0, y.data());
  EXPECT_EQ(y[0], 5.0f);
  const std::vector<float> none(3, -INFINITY), infinite = {0, INFINITY, 0}, nan = {0, NAN, 0}, huge = {1e4f, -1e4f, 1e4f};
  softmax(none.data(), 3, y.data());
  EXPECT_EQ(y, std::vector<float>(3, 0.0f));
  softmax(infinite.data(), 3, y.data());
  EXPECT_TRUE(std::isnan(y[1]));
  softmax(nan.data(), 3, y.data());
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]) && std::isnan(y[2]));
  softmax(huge.data(), 3, y.data());
  EXPECT_EQ(y, (std::vector<float>{0.5f, 0.0f, 0.5f}));
}

}  // namespace
}  // namespace regard::kernels
