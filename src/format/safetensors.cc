// A safetensors file is the length of a JSON text, the text, and one buffer that its tensors fill without holes. Checked in
// that order; nothing of the buffer is read here.
#include "format/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "format/byte_reader.h"
#include "format/json_reader.h"
#include "format/names.h"

namespace regard {
namespace {

constexpr uint64_t kFormatHeaderLimit = 100'000'000;

std::optional<DType> dtype_of(std::string_view name) {
  constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16}, {"F64", DType::kF64}, {"I64", DType::kI64},
      {"I32", DType::kI32}, {"I16", DType::kI16}, {"I8", DType::kI8},     {"U8", DType::kU8},   {"U16", DType::kU16},
      {"U32", DType::kU32}, {"U64", DType::kU64}, {"BOOL", DType::kBool}};
  for (const auto& [known, type] : kTypes)
    if (known == name) return type;
  return std::nullopt;
}

/// Types that the format has and this library has not.
bool is_foreign_dtype(std::string_view name) {
  constexpr std::string_view kForeign[] = {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E2M3", "F6_E3M2", "F4", "C64"};
  return std::find(std::begin(kForeign), std::end(kForeign), name) != std::end(kForeign);
}

/// What a file with these first bytes really is, or nothing.
std::string_view other_container(const std::array<uint8_t, 8>& head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.substr(0, 4) == std::string_view("PK\x03\x04", 4))
    return "a zip archive, as PyTorch writes it; its pickle could run code, so it is not read: convert it to safetensors";
  // The two bytes alone could begin the length of a cut-off file; no header is as long as what a pickle makes of all eight.
  if (head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 && std::bit_cast<uint64_t>(head) > kFormatHeaderLimit)
    return "a Python pickle, which could run code, so it is not read: convert it to safetensors";
  if (text.substr(0, 4) == "GGUF") return "a GGUF file: give it the ending .gguf";
  if (text.substr(0, 4) == "\x89HDF") return "an HDF5 file: convert it to safetensors";
  if (text.substr(0, 6) == "\x93NUMPY") return "a NumPy array, not a set of tensors";
  if (text.substr(0, 2) == "\x1F\x8B") return "compressed with gzip: unpack it first";
  if (text.substr(0, 7) == "version") return "a Git LFS pointer, not the file itself: fetch it with git lfs pull";
  if (text[0] == '{') return "a JSON text, without the length that a safetensors file begins with";
  return {};
}

Result<TensorInfo> read_entry(const JsonMember& entry, uint64_t buffer_bytes, const SafetensorsLimits& limits) {
  TensorInfo tensor;
  if (!is_plain_name(entry.key, limits.max_name_bytes))
    return entry.value.refuse(fmt::format("a tensor's name is 1 to {} bytes of UTF-8 without control characters", limits.max_name_bytes));
  tensor.name = std::string(entry.key);
  REGARD_TRY(const JsonObject fields, entry.value.as_object());
  for (const auto [key, value] : fields)
    if (key != "dtype" && key != "shape" && key != "data_offsets") return value.refuse("a tensor has dtype, shape and data_offsets, and nothing else");

  REGARD_TRY(const JsonValue dtype, fields.get("dtype"));
  REGARD_TRY(const std::string_view type_name, dtype.as_string());
  const auto type = dtype_of(type_name);
  if (!type) {
    Failure refused = dtype.refuse(fmt::format("the element type \"{}\" is not supported", printable(type_name)));
    if (is_foreign_dtype(type_name)) refused.code = Code::kUnsupported;
    return refused;
  }
  tensor.type = *type;

  REGARD_TRY(const JsonValue shape_value, fields.get("shape"));
  REGARD_TRY(const JsonArray shape, shape_value.as_array());
  if (shape.size() > limits.max_rank) return shape_value.refuse(fmt::format("{} dimensions, the limit is {}", shape.size(), limits.max_rank));
  for (const JsonValue extent : shape) {
    REGARD_TRY(const int64_t n, extent.as_integer(0));
    tensor.shape.push_back(n);
  }
  const auto values = checked_values(tensor.shape);
  const auto bytes = values ? checked_mul<int64_t>(*values, info(tensor.type).bytes) : values;
  if (!bytes) return shape_value.refuse("the product of the dimensions does not fit in 63 bits");
  tensor.bytes = static_cast<uint64_t>(*bytes);

  REGARD_TRY(const JsonValue offsets_value, fields.get("data_offsets"));
  REGARD_TRY(const JsonArray offsets, offsets_value.as_array());
  if (offsets.size() != 2) return offsets_value.refuse("expected [begin, end]");
  auto offset = offsets.begin();
  REGARD_TRY(const uint64_t begin, (*offset).as_unsigned(buffer_bytes));
  REGARD_TRY(const uint64_t end, (*++offset).as_unsigned(buffer_bytes));
  if (begin > end) return offsets_value.refuse("the end lies before the begin");
  if (end - begin != tensor.bytes)
    return offsets_value.refuse(fmt::format("{} bytes, but {} x {} takes {}", end - begin, shape_text(tensor.shape), type_name, tensor.bytes));
  tensor.offset = begin;
  return tensor;
}

