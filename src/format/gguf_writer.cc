#include "format/gguf_writer.h"

#include <cstring>
#include <optional>
#include <set>

#include "base/checked.h"
#include "format/names.h"

namespace regard {
namespace {

constexpr uint64_t kAlignment = 32;
constexpr size_t kMaxName = 63;  // ggml stores 64 bytes with the final NUL

template <class T>
GgufValue plain(GgufType type, T v) {
  GgufValue value;
  value.type = value.element = type;
  value.raw.resize(sizeof v);
  std::memcpy(value.raw.data(), &v, sizeof v);
  return value;
}

template <class T>
GgufValue list(GgufType element, std::span<const T> items) {
  GgufValue value;
  value.type = GgufType::kArray;
  value.element = element;
  value.count = items.size();
  value.raw.resize(items.size_bytes());
  if (!items.empty()) std::memcpy(value.raw.data(), items.data(), items.size_bytes());
  return value;
}

class Bytes {
 public:
  template <class T>
  void number(T v) {
    text_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  void string(std::string_view s) {
    number<uint64_t>(s.size());
    text_ += s;
  }
  void value(const GgufValue& v) {
    number(static_cast<uint32_t>(v.type));
    if (v.type == GgufType::kString) return string(v.string);
    if (v.type == GgufType::kArray) {
      number(static_cast<uint32_t>(v.element));
      number<uint64_t>(v.count);
      for (size_t i = 0; i < v.strings.size(); ++i) string(v.strings[i]);
    }
    text_.append(reinterpret_cast<const char*>(v.raw.data()), v.raw.size());
  }
  void pad() { text_.append(ceil_div(text_.size(), size_t{kAlignment}) * kAlignment - text_.size(), '\0'); }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::optional<uint32_t> number_of(DType type) {
  switch (type) {
    case DType::kF32: return 0;
    case DType::kF16: return 1;
    case DType::kQ8_0: return 8;
    case DType::kBF16: return 30;
    default: return std::nullopt;
  }
}

Result<uint64_t> bytes_of(const GgufTensorHead& tensor) {
  const auto refuse = [&](std::string_view why) { return failure(Code::kInvalidArgument, "[gguf] tensor \"{}\": {}", printable(tensor.name), why); };
  if (tensor.name.empty() || tensor.name.size() > kMaxName) return refuse(fmt::format("a name has 1 to {} bytes", kMaxName));
  if (!number_of(tensor.type)) return refuse(fmt::format("type {} is not written; expected f32, f16, bf16 or q8_0", info(tensor.type).name));
  if (tensor.shape.empty() || tensor.shape.size() > 4) return refuse(fmt::format("shape {}; expected 1 to 4 axes", shape_text(tensor.shape)));
  const auto values = checked_values(tensor.shape);
  const DTypeInfo type = info(tensor.type);
  if (!values || *values < 1 || tensor.shape.back() % type.values != 0)
    return refuse(fmt::format("shape {}; expected rows of a multiple of {} values", shape_text(tensor.shape), type.values));
  const auto bytes = checked_mul<int64_t>(*values / type.values, type.bytes);
  if (!bytes) return refuse("too many values");
  return static_cast<uint64_t>(*bytes);
}

}  // namespace

GgufValue gguf_value(uint32_t v) { return plain(GgufType::kU32, v); }
GgufValue gguf_value(float v) { return plain(GgufType::kF32, v); }
GgufValue gguf_value(bool v) { return plain(GgufType::kBool, static_cast<uint8_t>(v ? 1 : 0)); }
GgufValue gguf_value(std::string_view v) {
  GgufValue value;
  value.type = value.element = GgufType::kString;
  value.string = v;
  return value;
}
GgufValue gguf_value(StringList v) {
  GgufValue value;
  value.type = GgufType::kArray;
  value.element = GgufType::kString;
  value.count = v.size();
  value.strings = std::move(v);
  return value;
}
GgufValue gguf_value(std::span<const int32_t> v) { return list(GgufType::kI32, v); }
GgufValue gguf_value(std::span<const float> v) { return list(GgufType::kF32, v); }

Result<std::string> gguf_head(const GgufMetadata& metadata, std::span<const GgufTensorHead> tensors) {
  Bytes head;
  head.number<uint32_t>(0x46554747);  // "GGUF"
  head.number<uint32_t>(3);
  head.number<uint64_t>(tensors.size());
  head.number<uint64_t>(metadata.size());
  for (const std::string& key : metadata.keys()) {
    head.string(key);
    head.value(*metadata.find(key));
  }
  std::set<std::string_view> names;
  uint64_t offset = 0;
  for (const GgufTensorHead& tensor : tensors) {
    REGARD_TRY(const uint64_t bytes, bytes_of(tensor));
    if (!names.insert(tensor.name).second) return failure(Code::kInvalidArgument, "[gguf] tensor \"{}\": the name is there twice", printable(tensor.name));
    head.string(tensor.name);
    head.number(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) head.number(static_cast<uint64_t>(tensor.shape[i]));  // the file has the innermost axis first
    head.number(*number_of(tensor.type));
    head.number(offset);
    offset += ceil_div(bytes, kAlignment) * kAlignment;
  }
  head.pad();
  return head.take();
}

Result<Done> write_gguf(const std::string& path, const GgufMetadata& metadata, std::span<const GgufTensorHead> tensors, const TensorBytes& bytes,
                        Overwrite overwrite, FileLayer& layer) {
  REGARD_TRY(const std::string head, gguf_head(metadata, tensors));
  REGARD_TRY(AtomicFile file, AtomicFile::create(path, overwrite, layer));
  REGARD_CHECK(file.write(std::as_bytes(std::span(head))));
  for (size_t i = 0; i < tensors.size(); ++i) {
    REGARD_TRY(const uint64_t expected, bytes_of(tensors[i]));
    REGARD_TRY(std::vector<uint8_t> data, bytes(i));
    if (data.size() != expected)
      return failure(Code::kInvalidArgument, "[gguf] tensor \"{}\": {} bytes were given, its shape has {}", printable(tensors[i].name), data.size(), expected);
    data.resize(ceil_div(data.size(), size_t{kAlignment}) * kAlignment);
    REGARD_CHECK(file.write(std::as_bytes(std::span(data))));
  }
  return file.commit();
}

}  // namespace regard
