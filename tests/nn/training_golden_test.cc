// Losses and gradients of whole models against PyTorch's autograd (tools/golden/training.py).
#include <gtest/gtest.h>

#include "support/golden.h"
#include "support/training_cases.h"

namespace regard::test {
namespace {

using namespace nn;

TransformerConfig config_of(const nlohmann::json& c) {
  if (c["kind"] == "t5" || c["kind"] == "t5_gated") {
    TransformerConfig t5 = c["kind"] == "t5" ? t5_config() : t5_gated_config();
    t5.vocab_size = 13;
    t5.norm_eps = 1e-6;
    return t5;
  }
  TransformerConfig config;
  config.vocab_size = 13;
  config.hidden_size = 12;
  config.num_layers = 2;
  config.num_q_heads = 2;
  config.intermediate_size = 20;
  config.max_positions = 10;
  config.label_smoothing = c.value("label_smoothing", 0.0);
  config.z_loss = c.value("z_loss", 0.0);
  const std::string kind = c["kind"];
  const bool gemma = kind == "gemma2" || kind == "gemma3";
  if (gemma || kind == "qwen3") {
    config.hidden_size = 16;
    config.num_q_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = 6;
    config.position = PositionKind::kRope;
    config.norm = NormKind::kRms;
    config.activation = Activation::kSilu;
    config.feed_forward = FeedForwardKind::kGated;
    config.biases = Biases::kNone;
    config.head = Head::kUntied;
    config.naming = ParameterNaming::kLlama;
    config.query_key_norm = kind != "gemma2";
    config.attention_scale = 1 / std::sqrt(6.0);  // in double, as there
  }
  if (gemma) {
    config.placement = NormPlacement::kSandwich;
    config.norm_gain = NormGain::kOnePlusStored;
    config.activation = Activation::kGeluTanh;
    config.head = Head::kTied;
    config.attention_scale = 1.0 / 3;
    config.embedding_scale = 4;
    config.window = 3;
    config.windowed = {true, false};
    if (kind == "gemma3") config.windowed_rope.theta = 5;
  }
  if (kind == "gemma2") {
    config.attention_softcap = 2;
    config.final_softcap = 3;
  }
  if (kind == "llama") {
    config.hidden_size = 16;
    config.num_q_heads = 4;
    config.num_kv_heads = 2;
    config.position = PositionKind::kRope;
    config.norm = NormKind::kRms;
    config.activation = Activation::kSilu;
    config.feed_forward = FeedForwardKind::kGated;
    config.biases = Biases::kNone;
    config.head = Head::kUntied;
  } else if (kind == "encoder") {
    config.architecture = Architecture::kEncoder;
    config.placement = NormPlacement::kPost;
    config.activation = Activation::kGeluErf;
  } else if (kind == "seq2seq") {
    config.architecture = Architecture::kEncoderDecoder;
    config.activation = Activation::kRelu;
    config.position = PositionKind::kSinusoidal;
    config.embedding_scale = std::sqrt(12.0);
  }
  return config;
}

BatchData batch_of(const nlohmann::json& c) {
  BatchData d;
  d.batch = c["batch"];
  d.seq = c["seq"];
  d.source_seq = c["source_seq"];
  d.tokens = c["tokens"].get<std::vector<int32_t>>();
  d.labels = c["labels"].get<std::vector<int32_t>>();
  d.lengths = c["lengths"].get<std::vector<int64_t>>();
  d.source = c["source"].get<std::vector<int32_t>>();
  d.source_lengths = c["source_lengths"].get<std::vector<int64_t>>();
  return d;
}

template <class T>
void compare(const nlohmann::json& c, double tolerance) {
  const std::string name = c["name"];
  SCOPED_TRACE(name);
  Transformer<T> model(config_of(c["config"]), 1);
  auto& store = model.parameters();
  const Array values = read_array("training/" + name + ".values.npy"), gradients = read_array("training/" + name + ".gradients.npy");
  ASSERT_EQ(store.parameters().size(), c["parameters"].size());
  const auto index_of = [&](const std::string& parameter) {
    for (size_t i = 0; i < store.parameters().size(); ++i)
      if (store.parameters()[i].name == parameter) return static_cast<int>(i);
    ADD_FAILURE() << "this model has no " << parameter;
    return 0;
  };
  size_t at = 0;
  for (const auto& entry : c["parameters"]) {
    const int index = index_of(entry[0]);
    const Parameter& p = store.parameters()[static_cast<size_t>(index)];
    ASSERT_EQ(p.shape, entry[1].get<std::vector<int64_t>>()) << p.name;
    for (int64_t i = 0; i < p.size; ++i) store.value(index)[i] = static_cast<T>(values.values[at++]);
  }
  ThreadPool pool(2);
  const LossSum loss = model.forward_backward(pool, batch_of(c).view(), {});
  EXPECT_EQ(loss.counted, c["counted"].get<int64_t>());
  const double objective = c["objective"];
  EXPECT_NEAR(loss.objective, objective, tolerance * objective);
  // A parameter's gradient against its own size, and where it cancels to nothing (a key's bias) against that of the largest.
  double largest = 0;
  for (const double g : gradients.values) largest = std::max(largest, std::abs(g));
  at = 0;
  for (const auto& entry : c["parameters"]) {
    const int index = index_of(entry[0]);
    const Parameter& p = store.parameters()[static_cast<size_t>(index)];
    double error = 0, norm = 0;
    for (int64_t i = 0; i < p.size; ++i, ++at) {
      const double x = gradients.values[at], y = static_cast<double>(store.gradient(index)[i]);
      error += (x - y) * (x - y);
      norm += x * x;
    }
    EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(norm) + 0.01 * tolerance * largest) << p.name;
  }
}

// Double differs by the rounding of what is stored (f32, and in the younger cases f64), float by its own.
TEST(TrainingGolden, LossAndGradientsAreThoseOfPyTorch) {
  const nlohmann::json cases = nlohmann::json::parse(std::ifstream(golden_path("training/cases.json")));
  ASSERT_EQ(cases.size(), 9u);
  for (const auto& c : cases) {
    compare<double>(c, c["gradients"] == "float64" ? 1e-8 : 1e-6);
    compare<float>(c, 2e-5);
  }
}

}  // namespace
}  // namespace regard::test
