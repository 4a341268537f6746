// Files as something to train: the trainer's model has the logits that independent programs give for the file (tools/golden), a
// checkpoint of it opens as the same family with the trainer's bits, and what cannot be trained is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <type_traits>

#include "../support/temp_dir.h"
#include "format/safetensors_writer.h"
#include "model/trainable.h"
#include "nn/training/transformer.h"
#include "regard/convert.h"
#include "regard/error.h"
#include "regard/model.h"
#include "support/golden.h"

namespace regard::model {
namespace {

using testing_support::TempDir;

std::vector<int32_t> ids_of(const std::string& name) {
  std::vector<int32_t> ids;
  for (const int64_t id : test::read_array(name).integers()) ids.push_back(static_cast<int32_t>(id));
  return ids;
}

std::vector<float> forced_logits(nn::Transformer<float>& model, const std::vector<int32_t>& ids) {
  nn::TokenBatch batch;
  batch.batch = 1;
  batch.seq = static_cast<int64_t>(ids.size());
  batch.tokens = ids;
  std::vector<float> logits(ids.size() * static_cast<size_t>(model.config().vocab_size));
  ThreadPool pool(2);
  model.logits(pool, batch, logits);
  return logits;
}

struct Case {
  const char* file;    // below tests/golden
  const char* arrays;  // names of ids and logits begin with this
  const char* family;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.file; }
};

class Trainable : public testing::TestWithParam<Case> {};

TEST_P(Trainable, HasTheLogitsOfTheFileAndItsCheckpointToo) {
  const std::string arrays = GetParam().arrays;
  const std::vector<int32_t> ids = ids_of(arrays + "ids.npy");
  const TrainableFile file(test::golden_path(GetParam().file));
  EXPECT_EQ(file.family(), GetParam().family);
  nn::Transformer<float> model(file.shape(static_cast<int64_t>(ids.size())), 1);
  file.read(model.parameters(), nullptr);
  const std::vector<float> logits = forced_logits(model, ids);
  const std::vector<double> want = test::read_array(arrays + "logits.npy").values;
  ASSERT_EQ(logits.size(), want.size());
  double largest = 0, difference = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(std::isfinite(logits[i]));
    largest = std::max(largest, std::fabs(want[i]));
    difference = std::max(difference, std::fabs(static_cast<double>(logits[i]) - want[i]));
  }
  EXPECT_LE(difference, 2e-5 * largest);

  const TempDir directory;
  std::vector<SafetensorsEntry> entries;
  for (size_t i = 0; i < model.parameters().parameters().size(); ++i) {
    const nn::Parameter& p = model.parameters().parameters()[i];
    entries.push_back({p.name, DType::kF32, p.shape, std::as_bytes(std::span(model.parameters().value(static_cast<int>(i)), static_cast<size_t>(p.size)))});
  }
  ASSERT_TRUE(write_safetensors(directory.path("model.safetensors"), entries));
  directory.write("config.json", file.config_json("float32"));
  ModelOptions options;
  options.context = static_cast<int64_t>(ids.size());  // what the shape was taken for
  const Model loaded = Model::load(directory.path(), options);
  EXPECT_EQ(loaded.info().family, GetParam().family);
  Sequence sequence(loaded);
  const Feed feed{&sequence, ids, Feed::Rows::kAll};
  std::vector<float> again(logits.size());
  loaded.forward({&feed, 1}, {}, again.data());
  EXPECT_EQ(std::memcmp(again.data(), logits.data(), logits.size() * sizeof(float)), 0) << again[0] << " " << logits[0];
  // A run that goes on reads its shape from there.
  const TrainableFile checkpoint(directory.path());
  EXPECT_EQ(checkpoint.config_json("float32"), file.config_json("float32"));
}

