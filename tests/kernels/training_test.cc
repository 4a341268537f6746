// Rows of a training step: the definitions of kernels/reference against finite differences and worked examples in f64, then the
// kernels of the instruction set in use against the definitions.
#include "kernels/training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "kernels/dropout.h"
#include "kernels/reference/training.h"
#include "kernels/registry.h"

namespace regard::kernels {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

Floats uniform(int64_t n, uint32_t seed, double size = 2) {
  Floats x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(size * (2 * random_uniform(seed, 3, i) - 1));
  return x;
}
Doubles widened(const Floats& x) { return {x.begin(), x.end()}; }

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

// Within `eps` of the f64 result, relative to the largest size that enters it.
void expect_near(const Floats& got, const Doubles& want, double eps, double size, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(double{got[i]}, want[i], eps * (size + std::abs(want[i]))) << what << " element " << i;
}

constexpr double kEps = 0x1p-23;
const int64_t kLengths[] = {1, 5, 15, 16, 17, 63, 64, 65, 130, 384, 1000};

// d f / d x[i] by central differences, against a gradient.
template <class F>
void expect_gradient(F f, Doubles x, const Doubles& gradient, const char* what) {
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i], step = 1e-5;
    x[i] = at + step;
    const double up = f(x);
    x[i] = at - step;
    const double down = f(x);
    x[i] = at;
    ASSERT_NEAR(gradient[i], (up - down) / (2 * step), 1e-8 * (1 + std::abs(gradient[i]))) << what << " element " << i;
  }
}

double dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

struct Activation {
  const char* name;
  reference::ValueAndSlope<double> (*f)(double);
  void (*TrainingKernels::*backward)(const float*, const float*, int64_t, float*) noexcept;
  void (*TrainingKernels::*gated)(const float*, const float*, const float*, int64_t, float*, float*) noexcept;
  void (*ElementwiseKernels::*forward)(const float*, int64_t, float*) noexcept;
};
const Activation kActivations[] = {
    {"silu", reference::silu<double>, &TrainingKernels::silu_backward, &TrainingKernels::silu_mul_backward, &ElementwiseKernels::silu},
    {"gelu_erf", reference::gelu_erf<double>, &TrainingKernels::gelu_erf_backward, &TrainingKernels::gelu_erf_mul_backward, &ElementwiseKernels::gelu_erf},
    {"gelu_tanh", reference::gelu_tanh<double>, &TrainingKernels::gelu_tanh_backward, &TrainingKernels::gelu_tanh_mul_backward, &ElementwiseKernels::gelu_tanh},
    {"relu", reference::relu<double>, &TrainingKernels::relu_backward, &TrainingKernels::relu_mul_backward, &ElementwiseKernels::relu},
};

TEST(TrainingReference, SlopesAreThoseOfFiniteDifferences) {
  for (const Activation& a : kActivations)
    for (double x = -6.03; x < 6; x += 0.1) {
      const double step = 1e-5;
      EXPECT_NEAR(a.f(x).slope, (a.f(x + step).value - a.f(x - step).value) / (2 * step), 1e-9) << a.name << " at " << x;
    }
}

TEST(TrainingReference, NormsAreThoseOfFiniteDifferences) {
  const int64_t n = 13;
  const Doubles x = widened(uniform(n, 1)), weight = widened(uniform(n, 2)), bias = widened(uniform(n, 3)), dy = widened(uniform(n, 4));
  Doubles y(x.size());
  NormStats<double> stats{};
  for (const bool centred : {true, false}) {
    const auto forward = [&](const Doubles& input, const Doubles& gain, const Doubles& offset) {
      if (centred)
        reference::layer_norm(input.data(), gain.data(), offset.data(), 1e-3, n, y.data(), &stats);
      else
        reference::rms_norm(input.data(), gain.data(), 1e-3, n, y.data(), &stats);
      return dot(y, dy);
    };
    forward(x, weight, bias);
    double mean = 0, square = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double plain = (y[i] - (centred ? bias[i] : 0)) / weight[i];
      mean += plain / static_cast<double>(n), square += plain * plain / static_cast<double>(n);
    }
    if (centred) {
      EXPECT_NEAR(mean, 0, 1e-12);
    }
    EXPECT_NEAR(square, 1 - 1e-3 * stats.rstd * stats.rstd, 1e-12);
    Doubles dx(x.size(), 0.5), dweight(x.size(), 0.0), dbias(x.size(), 0.0);
    (centred ? reference::layer_norm_backward<double> : reference::rms_norm_backward<double>)(x.data(), weight.data(), dy.data(), &stats, n, dx.data(),
                                                                                              kernels::Accumulate::kAdd);
    reference::norm_backward_weight(x.data(), dy.data(), n, &stats, 1, n, dweight.data(), dbias.data());
    for (double& d : dx) d -= 0.5;  // it is added
    expect_gradient([&](const Doubles& v) { return forward(v, weight, bias); }, x, dx, "x");
    expect_gradient([&](const Doubles& v) { return forward(x, v, bias); }, weight, dweight, "weight");
    if (centred) expect_gradient([&](const Doubles& v) { return forward(x, weight, v); }, bias, dbias, "bias");
  }
}

