// Models from one format into the other and back: equal tensors, equal logits, and a refusal by name where the formats differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <cstring>
#include <map>

#include "format/safetensors_writer.h"
#include "format/tensor_source.h"
#include "model/convert_tensor.h"
#include "regard/convert.h"
#include "regard/error.h"
#include "regard/model.h"
#include "regard/tokenizer.h"
#include "support/golden.h"
#include "support/plain_gguf.h"
#include "support/temp_dir.h"

namespace regard {
namespace {

using testing_support::TempDir;

std::map<std::string, std::vector<uint8_t>> tensors_of(const std::string& path) {
  const TensorSource source = TensorSource::open(path).value_or_throw();
  std::map<std::string, std::vector<uint8_t>> all;
  for (const TensorInfo& tensor : source.tensors()) {
    std::vector<uint8_t>& bytes = all[tensor.name + " " + shape_text(tensor.shape) + " " + std::string(info(tensor.type).name)];
    bytes.resize(tensor.bytes);
    EXPECT_TRUE(source.read(tensor, bytes));
  }
  return all;
}

std::vector<float> logits(const Model& model, int64_t vocab) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 40; ++i) ids.push_back(3 + i * 7 % 90);
  const auto width = static_cast<size_t>(model.info().vocab_size);
  std::vector<float> out(ids.size() * width), wanted;
  Sequence sequence(model);
  const Feed feed{&sequence, ids, Feed::Rows::kAll};
  model.forward({&feed, 1}, {}, out.data());
  for (size_t row = 0; row < ids.size(); ++row)
    wanted.insert(wanted.end(), out.begin() + static_cast<std::ptrdiff_t>(row * width), out.begin() + static_cast<std::ptrdiff_t>(row * width) + vocab);
  return wanted;
}

// The rotated rows stand in another order in a llama file, so a score sums its products in another order; elsewhere bits are equal.
void expect_near(const std::vector<float>& a, const std::vector<float>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  double largest = 0, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, static_cast<double>(std::fabs(a[i])));
    difference = std::max(difference, static_cast<double>(std::fabs(a[i] - b[i])));
  }
  EXPECT_GT(largest, 1);
  EXPECT_LE(difference, tolerance * largest);
}

