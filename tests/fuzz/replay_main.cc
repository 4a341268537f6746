// Runs a fuzz target without libFuzzer: over its seeds, over every prefix and every flipped bit of the small ones, and over
// the files of the directories that are given. This is how targets are part of every test run, with any compiler.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "fuzz/fuzz.h"

namespace {

// Sweeps cost the square of the length.
constexpr size_t kMaxSwept = 3000;

size_t runs = 0;

void run(const std::string& input) {
  // A copy of exactly the input's size, so that a sanitizer sees a read behind its end.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  ++runs;
}

void sweep(const std::string& seed) {
  for (size_t n = 0; n < seed.size(); ++n) run(seed.substr(0, n));
  std::string flipped = seed;
  for (size_t bit = 0; bit < 8 * seed.size(); ++bit) {
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    run(flipped);
    flipped[bit / 8] = seed[bit / 8];
  }
}

}  // namespace

int main(int argc, char** argv) {
  run("");
  if (regard::fuzz::seeds != nullptr) {
    for (const std::string& seed : regard::fuzz::seeds()) {
      run(seed);
      if (seed.size() <= kMaxSwept) sweep(seed);
    }
  }
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) continue;  // no finding yet
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) {
      std::ifstream in(file, std::ios::binary);
      run({std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()});
    }
  }
  std::printf("%zu inputs\n", runs);
}
