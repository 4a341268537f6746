// Reads the head of a GGUF file: magic and version, metadata, tensor table. What ggml checks is checked, and what it
// leaves to its callers: extents against the size of the file, counts against the bytes that remain, bool values, padding.
#include "format/gguf.h"

#include <array>
#include <bit>
#include <cmath>
#include <unordered_set>

#include "format/byte_reader.h"
#include "format/names.h"

namespace regard {

namespace {

constexpr uint64_t kDefaultAlignment = 32, kMaxAlignment = 4096;
constexpr uint32_t kMaxRank = 4;
constexpr uint64_t kMaxTensorName = 63;  // ggml stores 64 bytes with the final NUL

/// The types of ggml by their number in the file; nothing where a number was never given or has been withdrawn.
struct GgmlType {
  std::string_view name;
  std::optional<DType> type;
};
constexpr std::array<GgmlType, 40> kGgmlTypes = {{
    {"F32", DType::kF32}, {"F16", DType::kF16}, {"Q4_0", DType::kQ4_0}, {"Q4_1", DType::kQ4_1}, {}, {}, {"Q5_0", DType::kQ5_0},
    {"Q5_1", DType::kQ5_1}, {"Q8_0", DType::kQ8_0}, {"Q8_1", {}}, {"Q2_K", {}}, {"Q3_K", {}}, {"Q4_K", DType::kQ4_K},
    {"Q5_K", DType::kQ5_K}, {"Q6_K", DType::kQ6_K}, {"Q8_K", {}}, {"IQ2_XXS", {}}, {"IQ2_XS", {}}, {"IQ3_XXS", {}}, {"IQ1_S", {}},
    {"IQ4_NL", {}}, {"IQ3_S", {}}, {"IQ2_S", {}}, {"IQ4_XS", {}}, {"I8", DType::kI8}, {"I16", DType::kI16}, {"I32", DType::kI32},
    {"I64", DType::kI64}, {"F64", DType::kF64}, {"IQ1_M", {}}, {"BF16", DType::kBF16}, {}, {}, {}, {"TQ1_0", {}}, {"TQ2_0", {}},
    {}, {}, {}, {"MXFP4", {}},
}};

/// Bytes of one element of a fixed size, 0 for strings and arrays.
uint64_t element_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8: case GgufType::kI8: case GgufType::kBool: return 1;
    case GgufType::kU16: case GgufType::kI16: return 2;
    case GgufType::kU32: case GgufType::kI32: case GgufType::kF32: return 4;
    case GgufType::kU64: case GgufType::kI64: case GgufType::kF64: return 8;
    case GgufType::kString: case GgufType::kArray: return 0;
  }
  return 0;
}

class Parser {
 public:
  Parser(const ByteSource& source, std::string_view name, const GgufLimits& limits)
      : reader_(source), name_(name), limits_(limits) {}

  Result<GgufFile> parse() {
    REGARD_CHECK(read_magic());
    uint64_t num_tensors = 0, num_keys = 0;
    REGARD_CHECK(read_counts(num_tensors, num_keys));
    file_.metadata = GgufMetadata(name_);
    for (uint64_t i = 0; i < num_keys; ++i) REGARD_CHECK(read_pair(i, num_keys));
    REGARD_CHECK(read_alignment());
    file_.tensors.reserve(static_cast<size_t>(num_tensors));
    for (uint64_t i = 0; i < num_tensors; ++i) REGARD_CHECK(read_tensor(i, num_tensors));
    REGARD_CHECK(place_tensors());
    return std::move(file_);
  }

 private:
  /// The failure of a lower layer, with the file and what was being read in front.
  Failure at(std::string_view what, const Failure& failure) const {
    return {failure.code, fmt::format("[gguf] {}: {}: {}", name_, what, failure.message)};
  }
  template <class... Args>
  Failure refuse(fmt::format_string<Args...> format, Args&&... args) const {
    return corrupt("[gguf] {}: {}", name_, fmt::format(format, std::forward<Args>(args)...));
  }