std::string refusal(const std::string& from, const std::string& to, const ConvertOptions& options, Code code) {
  try {
    (void)convert_model(from, to, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "nothing was refused";
}

class RoundTrip : public testing::TestWithParam<const char*> {};

TEST_P(RoundTrip, FromADirectoryAndBackChangesNoBit) {
  const std::string from = test::golden_path(std::string("hf/") + GetParam());
  const TempDir directory;
  (void)convert_model(from, directory.path("model.gguf"));
  (void)convert_model(directory.path("model.gguf"), directory.path("back"));
  EXPECT_EQ(tensors_of(directory.path("back")), tensors_of(from));
  const Model original = Model::load(from), file = Model::load(directory.path("model.gguf")), back = Model::load(directory.path("back"));
  const int64_t vocab = original.info().vocab_size;
  EXPECT_EQ(logits(back, vocab), logits(original, vocab));
  expect_near(logits(file, vocab), logits(original, vocab), 2e-5);
  EXPECT_EQ(back.eos_ids(), original.eos_ids());
}

INSTANTIATE_TEST_SUITE_P(Families, RoundTrip, testing::Values("llama_linear", "mistral", "qwen3", "gemma2", "gpt2"));

TEST(Convert, ScalingOfLlama3BecomesDivisors) {
  const TempDir directory;
  (void)convert_model(test::golden_path("hf/llama"), directory.path("model.gguf"));
  const Model original = Model::load(test::golden_path("hf/llama")), file = Model::load(directory.path("model.gguf"));
  expect_near(logits(file, 96), logits(original, 96), 2e-5);
  const std::string message = refusal(directory.path("model.gguf"), directory.path("back"), {}, Code::kUnsupported);
  EXPECT_NE(message.find("rope_freqs"), std::string::npos) << message;
}

TEST(Convert, WhatTheOtherFormatCannotSayIsNamed) {
  const TempDir directory;
  const auto names = [&](const char* from, const char* what) {
    const std::string message = refusal(test::golden_path(from), directory.path("model.gguf"), {}, Code::kUnsupported);
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  names("hf/qwen2", "layer");  // a window in half of the layers
  names("hf/llama_dynamic", "dynamic");
  names("hf/llama_longrope", "longrope");
  names("hf/gemma3", "query_pre_attn_scalar");
  EXPECT_FALSE(std::filesystem::exists(directory.path("model.gguf")));
  const std::string score = refusal(test::golden_path("gguf/gemma3_q4_k.gguf"), directory.path("back"), {}, Code::kUnsupported);
  EXPECT_NE(score.find("merges by score"), std::string::npos) << score;
}

TEST(Convert, GgufToADirectoryAndBack) {
  for (const char* name : {"qwen2_q5_0", "qwen3_16bit", "gpt2_q8_0", "gemma3_q4_k"}) {
    SCOPED_TRACE(name);
    const std::string from = test::golden_path(std::string("gguf/") + name + ".gguf");
    const bool scored = std::string(name) == "gemma3_q4_k";
    ConvertOptions options;
    if (scored) options.tokenizer = ConvertOptions::Tokenizer::kLeaveOut;
    options.type = DType::kF32;
    const TempDir directory;
    (void)convert_model(from, directory.path("checkpoint"), options);
    (void)convert_model(directory.path("checkpoint"), directory.path("again.gguf"), options);
    const Model original = Model::load(from), checkpoint = Model::load(directory.path("checkpoint")), again = Model::load(directory.path("again.gguf"));
    EXPECT_EQ(logits(again, original.info().vocab_size), logits(original, original.info().vocab_size));
    expect_near(logits(checkpoint, original.info().vocab_size), logits(original, original.info().vocab_size), 2e-5);
    if (scored) continue;
    for (const char* text : {"The river runs", " We're 1984\n\n  ok?", "caf\xC3\xA9 <|endoftext|>"}) {
      EXPECT_EQ(checkpoint.tokenizer().encode(text), original.tokenizer().encode(text)) << text;
      EXPECT_EQ(again.tokenizer().encode(text), original.tokenizer().encode(text)) << text;
    }
  }
}

// tools/golden/converted.py: what llama.cpp finds in the converted file.
TEST(Convert, LlamaCppReadsTheSame) {
  const TempDir directory;
  ConvertOptions options;
  options.type = DType::kF32;
  std::filesystem::copy(test::golden_path("hf/gpt2"), directory.path("checkpoint"));
  std::filesystem::copy(test::golden_path("converted/tokenizer.json"), directory.path("checkpoint/tokenizer.json"));
  const ConvertReport report = convert_model(directory.path("checkpoint"), directory.path("model.gguf"), options);
  EXPECT_EQ(report.added_rows, 257);  // bytes and <unk>
  const nlohmann::json golden = test::read_json("converted/llama_cpp.json");
  const Model model = Model::load(directory.path("model.gguf")), original = Model::load(directory.path("checkpoint"));
  const std::string plain = directory.path("plain.gguf");
  testing_support::copy_without_own_keys(directory.path("model.gguf"), plain);
  const Model others = Model::load(plain);
  for (const auto& entry : golden.at("texts")) EXPECT_EQ(others.tokenizer().encode(entry.at("text").get<std::string>()), entry.at("ids").get<std::vector<int32_t>>());
  EXPECT_EQ(others.info().vocab_size, original.info().vocab_size + 257);
  EXPECT_EQ(model.info().vocab_size, original.info().vocab_size);
  EXPECT_EQ(model.tokenizer().vocab_size(), original.tokenizer().vocab_size());
  EXPECT_EQ(model.eos_ids(), original.eos_ids());
  EXPECT_EQ(logits(model, model.info().vocab_size), logits(original, original.info().vocab_size));
  for (const char* text : {"The sea", " two  spaces \n", "<unk>"}) EXPECT_EQ(model.tokenizer().encode(text), original.tokenizer().encode(text)) << text;
  EXPECT_THROW((void)model.tokenizer().encode("caf\xC3\xA9"), Error);  // as the directory does
  EXPECT_EQ(original.tokenizer().encode("The sea"), golden.at("texts").at(0).at("ids").get<std::vector<int32_t>>());
  for (const Model* one : {&model, &original, &others})
    for (const auto& entry : golden.at("greedy")) {
      Sequence sequence(*one);
      std::vector<int32_t> next = entry.at("prompt").get<std::vector<int32_t>>(), found;
      std::vector<float> row(static_cast<size_t>(one->info().vocab_size));
      for (size_t i = 0; i < entry.at("ids").size(); ++i) {
        const Feed feed{&sequence, next, Feed::Rows::kLast};
        one->forward({&feed, 1}, {}, row.data());
        found.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
        next = {found.back()};
      }
      EXPECT_EQ(found, entry.at("ids").get<std::vector<int32_t>>());
    }
}

// models/shakespeare, whose norms were trained, in every type: what another program finds in the rows that were added.
TEST(Convert, AddedTokensAreTooUnlikelyToBeDrawn) {
  const std::string from = test::golden_path("../../models/shakespeare");
  for (const auto& type : {std::optional<DType>(), std::optional(DType::kF32), std::optional(DType::kF16), std::optional(DType::kQ8_0)}) {
    const TempDir directory;
    ConvertOptions options;
    options.type = type;
    const ConvertReport report = convert_model(from, directory.path("model.gguf"), options);
    EXPECT_TRUE(report.added_unlikely);
    testing_support::copy_without_own_keys(directory.path("model.gguf"), directory.path("plain.gguf"));
    const Model model = Model::load(directory.path("plain.gguf"));
    const auto width = static_cast<size_t>(model.info().vocab_size), known = width - 257;
    ASSERT_EQ(known, 65u);
    const std::vector<int32_t> ids = Model::load(from).tokenizer().encode("ROMEO:\nWhat say you, my lord? I will not hear thee speak.\n\nJULIET:\nNay, ");
    std::vector<float> out(ids.size() * width);
    Sequence sequence(model);
    const Feed feed{&sequence, ids, Feed::Rows::kAll};
    model.forward({&feed, 1}, {}, out.data());
    for (size_t t = 0; t < ids.size(); ++t) {
      const float* row = out.data() + t * width;
      EXPECT_LT(*std::max_element(row + known, row + width), *std::max_element(row, row + known) - 30) << t;
    }
  }
}

// With rms norm no row has a constant logit: it is the mean.
TEST(Convert, WithoutALayerNormAddedTokensAreTheMean) {
  const TempDir directory;
  std::filesystem::copy(test::golden_path("hf/llama_linear"), directory.path("checkpoint"));
  std::filesystem::copy(test::golden_path("converted/tokenizer.json"), directory.path("checkpoint/tokenizer.json"), std::filesystem::copy_options::overwrite_existing);
  const ConvertReport report = convert_model(directory.path("checkpoint"), directory.path("model.gguf"));
  EXPECT_EQ(report.added_rows, 257);
  EXPECT_FALSE(report.added_unlikely);
  testing_support::copy_without_own_keys(directory.path("model.gguf"), directory.path("plain.gguf"));
  const Model plain = Model::load(directory.path("plain.gguf")), model = Model::load(directory.path("model.gguf"));
  const int64_t known = model.info().vocab_size;
  const std::vector<float> all = logits(plain, plain.info().vocab_size), without = logits(model, known);
  double sum = 0;
  for (int64_t i = 0; i < known; ++i) sum += static_cast<double>(all[static_cast<size_t>(i)]);
  for (int64_t i = known; i < plain.info().vocab_size; ++i) EXPECT_NEAR(all[static_cast<size_t>(i)], sum / static_cast<double>(known), 1e-2);
  EXPECT_EQ(std::vector<float>(all.begin(), all.begin() + known), std::vector<float>(without.begin(), without.begin() + known));
}

TEST(Convert, ACharacterModelComesBackFromItsFile) {
  const std::string from = test::golden_path("../../models/shakespeare");
  const TempDir directory;
  ConvertOptions options;
  options.type = DType::kBF16;  // the file has positions in f32
  (void)convert_model(from, directory.path("model.gguf"));
  (void)convert_model(directory.path("model.gguf"), directory.path("back"), options);
  EXPECT_TRUE(tensors_of(directory.path("back")) == tensors_of(from));
  EXPECT_EQ(Model::load(directory.path("back")).tokenizer().encode("What say you?\n"), Model::load(from).tokenizer().encode("What say you?\n"));
}

TEST(Convert, APartThatIsMissingOrOfAnotherShapeIsNamed) {
  const TensorSource source = TensorSource::open(test::golden_path("hf/gpt2")).value_or_throw();
  const auto refused = [&](bool leave_out) {
    const TempDir directory;
    std::vector<SafetensorsEntry> entries;
    std::vector<std::vector<uint8_t>> bytes(source.tensors().size());
    for (size_t i = 0; i < bytes.size(); ++i) {
      const TensorInfo& tensor = source.tensors()[i];
      bytes[i].resize(tensor.bytes);
      EXPECT_TRUE(source.read(tensor, bytes[i]));
      const bool chosen = tensor.name == "transformer.h.1.mlp.c_fc.weight";
      if (chosen && leave_out) continue;
      std::vector<int64_t> shape = tensor.shape;
      if (chosen) std::swap(shape[0], shape[1]);
      entries.push_back({tensor.name, tensor.type, shape, std::as_bytes(std::span(bytes[i]))});
    }
    EXPECT_TRUE(write_safetensors(directory.path("model.safetensors"), entries));
    std::filesystem::copy(test::golden_path("hf/gpt2/config.json"), directory.path("config.json"));
    return refusal(directory.path(), directory.path("model.gguf"), {}, Code::kCorruptData);
  };
  EXPECT_NE(refused(true).find("transformer.h.1.mlp.c_fc.weight"), std::string::npos);
  const std::string shape = refused(false);
  EXPECT_NE(shape.find("[128, 32]"), std::string::npos) << shape;
  EXPECT_NE(shape.find("[32, 128]"), std::string::npos) << shape;
}

TEST(Convert, ExistingFilesStay) {
  const TempDir directory;
  const std::string path = directory.write("model.gguf", std::string("mine"));
  EXPECT_NE(refusal(test::golden_path("hf/gpt2"), path, {}, Code::kInvalidArgument).find("there already"), std::string::npos);
  ConvertOptions options;
  options.existing = ConvertOptions::Existing::kReplace;
  (void)convert_model(test::golden_path("hf/gpt2"), path, options);
  EXPECT_EQ(Model::load(path).info().family, "gpt2");
  EXPECT_NE(refusal(path, directory.path("other.gguf"), {}, Code::kInvalidArgument).find("one format"), std::string::npos);
}

TEST(Convert, BlocksAreRoundedAsGgmlDoes) {
  // Made with gguf 0.19.0: gguf.quants.quantize(x, Q8_0) of these 32 numbers.
  std::vector<float> x;
  for (int i = 0; i < 32; ++i) x.push_back(static_cast<float>((i * 37 % 64 - 31) * (i + 1)) / 50.0f);
  const std::vector<uint8_t> bytes = model::encode(x, DType::kQ8_0);
  const test::Array want = test::read_array("converted/q8_0_block.npy");
  ASSERT_EQ(bytes.size(), want.values.size());
  for (size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], static_cast<uint8_t>(want.values[i])) << i;
}

}  // namespace
}  // namespace regard
