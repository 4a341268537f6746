// Reading the files that tests come with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace regard::testing_support {

/// The bytes of a file below tests/, for example "golden/hf/llama/config.json". A missing file fails the test.
inline std::string test_data(const std::string& name) {
  std::ifstream in(std::string(REGARD_TEST_DATA) + "/" + name, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline std::vector<uint8_t> as_bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace regard::testing_support