  Result<Done> read_magic() {
    const auto magic = reader_.number<uint32_t>();
    if (!magic) return refuse("{} bytes, too short for any GGUF file", reader_.remaining());
    constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
    if (*magic != kMagic) return refuse("does not begin with GGUF (found the bytes {:08x}): not a GGUF file", __builtin_bswap32(*magic));
    const auto version = reader_.number<uint32_t>();
    if (!version) return at("version", version.failure());
    if ((*version & 0xFFFF) == 0 && *version != 0)
      return failure(Code::kUnsupported, "[gguf] {}: a big-endian file (version {}); convert it to little-endian first", name_, __builtin_bswap32(*version));
    if (*version == 1)
      return failure(Code::kUnsupported, "[gguf] {}: version 1, which counts in 32 bits; versions 2 and 3 are read", name_);
    if (*version != 2 && *version != 3) return failure(Code::kUnsupported, "[gguf] {}: version {}; versions 2 and 3 are read", name_, *version);
    file_.version = *version;
    return Done{};
  }

  Result<Done> read_counts(uint64_t& num_tensors, uint64_t& num_keys) {
    const auto tensors = reader_.number<uint64_t>();
    if (!tensors) return at("tensor count", tensors.failure());
    const auto keys = reader_.number<uint64_t>();
    if (!keys) return at("key count", keys.failure());
    // A tensor entry takes at least 25 bytes (a name of one byte, no dimension), a pair at least 14.
    if (*tensors > reader_.remaining() / 25) return refuse("{} tensors are announced, but only {} bytes remain", *tensors, reader_.remaining());
    if (*keys > reader_.remaining() / 14) return refuse("{} keys are announced, but only {} bytes remain", *keys, reader_.remaining());
    if (*tensors > limits_.max_tensors)
      return failure(Code::kResourceExhausted, "[gguf] {}: {} tensors, the limit is {}", name_, *tensors, limits_.max_tensors);
    if (*keys > limits_.max_keys) return failure(Code::kResourceExhausted, "[gguf] {}: {} keys, the limit is {}", name_, *keys, limits_.max_keys);
    num_tensors = *tensors;
    num_keys = *keys;
    return Done{};
  }

  Result<Done> read_pair(uint64_t index, uint64_t count) {
    const std::string which = fmt::format("key {} of {}", index + 1, count);
    const uint64_t start = reader_.position();
    auto key = reader_.string<uint64_t>(limits_.max_key_bytes);
    if (!key) return at(which, key.failure());
    if (!is_plain_name(*key, limits_.max_key_bytes))
      return refuse("{} at offset {}: \"{}\" is no name (empty, control characters or not UTF-8)", which, start, printable(*key));
    GgufValue value;
    const auto read = read_value(value);
    if (!read) return at(fmt::format("key \"{}\"", printable(*key)), read.failure());
    if (file_.metadata.find(*key) != nullptr) return refuse("key \"{}\" stands there twice, again at offset {}", printable(*key), start);
    file_.metadata.insert(*std::move(key), std::move(value));
    return Done{};
  }

  Result<GgufType> read_type() {
    const uint64_t start = reader_.position();
    REGARD_TRY(const uint32_t type, reader_.number<uint32_t>());
    if (type > static_cast<uint32_t>(GgufType::kF64)) return corrupt("offset {}: unknown type {} (0 to 12 are known)", start, type);
    return static_cast<GgufType>(type);
  }

  Result<Done> read_value(GgufValue& value) {
    REGARD_TRY(value.type, read_type());
    value.element = value.type;
    if (value.type == GgufType::kString) {
      REGARD_TRY(value.string, reader_.string<uint64_t>(limits_.max_string_bytes));
      return Done{};
    }
    if (value.type == GgufType::kArray) {
      REGARD_TRY(value.element, read_type());
      if (value.element == GgufType::kArray) return corrupt("offset {}: an array of arrays, which the format does not have", reader_.position());
      REGARD_TRY(value.count, reader_.number<uint64_t>());
      const uint64_t least = value.element == GgufType::kString ? 8 : element_bytes(value.element);
      if (value.count > reader_.remaining() / least)
        return corrupt("offset {}: an array of {} {}, but only {} bytes remain", reader_.position(), value.count, gguf_type_name(value.element), reader_.remaining());
      if (value.count > limits_.max_array_items)
        return failure(Code::kResourceExhausted, "an array of {} elements, the limit is {}", value.count, limits_.max_array_items);
      if (value.element == GgufType::kString) return read_strings(value);
    }
    value.raw.resize(static_cast<size_t>(value.count * element_bytes(value.element)));
    const uint64_t start = reader_.position();
    REGARD_CHECK(reader_.bytes(value.raw));
    if (value.element == GgufType::kBool) {
      for (size_t i = 0; i < value.raw.size(); ++i)
        if (value.raw[i] > 1) return corrupt("offset {}: a bool that is {}, neither 0 nor 1", start + i, value.raw[i]);
    }
    return Done{};
  }

