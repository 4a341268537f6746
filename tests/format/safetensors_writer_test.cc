// What is written is what the reader, which is held against other programs' files, reads back.
#include "format/safetensors_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "../support/temp_dir.h"
#include "format/safetensors.h"
#include "format/tensor_source.h"

namespace regard {
namespace {

using testing_support::TempDir;

std::span<const std::byte> bytes_of(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const TempDir directory;
  std::vector<float> a(6), b(1), none;
  std::iota(a.begin(), a.end(), 0.5f);
  b[0] = -3;
  const SafetensorsEntry tensors[] = {
      {"a.weight", DType::kF32, {2, 3}, bytes_of(a)}, {"scalar", DType::kF32, {}, bytes_of(b)}, {"\xE6\x9C\x88", DType::kF32, {0, 4}, bytes_of(none)}};
  const std::pair<std::string, std::string> metadata[] = {{"format", "pt"}};
  ASSERT_TRUE(write_safetensors(directory.path("m.safetensors"), tensors, metadata));
  auto source = TensorSource::open(directory.path("m.safetensors")).value_or_throw();
  ASSERT_EQ(source.tensors().size(), 3u);
  for (const SafetensorsEntry& tensor : tensors) {
    const TensorInfo* found = source.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(found->type, DType::kF32);
    std::vector<uint8_t> read(found->bytes);
    ASSERT_TRUE(source.read(*found, read));
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(read)), tensor.bytes));
  }
  const std::string header = safetensors_header(tensors, metadata).value_or_throw();
  EXPECT_EQ(header.size() % 64, 0u);
  EXPECT_NE(header.find(R"("__metadata__":{"format":"pt"})"), std::string::npos);
}

TEST(SafetensorsWriter, RefusesWhatNoReaderTakes) {
  const std::vector<float> a(6);
  const auto refused = [](std::vector<SafetensorsEntry> tensors) {
    const auto header = safetensors_header(tensors);
    return !header && header.failure().code == Code::kInvalidArgument;
  };
  EXPECT_FALSE(refused({{"a", DType::kF32, {6}, bytes_of(a)}}));
  EXPECT_TRUE(refused({{"a", DType::kF32, {5}, bytes_of(a)}}));
  EXPECT_TRUE(refused({{"a", DType::kF32, {-6}, bytes_of(a)}}));
  EXPECT_TRUE(refused({{"a", DType::kQ8_0, {6}, bytes_of(a)}}));
  EXPECT_TRUE(refused({{"", DType::kF32, {6}, bytes_of(a)}}));
  EXPECT_TRUE(refused({{"__metadata__", DType::kF32, {6}, bytes_of(a)}}));
  EXPECT_TRUE(refused({{"a", DType::kF32, {6}, bytes_of(a)}, {"a", DType::kF32, {6}, bytes_of(a)}}));
}

}  // namespace
}  // namespace regard