TEST(TrainingReference, CrossEntropyIsThatOfItsDefinition) {
  const int64_t n = 7, label = 4;
  const Doubles x = widened(uniform(n, 5, 3));
  for (const CrossEntropy how : {CrossEntropy{}, CrossEntropy{.smoothing = 0.1}, CrossEntropy{.z_loss = 0.01}, CrossEntropy{0.2, 0.05}}) {
    // The definition, from probabilities: -sum over classes of target log p, and the square of log sum exp.
    double sum = 0, objective = 0;
    for (double v : x) sum += std::exp(v);
    for (int64_t i = 0; i < n; ++i) {
      const double target = how.smoothing / static_cast<double>(n) + (i == label ? 1 - how.smoothing : 0);
      objective -= target * std::log(std::exp(x[static_cast<size_t>(i)]) / sum);
    }
    objective += how.z_loss * std::log(sum) * std::log(sum);
    Doubles gradient(x.size());
    const RowLoss loss = reference::cross_entropy(x.data(), n, label, how, 3.0, gradient.data());
    EXPECT_NEAR(loss.nats, -std::log(std::exp(x[label]) / sum), 1e-12);
    EXPECT_NEAR(loss.objective, objective, 1e-12);
    EXPECT_EQ(loss.correct, std::max_element(x.begin(), x.end()) - x.begin() == label);
    expect_gradient([&](const Doubles& v) { return 3 * reference::cross_entropy<double>(v.data(), n, label, how, 1, nullptr).objective; }, x, gradient, "logits");
  }
}

// Kingma and Ba, 2015: the first step of Adam moves every element by the rate, whatever its gradient's size.
TEST(TrainingReference, OptimisersMoveAsWorkedByHand) {
  const AdamWStep first{.rate = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 0, .decay = 0.5, .correction1 = 0.1, .correction2 = 0.01};
  double value = 2, m = 0, v = 0, gradient = 40;
  reference::adamw(first, &gradient, 1, &value, &m, &v);
  EXPECT_NEAR(value, 2 * 0.95 - 0.1, 1e-12);
  EXPECT_NEAR(m, 4, 1e-12);
  EXPECT_NEAR(v, 16, 1e-12);
  gradient = -40;
  const AdamWStep second{.rate = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1, .correction1 = 0.19, .correction2 = 0.0199, .gradient_factor = 0.5};
  reference::adamw(second, &gradient, 1, &value, &m, &v);
  EXPECT_NEAR(m, 3.6 - 2, 1e-12);
  EXPECT_NEAR(v, 15.84 + 4, 1e-12);
  EXPECT_NEAR(value, 1.8 - 0.1 * (1.6 / 0.19) / (std::sqrt(19.84 / 0.0199) + 1), 1e-12);
  double x = 1, momentum = 0, g = 2;
  for (int i = 0; i < 2; ++i) reference::sgd({.rate = 0.25, .momentum = 0.5, .decay = 0.4, .gradient_factor = 0.5}, &g, 1, &x, &momentum);
  EXPECT_NEAR(momentum, 1.5, 1e-12);
  EXPECT_NEAR(x, (1 * 0.9 - 0.25) * 0.9 - 0.25 * 1.5, 1e-12);
}

