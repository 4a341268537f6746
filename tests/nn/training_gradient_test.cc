// Gradients in double against finite differences, for every module, mask term, position, norm and activation there is.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "mask/node.h"
#include "nn/training/initialise.h"
#include "support/training_cases.h"

namespace regard::test {
namespace {

using nn::LossSum;
using nn::Transformer;

class TrainingGradient : public testing::TestWithParam<TrainingCase> {
 protected:
  ThreadPool pool{1};
  nn::TrainingStep step{.seed = 5, .step = 3, .loss_scale = 0.25};

  double objective(Transformer<double>& model) { return step.loss_scale * model.forward_backward(pool, GetParam().data.view(), step).objective; }
};

// Along random directions, one for each parameter: <gradient, v> against the five-point difference, whose error is the fourth
// power of the step. The bound is in units of |gradient| |v|.
TEST_P(TrainingGradient, IsTheSlopeOfTheObjective) {
  Transformer<double> model(GetParam().config, 1);
  auto& store = model.parameters();
  // Biases and gains that are all 0 or 1 would hide a factor.
  for (size_t p = 0; p < store.parameters().size(); ++p)
    for (int64_t i = 0; i < store.parameters()[p].size; ++i)
      store.value(static_cast<int>(p))[i] += 0.1 * nn::training::standard_normal(2, p, static_cast<uint64_t>(i));
  store.zero_gradients();
  const double value = objective(model);
  ASSERT_TRUE(std::isfinite(value));
  const std::vector<double> gradients(store.gradients().begin(), store.gradients().end());
  const std::vector<double> values(store.values().begin(), store.values().end());
  double all = 0;
  for (double g : gradients) all += g * g;
  ASSERT_GT(all, 0);

  for (size_t p = 0; p < store.parameters().size(); ++p) {
    const nn::Parameter& parameter = store.parameters()[p];
    const auto offset = static_cast<size_t>(parameter.offset), size = static_cast<size_t>(parameter.size);
    std::vector<double> direction(size);
    double along = 0, norm = 0, length = 0;
    for (size_t i = 0; i < size; ++i) {
      direction[i] = nn::training::standard_normal(3, p, i);
      along += direction[i] * gradients[offset + i];
      norm += gradients[offset + i] * gradients[offset + i];
      length += direction[i] * direction[i];
    }
    const auto at = [&](double h) {
      for (size_t i = 0; i < size; ++i) store.values()[offset + i] = values[offset + i] + h * direction[i];
      const double y = objective(model);
      for (size_t i = 0; i < size; ++i) store.values()[offset + i] = values[offset + i];
      return y;
    };
    const double h = 2e-4 / std::sqrt(length);
    const double slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
    // What is left of a parameter that does not matter (a key's bias, say) is rounding: 1e-16 |objective| / step.
    const double rounding = 4e-16 * std::max(1.0, std::abs(value)) / h;
    EXPECT_NEAR(slope, along, 1e-7 * std::sqrt(norm * length) + rounding) << parameter.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TrainingGradient, testing::ValuesIn(training_cases()),
                         [](const auto& one) { return one.param.name; });

void collect(const MaskNode& node, std::set<MaskOp>& ops) {
  ops.insert(node.op);
  for (const auto& child : node.children) collect(*child, ops);
}

TEST(TrainingRegistry, CoversEveryMaskTerm) {
  std::set<MaskOp> used;
  for (const TrainingCase& c : training_cases()) {
    collect(c.config.mask.node(), used);
    collect(c.config.encoder_mask.node(), used);
  }
  for (int op = 0; op <= static_cast<int>(MaskOp::kOr); ++op) EXPECT_TRUE(used.count(static_cast<MaskOp>(op))) << "no case uses mask term number " << op;
}

TEST(TrainingRegistry, CoversEveryChoice) {
  std::set<nn::PositionKind> positions;
  std::set<nn::Architecture> architectures;
  std::set<std::pair<nn::Activation, nn::FeedForwardKind>> activations;
  std::set<std::pair<nn::NormKind, nn::NormPlacement>> norms;
  std::set<nn::Biases> biases;
  std::set<nn::NormGain> gains;
  std::set<nn::NormKind> query_key_norms;
  std::set<std::pair<bool, bool>> caps;  // of scores and logits
  std::set<nn::PositionKind> windows;  // of some layers
  for (const TrainingCase& c : training_cases()) {
    positions.insert(c.config.position);
    architectures.insert(c.config.architecture);
    activations.insert({c.config.activation, c.config.feed_forward});
    norms.insert({c.config.norm, c.config.placement});
    biases.insert(c.config.biases);
    gains.insert(c.config.norm_gain);
    if (c.config.query_key_norm) query_key_norms.insert(c.config.norm);
    caps.insert({c.config.attention_softcap != 0, c.config.final_softcap != 0});
    if (!c.config.windowed.empty()) windows.insert(c.config.position);
  }
  EXPECT_EQ(positions.size(), 7u);
  EXPECT_EQ(architectures.size(), 3u);
  EXPECT_EQ(activations.size(), 8u);
  EXPECT_EQ(norms.size(), 6u);
  EXPECT_EQ(gains.size(), 2u);
  EXPECT_EQ(query_key_norms.size(), 2u);
  EXPECT_EQ(caps.size(), 3u);
  EXPECT_EQ(windows.size(), 2u);
  EXPECT_EQ(biases.size(), 4u);
}

// The modules are the class templates of src/nn/training, and each is part of a case: a new one has to be added here.
TEST(TrainingRegistry, CoversEveryModule) {
  const std::set<std::string> covered = {
      "Linear",              // projections, feed-forward, head
      "Norm", "FeedForward", "Embedding", "AttentionCore", "Attention", "Block", "Stack", "LinearCrossEntropy", "Transformer",
  };
  std::set<std::string> found;
  for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(REGARD_TEST_DATA).parent_path() / "src/nn/training")) {
    if (file.path().extension() != ".h") continue;
    std::ifstream in(file.path());
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    for (size_t at = 0; (at = text.find("template <class T>\nclass ", at)) != std::string::npos;) {
      at += sizeof("template <class T>\nclass ") - 1;
      found.insert(text.substr(at, text.find_first_of(" {;", at) - at));
    }
  }
  EXPECT_EQ(found, covered);
}

}  // namespace
}  // namespace regard::test
