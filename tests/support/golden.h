// Reading the golden files of tests/golden (tools/golden has the scripts that made them): .npy arrays as f64, JSON indexes.
// A small reader of its own, so that the reader under test in format/ is not its own witness.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace regard::test {

struct Array {
  std::vector<int64_t> shape;
  std::vector<double> values;

  std::vector<float> floats() const { return {values.begin(), values.end()}; }
  std::vector<int64_t> integers() const {
    std::vector<int64_t> out;
    for (double v : values) out.push_back(static_cast<int64_t>(v));
    return out;
  }
};

inline std::string golden_path(const std::string& name) { return std::string(REGARD_TEST_DATA) + "/golden/" + name; }

template <class T>
void append_values(const std::string& bytes, std::vector<double>& out) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + i, sizeof value);
    out.push_back(static_cast<double>(value));
  }
}

/// A version 1 .npy file in C order with little-endian f4, f8, i8, u1 or b1 elements.
inline Array read_array(const std::string& name) {
  std::ifstream in(golden_path(name), std::ios::binary);
  EXPECT_TRUE(in) << "no golden file " << name;
  std::string all((std::istreambuf_iterator<char>(in)), {});
  Array array;
  if (all.size() < 10) return array;
  const size_t header_size = static_cast<uint8_t>(all[8]) + 256u * static_cast<uint8_t>(all[9]);
  const std::string header = all.substr(10, header_size), bytes = all.substr(10 + header_size);
  const size_t open = header.find('('), close = header.find(')');
  for (size_t at = open + 1; at < close;) {
    array.shape.push_back(std::stoll(header.substr(at)));
    at = header.find(',', at);
    at = at == std::string::npos || at > close ? close : at + 1;
    while (at < close && header[at] == ' ') ++at;
  }
  EXPECT_EQ(header.find("'fortran_order': True"), std::string::npos);
  if (header.find("<f8") != std::string::npos) append_values<double>(bytes, array.values);
  if (header.find("<f4") != std::string::npos) append_values<float>(bytes, array.values);
  if (header.find("<i8") != std::string::npos) append_values<int64_t>(bytes, array.values);
  if (header.find("|u1") != std::string::npos || header.find("|b1") != std::string::npos) append_values<uint8_t>(bytes, array.values);
  return array;
}

inline nlohmann::json read_json(const std::string& name) {
  std::ifstream in(golden_path(name));
  EXPECT_TRUE(in) << "no golden file " << name;
  return nlohmann::json::parse(in);
}

/// The cases of numeric/cases.json of one kind.
inline std::vector<nlohmann::json> numeric_cases(const std::string& kind) {
  std::vector<nlohmann::json> out;
  for (const auto& entry : read_json("numeric/cases.json"))
    if (entry["kind"] == kind) out.push_back(entry);
  EXPECT_FALSE(out.empty()) << kind;
  return out;
}

inline Array numeric_array(const nlohmann::json& entry, const std::string& role) {
  return read_array("numeric/" + entry["files"][role].get<std::string>());
}

}  // namespace regard::test
