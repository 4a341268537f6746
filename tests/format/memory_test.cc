// A hostile file takes no more memory than its own size and 64 MiB before it is refused: measured as the peak resident size
// of this process (VmHWM), which Linux lets a process reset.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>

#include "format/gguf.h"
#include "format/json_reader.h"
#include "format/npy.h"
#include "format/safetensors.h"
#include "support/gguf_builder.h"
#include "support/process_memory.h"
#include "support/safetensors_builder.h"

namespace regard {
namespace {

using test::status_bytes;
using testing_support::ByteWriter;
using testing_support::GgufBuilder;
using testing_support::safetensors_bytes;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMeasurable = false;
#elif defined(__has_feature)
constexpr bool kMeasurable = !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#else
constexpr bool kMeasurable = true;
#endif

/// Runs `refuse` and returns by how much the resident size rose at most; expects it to return false.
uint64_t peak_of(const std::function<bool()>& accepts) {
  std::ofstream("/proc/self/clear_refs") << "5";
  const uint64_t before = status_bytes("VmRSS");
  EXPECT_FALSE(accepts());
  const uint64_t peak = status_bytes("VmHWM");
  return peak > before ? peak - before : 0;
}

class Memory : public testing::Test {
 protected:
  void SetUp() override {
    if (!kMeasurable) GTEST_SKIP() << "a sanitizer's own memory hides the reader's";
    if (status_bytes("VmHWM") == 0 || !std::ofstream("/proc/self/clear_refs").good()) GTEST_SKIP() << "no /proc/self/clear_refs here";
  }
  static void expect_bounded(size_t file_bytes, const std::function<bool()>& accepts) { EXPECT_LE(peak_of(accepts), file_bytes + (uint64_t{64} << 20)); }
  static bool accepts_gguf(const std::vector<uint8_t>& bytes) { return static_cast<bool>(read_gguf(MemorySource(bytes), "x")); }
  static bool accepts_safetensors(const std::vector<uint8_t>& bytes) { return static_cast<bool>(read_safetensors(MemorySource(bytes), "x")); }
};

TEST_F(Memory, MeasuringWorks) {
  EXPECT_GE(peak_of([] {
              const std::string touched(size_t{100} << 20, 'x');
              return touched.empty();
            }),
            uint64_t{90} << 20);
}

TEST_F(Memory, GgufCountsWithoutBytes) {
  for (const uint32_t element : {0u, 8u, 12u}) {
    ByteWriter pair;
    pair.string("k").number<uint32_t>(9).number(element).number(uint64_t{1} << 30);
    const auto bytes = GgufBuilder().pair(pair.bytes).build();
    EXPECT_LE(peak_of([&] { return accepts_gguf(bytes); }), uint64_t{4} << 20);
  }
}

TEST_F(Memory, GgufLargeArraysThatEndBadly) {
  // Two million empty strings, then a bool that is none; and 40 MiB in one string of an array, the next one cut off.
  GgufBuilder empty;
  empty.strings("tokens", std::vector<std::string>(2'000'000)).boolean("b", 2);
  const auto many = empty.build();
  expect_bounded(many.size(), [&] { return accepts_gguf(many); });
  GgufBuilder large;
  large.strings("tokens", {std::string(size_t{40} << 20, 'x'), "y"}).boolean("b", 2);
  const auto long_one = large.build();
  expect_bounded(long_one.size(), [&] { return accepts_gguf(long_one); });
}

TEST_F(Memory, SafetensorsHeadersOfSixteenMebibytes) {
  constexpr size_t kHeader = size_t{16} << 20;
  const auto padded = [&](std::string header) {
    header.resize(kHeader, ' ');
    return safetensors_bytes(header, {});
  };
  std::string numbers = "{\"t\":{\"shape\":[0";
  while (numbers.size() + 10 < kHeader) numbers += ",0";
  const auto too_many_values = padded(numbers + "]}}");
  expect_bounded(too_many_values.size(), [&] { return accepts_safetensors(too_many_values); });
  const auto just_values = padded(numbers.substr(0, 2'300'000) + (numbers[2'299'999] == ',' ? "0" : "") + "]}}");
  expect_bounded(just_values.size(), [&] { return accepts_safetensors(just_values); });
  std::string texts = "{\"__metadata__\":{";
  for (int i = 0; i < 2; ++i) texts += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"" + std::string((size_t{8} << 20) - 100, 'x') + "\"";
  const auto long_texts = padded(texts + "},\"t\":1}");
  expect_bounded(long_texts.size(), [&] { return accepts_safetensors(long_texts); });
  std::string tensors = "{";
  for (int i = 0; i < 65536; ++i) tensors += "\"" + std::to_string(i) + std::string(150, 'n') + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)";
  const auto last_is_bad = padded(tensors + "\"t\":1}");
  expect_bounded(last_is_bad.size(), [&] { return accepts_safetensors(last_is_bad); });
  const auto nested = padded("{\"a\":" + std::string(kHeader / 2 - 10, '[') + std::string(kHeader / 2 - 10, ']') + "}");
  expect_bounded(nested.size(), [&] { return accepts_safetensors(nested); });
}

TEST_F(Memory, NpyShapesWithoutBytes) {
  std::string text = "{'descr': '<f8', 'fortran_order': True, 'shape': (4000000000, 100000000), }";
  std::vector<uint8_t> bytes = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<uint8_t>(text.size()), 0};
  for (const char c : text) bytes.push_back(static_cast<uint8_t>(c));
  bytes.resize(bytes.size() + 64);
  EXPECT_LE(peak_of([&] { return static_cast<bool>(read_npy(MemorySource(bytes), "x")); }), uint64_t{4} << 20);
}

}  // namespace
}  // namespace regard
