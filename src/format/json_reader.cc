// The parser is simdjson's DOM. Its document is a "tape" of 64-bit words, whose layout is part of its documentation
// (doc/tape.md): the top byte of a word is its type, the rest a payload.
//   r  root: index behind the last word              { [  index behind the matching close, and a count in bits 32 to 55
//   "  offset of a length (4 bytes) and its text   } ]  index of the matching open
//   l u d  the number is the next word             t f n  nothing more
// Values here are indexes into that tape, which keeps them two words small and lets a refusal find its own path.
#include "format/json_reader.h"

#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "format/names.h"

namespace regard {
namespace internal {

struct JsonTape {
  simdjson::dom::document document;
  std::string name;

  char tag(size_t at) const noexcept { return static_cast<char>(document.tape[at] >> 56); }
  uint64_t payload(size_t at) const noexcept { return document.tape[at] & 0x00FFFFFFFFFFFFFFu; }
  bool is_container(size_t at) const noexcept { return tag(at) == '{' || tag(at) == '['; }
  bool is_number(size_t at) const noexcept { return tag(at) == 'l' || tag(at) == 'u' || tag(at) == 'd'; }

  size_t close_of(size_t at) const noexcept { return static_cast<size_t>(payload(at) & 0xFFFFFFFFu) - 1; }
  size_t after(size_t at) const noexcept { return is_container(at) ? close_of(at) + 1 : at + (is_number(at) ? 2 : 1); }

  std::string_view string(size_t at) const noexcept {
    const uint8_t* stored = document.string_buf.get() + payload(at);
    uint32_t length;
    std::memcpy(&length, stored, sizeof length);
    return {reinterpret_cast<const char*>(stored) + sizeof length, length};
  }

  /// The number of elements or members. simdjson's count stops at 2^24 - 1.
  size_t count(size_t at) const noexcept {
    constexpr uint64_t kSaturated = 0xFFFFFF;
    const uint64_t stored = (payload(at) >> 32) & kSaturated;
    if (stored < kSaturated) return static_cast<size_t>(stored);
    size_t n = 0;
    for (size_t i = at + 1; i != close_of(at); i = after(tag(at) == '{' ? i + 1 : i)) ++n;
    return n;
  }
};

}  // namespace internal

namespace {

using internal::JsonTape;

/// Upper bound of the values in `text`: one more than the commas, colons and opening brackets outside strings.
size_t count_values(std::string_view text) {
  size_t n = 1;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string) {
      if (c == '\\') ++i;
    } else if (c == ',' || c == ':' || c == '[' || c == '{') {
      ++n;
    }
  }
  return n;
}

std::string member_step(std::string_view key) {
  const bool plain = !key.empty() && key.size() <= 80 && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  return plain ? fmt::format(".{}", key) : fmt::format("[\"{}\"]", printable(key));
}

/// Finds a key that the object at `open` holds twice. Sorting by hash, then text, keeps this n log n for any input.
std::optional<size_t> duplicate_key(const JsonTape& tape, size_t open, std::vector<std::pair<size_t, size_t>>& scratch) {
  scratch.clear();
  const std::hash<std::string_view> hash;
  for (size_t i = open + 1; i != tape.close_of(open); i = tape.after(i + 1)) scratch.emplace_back(hash(tape.string(i)), i);
  if (scratch.size() < 2) return std::nullopt;
  std::sort(scratch.begin(), scratch.end(), [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first < b.first;
    const auto order = tape.string(a.second).compare(tape.string(b.second));
    return order != 0 ? order < 0 : a.second < b.second;
  });
  for (size_t i = 1; i < scratch.size(); ++i) {
    if (scratch[i].first == scratch[i - 1].first && tape.string(scratch[i].second) == tape.string(scratch[i - 1].second))
      return scratch[i].second;
  }
  return std::nullopt;
}

}  // namespace

