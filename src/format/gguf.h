// GGUF files, versions 2 and 3: typed metadata and the table of tensors. Start at read_gguf; to read the tensors
// themselves, from one file or several, see tensor_source.h.
//
// Source: ggml, docs/gguf.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "format/byte_source.h"
#include "format/tensor_info.h"

namespace regard {

/// What a file may ask for before it is refused.
struct GgufLimits {
  uint64_t max_tensors = 65'536;
  uint64_t max_keys = 65'536;
  uint64_t max_key_bytes = 65'535;
  uint64_t max_string_bytes = uint64_t{64} << 20;  ///< whole tokenizer files are stored as one string (33 MB for Gemma 3)
  uint64_t max_array_items = uint64_t{1} << 24;    ///< the longest published list of merges has 4 million
};

/// The numbers are those of the file.
enum class GgufType : uint32_t {
  kU8 = 0, kI8 = 1, kU16 = 2, kI16 = 3, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9, kU64 = 10, kI64 = 11, kF64 = 12,
};

/// "u32", "string" and so on.
std::string_view gguf_type_name(GgufType type) noexcept;

/// Many strings in one piece of memory, in their order.
class StringList {
 public:
  size_t size() const noexcept { return ends_.size(); }
  bool empty() const noexcept { return ends_.empty(); }
  std::string_view operator[](size_t i) const noexcept {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }

  void reserve(size_t strings, size_t bytes) { ends_.reserve(strings), text_.reserve(bytes); }
  void append(std::string_view s) { text_ += s, ends_.push_back(text_.size()); }
  /// Room for one more string of `bytes` bytes, for the caller to fill.
  std::span<uint8_t> append_uninitialised(size_t bytes) {
    const size_t begin = text_.size();
    text_.resize(begin + bytes);
    ends_.push_back(text_.size());
    return {reinterpret_cast<uint8_t*>(text_.data()) + begin, bytes};
  }
  bool operator==(const StringList&) const = default;

 private:
  std::string text_;
  std::vector<size_t> ends_;
};

/// One value of the metadata as it stands in the file. Strings may hold any bytes.
struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  ///< of an array, else equal to type
  uint64_t count = 1;                ///< elements of an array
  std::string string;                ///< kString
  std::vector<uint8_t> raw;          ///< numbers and bools: little-endian, one after the other
  StringList strings;                ///< array of kString

  /// Element i as a number; integers beyond int64 and everything that is no integer give nothing.
  std::optional<int64_t> integer_at(uint64_t i) const noexcept;
  std::optional<double> real_at(uint64_t i) const noexcept;
  bool operator==(const GgufValue&) const = default;
};

/// The key-value part of a file. Getters name the key when they refuse; the optional_ ones give nothing when it is absent.
/// Integers may be stored in any integer type, reals as f32 or f64.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string name = "gguf") : name_(std::move(name)) {}

  size_t size() const noexcept { return keys_.size(); }
  /// Keys in the order of the file.
  const std::vector<std::string>& keys() const noexcept { return keys_; }
  const GgufValue* find(std::string_view key) const noexcept;

  Result<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;
  Result<double> number(std::string_view key, double min, double max) const;
  Result<std::string_view> string(std::string_view key) const;
  Result<std::optional<int64_t>> optional_integer(std::string_view key, int64_t min, int64_t max) const;
  Result<std::optional<double>> optional_number(std::string_view key, double min, double max) const;
  Result<std::optional<bool>> optional_bool(std::string_view key) const;
  Result<std::optional<std::string_view>> optional_string(std::string_view key) const;
  /// Arrays: nothing when the key is absent. The pointer is into this object.
  Result<const StringList*> optional_strings(std::string_view key) const;
  Result<std::optional<std::vector<int64_t>>> optional_integers(std::string_view key, int64_t min, int64_t max) const;
  Result<std::optional<std::vector<double>>> optional_numbers(std::string_view key) const;
  /// A value per layer: an array of `layers` integers, or one integer that stands for all of them.
  Result<std::optional<std::vector<int64_t>>> optional_per_layer(std::string_view key, size_t layers, int64_t min, int64_t max) const;

  /// A refusal that begins with the file and the key.
  Failure refuse(std::string_view key, std::string_view why) const;

  /// False when the key is there already.
  bool insert(std::string key, GgufValue value);
  bool operator==(const GgufMetadata& other) const { return keys_ == other.keys_ && values_ == other.values_; }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::string name_;
  std::vector<std::string> keys_;
  std::unordered_map<std::string, GgufValue, Hash, std::equal_to<>> values_;
};

struct GgufFile {
  uint32_t version = 0;
  uint64_t alignment = 32;
  uint64_t data_begin = 0;  ///< offset of the first tensor
  GgufMetadata metadata;
  std::vector<TensorInfo> tensors;
};

/// Reads and checks everything but the tensor bytes. `name` begins every message.
/// Refused with kCorruptData: whatever contradicts the format or the size of the file; kUnsupported: version 1, big-endian
/// files, tensor types that this library does not compute with (the message names tensor and type); kResourceExhausted:
/// counts beyond `limits`. Memory is bounded by the bytes that the file has, never by what it claims.
Result<GgufFile> read_gguf(const ByteSource& source, std::string_view name, const GgufLimits& limits = {});

}  // namespace regard