TEST(Training, NormsHaveTheBitsOfInferenceAndTheirStatistics) {
  const TrainingKernels& k = *kernels().training;
  const ElementwiseKernels& e = *kernels().elementwise;
  for (int64_t n : kLengths) {
    const Floats x = uniform(n, 1), weight = uniform(n, 2), bias = uniform(n, 3);
    Floats y(x.size()), z(x.size());
    Doubles exact(x.size());
    NormStats<float> stats{};
    NormStats<double> want{};
    k.layer_norm(x.data(), weight.data(), bias.data(), 1e-5f, n, y.data(), &stats);
    e.layer_norm(x.data(), weight.data(), bias.data(), 1e-5f, n, z.data());
    EXPECT_EQ(y, z);
    reference::layer_norm<double>(widened(x).data(), nullptr, nullptr, 1e-5f, n, exact.data(), &want);
    EXPECT_NEAR(stats.mean, want.mean, 16 * kEps);
    if (n > 1) {
      EXPECT_NEAR(stats.rstd, want.rstd, 16 * kEps * want.rstd);
    }
    k.rms_norm(x.data(), weight.data(), 1e-5f, n, y.data(), &stats);
    e.rms_norm(x.data(), weight.data(), 1e-5f, n, z.data());
    EXPECT_EQ(y, z);
    reference::rms_norm<double>(widened(x).data(), nullptr, 1e-5f, n, exact.data(), &want);
    EXPECT_EQ(stats.mean, 0.0f);
    EXPECT_NEAR(stats.rstd, want.rstd, 16 * kEps * want.rstd);
  }
}

TEST(Training, NormGradientsAreThoseOfTheDefinition) {
  const TrainingKernels& k = *kernels().training;
  for (int64_t n : kLengths)
    for (const bool weighted : {true, false})
      for (const bool centred : {true, false}) {
        const Floats x = uniform(n, 1), weight = uniform(n, 2), dy = uniform(n, 4), dx0 = uniform(n, 5);
        const NormStats<float> stats{centred ? 0.25f : 0.0f, 1.5f};
        const NormStats<double> wide{double{stats.mean}, double{stats.rstd}};
        Floats dx = dx0;
        Doubles want = widened(dx0);
        const Doubles wx = widened(x), ww = widened(weight), wdy = widened(dy);
        (centred ? k.layer_norm_backward : k.rms_norm_backward)(x.data(), weighted ? weight.data() : nullptr, dy.data(), &stats, n, dx.data(), Accumulate::kAdd);
        (centred ? reference::layer_norm_backward<double> : reference::rms_norm_backward<double>)(wx.data(), weighted ? ww.data() : nullptr, wdy.data(), &wide, n,
                                                                                                want.data(), Accumulate::kAdd);
        expect_near(dx, want, 32 * kEps, 16, "dx");
        // Overwritten, it begins at 0 and may lie over either operand.
        Floats zeros(x.size(), 0.0f), over_x = x, over_dy = dy;
        const auto backward = centred ? k.layer_norm_backward : k.rms_norm_backward;
        const float* gain = weighted ? weight.data() : nullptr;
        backward(x.data(), gain, dy.data(), &stats, n, zeros.data(), Accumulate::kAdd);
        backward(over_x.data(), gain, dy.data(), &stats, n, over_x.data(), Accumulate::kOverwrite);
        backward(x.data(), gain, over_dy.data(), &stats, n, over_dy.data(), Accumulate::kOverwrite);
        EXPECT_EQ(over_x, zeros);
        EXPECT_EQ(over_dy, zeros);
        if (::testing::Test::HasFatalFailure()) return;
      }
}

TEST(Training, NormWeightGradientsAreOneChainOfRows) {
  const TrainingKernels& k = *kernels().training;
  const int64_t rows = 37;
  for (int64_t n : kLengths) {
    const int64_t ld = n + 3;
    const Floats x = uniform(rows * ld, 1), dy = uniform(rows * ld, 2), dw0 = uniform(n, 3), db0 = uniform(n, 4);
    std::vector<NormStats<float>> stats;
    std::vector<NormStats<double>> wide;
    for (int64_t r = 0; r < rows; ++r) {
      stats.push_back({0.01f * static_cast<float>(r), 1.0f + 0.1f * static_cast<float>(r % 5)});
      wide.push_back({double{stats.back().mean}, double{stats.back().rstd}});
    }
    Floats dw = dw0, db = db0;
    Doubles want_dw = widened(dw0), want_db = widened(db0);
    const Doubles wx = widened(x), wdy = widened(dy);
    k.norm_backward_weight(x.data(), dy.data(), ld, stats.data(), rows, n, dw.data(), db.data());
    reference::norm_backward_weight(wx.data(), wdy.data(), ld, wide.data(), rows, n, want_dw.data(), want_db.data());
    expect_near(dw, want_dw, 64 * kEps, 16, "dweight");
    expect_near(db, want_db, 64 * kEps, 16, "dbias");
    // Any cut of rows and columns gives the same bits, and what is not asked for is not needed.
    Floats cut_dw = dw0, cut_db = db0;
    const int64_t half = n / 2, some = rows / 3;
    for (const auto& [r0, r1] : {std::pair<int64_t, int64_t>{0, some}, {some, rows}})
      for (const auto& [j0, j1] : {std::pair<int64_t, int64_t>{0, half}, {half, n}}) {
        const float *xp = x.data() + r0 * ld + j0, *dyp = dy.data() + r0 * ld + j0;
        k.norm_backward_weight(xp, dyp, ld, stats.data() + r0, r1 - r0, j1 - j0, cut_dw.data() + j0, nullptr);
        k.norm_backward_weight(xp, dyp, ld, stats.data() + r0, r1 - r0, j1 - j0, nullptr, cut_db.data() + j0);
      }
    EXPECT_EQ(cut_dw, dw);
    EXPECT_EQ(cut_db, db);
  }
}

