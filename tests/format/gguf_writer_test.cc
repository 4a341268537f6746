// What is written reads back as it was; faults of the caller and of the disk leave nothing behind.
#include "format/gguf_writer.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "format/file_source.h"
#include "format/gguf.h"
#include "format/gguf_tokenizer_writer.h"
#include "format/tensor_source.h"
#include "support/temp_dir.h"

namespace regard {
namespace {

using testing_support::TempDir;

GgufMetadata metadata_of_everything() {
  GgufMetadata m;
  m.insert("general.architecture", gguf_value(std::string_view("llama")));
  m.insert("a.count", gguf_value(uint32_t{4'000'000'000}));
  m.insert("a.share", gguf_value(0.25f));
  m.insert("a.yes", gguf_value(true));
  StringList words;
  for (const char* word : {"one", "", "three words here"}) words.append(word);
  m.insert("a.words", gguf_value(std::move(words)));
  m.insert("a.numbers", gguf_value(std::span<const int32_t>(std::vector<int32_t>{-1, 7})));
  m.insert("a.reals", gguf_value(std::span<const float>(std::vector<float>{0.5f, -3})));
  return m;
}

std::vector<uint8_t> counting(size_t size, uint8_t first) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(first + i);
  return bytes;
}

const std::vector<GgufTensorHead> kTensors = {{"odd", DType::kF32, {3}}, {"matrix", DType::kQ8_0, {2, 64}}, {"half", DType::kBF16, {5, 3}}};
constexpr size_t kSizes[] = {12, 2 * 2 * 34, 30};

TEST(GgufWriter, WhatIsWrittenIsRead) {
  const TempDir directory;
  const std::string path = directory.path("model.gguf");
  const GgufMetadata metadata = metadata_of_everything();
  const auto bytes = [](size_t i) -> Result<std::vector<uint8_t>> { return counting(kSizes[i], static_cast<uint8_t>(10 * i)); };
  ASSERT_TRUE(write_gguf(path, metadata, kTensors, bytes));
  const auto file = FileSource::open(path);
  ASSERT_TRUE(file) << file.failure().message;
  const auto head = read_gguf(**file, "model.gguf");
  ASSERT_TRUE(head) << head.failure().message;
  EXPECT_TRUE(head->metadata == metadata);
  const TensorSource source = TensorSource::open(path).value_or_throw();
  ASSERT_EQ(source.tensors().size(), kTensors.size());
  for (size_t i = 0; i < kTensors.size(); ++i) {
    const TensorInfo& tensor = source.tensors()[i];
    EXPECT_EQ(tensor.name, kTensors[i].name);
    EXPECT_EQ(tensor.type, kTensors[i].type);
    EXPECT_EQ(tensor.shape, kTensors[i].shape);
    std::vector<uint8_t> read(tensor.bytes);
    ASSERT_TRUE(source.read(tensor, read));
    EXPECT_EQ(read, counting(kSizes[i], static_cast<uint8_t>(10 * i)));
  }
}

TEST(GgufWriter, WhatDoesNotFitIsNamed) {
  const auto refusal = [](std::vector<GgufTensorHead> tensors) {
    const auto head = gguf_head(metadata_of_everything(), tensors);
    return head ? std::string("nothing was refused") : head.failure().message;
  };
  EXPECT_NE(refusal({{"x", DType::kF32, {2}}, {"x", DType::kF32, {2}}}).find("twice"), std::string::npos);
  EXPECT_NE(refusal({{std::string(64, 'n'), DType::kF32, {2}}}).find("1 to 63"), std::string::npos);
  EXPECT_NE(refusal({{"x", DType::kQ8_0, {2, 33}}}).find("multiple of 32"), std::string::npos);
  EXPECT_NE(refusal({{"x", DType::kQ4_K, {2, 256}}}).find("expected f32"), std::string::npos);
  EXPECT_NE(refusal({{"x", DType::kF32, {}}}).find("1 to 4 axes"), std::string::npos);
  EXPECT_NE(refusal({{"x", DType::kF32, {int64_t{1} << 40, int64_t{1} << 40}}}).find("x"), std::string::npos);
}

TEST(GgufWriter, AFailureLeavesNoFile) {
  const TempDir directory;
  const auto short_bytes = [](size_t i) -> Result<std::vector<uint8_t>> { return counting(kSizes[i] - (i == 2 ? 1 : 0), 0); };
  const auto refused = write_gguf(directory.path("a.gguf"), metadata_of_everything(), kTensors, short_bytes);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.failure().message.find("29 bytes"), std::string::npos) << refused.failure().message;

  struct FullDisk : FileLayer {
    int writes = 0;
    ssize_t write(int descriptor, const void* data, size_t size) override {
      if (++writes < 3) return FileLayer::write(descriptor, data, size);
      errno = ENOSPC;
      return -1;
    }
  } full;
  const auto bytes = [](size_t i) -> Result<std::vector<uint8_t>> { return counting(kSizes[i], 0); };
  const auto failed = write_gguf(directory.path("a.gguf"), metadata_of_everything(), kTensors, bytes, Overwrite::kReplace, full);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.failure().code, Code::kIo);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(GgufTokenizerWriter, NamesWhatAFileCannotSay) {
  const auto refusal = [](const TokenizerSpec& spec) {
    GgufMetadata m;
    const auto rows = add_gguf_tokenizer(spec, 4, m);
    return rows ? std::string("nothing was refused") : rows.failure().message;
  };
  TokenizerSpec spec;
  spec.pieces = {"a", "bc", " ", "d"};
  spec.model = WordLevelSpec{};
  EXPECT_NE(refusal(spec).find("'bc' is longer than a character"), std::string::npos) << refusal(spec);
  spec.pieces[1] = "\xE2\x96\x81";
  EXPECT_NE(refusal(spec).find("U+2581"), std::string::npos) << refusal(spec);
  spec.pieces = {"a", "b", "c", "d", "e"};
  EXPECT_NE(refusal(spec).find("5 ids"), std::string::npos) << refusal(spec);
  spec.pieces.pop_back();
  spec.normalizer = {NfcStep{}};
  EXPECT_NE(refusal(spec).find("rewrites"), std::string::npos) << refusal(spec);
  spec.normalizer.clear();
  spec.model = BpeSpec{};
  spec.decoder = {ByteLevelDecode{}};
  spec.pre_tokenizer = {MetaspaceStep{}};
  EXPECT_NE(refusal(spec).find("pre-tokenizer"), std::string::npos) << refusal(spec);
}

}  // namespace
}  // namespace regard
