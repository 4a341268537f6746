// One more family, described from outside: StarCoder 2 has LayerNorm, biases everywhere, a plain feed-forward and a window.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "model/model_impl.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace regard {
namespace {

using model::Bias;
using model::Part;

const model::Family kStarCoder2{
    .name = "starcoder2",
    .gguf_architectures = {"starcoder2"},
    .hf_model_types = {"starcoder2"},
    .parts = {{Part::kEmbedding, "token_embd", "model.embed_tokens"},
              {Part::kFinalNorm, "output_norm", "model.norm", Bias::kAlways},
              {Part::kHead, "output", "lm_head"},
              {Part::kAttnNorm, "blk.{}.attn_norm", "model.layers.{}.input_layernorm", Bias::kAlways},
              {Part::kQuery, "blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", Bias::kByFile},
              {Part::kKey, "blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", Bias::kByFile},
              {Part::kValue, "blk.{}.attn_v", "model.layers.{}.self_attn.v_proj", Bias::kByFile},
              {Part::kOutput, "blk.{}.attn_output", "model.layers.{}.self_attn.o_proj", Bias::kByFile},
              {Part::kFfnNorm, "blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm", Bias::kAlways},
              {Part::kUp, "blk.{}.ffn_up", "model.layers.{}.mlp.c_fc", Bias::kByFile},
              {Part::kDown, "blk.{}.ffn_down", "model.layers.{}.mlp.c_proj", Bias::kByFile}},
    .norm = nn::NormKind::kLayer,
    .activation = nn::Activation::kGeluTanh,
    .refine = [](const model::Facts& facts, model::DecoderConfig& config) {
      if (facts.window) config.windowed.assign(static_cast<size_t>(config.num_layers), true);
    },
};

TEST(Family, OneMoreIsMostlyData) {
  const std::string directory = "hf/starcoder2";
  const Model model = model::load_opened(model::open_model(test::golden_path(directory), FileAccess::kRead, model::WithTokenizer::kYes), &kStarCoder2, {});
  std::vector<int32_t> ids;
  for (int64_t id : test::read_array(directory + "/ids.npy").integers()) ids.push_back(static_cast<int32_t>(id));
  const test::Array want = test::read_array(directory + "/logits.npy");
  std::vector<float> got(want.values.size());
  Sequence sequence(model);
  const Feed feed{&sequence, ids, Feed::Rows::kAll};
  model.forward({&feed, 1}, {}, got.data());
  double largest = 0, difference = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::fabs(want.values[i]));
    difference = std::max(difference, std::fabs(got[i] - want.values[i]));
  }
  EXPECT_LE(difference, 2e-5 * largest);
}

TEST(Family, AFileOfAnotherFamilyNamesIt) {
  try {
    Model::load(test::golden_path("hf/starcoder2"));
    FAIL() << "an unknown family was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("starcoder2"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("qwen3"), std::string::npos) << "the message lists what is known";
  }
}

// Whoever has such a model need not mend its tokenizer first.
TEST(Family, AnUnknownFamilyIsNamedBeforeItsTokenizer) {
  const testing_support::TempDir directory;
  std::filesystem::copy(test::golden_path("hf/starcoder2"), directory.path("checkpoint"));
  std::ofstream(directory.path("checkpoint/tokenizer.json")) << R"({"model": {"type": "WordPiece"}})";
  try {
    Model::load(directory.path("checkpoint"));
    FAIL() << "an unknown family was loaded";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("a model of type 'starcoder2'"), std::string::npos) << error.what();
  }
}

// Loading with the wrong table must name what does not fit: that is how a wrong guess shows.
TEST(Family, MissingAndUnusedTensorsAreNamed) {
  const auto load_as = [](const char* directory, std::string_view family) {
    for (const model::Family& f : model::families())
      if (f.name == family) {
        try {
          model::load_opened(model::open_model(test::golden_path(directory), FileAccess::kRead, model::WithTokenizer::kYes), &f, {});
        } catch (const Error& error) {
          return std::string(error.what());
        }
      }
    return std::string();
  };
  EXPECT_NE(load_as("hf/llama", "qwen3").find("model.layers.0.self_attn.q_norm.weight"), std::string::npos);
  EXPECT_NE(load_as("hf/qwen3", "llama").find("q_norm"), std::string::npos);
}

// Whether a Gemma 2 without a number for a soft-cap has none, or the usual one, nobody can know.
TEST(Family, Gemma2StatesItsSoftCaps) {
  const std::string golden = test::golden_path("hf/gemma2");
  const testing_support::TempDir directory;
  std::filesystem::copy_file(golden + "/model.safetensors", directory.path("model.safetensors"));
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    nlohmann::json config = test::read_json("hf/gemma2/config.json");
    config.erase(key);
    directory.write("config.json", config.dump());
    try {
      (void)Model::load(directory.path());
      ADD_FAILURE() << "loaded without " << key;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kUnsupported);
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace regard
