// Tensors over files: single and split, sharded, in directories, read and mapped; and file sets that do not belong together.
#include "format/tensor_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "format/npy.h"
#include "support/files.h"
#include "support/gguf_builder.h"
#include "support/safetensors_builder.h"
#include "support/temp_dir.h"

namespace regard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::counting_bytes;
using testing_support::GgufBuilder;
using testing_support::SafetensorsBuilder;
using testing_support::small_gguf;
using testing_support::small_safetensors;
using testing_support::TempDir;

std::string why(const std::string& path, TensorAccess access = TensorAccess::kRead) {
  auto source = TensorSource::open(path, access);
  return source ? "accepted" : source.failure().message;
}
std::vector<uint8_t> contents(const TensorSource& source, const std::string& name) {
  const TensorInfo* tensor = source.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<uint8_t> bytes(static_cast<size_t>(tensor->bytes));
  const auto read = source.read(*tensor, bytes);
  EXPECT_TRUE(read) << read.failure().message;
  return bytes;
}

TEST(TensorSource, OneGgufFileReadAndMapped) {
  const TempDir dir;
  const std::string path = dir.write("m.gguf", small_gguf().build());
  for (const TensorAccess access : {TensorAccess::kRead, TensorAccess::kMap}) {
    auto source = TensorSource::open(path, access);
    ASSERT_TRUE(source) << source.failure().message;
    EXPECT_EQ(source->format(), WeightFormat::kGguf);
    ASSERT_NE(source->metadata(), nullptr);
    EXPECT_EQ(*source->metadata()->string("general.architecture"), "llama");
    EXPECT_EQ(source->file_bytes(), small_gguf().build().size());
    ASSERT_EQ(source->tensors().size(), 4u);
    EXPECT_EQ(contents(*source, "token_embd.weight"), counting_bytes(136));
    EXPECT_EQ(contents(*source, "output.weight"), counting_bytes(80));
    const TensorInfo& q = *source->find("blk.0.attn_q.weight");
    std::vector<uint8_t> middle(5);
    ASSERT_TRUE(source->read(q, 7, middle));
    const auto all = counting_bytes(48);
    EXPECT_TRUE(std::equal(middle.begin(), middle.end(), all.begin() + 7));
    ASSERT_TRUE(source->read(q, 48, {}));
    EXPECT_EQ(source->read(q, 44, middle).failure().code, Code::kInvalidArgument);
    EXPECT_EQ(source->read(q, ~uint64_t{0}, middle).failure().code, Code::kInvalidArgument);
    EXPECT_EQ(source->read(q, middle).failure().code, Code::kInvalidArgument);
    TensorInfo stranger = q;
    stranger.offset += 8;
    EXPECT_EQ(source->read(stranger, 0, middle).failure().code, Code::kInvalidArgument);
    const auto view = source->view(q);
    if (access == TensorAccess::kMap) {
      EXPECT_TRUE(std::equal(view.begin(), view.end(), all.begin(), all.end()));
    } else {
      EXPECT_TRUE(view.empty());
    }
    EXPECT_TRUE(source->view(stranger).empty());
  }
}

TEST(TensorSource, ATensorCanBeItsFirstRows) {
  const TempDir dir;
  const std::string path = dir.write("m.gguf", small_gguf().build());
  for (const TensorAccess access : {TensorAccess::kRead, TensorAccess::kMap}) {
    auto source = TensorSource::open(path, access);
    ASSERT_TRUE(source) << source.failure().message;
    const std::vector<int64_t> shape = source->find("output.weight")->shape;
    ASSERT_GT(shape[0], 1);
    const auto more = source->keep_rows("output.weight", shape[0] + 1), none = source->keep_rows("output.weight", 0), absent = source->keep_rows("absent", 1);
    for (const auto* refused : {&more, &none}) EXPECT_EQ(refused->failure().code, Code::kCorruptData);
    EXPECT_EQ(absent.failure().code, Code::kNotFound);
    ASSERT_TRUE(source->keep_rows("output.weight", 1));
    std::vector<uint8_t> first = counting_bytes(80);
    first.resize(first.size() / static_cast<size_t>(shape[0]));
    EXPECT_EQ(source->find("output.weight")->shape, (std::vector<int64_t>{1, shape[1]}));
    EXPECT_EQ(contents(*source, "output.weight"), first);
    EXPECT_EQ(contents(*source, "token_embd.weight"), counting_bytes(136));
  }
}

