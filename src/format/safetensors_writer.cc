#include "format/safetensors_writer.h"

#include <cstring>
#include <set>

#include "base/checked.h"
#include "format/names.h"
#include "format/tensor_info.h"
#include "regard/json.h"

namespace regard {
namespace {

std::string_view type_name(DType type) {
  switch (type) {
    case DType::kF32: return "F32";
    case DType::kF16: return "F16";
    case DType::kBF16: return "BF16";
    case DType::kF64: return "F64";
    case DType::kI64: return "I64";
    case DType::kI32: return "I32";
    case DType::kI16: return "I16";
    case DType::kI8: return "I8";
    case DType::kU64: return "U64";
    case DType::kU32: return "U32";
    case DType::kU16: return "U16";
    case DType::kU8: return "U8";
    case DType::kBool: return "BOOL";
    default: return {};
  }
}

}  // namespace

Result<std::string> safetensors_header(std::span<const SafetensorsEntry> tensors, std::span<const std::pair<std::string, std::string>> metadata) {
  JsonWriter json;
  json.begin_object();
  if (!metadata.empty()) {
    json.key("__metadata__").begin_object();
    for (const auto& [key, value] : metadata) json.member(key, value);
    json.end();
  }
  std::set<std::string_view> names;
  uint64_t offset = 0;
  for (const SafetensorsEntry& tensor : tensors) {
    const auto refuse = [&](std::string_view why) {
      return failure(Code::kInvalidArgument, "[safetensors] tensor \"{}\": {}", printable(tensor.name), why);
    };
    if (!is_plain_name(tensor.name, 1024) || tensor.name == "__metadata__") return refuse("no name that a reader takes");
    if (!names.insert(tensor.name).second) return refuse("the name is there twice");
    if (type_name(tensor.type).empty()) return refuse(fmt::format("the format has no type {}", info(tensor.type).name));
    const auto values = checked_values(tensor.shape);
    const auto bytes = values ? checked_mul<int64_t>(*values, info(tensor.type).bytes) : values;
    if (!bytes || static_cast<uint64_t>(*bytes) != tensor.bytes.size()) {
      return refuse(fmt::format("{} bytes for {} x {}", tensor.bytes.size(), shape_text(tensor.shape), info(tensor.type).name));
    }
    json.key(tensor.name).begin_object().member("dtype", type_name(tensor.type)).key("shape").begin_array();
    for (const int64_t extent : tensor.shape) json.value(extent);
    json.end().key("data_offsets").begin_array().value(offset).value(offset + tensor.bytes.size()).end().end();
    offset += tensor.bytes.size();
  }
  std::string text = json.end().finish();
  constexpr size_t kAlignment = 64;
  text.append(ceil_div(sizeof(uint64_t) + text.size(), kAlignment) * kAlignment - sizeof(uint64_t) - text.size(), ' ');
  const uint64_t length = text.size();
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + text;
}

Result<Done> write_safetensors(const std::string& path, std::span<const SafetensorsEntry> tensors,
                               std::span<const std::pair<std::string, std::string>> metadata, FileLayer& layer) {
  REGARD_TRY(const std::string header, safetensors_header(tensors, metadata));
  REGARD_TRY(AtomicFile file, AtomicFile::create(path, Overwrite::kReplace, layer));
  REGARD_CHECK(file.write(std::as_bytes(std::span(header))));
  for (const SafetensorsEntry& tensor : tensors) REGARD_CHECK(file.write(tensor.bytes));
  return file.commit();
}

}  // namespace regard