std::string_view json_type_name(JsonType type) noexcept {
  switch (type) {
    case JsonType::kNull: return "null";
    case JsonType::kBool: return "a boolean";
    case JsonType::kInteger: return "an integer";
    case JsonType::kReal: return "a number with a fraction or exponent";
    case JsonType::kString: return "a string";
    case JsonType::kArray: return "an array";
    case JsonType::kObject: return "an object";
  }
  return "nothing";
}

JsonType JsonValue::type() const noexcept {
  switch (tape_->tag(at_)) {
    case '{': return JsonType::kObject;
    case '[': return JsonType::kArray;
    case '"': return JsonType::kString;
    case 'l': case 'u': return JsonType::kInteger;
    case 'd': return JsonType::kReal;
    case 't': case 'f': return JsonType::kBool;
    default: return JsonType::kNull;
  }
}

std::string JsonValue::path() const {
  std::string path = "$";
  size_t here = 1;
  while (here != at_) {
    const bool object = tape_->tag(here) == '{';
    const size_t close = tape_->close_of(here);
    size_t child = here + 1, index = 0;
    while (child != close) {
      const size_t value = object ? child + 1 : child, next = tape_->after(value);
      if (at_ < next) {
        path += object ? member_step(tape_->string(child)) : fmt::format("[{}]", index);
        if (at_ == child) return path;  // the key itself
        here = value;
        break;
      }
      child = next;
      ++index;
    }
    if (child == close) break;
  }
  return path;
}

Failure JsonValue::refuse(std::string_view why) const { return corrupt("[json] {}: {}: {}", tape_->name, path(), why); }

Failure JsonValue::wrong_type(std::string_view expected) const {
  return refuse(fmt::format("expected {}, found {}", expected, json_type_name(type())));
}

Result<bool> JsonValue::as_bool() const {
  if (type() != JsonType::kBool) return wrong_type("a boolean");
  return tape_->tag(at_) == 't';
}

Result<int64_t> JsonValue::as_integer(int64_t min, int64_t max) const {
  if (type() != JsonType::kInteger) return wrong_type("an integer");
  const uint64_t word = tape_->document.tape[at_ + 1];
  const bool beyond = tape_->tag(at_) == 'u' && word > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (beyond) return refuse(fmt::format("expected an integer from {} to {}, found {}", min, max, word));
  const auto value = static_cast<int64_t>(word);
  if (value < min || value > max) return refuse(fmt::format("expected an integer from {} to {}, found {}", min, max, value));
  return value;
}

Result<uint64_t> JsonValue::as_unsigned(uint64_t max) const {
  if (type() != JsonType::kInteger) return wrong_type("a non-negative integer");
  const uint64_t word = tape_->document.tape[at_ + 1];
  if (tape_->tag(at_) == 'l' && static_cast<int64_t>(word) < 0)
    return refuse(fmt::format("expected an integer from 0 to {}, found {}", max, static_cast<int64_t>(word)));
  if (word > max) return refuse(fmt::format("expected an integer from 0 to {}, found {}", max, word));
  return word;
}

Result<double> JsonValue::as_number(double min, double max) const {
  double value = 0;
  const uint64_t word = tape_->is_number(at_) ? tape_->document.tape[at_ + 1] : 0;
  switch (tape_->tag(at_)) {
    case 'l': value = static_cast<double>(static_cast<int64_t>(word)); break;
    case 'u': value = static_cast<double>(word); break;
    case 'd': value = std::bit_cast<double>(word); break;
    default: return wrong_type("a number");
  }
  if (!(value >= min && value <= max)) return refuse(fmt::format("expected a number from {} to {}, found {}", min, max, value));
  return value;
}

Result<std::string_view> JsonValue::as_string() const {
  if (type() != JsonType::kString) return wrong_type("a string");
  return tape_->string(at_);
}

Result<JsonArray> JsonValue::as_array() const {
  if (type() != JsonType::kArray) return wrong_type("an array");
  return JsonArray(tape_, at_);
}

Result<JsonObject> JsonValue::as_object() const {
  if (type() != JsonType::kObject) return wrong_type("an object");
  return JsonObject(tape_, at_);
}

