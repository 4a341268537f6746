// Builds safetensors files in memory for tests, from the header text and the bytes behind it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regard::testing_support {

/// The file with this header, this announced length (its true one when negative) and this buffer.
inline std::vector<uint8_t> safetensors_bytes(std::string_view header, const std::vector<uint8_t>& buffer, int64_t announced = -1) {
  const uint64_t length = announced < 0 ? header.size() : static_cast<uint64_t>(announced);
  std::vector<uint8_t> file(8);
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<uint8_t>(length >> (8 * i));
  file.insert(file.end(), header.begin(), header.end());
  file.insert(file.end(), buffer.begin(), buffer.end());
  return file;
}

/// Adds one tensor after another.
class SafetensorsBuilder {
 public:
  SafetensorsBuilder& metadata(std::string_view json) {
    add("__metadata__", std::string(json));
    return *this;
  }
  SafetensorsBuilder& tensor(std::string_view name, std::string_view dtype, std::string_view shape, const std::vector<uint8_t>& bytes) {
    const size_t begin = buffer_.size();
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    add(name, "{\"dtype\":\"" + std::string(dtype) + "\",\"shape\":" + std::string(shape) + ",\"data_offsets\":[" + std::to_string(begin) + "," +
                  std::to_string(buffer_.size()) + "]}");
    return *this;
  }
  std::string header() const { return "{" + entries_ + "}" + std::string((8 - (entries_.size() + 2) % 8) % 8, ' '); }
  std::vector<uint8_t> build() const { return safetensors_bytes(header(), buffer_); }

 private:
  void add(std::string_view name, const std::string& json) {
    entries_ += (entries_.empty() ? "\"" : ",\"") + std::string(name) + "\":" + json;
  }
  std::string entries_;
  std::vector<uint8_t> buffer_;
};

inline SafetensorsBuilder small_safetensors() {
  std::vector<uint8_t> bytes(48);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i + 1);
  const auto first = [&](std::ptrdiff_t n) { return std::vector<uint8_t>(bytes.begin(), bytes.begin() + n); };
  SafetensorsBuilder b;
  b.metadata("{\"format\":\"pt\"}").tensor("model.embed_tokens.weight", "F32", "[3,4]", first(48)).tensor("model.norm.weight", "BF16", "[4]", first(8));
  b.tensor("scalar", "I64", "[]", first(8)).tensor("empty", "F16", "[0,7]", {}).tensor("bits", "BOOL", "[3]", first(3));
  return b;
}

}  // namespace regard::testing_support