TEST(TensorSource, KnowsWhatWasTaken) {
  const TempDir dir;
  auto source = TensorSource::open(dir.write("m.gguf", small_gguf().build()));
  ASSERT_TRUE(source);
  EXPECT_THAT(source->unused(), ElementsAre("token_embd.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.weight", "output.weight"));
  EXPECT_EQ((*source->take("blk.0.attn_q.weight"))->bytes, 48u);
  EXPECT_TRUE(source->ignore("output.weight"));
  EXPECT_FALSE(source->ignore("absent"));
  EXPECT_EQ(source->take("blk.1.attn_q.weight").failure().message, "[weights] there is no tensor \"blk.1.attn_q.weight\"");
  EXPECT_EQ(source->take("x").failure().code, Code::kNotFound);
  EXPECT_NE(source->find("token_embd.weight"), nullptr);
  TensorSource moved = std::move(*source);
  EXPECT_THAT(moved.unused(), ElementsAre("token_embd.weight", "blk.0.attn_norm.weight"));
  EXPECT_EQ(contents(moved, "output.weight"), counting_bytes(80));
}

GgufBuilder part(int number, int count, int total, const std::string& tensor) {
  GgufBuilder b;
  if (number == 0) b.string("general.architecture", "llama");
  b.scalar<uint16_t>("split.no", 2, static_cast<uint16_t>(number)).scalar<uint16_t>("split.count", 2, static_cast<uint16_t>(count));
  b.scalar<int32_t>("split.tensors.count", 5, total);
  if (!tensor.empty()) b.tensor(tensor, {3}, 0, counting_bytes(12, static_cast<uint8_t>(number + 1)));
  return b;
}

TEST(TensorSource, SplitGgufFiles) {
  const TempDir dir;
  const std::string first = dir.write("m-00001-of-00003.gguf", part(0, 3, 2, "").build());
  dir.write("m-00002-of-00003.gguf", part(1, 3, 2, "a").build());
  dir.write("m-00003-of-00003.gguf", part(2, 3, 2, "b").build());
  auto source = TensorSource::open(first);
  ASSERT_TRUE(source) << source.failure().message;
  EXPECT_EQ(*source->metadata()->string("general.architecture"), "llama");
  EXPECT_EQ(contents(*source, "a"), counting_bytes(12, 2));
  EXPECT_EQ(contents(*source, "b"), counting_bytes(12, 3));
  EXPECT_THAT(why(dir.path("m-00002-of-00003.gguf")), HasSubstr("part 2 of 3; open the first part"));

  dir.write("m-00003-of-00003.gguf", part(1, 3, 2, "b").build());
  EXPECT_THAT(why(first), HasSubstr("says that it is part number 1, expected 2"));
  dir.write("m-00003-of-00003.gguf", part(2, 4, 2, "b").build());
  EXPECT_THAT(why(first), HasSubstr("one of 4 parts, 3 are given"));
  dir.write("m-00003-of-00003.gguf", part(2, 3, 2, "a").build());
  EXPECT_THAT(why(first), HasSubstr("tensor \"a\" stands in another part already"));
  dir.write("m-00003-of-00003.gguf", part(2, 3, 3, "b").build());
  EXPECT_THAT(why(first), HasSubstr("3 tensors in all parts, an earlier part says 2"));
  dir.write("m-00003-of-00003.gguf", part(2, 3, 2, "").build());
  EXPECT_THAT(why(first), HasSubstr("2 tensors are announced for all parts, 1 are there"));
  dir.write("m-00003-of-00003.gguf", GgufBuilder().build());
  EXPECT_THAT(why(first), HasSubstr("one of 1 parts, 3 are given"));
  std::filesystem::remove(dir.path("m-00003-of-00003.gguf"));
  EXPECT_EQ(TensorSource::open(first).failure().code, Code::kNotFound);
  EXPECT_THAT(why(first), HasSubstr("m-00003-of-00003.gguf"));
  EXPECT_THAT(why(dir.write("renamed.gguf", part(0, 3, 2, "").build())), HasSubstr("does not end in -00001-of-00003.gguf"));
  EXPECT_THAT(why(dir.write("m-00001-of-60000.gguf", part(0, 60000, 2, "").build())), HasSubstr("60000 parts, the limit is 512"));
}

