// Metadata of GGUF files: finding a value and holding it against a type and a range.
#include <cmath>
#include <cstring>

#include "format/gguf.h"
#include "format/names.h"

namespace regard {
namespace {

template <class T>
T load(const std::vector<uint8_t>& raw, uint64_t i) noexcept {
  T value;
  std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
  return value;
}

std::string describe(const GgufValue& value) {
  if (value.type != GgufType::kArray) return std::string(gguf_type_name(value.type));
  return fmt::format("array of {} {}", value.count, gguf_type_name(value.element));
}

}  // namespace

std::string_view gguf_type_name(GgufType type) noexcept {
  switch (type) {
    case GgufType::kU8: return "u8";
    case GgufType::kI8: return "i8";
    case GgufType::kU16: return "u16";
    case GgufType::kI16: return "i16";
    case GgufType::kU32: return "u32";
    case GgufType::kI32: return "i32";
    case GgufType::kF32: return "f32";
    case GgufType::kBool: return "bool";
    case GgufType::kString: return "string";
    case GgufType::kArray: return "array";
    case GgufType::kU64: return "u64";
    case GgufType::kI64: return "i64";
    case GgufType::kF64: return "f64";
  }
  return "unknown";
}

std::optional<int64_t> GgufValue::integer_at(uint64_t i) const noexcept {
  switch (element) {
    case GgufType::kU8: return load<uint8_t>(raw, i);
    case GgufType::kI8: return load<int8_t>(raw, i);
    case GgufType::kU16: return load<uint16_t>(raw, i);
    case GgufType::kI16: return load<int16_t>(raw, i);
    case GgufType::kU32: return load<uint32_t>(raw, i);
    case GgufType::kI32: return load<int32_t>(raw, i);
    case GgufType::kI64: return load<int64_t>(raw, i);
    case GgufType::kU64: return checked_cast<int64_t>(load<uint64_t>(raw, i));
    default: return std::nullopt;
  }
}

std::optional<double> GgufValue::real_at(uint64_t i) const noexcept {
  if (element == GgufType::kF32) return load<float>(raw, i);
  if (element == GgufType::kF64) return load<double>(raw, i);
  return std::nullopt;
}

bool GgufMetadata::insert(std::string key, GgufValue value) {
  const auto [place, fresh] = values_.emplace(key, std::move(value));
  if (fresh) keys_.push_back(std::move(key));
  return fresh;
}

const GgufValue* GgufMetadata::find(std::string_view key) const noexcept {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Failure GgufMetadata::refuse(std::string_view key, std::string_view why) const {
  return corrupt("[gguf] {}: key \"{}\": {}", name_, printable(key), why);
}

Result<std::optional<int64_t>> GgufMetadata::optional_integer(std::string_view key, int64_t min, int64_t max) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const auto number = value->type == GgufType::kArray ? std::nullopt : value->integer_at(0);
  if (!number) return refuse(key, fmt::format("expected an integer, found {}", describe(*value)));
  if (*number < min || *number > max) return refuse(key, fmt::format("expected an integer from {} to {}, found {}", min, max, *number));
  return number;
}

Result<std::optional<double>> GgufMetadata::optional_number(std::string_view key, double min, double max) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<double>();
  const auto number = value->type == GgufType::kArray ? std::nullopt : value->real_at(0);
  if (!number) return refuse(key, fmt::format("expected f32 or f64, found {}", describe(*value)));
  if (!(*number >= min && *number <= max)) return refuse(key, fmt::format("expected a number from {} to {}, found {}", min, max, *number));
  return number;
}

Result<std::optional<bool>> GgufMetadata::optional_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->type != GgufType::kBool) return refuse(key, fmt::format("expected bool, found {}", describe(*value)));
  return std::optional<bool>(value->raw[0] != 0);
}

Result<std::optional<std::string_view>> GgufMetadata::optional_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (value->type != GgufType::kString) return refuse(key, fmt::format("expected a string, found {}", describe(*value)));
  return std::optional<std::string_view>(value->string);
}

Result<const StringList*> GgufMetadata::optional_strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return static_cast<const StringList*>(nullptr);
  if (value->type != GgufType::kArray || value->element != GgufType::kString)
    return refuse(key, fmt::format("expected an array of strings, found {}", describe(*value)));
  return &value->strings;
}

Result<std::optional<std::vector<int64_t>>> GgufMetadata::optional_integers(std::string_view key, int64_t min, int64_t max) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::vector<int64_t>>();
  std::vector<int64_t> numbers;
  if (value->type == GgufType::kArray) numbers.reserve(static_cast<size_t>(value->count));
  for (uint64_t i = 0; value->type == GgufType::kArray && i < value->count; ++i) {
    const auto number = value->integer_at(i);
    if (!number) break;
    if (*number < min || *number > max)
      return refuse(key, fmt::format("element {}: expected an integer from {} to {}, found {}", i, min, max, *number));
    numbers.push_back(*number);
  }
  if (value->type != GgufType::kArray || numbers.size() != value->count)
    return refuse(key, fmt::format("expected an array of integers, found {}", describe(*value)));
  return std::optional(std::move(numbers));
}

Result<std::optional<std::vector<double>>> GgufMetadata::optional_numbers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::vector<double>>();
  const bool reals = value->type == GgufType::kArray && (value->element == GgufType::kF32 || value->element == GgufType::kF64);
  if (!reals) return refuse(key, fmt::format("expected an array of f32 or f64, found {}", describe(*value)));
  std::vector<double> numbers(static_cast<size_t>(value->count));
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = *value->real_at(i);
    if (!std::isfinite(numbers[i])) return refuse(key, fmt::format("element {} is {}", i, numbers[i]));
  }
  return std::optional(std::move(numbers));
}

Result<std::optional<std::vector<int64_t>>> GgufMetadata::optional_per_layer(std::string_view key, size_t layers, int64_t min,
                                                                             int64_t max) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::vector<int64_t>>();
  if (value->type != GgufType::kArray) {
    REGARD_TRY(const auto one, optional_integer(key, min, max));
    return std::optional(std::vector<int64_t>(layers, *one));
  }
  REGARD_TRY(auto numbers, optional_integers(key, min, max));
  if (numbers->size() != layers) return refuse(key, fmt::format("{} values for {} layers", numbers->size(), layers));
  return numbers;
}

namespace {

template <class T>
Result<T> required(const GgufMetadata& metadata, std::string_view key, Result<std::optional<T>> found) {
  if (!found) return found.failure();
  if (!found->has_value()) return metadata.refuse(key, "missing");
  return **std::move(found);
}

}  // namespace

Result<int64_t> GgufMetadata::integer(std::string_view key, int64_t min, int64_t max) const {
  return required<int64_t>(*this, key, optional_integer(key, min, max));
}
Result<double> GgufMetadata::number(std::string_view key, double min, double max) const {
  return required<double>(*this, key, optional_number(key, min, max));
}
Result<std::string_view> GgufMetadata::string(std::string_view key) const {
  return required<std::string_view>(*this, key, optional_string(key));
}

}  // namespace regard
