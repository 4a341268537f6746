// Whole models against automatic differentiation on a tape, which shares no formula with them.
#include <gtest/gtest.h>

#include "support/tape_transformer.h"

namespace regard::test {
namespace {

class TrainingTape : public testing::TestWithParam<TrainingCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, TrainingTape, testing::ValuesIn(training_cases()), [](const auto& one) { return one.param.name; });

TEST_P(TrainingTape, GivesTheSameLossAndGradients) {
  nn::TransformerConfig config = GetParam().config;
  config.embedding_dropout = config.residual_dropout = config.attention_dropout = 0;
  nn::Transformer<double> model(config, 1);
  auto& store = model.parameters();
  TapeTransformer tape(config, store);
  ThreadPool pool(1);
  const double expected = tape.run(GetParam().data);
  const nn::LossSum loss = model.forward_backward(pool, GetParam().data.view(), {});
  EXPECT_GT(expected, 1);
  // Sinusoids are tables of f32.
  const bool rounded = config.position == nn::PositionKind::kSinusoidal || config.position == nn::PositionKind::kXl;
  const double tolerance = rounded ? 1e-6 : 1e-12;
  EXPECT_NEAR(loss.objective, expected, tolerance * expected);
  double all = 0;
  for (const double g : store.gradients()) all += g * g;
  for (size_t p = 0; p < store.parameters().size(); ++p) {
    const nn::Parameter& parameter = store.parameters()[p];
    const std::vector<double>& gradient = tape.gradient(parameter.name);
    double error = 0, norm = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      const double d = gradient[i] - store.gradient(static_cast<int>(p))[i];
      error += d * d;
      norm += gradient[i] * gradient[i];
    }
    EXPECT_LE(std::sqrt(error), tolerance * (std::sqrt(norm) + std::sqrt(all))) << parameter.name;
  }
}

}  // namespace
}  // namespace regard::test