TEST(TensorSource, SafetensorsFileIndexAndDirectory) {
  const TempDir dir;
  const std::string path = dir.write("model.safetensors", small_safetensors().build());
  for (const std::string& given : {path, dir.path()}) {
    auto source = TensorSource::open(given, given == path ? TensorAccess::kMap : TensorAccess::kRead);
    ASSERT_TRUE(source) << source.failure().message;
    EXPECT_EQ(source->format(), WeightFormat::kSafetensors);
    EXPECT_EQ(source->metadata(), nullptr);
    EXPECT_EQ(contents(*source, "bits"), (std::vector<uint8_t>{1, 2, 3}));
    EXPECT_EQ(contents(*source, "empty"), std::vector<uint8_t>{});
  }

  const TempDir sharded;
  sharded.write("s1.safetensors", SafetensorsBuilder().tensor("a", "U8", "[2]", {1, 2}).tensor("b", "U8", "[1]", {3}).build());
  sharded.write("s2.safetensors", SafetensorsBuilder().tensor("c", "U8", "[1]", {4}).build());
  const auto with_map = [&](const std::string& map) {
    sharded.write("model.safetensors.index.json", "{\"metadata\":{\"total_size\":4},\"weight_map\":" + map + "}");
    return why(sharded.path());
  };
  EXPECT_EQ(with_map(R"({"a":"s1.safetensors","b":"s1.safetensors","c":"s2.safetensors"})"), "accepted");
  for (const std::string& given : {sharded.path(), sharded.path("model.safetensors.index.json")}) {
    auto source = TensorSource::open(given);
    ASSERT_TRUE(source);
    EXPECT_EQ(contents(*source, "b"), std::vector<uint8_t>{3});
    EXPECT_EQ(contents(*source, "c"), std::vector<uint8_t>{4});
  }
  EXPECT_THAT(with_map(R"({"a":"s1.safetensors","b":"s2.safetensors","c":"s2.safetensors"})"), HasSubstr("s2.safetensors: tensor \"b\" is not in this file"));
  EXPECT_THAT(with_map(R"({"a":"s1.safetensors","b":"s1.safetensors","d":"s2.safetensors"})"), HasSubstr("\"d\" is not in this file"));
  EXPECT_THAT(with_map(R"({"a":"s1.safetensors","c":"s2.safetensors"})"), HasSubstr("the files hold 3 tensors, the index names 2"));
  EXPECT_THAT(with_map(R"({"a":"s3.safetensors"})"), HasSubstr("s3.safetensors"));
  EXPECT_THAT(with_map(R"({"a":"../s1.safetensors"})"), HasSubstr("no file name inside the folder"));
  sharded.write("s2.safetensors", SafetensorsBuilder().tensor("a", "U8", "[1]", {4}).build());
  EXPECT_THAT(with_map(R"({"a":"s1.safetensors","b":"s1.safetensors","c":"s2.safetensors"})"), HasSubstr("\"a\" stands in another part already"));
  std::string many = "{";
  for (int i = 0; i < 513; ++i) many += "\"t" + std::to_string(i) + "\":\"f" + std::to_string(i) + "\",";
  EXPECT_THAT(with_map(many + "\"z\":\"f0\"}"), HasSubstr("513 files, the limit is 512"));
}