TEST(Training, ActivationGradientsAreThoseOfTheDefinition) {
  const TrainingKernels& k = *kernels().training;
  const int64_t n = 4001;
  Floats x, up = uniform(n, 6), dy = uniform(n, 7);
  for (int64_t i = 0; i < n; ++i) x.push_back(static_cast<float>(-12 + 24.0 * static_cast<double>(i) / (n - 1)));
  for (const Activation& a : kActivations) {
    Floats dx(x.size()), in_place = dy, dgate(x.size()), dup(x.size()), value(x.size()), gate = x, up_in_place = up;
    (k.*a.backward)(x.data(), dy.data(), n, dx.data());
    (k.*a.backward)(x.data(), in_place.data(), n, in_place.data());
    (k.*a.gated)(x.data(), up.data(), dy.data(), n, dgate.data(), dup.data());
    (k.*a.gated)(gate.data(), up_in_place.data(), dy.data(), n, gate.data(), up_in_place.data());
    (kernels().elementwise->*a.forward)(x.data(), n, value.data());
    EXPECT_EQ(in_place, dx) << a.name;
    EXPECT_EQ(gate, dgate) << a.name;
    EXPECT_EQ(up_in_place, dup) << a.name;
    for (size_t i = 0; i < x.size(); ++i) {
      const double slope = a.f(double{x[i]}).slope, bound = 12 * kEps * (1 + std::abs(slope));
      ASSERT_NEAR(double{dx[i]}, double{dy[i]} * slope, bound * std::abs(dy[i])) << a.name << " at " << x[i];
      ASSERT_NEAR(double{dgate[i]}, double{dy[i]} * double{up[i]} * slope, bound * std::abs(dy[i] * up[i])) << a.name << " at " << x[i];
      ASSERT_EQ(bits(dup[i]), bits(dy[i] * value[i])) << a.name << " at " << x[i];
    }
  }
}

TEST(Training, ActivationGradientsAtTheEdges) {
  const TrainingKernels& k = *kernels().training;
  const Floats x = {-1e30f, 1e30f, -1e9f, 1e9f, 0.0f, -0.0f, NAN}, dy(x.size(), 1.0f);
  for (const Activation& a : kActivations) {
    Floats dx(x.size());
    (k.*a.backward)(x.data(), dy.data(), static_cast<int64_t>(x.size()), dx.data());
    for (size_t i : {0u, 2u}) EXPECT_EQ(dx[i], 0.0f) << a.name;
    for (size_t i : {1u, 3u}) EXPECT_EQ(dx[i], 1.0f) << a.name;
    for (size_t i : {4u, 5u}) EXPECT_EQ(dx[i], a.f(0.0).slope) << a.name;
    if (a.f != reference::relu<double>) {
      EXPECT_TRUE(std::isnan(dx[6])) << a.name;
    }
  }
}

