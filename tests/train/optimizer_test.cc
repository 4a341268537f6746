// Ten steps against PyTorch, and against the formulas in f64; schedules against transformers.
#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "../support/golden.h"
#include "train/outliers.h"
#include "train/schedule.h"

namespace regard::train_loop {
namespace {

using Config = TrainConfig::Optimizer;
using nn::WeightDecay;

nlohmann::json golden() { return test::read_json("optimisers.json"); }

// The store of the golden problem: a matrix that decays and a bias that does not.
struct Problem {
  nn::ParameterStore<float> store;
  std::vector<int> indices;

  explicit Problem(const nlohmann::json& g, WeightDecay of_bias = WeightDecay::kNone) {
    indices = {store.add("matrix", g["shapes"][0].get<std::vector<int64_t>>(), WeightDecay::kApplied),
               store.add("bias", g["shapes"][1].get<std::vector<int64_t>>(), of_bias)};
    store.allocate();
    size_t at = 0;
    for (const int i : indices)
      for (int64_t k = 0; k < size(i); ++k) store.value(i)[k] = g["values"][at++].get<float>();
  }
  int64_t size(int i) const { return store.parameters()[static_cast<size_t>(i)].size; }
  void set_gradients(const nlohmann::json& flat) {
    size_t at = 0;
    for (const int i : indices)
      for (int64_t k = 0; k < size(i); ++k) store.gradient(i)[k] = flat[at++].get<float>();
  }
  // The largest difference from flat values, relative to 1 or the value.
  double error(const nlohmann::json& flat) {
    double worst = 0;
    size_t at = 0;
    for (const int i : indices) {
      for (int64_t k = 0; k < size(i); ++k, ++at) {
        const double want = flat[at].get<double>(), got = static_cast<double>(store.value(i)[k]);
        worst = std::max(worst, std::abs(got - want) / std::max(1.0, std::abs(want)));
      }
    }
    return worst;
  }
};

double worst_of_ten_steps(const Config& config, double rate, const std::string& name, double clip, WeightDecay of_bias = WeightDecay::kNone) {
  const auto g = golden();
  Problem problem(g, of_bias);
  Optimizer optimizer(config, problem.store);
  ThreadPool pool(1);
  double worst = 0;
  for (int64_t step = 0; step < 10; ++step) {
    problem.set_gradients(g["gradients"][static_cast<size_t>(step)]);
    const double norm = optimizer.gradient_norm(pool), want = g[name]["norms"][static_cast<size_t>(step)].get<double>();
    EXPECT_NEAR(norm, want, 1e-6 * want);
    optimizer.update(pool, step + 1, rate, clip > 0 && norm > clip ? clip / norm : 1);
    worst = std::max(worst, problem.error(g[name]["after"][static_cast<size_t>(step)]));
  }
  return worst;
}

Config golden_adamw() {
  Config config;
  config.beta1 = 0.9;
  config.beta2 = 0.97;
  config.epsilon = 1e-6;
  config.weight_decay = 0.3;
  return config;
}
Config golden_sgd() {
  Config config;
  config.kind = Config::Kind::kSgd;
  config.momentum = 0.8;
  config.weight_decay = 0;
  return config;
}

TEST(Optimizer, AdamWIsPyTorchs) { EXPECT_LT(worst_of_ten_steps(golden_adamw(), 0.02, "adamw", 0), 2e-6); }
TEST(Optimizer, ClippingIsPyTorchs) { EXPECT_LT(worst_of_ten_steps(golden_adamw(), 0.02, "adamw_clipped", 2.0), 2e-6); }
TEST(Optimizer, MomentumIsPyTorchs) { EXPECT_LT(worst_of_ten_steps(golden_sgd(), 0.03, "sgd", 0), 2e-6); }

TEST(Optimizer, TheComparisonNoticesMistakes) {
  EXPECT_GT(worst_of_ten_steps(golden_adamw(), 0.02, "adamw", 0, WeightDecay::kApplied), 1e-3) << "decay on biases";
  Config config = golden_adamw();
  config.weight_decay = 0;
  EXPECT_GT(worst_of_ten_steps(config, 0.02, "adamw", 0), 1e-3) << "no decay at all";
  EXPECT_GT(worst_of_ten_steps(golden_adamw(), 0.02, "adamw_clipped", 0), 1e-3) << "no clipping";
  config = golden_adamw();
  config.epsilon = 1e-3;
  EXPECT_GT(worst_of_ten_steps(config, 0.02, "adamw", 0), 1e-5) << "another epsilon";
}

TEST(Optimizer, AdamWFollowsTheFormulaInF64) {
  nn::ParameterStore<float> store;
  const int index = store.add("w", {1000, 40}, WeightDecay::kApplied);  // several pieces
  store.allocate();
  Config config;
  const double rate = 3e-3;
  std::vector<double> x(40000), m(40000), v(40000);
  for (size_t i = 0; i < x.size(); ++i) store.value(index)[i] = static_cast<float>(x[i] = static_cast<double>(static_cast<float>(std::sin(static_cast<double>(i)))));
  Optimizer optimizer(config, store);
  ThreadPool pool(3);
  for (int t = 1; t <= 25; ++t) {
    for (size_t i = 0; i < x.size(); ++i) {
      const auto g = static_cast<float>(std::cos(static_cast<double>(i) * 0.7 + t));
      store.gradient(index)[i] = g;
      m[i] = config.beta1 * m[i] + (1 - config.beta1) * static_cast<double>(g);
      v[i] = config.beta2 * v[i] + (1 - config.beta2) * static_cast<double>(g) * static_cast<double>(g);
      x[i] -= rate * config.weight_decay * x[i];
      x[i] -= rate * (m[i] / (1 - std::pow(config.beta1, t))) / (std::sqrt(v[i] / (1 - std::pow(config.beta2, t))) + config.epsilon);
    }
    optimizer.update(pool, t, rate, 1);
  }
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(static_cast<double>(store.value(index)[i]), x[i], 3e-6) << i;
}

TEST(Optimizer, NothingDependsOnThreads) {
  std::vector<std::vector<float>> results;
  std::vector<double> norms;
  for (const int threads : {1, 2, 3, 8}) {
    nn::ParameterStore<float> store;
    const int index = store.add("w", {100003}, WeightDecay::kApplied);
    store.allocate();
    for (int i = 0; i < 100003; ++i) store.value(index)[i] = std::sin(static_cast<float>(i)), store.gradient(index)[i] = std::cos(static_cast<float>(i));
    ThreadPool pool(threads);
    Optimizer optimizer({}, store);
    norms.push_back(optimizer.gradient_norm(pool));
    optimizer.update(pool, 1, 0.1, 0.5);
    results.emplace_back(store.values().begin(), store.values().end());
    EXPECT_EQ(results.back(), results.front());
    EXPECT_EQ(norms.back(), norms.front());
  }
}

TEST(Optimizer, SeesWhatIsNotFinite) {
  nn::ParameterStore<float> store;
  const int index = store.add("w", {50000}, WeightDecay::kApplied);
  store.allocate();
  ThreadPool pool(2);
  Optimizer optimizer({}, store);
  EXPECT_TRUE(optimizer.values_are_finite(pool));
  EXPECT_EQ(optimizer.gradient_norm(pool), 0);
  store.value(index)[49999] = INFINITY;
  store.gradient(index)[20000] = NAN;
  EXPECT_FALSE(optimizer.values_are_finite(pool));
  EXPECT_TRUE(std::isnan(optimizer.gradient_norm(pool)));
}

TEST(WeightAverage, FollowsItsFormulaAndShowsItself) {
  nn::ParameterStore<float> store;
  const int index = store.add("w", {3}, WeightDecay::kApplied);
  store.allocate();
  store.value(index)[0] = 1;
  WeightAverage average(0.75, store);
  ThreadPool pool(1);
  store.value(index)[0] = 5;
  average.update(pool);
  EXPECT_EQ(average.values()[0], 2.0f);
  {
    const WeightAverage::Shown shown(&average);
    EXPECT_EQ(store.value(index)[0], 2.0f);
  }
  EXPECT_EQ(store.value(index)[0], 5.0f);
  EXPECT_EQ(average.values()[0], 2.0f);
  const WeightAverage::Shown nothing(nullptr);
}

class Schedule : public ::testing::Test {
 protected:
  using Kind = TrainConfig::Schedule::Kind;