  /// Twice over the strings: the lengths first, so that memory is taken once and for no more than is really there.
  Result<Done> read_strings(GgufValue& value) {
    const uint64_t start = reader_.position();
    uint64_t total = 0;
    for (uint64_t i = 0; i < value.count; ++i) {
      const uint64_t offset = reader_.position();
      REGARD_TRY(const uint64_t length, reader_.number<uint64_t>());
      if (length > limits_.max_string_bytes || length > reader_.remaining())
        return corrupt("element {} at offset {}: a text of {} bytes, where {} remain and {} are allowed", i, offset, length, reader_.remaining(), limits_.max_string_bytes);
      REGARD_CHECK(reader_.skip(length));
      total += length;  // cannot wrap: the texts lie in the file without overlap
    }
    value.strings.reserve(static_cast<size_t>(value.count), static_cast<size_t>(total));
    REGARD_CHECK(reader_.seek(start));
    for (uint64_t i = 0; i < value.count; ++i) {
      REGARD_TRY(const uint64_t length, reader_.number<uint64_t>());
      // A source that changes between the two passes must not make this one take more.
      if (length > total) return corrupt("element {}: the file changed while it was read", i);
      total -= length;
      REGARD_CHECK(reader_.bytes(value.strings.append_uninitialised(static_cast<size_t>(length))));
    }
    return Done{};
  }

  Result<Done> read_alignment() {
    constexpr std::string_view kKey = "general.alignment";
    file_.alignment = kDefaultAlignment;
    const GgufValue* stated = file_.metadata.find(kKey);
    if (stated == nullptr) return Done{};
    if (stated->type != GgufType::kU32) return refuse("key \"{}\": expected u32, found {}", kKey, gguf_type_name(stated->type));
    const auto alignment = static_cast<uint64_t>(*stated->integer_at(0));
    if (!std::has_single_bit(alignment) || alignment > kMaxAlignment)
      return refuse("key \"{}\": {} is not a power of two from 1 to {}", kKey, alignment, kMaxAlignment);
    file_.alignment = alignment;
    return Done{};
  }