JsonArray::JsonArray(const JsonTape* tape, size_t at) : tape_(tape), first_(at + 1), end_(tape->close_of(at)) {}
size_t JsonArray::size() const noexcept { return tape_->count(first_ - 1); }
JsonArray::Iterator& JsonArray::Iterator::operator++() noexcept {
  at_ = tape_->after(at_);
  return *this;
}

JsonObject::JsonObject(const JsonTape* tape, size_t at) : tape_(tape), first_(at + 1), end_(tape->close_of(at)) {}
size_t JsonObject::size() const noexcept { return tape_->count(first_ - 1); }
JsonMember JsonObject::Iterator::operator*() const noexcept { return {tape_->string(at_), JsonValue(tape_, at_ + 1)}; }
JsonObject::Iterator& JsonObject::Iterator::operator++() noexcept {
  at_ = tape_->after(at_ + 1);
  return *this;
}

std::optional<JsonValue> JsonObject::find(std::string_view key) const noexcept {
  for (const JsonMember member : *this)
    if (member.key == key) return member.value;
  return std::nullopt;
}

Result<JsonValue> JsonObject::get(std::string_view key) const {
  if (const auto found = find(key)) return *found;
  return value().refuse(fmt::format("the key \"{}\" is missing", printable(key)));
}

namespace {

/// Nothing for an absent or null member, else what `read` makes of it.
template <class T, class F>
Result<std::optional<T>> optional_member(const JsonObject& object, std::string_view key, F&& read) {
  const auto found = object.find(key);
  if (!found || found->is_null()) return std::optional<T>();
  REGARD_TRY(T value, read(*found));
  return std::optional<T>(std::move(value));
}

}  // namespace

Result<std::optional<bool>> JsonObject::optional_bool(std::string_view key) const {
  return optional_member<bool>(*this, key, [](JsonValue v) { return v.as_bool(); });
}
Result<std::optional<int64_t>> JsonObject::optional_integer(std::string_view key, int64_t min, int64_t max) const {
  return optional_member<int64_t>(*this, key, [&](JsonValue v) { return v.as_integer(min, max); });
}
Result<std::optional<double>> JsonObject::optional_number(std::string_view key, double min, double max) const {
  return optional_member<double>(*this, key, [&](JsonValue v) { return v.as_number(min, max); });
}
Result<std::optional<std::string_view>> JsonObject::optional_string(std::string_view key) const {
  return optional_member<std::string_view>(*this, key, [](JsonValue v) { return v.as_string(); });
}
Result<std::optional<JsonObject>> JsonObject::optional_object(std::string_view key) const {
  return optional_member<JsonObject>(*this, key, [](JsonValue v) { return v.as_object(); });
}
Result<std::optional<JsonArray>> JsonObject::optional_array(std::string_view key) const {
  return optional_member<JsonArray>(*this, key, [](JsonValue v) { return v.as_array(); });
}

namespace {

/// Whether an integer as written fits 64 bits, signed or not.
bool fits_64_bits(std::string_view digits) {
  int64_t with_sign = 0;
  uint64_t without = 0;
  const char* const end = digits.data() + digits.size();
  return std::from_chars(digits.data(), end, with_sign).ec == std::errc() || std::from_chars(digits.data(), end, without).ec == std::errc();
}

/// `text` with ".0" behind every integer that does not fit 64 bits. JSON has no largest integer, the parser has: files of published
/// models hold 1000000000000000019884624838656 for "no limit", which thus becomes a real number.
std::string with_long_integers_as_reals(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::string out;
  out.reserve(text.size() + 64);
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (in_string || !(is_digit(c) || c == '-')) {
      if (in_string && c == '\\' && i + 1 < text.size()) out += text[i++];
      if (c == '"') in_string = !in_string;
      out += text[i++];
      continue;
    }
    // A number, up to the first character that cannot belong to one.
    size_t end = i + 1;
    bool integer = true;
    for (; end < text.size(); ++end) {
      const char d = text[end];
      if (is_digit(d)) continue;
      if (d == '.' || d == 'e' || d == 'E' || d == '+' || d == '-') {
        integer = false;
      } else {
        break;
      }
    }
    out += text.substr(i, end - i);
    if (integer && !fits_64_bits(text.substr(i, end - i))) out += ".0";
    i = end;
  }
  return out;
}

}  // namespace

