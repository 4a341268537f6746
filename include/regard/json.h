// Writing JSON: the one writer of the project, for programs that print data (--json) and for files that are made here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "regard/export.h"

namespace regard {

enum class JsonStyle {
  kCompact,   ///< one line, no spaces: one record of a JSON Lines stream
  kIndented,  ///< two spaces per level
};

/// Builds one JSON text, value by value:
///
///     JsonWriter json;
///     json.begin_object().member("name", "smollm2").key("shape").begin_array().value(576).value(49152).end().end();
///     std::string text = json.finish();
///
/// Members keep the order in which they are written. Strings may hold any bytes: what is not UTF-8 becomes U+FFFD.
/// Numbers are written so that they read back as the same number (a float in the shortest decimal that reads back as that
/// float), with a decimal point whatever the locale.
/// Errors: kNumeric for NaN and infinities, which JSON does not have (write null where that is meant); kInvalidArgument
/// for a call that does not fit: a value without its key, a key twice, an end without a begin.
/// Threads: one writer belongs to one thread at a time.
class REGARD_API JsonWriter {
 public:
  JsonWriter();
  JsonWriter(JsonWriter&&) noexcept;
  JsonWriter& operator=(JsonWriter&&) noexcept;
  ~JsonWriter();

  JsonWriter& begin_object();
  JsonWriter& begin_array();
  /// Ends the innermost object or array.
  JsonWriter& end();
  /// Names the member that the next value, object or array becomes.
  JsonWriter& key(std::string_view name);

  JsonWriter& null();
  JsonWriter& value(bool v);
  JsonWriter& value(int v);
  JsonWriter& value(int64_t v);
  JsonWriter& value(uint64_t v);
  JsonWriter& value(long long v);
  JsonWriter& value(unsigned long long v);
  JsonWriter& value(unsigned v);
  JsonWriter& value(float v);
  JsonWriter& value(double v);
  JsonWriter& value(std::string_view v);
  JsonWriter& value(const char* v) { return value(std::string_view(v)); }
  JsonWriter& value(const std::string& v) { return value(std::string_view(v)); }

  /// key(name) and value(v) in one.
  template <class T>
  JsonWriter& member(std::string_view name, const T& v) {
    return key(name).value(v);
  }

  /// The text, without a line end; the writer is empty again afterwards.
  std::string finish(JsonStyle style = JsonStyle::kCompact);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace regard