TEST(Training, CrossEntropyIsThatOfTheDefinition) {
  const TrainingKernels& k = *kernels().training;
  for (int64_t n : kLengths)
    for (double size : {0.01, 4.0, 80.0})
      for (const CrossEntropy how : {CrossEntropy{}, CrossEntropy{.smoothing = 0.1}, CrossEntropy{.z_loss = 1e-3}, CrossEntropy{0.2, 1e-4}})
        for (int64_t label : {int64_t{0}, n / 2, n - 1}) {
          const Floats x = uniform(n, 8, size);
          const Doubles wide = widened(x);
          Floats gradient(x.size()), in_place = x;
          Doubles want(x.size());
          const RowLoss exact = reference::cross_entropy(wide.data(), n, label, how, 0.5, want.data());
          const RowLoss loss = k.cross_entropy(x.data(), n, label, how, 0.5f, gradient.data());
          const RowLoss alone = k.cross_entropy(x.data(), n, label, how, 0.5f, nullptr);
          k.cross_entropy(in_place.data(), n, label, how, 0.5f, in_place.data());
          ASSERT_NEAR(loss.nats, exact.nats, 16 * kEps * (1 + size));
          ASSERT_NEAR(loss.objective, exact.objective, 16 * kEps * (1 + size));
          ASSERT_EQ(loss.correct, exact.correct);
          ASSERT_EQ(alone.objective, loss.objective);
          ASSERT_EQ(in_place, gradient);
          expect_near(gradient, want, 32 * kEps, 1, "gradient");
          if (::testing::Test::HasFatalFailure()) return;
        }
}

TEST(Training, CrossEntropyOfExtremeRows) {
  const TrainingKernels& k = *kernels().training;
  Floats g(4);
  const Floats forbidden = {-INFINITY, 1.0f, 1.0f, -INFINITY};
  RowLoss loss = k.cross_entropy(forbidden.data(), 4, 1, {}, 1.0f, g.data());
  EXPECT_NEAR(loss.nats, std::log(2.0), 1e-7);
  EXPECT_EQ(g, (Floats{0.0f, -0.5f, 0.5f, 0.0f}));
  EXPECT_TRUE(loss.correct);
  EXPECT_FALSE(k.cross_entropy(forbidden.data(), 4, 2, {}, 1.0f, nullptr).correct) << "the first of equal logits counts";
  const Floats huge = {1e4f, -1e4f, 0.0f, 1e4f};
  loss = k.cross_entropy(huge.data(), 4, 1, {}, 1.0f, g.data());
  EXPECT_NEAR(loss.nats, 2e4 + std::log(2.0), 2e-3);
  EXPECT_EQ(g, (Floats{0.5f, -1.0f, 0.0f, 0.5f}));
  for (float bad : {NAN, INFINITY}) {
    const Floats x = {0.0f, bad, 0.0f, 1.0f};
    EXPECT_TRUE(std::isnan(k.cross_entropy(x.data(), 4, 0, {}, 1.0f, g.data()).nats));
    EXPECT_TRUE(std::isnan(g[0]) && std::isnan(g[1]));
  }
}

TEST(Training, DropoutKeepsWhatItsWordsSay) {
  const TrainingKernels& k = *kernels().training;
  constexpr uint32_t kThreshold = dropout_threshold(0.25);
  for (int64_t n : {1, 17, 64, 130, 200}) {
    uint64_t words[kPanelsPerTile];
    dropout_keep_words(dropout_row_key(11, 0, 3, n), 0, kThreshold, words);
    const Floats x = uniform(n, 1), branch = uniform(n, 2);
    Floats y(x.size()), alone(x.size()), want(x.size()), in_place = branch;
    k.add_dropped(words, 4.0f / 3, x.data(), branch.data(), n, y.data());
    reference::add_dropped(words, 4.0f / 3, x.data(), branch.data(), n, want.data());
    EXPECT_EQ(y, want);
    k.add_dropped(words, 2.0f, nullptr, branch.data(), n, alone.data());
    k.add_dropped(words, 2.0f, nullptr, in_place.data(), n, in_place.data());
    EXPECT_EQ(in_place, alone);
    for (int64_t i = 0; i < n; ++i) {
      const bool kept = (words[i / 64] >> (i % 64) & 1) != 0;
      EXPECT_EQ(alone[static_cast<size_t>(i)], kept ? 2 * branch[static_cast<size_t>(i)] : 0.0f);
    }
  }
  const uint64_t none = 0;
  const float nan = NAN;
  float y = 1;
  k.add_dropped(&none, 2.0f, nullptr, &nan, 1, &y);
  EXPECT_EQ(y, 0.0f) << "a dropped NaN is gone";
}