JsonDocument::JsonDocument(std::unique_ptr<JsonTape> tape) : tape_(std::move(tape)) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;
JsonValue JsonDocument::root() const noexcept { return JsonValue(tape_.get(), 1); }

Result<JsonDocument> JsonDocument::parse(std::string_view text, std::string_view name, const JsonLimits& limits) {
  // The price first: simdjson takes memory in proportion to the values, so they are counted before it is called. A text
  // too short to hold that many (two bytes each) needs no counting.
  if (text.size() > limits.max_bytes)
    return failure(Code::kResourceExhausted, "[json] {}: {} bytes, the limit is {}", name, text.size(), limits.max_bytes);
  if (text.size() / 2 >= limits.max_values && count_values(text) > limits.max_values)
    return failure(Code::kResourceExhausted, "[json] {}: more than {} values", name, limits.max_values);

  if (text.empty()) return corrupt("[json] {}: not valid JSON: the text is empty", name);

  auto tape = std::make_unique<JsonTape>();
  tape->name = std::string(name);
  {
    simdjson::dom::parser parser;
    simdjson::dom::element root;
    // One level more than is allowed, so that the message about depth is ours; the walk below counts exactly.
    simdjson::error_code error = parser.allocate(text.size(), limits.max_depth + 1);
    if (error == simdjson::SUCCESS) error = parser.parse_into_document(tape->document, text.data(), text.size(), true).get(root);
    if (error == simdjson::NUMBER_ERROR) {
      const std::string reals = with_long_integers_as_reals(text);
      error = parser.parse_into_document(tape->document, reals.data(), reals.size(), true).get(root);
    }
    if (error == simdjson::MEMALLOC) return failure(Code::kResourceExhausted, "[json] {}: no memory for {} bytes", name, text.size());
    if (error == simdjson::DEPTH_ERROR) return corrupt("[json] {}: nested deeper than {} levels", name, limits.max_depth);
    if (error != simdjson::SUCCESS) return corrupt("[json] {}: not valid JSON: {}", name, simdjson::error_message(error));
  }

  const size_t end = static_cast<size_t>(tape->payload(0)) - 1;  // the closing root word
  size_t depth = 0, keys = 0, values = 0;
  std::vector<std::pair<size_t, size_t>> scratch;
  for (size_t at = 1; at < end; at += tape->is_number(at) ? 2 : 1) {
    const char tag = tape->tag(at);
    if (tag == '}' || tag == ']') {
      --depth;
      continue;
    }
    ++values;
    if (tag == '"' && tape->string(at).size() > limits.max_string_bytes) {
      return failure(Code::kResourceExhausted, "[json] {}: {}: a string of {} bytes, the limit is {}", name,
                     JsonValue(tape.get(), at).path(), tape->string(at).size(), limits.max_string_bytes);
    }
    if (tag == '{' || tag == '[') {
      if (++depth > limits.max_depth) return corrupt("[json] {}: nested deeper than {} levels", name, limits.max_depth);
    }
    if (tag == '{') {
      keys += tape->count(at);
      if (keys > limits.max_keys) return failure(Code::kResourceExhausted, "[json] {}: more than {} keys", name, limits.max_keys);
      if (const auto twice = duplicate_key(*tape, at, scratch))
        return JsonValue(tape.get(), at).refuse(fmt::format("the key \"{}\" stands there twice", printable(tape->string(*twice))));
    }
  }
  if (values > limits.max_values) return failure(Code::kResourceExhausted, "[json] {}: more than {} values", name, limits.max_values);
  return JsonDocument(std::move(tape));
}

}  // namespace regard
