// Builds GGUF files in memory for tests, written from the format's description and not from the reader: a second opinion.
// Every field can be given a wrong value, because most tests want exactly that.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace regard::testing_support {

class ByteWriter {
 public:
  template <class T>
  ByteWriter& number(T v) {
    const auto* p = reinterpret_cast<const uint8_t*>(&v);
    bytes.insert(bytes.end(), p, p + sizeof v);
    return *this;
  }
  ByteWriter& raw(std::string_view text) {
    bytes.insert(bytes.end(), text.begin(), text.end());
    return *this;
  }
  ByteWriter& string(std::string_view text) { return number<uint64_t>(text.size()).raw(text); }
  ByteWriter& pad(size_t alignment, uint8_t fill = 0) {
    while (alignment > 1 && bytes.size() % alignment != 0) bytes.push_back(fill);
    return *this;
  }
  std::vector<uint8_t> bytes;
};

class GgufBuilder {
 public:
  uint32_t magic = 0x46554747, version = 3;
  size_t alignment = 32;
  int64_t tensor_count_error = 0, key_count_error = 0;
  uint8_t head_padding = 0;

  template <class T>
  GgufBuilder& scalar(std::string_view key, uint32_t type, T v) {
    keys_.string(key).number(type).number(v);
    ++num_keys_;
    return *this;
  }
  GgufBuilder& u32(std::string_view key, uint32_t v) { return scalar(key, 4, v); }
  GgufBuilder& f32(std::string_view key, float v) { return scalar(key, 6, v); }
  GgufBuilder& boolean(std::string_view key, uint8_t v) { return scalar(key, 7, v); }
  GgufBuilder& string(std::string_view key, std::string_view v) {
    keys_.string(key).number<uint32_t>(8).string(v);
    ++num_keys_;
    return *this;
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& list) {
    keys_.string(key).number<uint32_t>(9).number<uint32_t>(8).number<uint64_t>(list.size());
    for (const std::string& s : list) keys_.string(s);
    ++num_keys_;
    return *this;
  }
  template <class T>
  GgufBuilder& array(std::string_view key, uint32_t type, const std::vector<T>& list) {
    keys_.string(key).number<uint32_t>(9).number(type).number<uint64_t>(list.size());
    for (const T v : list) keys_.number(v);
    ++num_keys_;
    return *this;
  }
  /// Whatever bytes the test wants as one more pair.
  GgufBuilder& pair(const std::vector<uint8_t>& bytes) {
    keys_.bytes.insert(keys_.bytes.end(), bytes.begin(), bytes.end());
    ++num_keys_;
    return *this;
  }

  /// `dims` in the order of the file, contiguous axis first. `bytes` are taken as they are.
  GgufBuilder& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, const std::vector<uint8_t>& bytes, int64_t offset_error = 0) {
    infos_.string(name).number(static_cast<uint32_t>(dims.size()));
    for (const uint64_t d : dims) infos_.number(d);
    infos_.number(type).number(static_cast<uint64_t>(static_cast<int64_t>(data_.bytes.size()) + offset_error));
    data_.bytes.insert(data_.bytes.end(), bytes.begin(), bytes.end());
    last_end_ = data_.bytes.size();
    data_.pad(alignment, 0xEE);
    ++num_tensors_;
    return *this;
  }

  /// Bytes of the head: everything before the padding that precedes the data.
  size_t head_bytes() const { return 24 + keys_.bytes.size() + infos_.bytes.size(); }

  std::vector<uint8_t> build(bool pad_last = true) const {
    ByteWriter file;
    file.number(magic).number(version);
    file.number(static_cast<uint64_t>(num_tensors_ + tensor_count_error)).number(static_cast<uint64_t>(num_keys_ + key_count_error));
    file.bytes.insert(file.bytes.end(), keys_.bytes.begin(), keys_.bytes.end());
    file.bytes.insert(file.bytes.end(), infos_.bytes.begin(), infos_.bytes.end());
    file.pad(alignment, head_padding);
    file.bytes.insert(file.bytes.end(), data_.bytes.begin(), data_.bytes.begin() + static_cast<std::ptrdiff_t>(pad_last ? data_.bytes.size() : last_end_));
    return file.bytes;
  }

 private:
  ByteWriter keys_, infos_, data_;
  int64_t num_keys_ = 0, num_tensors_ = 0;
  size_t last_end_ = 0;
};

/// `n` bytes that differ from one another and from zero.
inline std::vector<uint8_t> counting_bytes(size_t n, uint8_t first = 1) {
  std::vector<uint8_t> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>(first + 37 * i);
  return bytes;
}

/// A small file with a value of every type and a tensor of several.
inline GgufBuilder small_gguf() {
  GgufBuilder b;
  b.string("general.architecture", "llama").u32("general.alignment", 32).u32("llama.block_count", 2).f32("llama.rope.freq_base", 10000.0f);
  b.boolean("tokenizer.ggml.add_bos_token", 1).strings("tokenizer.ggml.tokens", {"a", "", "bc", std::string("\0\xFF", 2)});
  b.array<float>("tokenizer.ggml.scores", 6, {0.5f, -1.0f, 2.0f, 0.0f}).array<int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 3, 6});
  b.array<uint8_t>("x.flags", 7, {1, 0}).scalar<uint64_t>("x.u64", 10, 1ull << 40).scalar<int64_t>("x.i64", 11, -5).scalar<double>("x.f64", 12, 0.25);
  b.scalar<uint8_t>("x.u8", 0, 200).scalar<int8_t>("x.i8", 1, -3).scalar<uint16_t>("x.u16", 2, 60000).scalar<int16_t>("x.i16", 3, -30000);
  b.tensor("token_embd.weight", {32, 4}, 8, counting_bytes(4 * 34)).tensor("blk.0.attn_norm.weight", {5}, 0, counting_bytes(20));
  b.tensor("blk.0.attn_q.weight", {4, 3, 2}, 1, counting_bytes(48)).tensor("output.weight", {64, 2}, 3, counting_bytes(2 * 2 * 20));
  return b;
}

}  // namespace regard::testing_support
