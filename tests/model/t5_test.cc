// T5 from Hugging Face directories, against transformers in float64 (tools/golden/t5.py).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "regard/error.h"
#include "regard/model.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace regard {
namespace {

class T5 : public testing::TestWithParam<const char*> {};

std::vector<int32_t> ids_of(const std::string& name) {
  std::vector<int32_t> ids;
  for (const int64_t id : test::read_array(name).integers()) ids.push_back(static_cast<int32_t>(id));
  return ids;
}

void expect_near(const std::vector<float>& got, const test::Array& wanted) {
  ASSERT_EQ(got.size(), wanted.values.size());
  double largest = 0, error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::fabs(wanted.values[i]));
    error = std::max(error, std::fabs(static_cast<double>(got[i]) - wanted.values[i]));
  }
  EXPECT_GT(largest, 0.1);
  EXPECT_LE(error, 2e-5 * largest);
}

TEST_P(T5, HiddenStatesAndLogitsAreThoseOfTransformers) {
  const std::string at = std::string("hf/") + GetParam() + "/";
  const Model model = Model::load(test::golden_path(at));
  EXPECT_EQ(model.info().family, "t5");
  EXPECT_EQ(model.info().architecture, "encoder_decoder");
  EXPECT_EQ(model.info().num_encoder_layers, 2);
  EXPECT_EQ(model.decoder_start(), 0);
  EXPECT_EQ(model.eos_ids(), std::vector<int32_t>{1});
  const std::vector<int32_t> source = ids_of(at + "source.npy"), ids = ids_of(at + "ids.npy");
  ForwardOptions options;
  options.output = Output::kHidden;
  std::vector<float> hidden(source.size() * static_cast<size_t>(model.info().hidden_size));
  model.encode(source, options, hidden.data());
  expect_near(hidden, test::read_array(at + "hidden.npy"));

  std::vector<float> logits(ids.size() * static_cast<size_t>(model.info().vocab_size));
  Sequence sequence(model, source);
  const Feed feed{&sequence, ids, Feed::Rows::kAll};
  model.forward({&feed, 1}, {}, logits.data());
  expect_near(logits, test::read_array(at + "logits.npy"));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, T5, testing::Values("t5", "t5_gated"), [](const auto& param) { return std::string(param.param); });

// The message with which a configuration is refused after a change of its text.
std::string refusal(const std::string& from, const std::string& to, Code code) {
  const testing_support::TempDir directory;
  const std::filesystem::path origin = test::golden_path("hf/t5");
  std::filesystem::copy_file(origin / "model.safetensors", directory.path("model.safetensors"));
  std::ifstream in(origin / "config.json");
  std::string config((std::istreambuf_iterator<char>(in)), {});
  const size_t place = config.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  directory.write("config.json", config.replace(place, from.size(), to));
  try {
    (void)Model::load(directory.path());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "nothing was refused";
}

TEST(T5Refusal, NamesTheField) {
  const auto names = [](const std::string& message, const char* what) { EXPECT_NE(message.find(what), std::string::npos) << message; };
  names(refusal("\"feed_forward_proj\": \"relu\"", "\"feed_forward_proj\": \"gated-silu\"", Code::kUnsupported), "relu or gated-gelu");
  names(refusal("\"is_encoder_decoder\": true", "\"is_encoder_decoder\": false", Code::kUnsupported), "is_encoder_decoder");
  names(refusal("\"d_model\": 24", "\"d_model\": 0", Code::kCorruptData), "d_model");
  names(refusal("\"d_model\": 24", "\"d_model\": 32", Code::kCorruptData), "shape");
  names(refusal("\"num_layers\": 2", "\"num_layers\": 3", Code::kCorruptData), "encoder.block.2");
  names(refusal("\"num_decoder_layers\": 2", "\"num_decoder_layers\": 1", Code::kCorruptData), "decoder.block.1");
  names(refusal("\"decoder_start_token_id\": 0", "\"decoder_start_token_id\": 80", Code::kCorruptData), "decoder_start_token_id");
  names(refusal("\"relative_attention_num_buckets\": 8", "\"relative_attention_num_buckets\": 7", Code::kCorruptData), "bucket");
}

}  // namespace
}  // namespace regard