/// The tensors, in the order of their bytes, fill the buffer exactly.
Result<Done> check_layout(const SafetensorsFile& file, uint64_t buffer_bytes, std::string_view name) {
  uint64_t expected = 0;
  for (const TensorInfo& tensor : file.tensors) {
    if (tensor.offset != expected) {
      return corrupt("[safetensors] {}: tensor \"{}\" begins at {} of the buffer, {} where the one before it ends ({})", name, printable(tensor.name),
                     tensor.offset, tensor.offset < expected ? "an overlap," : "a hole after", expected);
    }
    expected += tensor.bytes;  // both below the size of the buffer
  }
  if (expected != buffer_bytes)
    return corrupt("[safetensors] {}: the tensors take {} bytes, the buffer has {}", name, expected, buffer_bytes);
  return Done{};
}

}  // namespace

Result<SafetensorsFile> read_safetensors(const ByteSource& source, std::string_view name, const SafetensorsLimits& limits) {
  ByteReader reader(source);
  if (reader.remaining() < 8) return corrupt("[safetensors] {}: {} bytes, too short for any safetensors file", name, reader.remaining());
  std::array<uint8_t, 8> head;
  REGARD_CHECK(reader.bytes(head));
  const uint64_t header_bytes = std::bit_cast<uint64_t>(head);
  const bool possible = header_bytes >= 2 && header_bytes <= kFormatHeaderLimit && header_bytes <= reader.remaining();
  if (const auto really = other_container(head); !possible && !really.empty())
    return failure(head[0] == '{' ? Code::kCorruptData : Code::kUnsupported, "[safetensors] {}: not a safetensors file but {}", name, really);
  if (!possible) {
    return corrupt("[safetensors] {} does not begin as a GGUF file does, and as a safetensors file it would have a header of {} bytes, where {} bytes follow and 1 to {} are allowed", name, header_bytes,
                   reader.remaining(), kFormatHeaderLimit);
  }
  if (header_bytes > limits.max_header_bytes)
    return failure(Code::kResourceExhausted, "[safetensors] {}: a header of {} bytes, the limit is {}", name, header_bytes, limits.max_header_bytes);

  std::string header(static_cast<size_t>(header_bytes), '\0');
  REGARD_CHECK(reader.bytes({reinterpret_cast<uint8_t*>(header.data()), header.size()}));
  const size_t last = header.find_last_not_of(' ');
  if (header[0] != '{' || header[last] != '}')
    return corrupt("[safetensors] {}: the header is no JSON object followed by spaces", name);

  JsonLimits json_limits;
  json_limits.max_bytes = header.size();
  json_limits.max_keys = 4 * limits.max_tensors + 10'000;  // a name and three fields each, and __metadata__
  json_limits.max_values = 1'200'000;  // about 18 for each of 65,536 tensors; keeps the parser's memory below 64 MiB
  REGARD_TRY(const JsonDocument document, JsonDocument::parse(header, fmt::format("{} (header)", name), json_limits));
  REGARD_TRY(const JsonObject entries, document.root().as_object());

  SafetensorsFile file;
  file.data_begin = 8 + header_bytes;
  const uint64_t buffer_bytes = reader.remaining();
  for (const JsonMember entry : entries) {
    if (entry.key == "__metadata__") {
      REGARD_TRY(const JsonObject metadata, entry.value.as_object());
      for (const auto [key, value] : metadata) {
        REGARD_TRY(const std::string_view text, value.as_string());
        file.metadata.emplace_back(key, text);
      }
      continue;
    }
    if (file.tensors.size() == limits.max_tensors)
      return failure(Code::kResourceExhausted, "[safetensors] {}: more than {} tensors", name, limits.max_tensors);
    REGARD_TRY(auto tensor, read_entry(entry, buffer_bytes, limits));
    file.tensors.push_back(std::move(tensor));
  }
  // An empty tensor that begins where another one does comes first. Names settle what is left.
  std::sort(file.tensors.begin(), file.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  REGARD_CHECK(check_layout(file, buffer_bytes, name));
  for (TensorInfo& tensor : file.tensors) tensor.offset += file.data_begin;
  return file;
}

Result<SafetensorsIndex> read_safetensors_index(std::string_view text, std::string_view name, const SafetensorsLimits& limits) {
  REGARD_TRY(const JsonDocument document, JsonDocument::parse(text, name));
  REGARD_TRY(const JsonObject root, document.root().as_object());
  REGARD_TRY(const JsonValue map_value, root.get("weight_map"));
  REGARD_TRY(const JsonObject map, map_value.as_object());
  if (map.size() > limits.max_tensors) {
    return failure(Code::kResourceExhausted, "[safetensors] {}: {} tensors, the limit is {}", name, map.size(), limits.max_tensors);
  }
  SafetensorsIndex index;
  std::unordered_map<std::string_view, size_t> positions;
  for (const auto [tensor, value] : map) {
    REGARD_TRY(const std::string_view file, value.as_string());
    if (!is_plain_name(tensor, limits.max_name_bytes)) return value.refuse("the name of the tensor is no name");
    if (!is_plain_file_name(file))
      return value.refuse(fmt::format("\"{}\" is no file name inside the folder of the index", printable(file)));
    positions.emplace(file, 0);
  }
  if (positions.empty()) return map_value.refuse("empty");
  for (const auto& [file, position] : positions) index.files.emplace_back(file);
  std::sort(index.files.begin(), index.files.end());
  for (size_t i = 0; i < index.files.size(); ++i) positions[index.files[i]] = i;
  for (const auto [tensor, value] : map) index.tensors.emplace_back(tensor, positions[*value.as_string()]);
  return index;
}

}  // namespace regard