  Result<Done> read_tensor(uint64_t index, uint64_t count) {
    const std::string which = fmt::format("tensor {} of {}", index + 1, count);
    const uint64_t start = reader_.position();
    TensorInfo tensor;
    auto name = reader_.string<uint64_t>(kMaxTensorName);
    if (!name) return at(which, name.failure());
    if (!is_plain_name(*name, kMaxTensorName))
      return refuse("{} at offset {}: \"{}\" is no name (empty, control characters or not UTF-8)", which, start, printable(*name));
    tensor.name = *std::move(name);
    const std::string who = fmt::format("tensor \"{}\"", printable(tensor.name));
    if (!names_.insert(tensor.name).second) return refuse("{} stands there twice, again at offset {}", who, start);

    const auto rank = reader_.number<uint32_t>();
    if (!rank) return at(who, rank.failure());
    if (*rank > kMaxRank) return refuse("{}: {} dimensions, where 0 to {} are possible", who, *rank, kMaxRank);
    for (uint32_t i = 0; i < *rank; ++i) {
      const auto extent = reader_.number<uint64_t>();
      if (!extent) return at(who, extent.failure());
      const auto fits = checked_cast<int64_t>(*extent);
      if (!fits || *fits == 0) return refuse("{}: dimension {} is {}", who, i, *extent);
      tensor.shape.insert(tensor.shape.begin(), *fits);  // the file begins with the contiguous axis
    }
    const auto type = reader_.number<uint32_t>();
    if (!type) return at(who, type.failure());
    const GgmlType known = *type < kGgmlTypes.size() ? kGgmlTypes[*type] : GgmlType{};
    if (known.name.empty()) return refuse("{}: type number {} does not exist", who, *type);
    if (!known.type)
      return failure(Code::kUnsupported, "[gguf] {}: {} is stored as {}, which is not supported; quantise the model to another type, for example Q4_K or Q8_0", name_, who, known.name);
    tensor.type = *known.type;
    const auto offset = reader_.number<uint64_t>();
    if (!offset) return at(who, offset.failure());
    tensor.offset = *offset;

    const DTypeInfo layout = info(tensor.type);
    const auto values = checked_values(tensor.shape);
    if (!values) return refuse("{}: the product of its shape {} does not fit in 63 bits", who, shape_text(tensor.shape));
    const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (row % layout.values != 0) return refuse("{}: rows of {} values cannot be cut into {} blocks of {}", who, row, known.name, layout.values);
    const auto bytes = checked_mul<int64_t>(*values / layout.values, layout.bytes);
    if (!bytes) return refuse("{}: shape {} is larger than any file", who, shape_text(tensor.shape));
    tensor.bytes = static_cast<uint64_t>(*bytes);
    file_.tensors.push_back(std::move(tensor));
    return Done{};
  }

  /// Each tensor begins where the one before it ends, padded, and the last one ends where the file does.
  Result<Done> place_tensors() {
    const uint64_t head_end = reader_.position(), file_size = head_end + reader_.remaining();
    const uint64_t padding = *checked_round_up(head_end, file_.alignment) - head_end;
    file_.data_begin = head_end + padding;
    if (file_.tensors.empty()) {
      // A file of metadata alone (a vocabulary) need not be padded.
      if (reader_.remaining() > padding) return refuse("no tensors, but {} bytes behind the head", reader_.remaining());
    } else if (padding > reader_.remaining()) {
      return refuse("ends inside its head, at offset {}", file_size);
    }
    const uint64_t present = std::min(padding, reader_.remaining());
    for (uint64_t i = 0; i < present; ++i) {
      const auto byte = reader_.number<uint8_t>();
      if (!byte) return at("padding", byte.failure());
      if (*byte != 0) return refuse("the padding at offset {} is not zero: the counts in the head do not fit its contents", head_end + i);
    }

    uint64_t expected = 0, end = file_.data_begin;
    for (TensorInfo& tensor : file_.tensors) {
      const std::string who = fmt::format("tensor \"{}\"", printable(tensor.name));
      if (tensor.offset != expected) return refuse("{}: offset {} where {} is expected (tensors lie one after the other)", who, tensor.offset, expected);
      const auto begin = checked_add(file_.data_begin, tensor.offset);
      const auto tensor_end = begin ? checked_add(*begin, tensor.bytes) : begin;
      const auto padded = tensor_end ? checked_round_up(tensor.bytes, file_.alignment) : tensor_end;
      const auto next = padded ? checked_add(expected, *padded) : padded;
      if (!next || *tensor_end > file_size)
        return refuse("{}: {} bytes from offset {} on, but the file ends at {}", who, tensor.bytes, begin.value_or(tensor.offset), file_size);
      tensor.offset = *begin;
      expected = *next;
      end = *tensor_end;
    }
    const uint64_t behind = file_.tensors.empty() ? 0 : file_size - end;
    if (behind > *checked_round_up(end - file_.data_begin, file_.alignment) - (end - file_.data_begin))
      return refuse("{} bytes behind the last tensor belong to nothing", behind);
    return Done{};
  }

  ByteReader reader_;
  std::string name_;
  GgufLimits limits_;
  GgufFile file_;
  std::unordered_set<std::string> names_;
};

}  // namespace

Result<GgufFile> read_gguf(const ByteSource& source, std::string_view name, const GgufLimits& limits) {
  return Parser(source, name, limits).parse();
}

}  // namespace regard
