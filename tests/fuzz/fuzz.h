// What a fuzz target is made of: LLVMFuzzerTestOneInput, and seeds() for it to start from. A target judges with demand();
// a refusal of the input is no finding, a crash, a hang, too much memory or a broken demand is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace regard::fuzz {

/// Inputs that reach most of the code, made by code so that none of them is a file of somebody else's. A target without
/// seeds starts from the empty input.
[[gnu::weak]] std::vector<std::string> seeds();

/// Reports a finding unless `holds`.
inline void demand(bool holds) {
  if (!holds) std::abort();
}

inline std::string as_text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

/// A file below tests/, for seeds that come from the goldens.
inline std::string test_data(const std::string& name) {
  std::ifstream in(std::string(REGARD_TEST_DATA) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace regard::fuzz