INSTANTIATE_TEST_SUITE_P(
    Files, Trainable,
    testing::Values(Case{"hf/llama", "hf/llama/", "llama"}, Case{"hf/llama_linear", "hf/llama_linear/", "llama"}, Case{"hf/llama_yarn", "hf/llama_yarn/", "llama"},
                    Case{"hf/llama_dynamic", "hf/llama_dynamic/", "llama"}, Case{"hf/llama_longrope", "hf/llama_longrope/", "llama"},
                    Case{"hf/mistral", "hf/mistral/", "llama"}, Case{"hf/gpt2", "hf/gpt2/", "gpt2"}, Case{"gguf/llama_mixed.gguf", "gguf/llama_mixed.", "llama"},
                    Case{"gguf/qwen2_q5_0.gguf", "gguf/qwen2_q5_0.", "qwen2"}, Case{"hf/qwen2", "hf/qwen2/", "qwen2"},
                    Case{"hf/qwen3", "hf/qwen3/", "qwen3"}, Case{"gguf/qwen3_16bit.gguf", "gguf/qwen3_16bit.", "qwen3"}, Case{"hf/gemma2", "hf/gemma2/", "gemma2"},
                    Case{"hf/gemma3", "hf/gemma3/", "gemma3"}, Case{"gguf/gemma3_q4_k.gguf", "gguf/gemma3_q4_k.", "gemma3"}, Case{"gguf/gpt2_q8_0.gguf", "gguf/gpt2_q8_0.", "gpt2"}),
    [](const auto& param) {
      std::string name = param.param.file;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      return name;
    });

// Version 1.0 has a tied head whose input is scaled, version 1.1 a head of its own; the logits are those of tools/golden/t5.py.
TEST(Trainable, HasTheLogitsOfBothVersionsOfT5) {
  for (const std::string name : {"t5", "t5_gated"}) {
    SCOPED_TRACE(name);
    const std::string at = "hf/" + name + "/";
    const TrainableFile file(test::golden_path(at));
    EXPECT_EQ(file.family(), "t5");
    const nn::TransformerConfig shape = file.shape(33);
    EXPECT_EQ(shape.head, name == "t5" ? nn::Head::kTied : nn::Head::kUntied);
    EXPECT_NEAR(shape.head_scale, name == "t5" ? 1 / std::sqrt(24.0) : 1, 1e-7);
    nn::Transformer<float> model(shape, 1);
    file.read(model.parameters(), nullptr);
    const std::vector<int32_t> source = ids_of(at + "source.npy"), ids = ids_of(at + "ids.npy");
    nn::TokenBatch batch;
    batch.batch = 1;
    batch.seq = static_cast<int64_t>(ids.size());
    batch.tokens = ids;
    batch.source_seq = static_cast<int64_t>(source.size());
    batch.source = source;
    std::vector<float> logits(ids.size() * static_cast<size_t>(shape.vocab_size));
    ThreadPool pool(2);
    model.logits(pool, batch, logits);
    const std::vector<double> want = test::read_array(at + "logits.npy").values;
    ASSERT_EQ(logits.size(), want.size());
    double largest = 0, difference = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::fabs(want[i]));
      difference = std::max(difference, std::fabs(static_cast<double>(logits[i]) - want[i]));
    }
    EXPECT_GT(largest, 0.1);
    EXPECT_LE(difference, 2e-5 * largest);
  }
}

// The scaling of Llama 3 stands in a GGUF file as divisors of the frequencies; others have no name in config.json.
TEST(Trainable, KnowsTheScalingOfLlama3InAFile) {
  namespace fs = std::filesystem;
  const TempDir directory;
  fs::copy_file(test::golden_path("hf/llama/model.safetensors"), directory.path("model.safetensors"));
  nlohmann::json config = test::read_json("hf/llama/config.json");
  config["rope_parameters"]["rope_theta"] = 500000.0;
  config["rope_parameters"]["original_max_position_embeddings"] = 8192;  // as published
  directory.write("config.json", config.dump());
  convert_model(directory.path(), directory.path("model.gguf"));
  const TrainableFile opened(directory.path("model.gguf"));
  const RopeConfig rope = opened.shape(64).rope, want = TrainableFile(directory.path()).shape(64).rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(rope.factor, 8);
  const std::vector<double> frequencies = Rope(rope).frequencies();
  ASSERT_EQ(frequencies.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(frequencies[i], Rope(want).frequencies()[i]);
  EXPECT_NE(opened.config_json("float32").find("llama3"), std::string::npos);
  try {
    const TrainableFile made_up(test::golden_path("gguf/llama_q4_1.gguf"));
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string_view(error.what()).find("rope_freqs"), std::string_view::npos) << error.what();
  }
}

