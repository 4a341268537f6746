// Tiny models of every family against float64 results of Hugging Face transformers (tools/golden/hf_checkpoints.py and
// gguf_files.py): beyond the window, beyond the original context, in both spellings of the configuration.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "regard/error.h"
#include "regard/model.h"
#include "support/golden.h"

namespace regard {
namespace {

std::vector<int32_t> ids_of(const std::string& name) {
  std::vector<int32_t> ids;
  for (int64_t id : test::read_array(name).integers()) ids.push_back(static_cast<int32_t>(id));
  return ids;
}

std::vector<float> all_rows(const Model& model, const std::vector<int32_t>& ids, Output output) {
  Sequence sequence(model);
  const Feed feed{&sequence, ids, Feed::Rows::kAll};
  const int64_t width = output == Output::kLogits ? model.info().vocab_size : model.info().hidden_size;
  std::vector<float> out(ids.size() * static_cast<size_t>(width));
  ForwardOptions options;
  options.output = output;
  model.forward({&feed, 1}, options, out.data());
  return out;
}

// The measure: the largest difference over the largest value.
double relative_error(const std::vector<float>& got, const test::Array& want) {
  EXPECT_EQ(got.size(), want.values.size());
  double largest = 0, difference = 0;
  for (size_t i = 0; i < want.values.size(); ++i) {
    largest = std::max(largest, std::fabs(want.values[i]));
    difference = std::max(difference, std::fabs(got[i] - want.values[i]));
    if (std::isnan(got[i])) return INFINITY;
  }
  return difference / largest;
}

struct Case {
  const char* name;
  int64_t context;  // declared length, 0: the model's own
};

class HuggingFace : public testing::TestWithParam<Case> {};

TEST_P(HuggingFace, LogitsAndHiddenStatesOfTransformers) {
  const std::string directory = std::string("hf/") + GetParam().name;
  ModelOptions options;
  options.context = GetParam().context;
  const Model model = Model::load(test::golden_path(directory), options);
  const std::vector<int32_t> ids = ids_of(directory + "/ids.npy");
  EXPECT_LE(relative_error(all_rows(model, ids, Output::kLogits), test::read_array(directory + "/logits.npy")), 2e-5);
  EXPECT_LE(relative_error(all_rows(model, ids, Output::kHidden), test::read_array(directory + "/hidden.npy")), 2e-5);
}

INSTANTIATE_TEST_SUITE_P(Families, HuggingFace,
                         testing::Values(Case{"llama", 0}, Case{"llama_linear", 0}, Case{"llama_yarn", 0}, Case{"llama_dynamic", 64},
                                         Case{"llama_longrope", 64}, Case{"mistral", 0}, Case{"qwen2", 0}, Case{"qwen3", 0}, Case{"gemma2", 0}, Case{"gemma3", 0}, Case{"gpt2", 0}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(HuggingFaceSpelling, TheOlderConfigurationSaysTheSame) {
  for (const std::string name : {"llama", "gemma3"}) {
    const std::filesystem::path golden = test::golden_path("hf/" + name);
    const std::filesystem::path copy = std::filesystem::path(testing::TempDir()) / ("older_" + name);
    std::filesystem::create_directories(copy);
    const auto overwrite = std::filesystem::copy_options::overwrite_existing;
    std::filesystem::copy_file(golden / "model.safetensors", copy / "model.safetensors", overwrite);
    std::filesystem::copy_file(golden / "config.v4.json", copy / "config.json", overwrite);
    const Model model = Model::load(copy.string());
    EXPECT_LE(relative_error(all_rows(model, ids_of("hf/" + name + "/ids.npy"), Output::kLogits), test::read_array("hf/" + name + "/logits.npy")), 2e-5) << name;
  }
}

TEST(LongRope, AShortDeclaredLengthTakesTheShortFactors) {
  ModelOptions options;
  options.context = 24;
  const Model model = Model::load(test::golden_path("hf/llama_longrope"), options);
  std::vector<int32_t> ids = ids_of("hf/llama_longrope/ids.npy");
  ids.resize(24);
  EXPECT_LE(relative_error(all_rows(model, ids, Output::kLogits), test::read_array("hf/llama_longrope/logits_short.npy")), 2e-5);
}

class Gguf : public testing::TestWithParam<const char*> {};

TEST_P(Gguf, LogitsOnTheDequantisedWeights) {
  const std::string name = GetParam();
  const std::string numbers = name.substr(0, name.find("-0"));
  const Model model = Model::load(test::golden_path("gguf/" + name + ".gguf"));
  EXPECT_LE(relative_error(all_rows(model, ids_of("gguf/" + numbers + ".ids.npy"), Output::kLogits), test::read_array("gguf/" + numbers + ".logits.npy")), 2e-5);
}

INSTANTIATE_TEST_SUITE_P(Families, Gguf, testing::Values("llama_q4_1", "llama_q4_1-00001-of-00002", "llama_mixed", "qwen2_q5_0", "qwen3_16bit", "gemma3_q4_k", "gpt2_q8_0"),
                         [](const auto& param) {
                           std::string name = param.param;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace regard