TEST(Training, OptimisersAreThoseOfTheDefinition) {
  const TrainingKernels& k = *kernels().training;
  for (int64_t n : kLengths) {
    Floats value = uniform(n, 1), m(value.size()), v(value.size()), x = value, momentum(value.size());
    Doubles wide = widened(value), wm(value.size()), wv(value.size()), wx = wide, wmomentum(value.size());
    double power1 = 1, power2 = 1;
    for (uint32_t t = 1; t <= 5; ++t) {
      const Floats gradient = uniform(n, 100 + t);
      const Doubles wg = widened(gradient);
      power1 *= 0.9, power2 *= 0.95;
      const AdamWStep step{.rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .correction1 = 1 - power1, .correction2 = 1 - power2,
                           .gradient_factor = 0.25};
      k.adamw(step, gradient.data(), n, value.data(), m.data(), v.data());
      reference::adamw(step, wg.data(), n, wide.data(), wm.data(), wv.data());
      const SgdStep down{.rate = 0.01, .momentum = 0.9, .decay = 0.1, .gradient_factor = 0.25};
      k.sgd(down, gradient.data(), n, x.data(), momentum.data());
      reference::sgd(down, wg.data(), n, wx.data(), wmomentum.data());
    }
    expect_near(m, wm, 32 * kEps, 1, "m");
    expect_near(v, wv, 32 * kEps, 0.1, "v");
    expect_near(value, wide, 32 * kEps, 1, "value");
    expect_near(momentum, wmomentum, 32 * kEps, 1, "momentum");
    expect_near(x, wx, 32 * kEps, 1, "value");
  }
}

// Nothing in an optimiser is fused, so that each instruction set has the bits of the plain loop in f32.
TEST(Training, OptimisersHaveTheBitsOfTheirDefinition) {
  const TrainingKernels& k = *kernels().training;
  for (int64_t n : kLengths) {
    Floats value = uniform(n, 1), m(value.size()), v(value.size()), x = value, momentum(value.size());
    Floats want = value, wm = m, wv = v, wx = x, wmomentum = momentum;
    for (int step = 1; step <= 4; ++step) {
      const Floats gradient = uniform(n, static_cast<uint32_t>(10 + step));
      const AdamWStep adamw{.rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .correction1 = 1 - std::pow(0.9, step),
                            .correction2 = 1 - std::pow(0.95, step), .gradient_factor = 0.3};
      k.adamw(adamw, gradient.data(), n, value.data(), m.data(), v.data());
      reference::adamw(adamw, gradient.data(), n, want.data(), wm.data(), wv.data());
      const SgdStep sgd{.rate = 0.01, .momentum = 0.9, .decay = 0.1, .gradient_factor = 0.3};
      k.sgd(sgd, gradient.data(), n, x.data(), momentum.data());
      reference::sgd(sgd, gradient.data(), n, wx.data(), wmomentum.data());
    }
    EXPECT_EQ(value, want) << n;
    EXPECT_EQ(m, wm) << n;
    EXPECT_EQ(v, wv) << n;
    EXPECT_EQ(x, wx) << n;
    EXPECT_EQ(momentum, wmomentum) << n;
  }
}

TEST(Training, MultiplyAddsAreCounted) {
  const double once = kernels().training->multiply_adds(1);
  EXPECT_GE(once, 2.0 * 16);
  EXPECT_EQ(kernels().training->multiply_adds(1000), 1000 * once);
}

TEST(Training, CuttingASpanChangesNoBit) {
  const TrainingKernels& k = *kernels().training;
  const int64_t n = 2 * kSquaresStretch + 77, cut = kSquaresStretch;
  const Floats gradient = uniform(n, 1), start = uniform(n, 2);
  const AdamWStep step{.rate = 0.01, .correction1 = 0.1, .correction2 = 0.05};
  Floats whole = start, parts = start, m(start.size()), v(start.size()), pm(start.size()), pv(start.size());
  k.adamw(step, gradient.data(), n, whole.data(), m.data(), v.data());
  for (int64_t i = 0; i < n; i += 1001) {
    const int64_t size = std::min<int64_t>(1001, n - i);
    k.adamw(step, gradient.data() + i, size, parts.data() + i, pm.data() + i, pv.data() + i);
  }
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(pm, m);
  EXPECT_EQ(pv, v);
  const double sum = k.sum_of_squares(gradient.data(), n);
  EXPECT_NEAR(sum, reference::sum_of_squares(gradient.data(), n), 256 * kEps * sum);
  EXPECT_EQ((k.sum_of_squares(gradient.data(), cut) + k.sum_of_squares(gradient.data() + cut, cut)) + k.sum_of_squares(gradient.data() + 2 * cut, 77), sum);
}

}  // namespace
}  // namespace regard::kernels