// tools/golden/fine_tuning.py: what transformers finds for SmolLM2's weights in float64. In double all agrees to the digits of the file.
// In f32 a gradient may be off by as much of its norm as 4 times what float32 costs PyTorch on this batch.
template <class T>
void expect_gradients_of_transformers() {
  const char* models = std::getenv("REGARD_MODELS");
  if (models == nullptr) GTEST_SKIP() << "REGARD_MODELS is not set";
  const nlohmann::json golden = test::read_json("models/smollm2_gradients.json");
  const std::filesystem::path path = std::filesystem::path(models) / golden["file"].get<std::string>();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const TrainableFile file(path.string());
  nn::Transformer<T> model(file.shape(golden["seq"]), 1);
  file.read(model.parameters(), nullptr);
  const auto tokens = golden["tokens"].get<std::vector<int32_t>>(), labels = golden["labels"].get<std::vector<int32_t>>();
  nn::TokenBatch batch;
  batch.batch = golden["batch"];
  batch.seq = golden["seq"];
  batch.tokens = tokens;
  batch.labels = labels;
  const auto counted = std::count_if(labels.begin(), labels.end(), [](int32_t l) { return l >= 0; });
  ThreadPool pool(2);
  const nn::LossSum loss = model.forward_backward(pool, batch, {.loss_scale = 1 / static_cast<double>(counted)});
  ASSERT_EQ(loss.counted, counted);
  constexpr bool kExact = std::is_same_v<T, double>;
  constexpr double kDigits = 1e-8;  // the file has nine
  const double want_loss = golden["loss"];
  EXPECT_NEAR(loss.nats / static_cast<double>(counted), want_loss, (kExact ? kDigits : 1e-5) * want_loss);

  double worst = 0;
  size_t compared = 0;
  ASSERT_EQ(model.parameters().parameters().size(), golden["gradients"].size());
  for (size_t i = 0; i < model.parameters().parameters().size(); ++i) {
    const nn::Parameter& p = model.parameters().parameters()[i];
    SCOPED_TRACE(p.name);
    ASSERT_TRUE(golden["gradients"].contains(p.name));
    const nlohmann::json& want = golden["gradients"][p.name];
    const T* g = model.parameters().gradient(static_cast<int>(i));
    double squares = 0, projection = 0;
    for (int64_t k = 0; k < p.size; ++k) {
      squares += static_cast<double>(g[k]) * static_cast<double>(g[k]);
      const bool odd = (static_cast<uint64_t>(k) * 2654435761u % (uint64_t{1} << 32) >> 16 & 1) != 0;
      projection += odd ? -static_cast<double>(g[k]) : static_cast<double>(g[k]);
    }
    // Bounds of the whole difference hold for what is known of it: of the norm, and of each element. The signs of the projection are
    // no direction of the error's, so it grows with its norm alone.
    const double norm = want["norm"], largest = want["largest"], off = kExact ? kDigits : 4 * want["float32"].get<double>();
    EXPECT_NEAR(std::sqrt(squares), norm, off * norm);
    EXPECT_NEAR(projection, want["projection"].get<double>(), (kExact ? 100 : 4) * off * norm);
    for (size_t n = 0; n < want["at"].size(); ++n) {
      const double error = std::fabs(static_cast<double>(g[want["at"][n].get<int64_t>()]) - want["values"][n].get<double>());
      EXPECT_LE(error, kExact ? kDigits * largest : off * norm) << want["at"][n];
      worst = std::max(worst, error / largest);
      ++compared;
    }
  }
  std::printf("%zu tensors, %zu elements of gradients in %s within %.1e of the largest of their tensor\n", golden["gradients"].size(), compared,
              kExact ? "double" : "f32", worst);
}
TEST(RealModelTraining, LossAndGradientsOfTransformersInDouble) { expect_gradients_of_transformers<double>(); }
TEST(RealModelTraining, LossAndGradientsOfTransformersInF32) { expect_gradients_of_transformers<float>(); }

}  // namespace
}  // namespace regard::model