  // The rates of steps [first, 200 - shift] are those that the golden has `shift` steps later.
  void compare(Kind kind, double final_fraction, const char* name, int64_t first, int64_t end, int64_t shift) {
    const auto rates = golden()["schedules"][name];
    TrainConfig::Schedule schedule;
    schedule.kind = kind;
    schedule.warmup_steps = 20;
    schedule.final_fraction = final_fraction;
    schedule.decay_fraction = 0.25;
    for (int64_t step = first; step < end; ++step) {
      EXPECT_NEAR(learning_rate(schedule, 1.0, step, 200), rates[static_cast<size_t>(step + shift)].get<double>(), 1e-12) << name << " " << step;
      EXPECT_EQ(learning_rate(schedule, 0.25, step, 200), 0.25 * learning_rate(schedule, 1.0, step, 200));
    }
  }
};

TEST_F(Schedule, DecaysAsTransformersDoes) {
  compare(Kind::kLinear, 0, "linear", 20, 200, 0);
  compare(Kind::kCosine, 0, "cosine", 20, 200, 0);
  compare(Kind::kWarmupStableDecay, 0.1, "warmup_stable_decay", 20, 200, 0);
}

// There the first step has the rate 0 and changes nothing; here the warm-up begins with its first part.
TEST_F(Schedule, WarmsUpOneStepEarlier) {
  compare(Kind::kLinear, 0, "linear", 0, 20, 1);
  compare(Kind::kCosine, 0, "cosine", 0, 20, 1);
  compare(Kind::kInverseSqrt, 0, "inverse_sqrt", 0, 200, 1);
}

TEST_F(Schedule, KeepsItsPromisesAtTheEnds) {
  TrainConfig::Schedule schedule;
  schedule.final_fraction = 0.1;
  for (const Kind kind : {Kind::kConstant, Kind::kLinear, Kind::kCosine, Kind::kInverseSqrt, Kind::kWarmupStableDecay}) {
    schedule.kind = kind;
    schedule.warmup_steps = 0;
    EXPECT_EQ(learning_rate(schedule, 2, 0, 100), 2);
    schedule.warmup_steps = 10;
    EXPECT_EQ(learning_rate(schedule, 2, 0, 100), 0.2);
    EXPECT_EQ(learning_rate(schedule, 2, 9, 100), 2);
    const double end = learning_rate(schedule, 2, 100, 100);
    const double want = kind == Kind::kConstant ? 2 : kind == Kind::kInverseSqrt ? 2 * std::sqrt(10.0 / 101) : 0.2;
    EXPECT_NEAR(end, want, 1e-15);
    schedule.warmup_steps = 500;  // longer than the run
    EXPECT_EQ(learning_rate(schedule, 2, 99, 100), 2.0 * 100 / 500);
  }
  schedule.kind = Kind::kConstant;
  schedule.warmup_steps = 0;
  EXPECT_EQ(learning_rate(schedule, 2, 99, 100), 2);
}

TEST(Outliers, AreFarAboveWhatIsRemembered) {
  std::vector<double> recent;
  EXPECT_EQ(deviations_above(recent, 1e9), 0);
  for (int i = 0; i < 200; ++i) remember(recent, i % 2 == 0 ? 1.0 : 3.0);
  EXPECT_EQ(recent.size(), kOutlierWindow);
  EXPECT_DOUBLE_EQ(deviations_above(recent, 6.0), 4.0);  // mean 2, deviation 1
  EXPECT_LT(deviations_above(recent, 0.0), 0);
  EXPECT_EQ(deviations_above(std::vector<double>(50, 2.0), 3.0), 0);
}

}  // namespace
}  // namespace regard::train_loop
