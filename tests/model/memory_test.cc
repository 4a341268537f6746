// Peak memory of loading and running a model: file size + caches + 64 MiB, read from the kernel's high-water mark. On the real
// models, when REGARD_MODELS names their directory.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "regard/model.h"
#include "support/process_memory.h"

namespace regard {
namespace {

using test::status_bytes;

TEST(RealModelMemory, FileCachesAndLittleMore) {
  const char* directory = std::getenv("REGARD_MODELS");
  if (directory == nullptr) GTEST_SKIP() << "REGARD_MODELS is not set";
  for (const char* file : {"smollm2-135m-instruct-q4_1.gguf", "gemma3-270m-q4_k_m.gguf"}) {
    const std::filesystem::path path = std::filesystem::path(directory) / file;
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
    const uint64_t before = status_bytes("VmRSS");
    std::ofstream("/proc/self/clear_refs") << 5;  // sets the high-water mark back to what is resident now
    constexpr int64_t kTokens = 600;
    uint64_t caches = 0;
    {
      const Model model = Model::load(path.string());
      const std::vector<int32_t> ids(kTokens, 100);
      Sequence sequence(model);
      std::vector<float> logits(static_cast<size_t>(model.info().vocab_size));
      const Feed feed{&sequence, ids, Feed::Rows::kLast};
      model.forward({&feed, 1}, {}, logits.data());
      caches = static_cast<uint64_t>((kTokens + 255) / 256 * 256) * model.info().cache_bytes_per_token;
    }
    const uint64_t peak = status_bytes("VmHWM") - before, bound = std::filesystem::file_size(path) + caches + (uint64_t{64} << 20);
    EXPECT_LE(peak, bound) << file;
    std::printf("%s: peak %.1f MiB, file %.1f MiB, caches %.1f MiB, bound %.1f MiB\n", file, static_cast<double>(peak) / 1048576.0,
                static_cast<double>(std::filesystem::file_size(path)) / 1048576.0, static_cast<double>(caches) / 1048576.0,
                static_cast<double>(bound) / 1048576.0);
  }
}

}  // namespace
}  // namespace regard
