// What only the gpt2 family has: learned positions that end, matrices stored transposed, older files with other names.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <sstream>
#include <string>

#include "format/safetensors_writer.h"
#include "format/tensor_source.h"
#include "regard/error.h"
#include "regard/model.h"
#include "regard/tokenizer.h"
#include "support/golden.h"
#include "support/refusal.h"
#include "support/temp_dir.h"

namespace regard {
namespace {

using test::message_of;
using testing_support::TempDir;

std::vector<float> logits(const Model& model) {
  const std::vector<int32_t> ids = {1, 7, 40, 8, 90, 7};
  std::vector<float> out(ids.size() * static_cast<size_t>(model.info().vocab_size));
  Sequence sequence(model);
  const Feed feed{&sequence, ids, Feed::Rows::kAll};
  model.forward({&feed, 1}, {}, out.data());
  return out;
}

// Writes the tensors of the golden checkpoint under other names, beside `config`.
template <class Rename>
std::string copy_of_golden(const TempDir& directory, const std::string& config, Rename rename) {
  const TensorSource source = TensorSource::open(test::golden_path("hf/gpt2")).value_or_throw();
  std::vector<SafetensorsEntry> entries;
  std::vector<std::vector<uint8_t>> bytes(source.tensors().size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    const TensorInfo& tensor = source.tensors()[i];
    bytes[i].resize(tensor.bytes);
    EXPECT_TRUE(source.read(tensor, bytes[i]));
    entries.push_back({rename(tensor.name), tensor.type, tensor.shape, std::as_bytes(std::span(bytes[i]))});
  }
  // What files of older versions hold besides: the causal mask.
  const std::vector<std::byte> mask(4 * 4);
  entries.push_back({"h.0.attn.bias", DType::kF32, {1, 1, 2, 2}, mask});
  EXPECT_TRUE(write_safetensors(directory.path("model.safetensors"), entries));
  directory.write("config.json", config);
  return directory.path();
}

std::string golden_text(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(test::golden_path(name)).rdbuf();
  return text.str();
}
std::string golden_config() { return golden_text("hf/gpt2/config.json"); }

std::string with(std::string config, const std::string& from, const std::string& to) {
  const size_t at = config.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return config.replace(at, from.size(), to);
}

TEST(Gpt2, PositionsEndWithTheTable) {
  ModelOptions options;
  options.context = 81;
  const std::string refused = message_of([&] { (void)Model::load(test::golden_path("hf/gpt2"), options); }, Code::kInvalidArgument);
  EXPECT_NE(refused.find("81"), std::string::npos) << refused;
  EXPECT_NE(refused.find("80"), std::string::npos) << refused;

  const Model model = Model::load(test::golden_path("hf/gpt2"));
  EXPECT_EQ(model.context(), 80);
  Sequence sequence(model);
  const std::vector<int32_t> ids(78, 5);
  std::vector<float> out(96);
  Feed feed{&sequence, ids, Feed::Rows::kLast};
  model.forward({&feed, 1}, {}, out.data());
  feed.tokens = std::span(ids).first(3);
  const std::string beyond = message_of([&] { model.forward({&feed, 1}, {}, out.data()); }, Code::kInvalidArgument);
  EXPECT_NE(beyond.find("78"), std::string::npos) << beyond;
  EXPECT_NE(beyond.find("80"), std::string::npos) << beyond;
  feed.tokens = std::span(ids).first(2);
  model.forward({&feed, 1}, {}, out.data());
}

TEST(Gpt2, TheNamesOfTheBaseModelAreTheSameModel) {
  const TempDir directory;
  const std::string path = copy_of_golden(directory, golden_config(), [](const std::string& name) { return name.substr(std::string("transformer.").size()); });
  EXPECT_EQ(logits(Model::load(path)), logits(Model::load(test::golden_path("hf/gpt2"))));
}

// As Gemma's, whose one tokenizer has a token for pictures behind the rows of its models of texts.
TEST(Gpt2, SpecialTokensWithoutARowAreLeftOut) {
  const auto with_a_token_behind = [](bool special) {
    const std::string token = std::string(R"("added_tokens": [{"id": 96, "content": "<image>", "normalized": false, "lstrip": false, "rstrip": false,)") +
                              R"( "single_word": false, "special": )" + (special ? "true}]" : "false}]");
    return with(golden_text("converted/tokenizer.json"), "\"added_tokens\": []", token);
  };
  const TempDir directory;
  const std::string path = copy_of_golden(directory, golden_config(), [](const std::string& name) { return name; });
  directory.write("tokenizer.json", with_a_token_behind(true));
  const Tokenizer tokenizer = Model::load(path).tokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), 96);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("<image>")), "<image>");  // characters like others
  directory.write("tokenizer.json", with_a_token_behind(false));
  EXPECT_NE(message_of([&] { (void)Model::load(path); }, Code::kCorruptData).find("has 97 ids, the embedding 96 rows"), std::string::npos);
}

TEST(Gpt2, WhatIsNotImplementedIsNamed) {
  const auto same = [](const std::string& name) { return name; };
  for (const auto& [from, to, name] : {std::array<std::string, 3>{"\"scale_attn_by_inverse_layer_idx\": false", "\"scale_attn_by_inverse_layer_idx\": true",
                                                                  "scale_attn_by_inverse_layer_idx"},
                                       {"\"add_cross_attention\": false", "\"add_cross_attention\": true", "add_cross_attention"}}) {
    const TempDir directory;
    const std::string path = copy_of_golden(directory, with(golden_config(), from, to), same);
    EXPECT_NE(message_of([&] { (void)Model::load(path); }, Code::kUnsupported).find(name), std::string::npos);
  }
}

TEST(Gpt2, ScoresWithoutTheirScaleAreOtherScores) {
  const TempDir directory;
  const std::string path = copy_of_golden(directory, with(golden_config(), "\"scale_attn_weights\": true", "\"scale_attn_weights\": false"),
                                          [](const std::string& name) { return name; });
  EXPECT_NE(logits(Model::load(path)), logits(Model::load(test::golden_path("hf/gpt2"))));
}

}  // namespace
}  // namespace regard