TEST(TensorSource, F22F26PathsThatAreNoWeights) {
  const TempDir dir;
  EXPECT_EQ(TensorSource::open(dir.path("absent.gguf")).failure().code, Code::kNotFound);
  EXPECT_THAT(why(dir.path()), HasSubstr("no model.safetensors and no model.safetensors.index.json in this directory"));
  dir.write("pytorch_model.bin", std::string("PK\x03\x04"));
  EXPECT_THAT(why(dir.path()), HasSubstr("is a pickle, which could run code"));
  EXPECT_THAT(why(dir.write("renamed.safetensors", std::string("PK\x03\x04 and then some bytes"))), HasSubstr("a zip archive"));
  EXPECT_THAT(why(dir.write("renamed.bin", std::string("\x80\x02}q\x01(X\x0a and so on"))), HasSubstr("a Python pickle"));
  EXPECT_THAT(why(dir.write("text.gguf", std::string("hello"))), HasSubstr("not a GGUF file"));
  EXPECT_THAT(why(dir.write("empty.gguf", std::string())), HasSubstr("too short"));
  EXPECT_THAT(why(dir.write("empty", std::string())), HasSubstr("too short"));
  EXPECT_EQ(why(dir.write("named-wrongly.safetensors", small_gguf().build())), "accepted");  // a GGUF file is known by its first bytes
  ASSERT_EQ(mkfifo(dir.path("fifo.gguf").c_str(), 0600), 0);
  EXPECT_NE(why(dir.path("fifo.gguf")), "accepted");
  std::filesystem::create_symlink("loop.gguf", dir.path("loop.gguf"));
  EXPECT_NE(why(dir.path("loop.gguf")), "accepted");
  EXPECT_NE(why("/dev/zero"), "accepted");
}

TEST(TensorSource, F21CutShortWhileOpen) {
  const TempDir dir;
  const std::string path = dir.write("m.gguf", small_gguf().build());
  auto source = TensorSource::open(path);
  ASSERT_TRUE(source);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 100);
  std::vector<uint8_t> bytes(80);
  EXPECT_FALSE(source->read(*source->find("output.weight"), bytes));
  // Replaced by rename: the file that was opened is still there.
  const std::string other = dir.write("m.gguf", small_gguf().build());
  source = TensorSource::open(path);
  ASSERT_TRUE(source);
  dir.write("new.gguf", std::string("something else"));
  std::filesystem::rename(dir.path("new.gguf"), path);
  EXPECT_EQ(contents(*source, "output.weight"), counting_bytes(80));
}

TEST(TensorSource, F23ASparseTerabyteIsRefusedAtOnce) {
  const TempDir dir;
  const std::string path = dir.write("huge.safetensors", small_safetensors().build());
  std::error_code error;
  std::filesystem::resize_file(path, uintmax_t{1} << 40, error);
  if (error) GTEST_SKIP() << "this file system has no sparse files of 1 TiB: " << error.message();
  EXPECT_THAT(why(path), HasSubstr("the tensors take 67 bytes, the buffer has"));
  std::filesystem::resize_file(path, 0);
  std::filesystem::resize_file(path, uintmax_t{1} << 40);
  EXPECT_THAT(why(path), HasSubstr("a header of 0 bytes"));
  const std::string gguf = dir.write("huge.gguf", small_gguf().build());
  std::filesystem::resize_file(gguf, uintmax_t{1} << 40);
  EXPECT_THAT(why(gguf), HasSubstr("belong to nothing"));
}

