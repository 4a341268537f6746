// Reading JSON from outside: configurations, indexes, headers, tokenizer files. A document is parsed and checked once
// (depth, duplicate keys, counts), then read through small values that demand a type and a range and, when they refuse,
// name the place: "config.json: $.rope_scaling.factor: expected a number, found a string".
//
// Start at JsonDocument::parse, then JsonValue. Nothing here shows the library that does the parsing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace regard {

/// What a document may hold. The defaults suit configurations and headers; a tokenizer file states its own.
struct JsonLimits {
  size_t max_bytes = size_t{16} << 20;         ///< of the whole text
  size_t max_depth = 64;                       ///< of arrays and objects inside each other
  size_t max_values = 2'000'000;               ///< scalars, arrays and objects together, keys counted as well
  size_t max_keys = 100'000;                   ///< members of all objects together
  size_t max_string_bytes = size_t{8} << 20;   ///< of one string or key, after its escapes are resolved
};

enum class JsonType : uint8_t { kNull, kBool, kInteger, kReal, kString, kArray, kObject };

/// "a string", "an integer" and so on, for messages.
std::string_view json_type_name(JsonType type) noexcept;

class JsonArray;
class JsonObject;
namespace internal {
struct JsonTape;
}

/// One value of a document: two words, copied freely, valid as long as the JsonDocument (moved or not) lives.
class JsonValue {
 public:
  JsonType type() const noexcept;
  bool is_null() const noexcept { return type() == JsonType::kNull; }

  Result<bool> as_bool() const;
  /// An integer written as one (no fraction, no exponent), within [min, max]. One beyond 64 bits is a real.
  Result<int64_t> as_integer(int64_t min = std::numeric_limits<int64_t>::min(),
                             int64_t max = std::numeric_limits<int64_t>::max()) const;
  /// An unsigned integer up to 2^64 - 1.
  Result<uint64_t> as_unsigned(uint64_t max = std::numeric_limits<uint64_t>::max()) const;
  /// An integer or a real, within [min, max]; finite by construction, for JSON has no other numbers.
  Result<double> as_number(double min = std::numeric_limits<double>::lowest(),
                           double max = std::numeric_limits<double>::max()) const;
  /// The text after its escapes are resolved: valid UTF-8, may hold NUL. A view into the document.
  Result<std::string_view> as_string() const;
  Result<JsonArray> as_array() const;
  Result<JsonObject> as_object() const;

  /// Where the value stands, for example $.model.vocab["a b"] or $.merges[17]. Found by searching: for messages only.
  std::string path() const;
  /// A refusal that begins with the name of the document and the path of this value.
  Failure refuse(std::string_view why) const;

 private:
  friend class JsonDocument;
  friend class JsonArray;
  friend class JsonObject;
  JsonValue(const internal::JsonTape* tape, size_t at) : tape_(tape), at_(at) {}

  Failure wrong_type(std::string_view expected) const;

  const internal::JsonTape* tape_;
  size_t at_;
};

/// The elements of an array in order: for (JsonValue element : array).
class JsonArray {
 public:
  class Iterator {
   public:
    JsonValue operator*() const noexcept { return JsonValue(tape_, at_); }
    Iterator& operator++() noexcept;
    bool operator==(const Iterator& other) const noexcept { return at_ == other.at_; }

   private:
    friend class JsonArray;
    Iterator(const internal::JsonTape* tape, size_t at) : tape_(tape), at_(at) {}
    const internal::JsonTape* tape_;
    size_t at_;
  };

  Iterator begin() const noexcept { return {tape_, first_}; }
  Iterator end() const noexcept { return {tape_, end_}; }
  /// The number of elements. Cost: constant below 2^24 - 1 elements, a pass over the array above.
  size_t size() const noexcept;
  bool empty() const noexcept { return first_ == end_; }

 private:
  friend class JsonValue;
  JsonArray(const internal::JsonTape* tape, size_t at);
  const internal::JsonTape* tape_;
  size_t first_, end_;
};

struct JsonMember {
  std::string_view key;
  JsonValue value;
};

/// The members of an object in the order of the text; keys are unique. for (auto [key, value] : object).
class JsonObject {
 public:
  class Iterator {
   public:
    JsonMember operator*() const noexcept;
    Iterator& operator++() noexcept;
    bool operator==(const Iterator& other) const noexcept { return at_ == other.at_; }

   private:
    friend class JsonObject;
    Iterator(const internal::JsonTape* tape, size_t at) : tape_(tape), at_(at) {}
    const internal::JsonTape* tape_;
    size_t at_;
  };

  Iterator begin() const noexcept { return {tape_, first_}; }
  Iterator end() const noexcept { return {tape_, end_}; }
  size_t size() const noexcept;
  bool empty() const noexcept { return first_ == end_; }

  /// The member named `key`, by a linear search.
  std::optional<JsonValue> find(std::string_view key) const noexcept;
  /// The same, refusing when there is none.
  Result<JsonValue> get(std::string_view key) const;

  /// Members that may be missing: nothing when the key is absent or its value is null, a refusal when the type or the
  /// range is wrong.
  Result<std::optional<bool>> optional_bool(std::string_view key) const;
  Result<std::optional<int64_t>> optional_integer(std::string_view key, int64_t min, int64_t max) const;
  Result<std::optional<double>> optional_number(std::string_view key, double min, double max) const;
  Result<std::optional<std::string_view>> optional_string(std::string_view key) const;
  Result<std::optional<JsonObject>> optional_object(std::string_view key) const;
  Result<std::optional<JsonArray>> optional_array(std::string_view key) const;

  /// The object itself as a value, for path() and refuse().
  JsonValue value() const noexcept { return JsonValue(tape_, first_ - 1); }

 private:
  friend class JsonValue;
  JsonObject(const internal::JsonTape* tape, size_t at);
  const internal::JsonTape* tape_;
  size_t first_, end_;
};

/// A parsed text. Owns what its values and their string views refer to; the bytes given to parse() may go.
class JsonDocument {
 public:
  /// Parses `text` whole. `name` ("config.json") begins every message about it.
  /// Refused: anything but one RFC 8259 value in valid UTF-8 (a byte order mark, NaN, trailing text, lone surrogates,
  /// numbers beyond double), duplicate keys at any level, whatever exceeds `limits`.
  /// Cost: linear in the text, plus a sort of each object's keys. Memory: below 12 bytes per byte of text in the worst
  /// case (text made of one-digit numbers), about 2 for tokenizer files.
  static Result<JsonDocument> parse(std::string_view text, std::string_view name, const JsonLimits& limits = {});

  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  JsonValue root() const noexcept;

 private:
  explicit JsonDocument(std::unique_ptr<internal::JsonTape> tape);
  std::unique_ptr<internal::JsonTape> tape_;
};

}  // namespace regard