TEST(TensorSource, FilesOfOtherPrograms) {
  const std::string golden = std::string(REGARD_TEST_DATA) + "/golden/";
  // Written by the gguf package of llama.cpp: the split file holds what the single one does.
  auto single = TensorSource::open(golden + "gguf/llama_q4_1.gguf"), split = TensorSource::open(golden + "gguf/llama_q4_1-00001-of-00002.gguf");
  ASSERT_TRUE(single) << single.failure().message;
  ASSERT_TRUE(split) << split.failure().message;
  EXPECT_EQ(single->tensors().size(), 21u);
  EXPECT_EQ(split->tensors().size(), 21u);
  for (const TensorInfo& tensor : single->tensors()) {
    EXPECT_EQ(contents(*single, tensor.name), contents(*split, tensor.name));
    EXPECT_EQ(tensor.type, split->find(tensor.name)->type);
    EXPECT_EQ(tensor.shape, split->find(tensor.name)->shape);
  }
  EXPECT_THAT(single->find("token_embd.weight")->shape, ElementsAre(320, 64));
  EXPECT_EQ(single->find("token_embd.weight")->type, DType::kQ8_0);
  EXPECT_EQ(single->find("blk.0.ffn_up.weight")->type, DType::kQ4_1);
  for (const char* name : {"gemma3_q4_k", "llama_mixed", "qwen2_q5_0", "qwen3_16bit", "vocab_gpt2"}) EXPECT_EQ(why(golden + "gguf/" + name + ".gguf"), "accepted") << name;
  // Written by transformers.
  for (const auto& entry : std::filesystem::directory_iterator(golden + "hf")) EXPECT_EQ(why(entry.path().string()), "accepted") << entry.path();
  auto qwen2 = TensorSource::open(golden + "hf/qwen2");
  ASSERT_TRUE(qwen2);
  EXPECT_THAT(qwen2->find("model.embed_tokens.weight")->shape, ElementsAre(96, 32));
  EXPECT_EQ(qwen2->find("model.layers.3.self_attn.k_proj.bias")->bytes, 32u);
}

// The two published models, where somebody has fetched them: types as the quantiser's rules predict them.
TEST(TensorSource, PublishedModels) {
  const char* models = std::getenv("REGARD_MODELS");
  if (models == nullptr) GTEST_SKIP() << "REGARD_MODELS names no directory with the published models";
  const auto count = [](const TensorSource& source) {
    std::map<std::string, int> types;
    for (const TensorInfo& tensor : source.tensors()) ++types[std::string(info(tensor.type).name)];
    return types;
  };
  auto smollm2 = TensorSource::open(std::string(models) + "/smollm2-135m-instruct-q4_1.gguf");
  ASSERT_TRUE(smollm2) << smollm2.failure().message;
  EXPECT_EQ(smollm2->find("token_embd.weight")->type, DType::kQ8_0);
  EXPECT_THAT(smollm2->find("token_embd.weight")->shape, ElementsAre(49152, 576));
  EXPECT_THAT(count(*smollm2), ElementsAre(std::pair<const std::string, int>("f32", 61), std::pair<const std::string, int>("q4_1", 210), std::pair<const std::string, int>("q8_0", 1)));
  auto gemma = TensorSource::open(std::string(models) + "/gemma3-270m-q4_k_m.gguf");
  ASSERT_TRUE(gemma) << gemma.failure().message;
  EXPECT_EQ((*gemma->metadata()->optional_strings("tokenizer.ggml.tokens"))->size(), 262144u);
  EXPECT_EQ(gemma->find("blk.2.ffn_down.weight")->type, DType::kQ4_K);
  EXPECT_EQ(gemma->find("blk.0.ffn_down.weight")->type, DType::kQ6_K);
  EXPECT_EQ(gemma->find("blk.0.attn_q.weight")->type, DType::kQ5_0);
}

}  // namespace
}  // namespace regard
