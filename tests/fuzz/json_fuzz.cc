// Any bytes are either refused or read as a document that can be walked whole, and that is still the same document after
// the writer has written it.
#include "fuzz/fuzz.h"

#include <cmath>
#include <string_view>

#include "format/json_reader.h"
#include "regard/json.h"

namespace {

using regard::JsonType;
using regard::JsonValue;
using regard::fuzz::demand;

/// Copies a value into the writer, exercising every getter on the way; the wrong ones must refuse with a message.
void copy(const JsonValue& value, regard::JsonWriter& out, int depth) {
  demand(depth <= 64);
  const JsonType type = value.type();
  demand(static_cast<bool>(value.as_bool()) == (type == JsonType::kBool));
  demand(static_cast<bool>(value.as_string()) == (type == JsonType::kString));
  demand(static_cast<bool>(value.as_array()) == (type == JsonType::kArray));
  demand(static_cast<bool>(value.as_object()) == (type == JsonType::kObject));
  demand(static_cast<bool>(value.as_number()) == (type == JsonType::kInteger || type == JsonType::kReal));
  switch (type) {
    case JsonType::kNull: out.null(); break;
    case JsonType::kBool: out.value(*value.as_bool()); break;
    case JsonType::kInteger:
      if (const auto i = value.as_integer()) {
        out.value(*i);
      } else {
        out.value(*value.as_unsigned());
      }
      break;
    case JsonType::kReal:
      demand(std::isfinite(*value.as_number()));
      demand(!value.as_integer() && !value.as_unsigned());
      out.value(*value.as_number());
      break;
    case JsonType::kString: out.value(*value.as_string()); break;
    case JsonType::kArray: {
      out.begin_array();
      size_t n = 0;
      for (const JsonValue element : *value.as_array()) copy(element, out, depth + 1), ++n;
      demand(n == value.as_array()->size());
      out.end();
      break;
    }
    case JsonType::kObject: {
      out.begin_object();
      size_t n = 0;
      for (const auto [key, member] : *value.as_object()) {
        demand(value.as_object()->find(key)->path() == member.path());
        out.key(key);
        copy(member, out, depth + 1);
        ++n;
      }
      demand(n == value.as_object()->size());
      out.end();
      break;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Small, because every refusal looks for its path and each value is refused several times here.
  regard::JsonLimits limits;
  limits.max_bytes = 1 << 12;
  limits.max_keys = 20;
  limits.max_values = 100;
  limits.max_string_bytes = 100;
  const auto document = regard::JsonDocument::parse({reinterpret_cast<const char*>(data), size}, "fuzz", limits);
  if (!document) return 0;
  regard::JsonWriter first, second;
  copy(document->root(), first, 0);
  const std::string text = first.finish();
  const auto again = regard::JsonDocument::parse(text, "again");
  demand(static_cast<bool>(again));
  copy(again->root(), second, 0);
  demand(second.finish(regard::JsonStyle::kCompact) == text);
  return 0;
}

std::vector<std::string> regard::fuzz::seeds() {
  std::string wide = "[0", keys = "{\"k\":0";
  for (int i = 0; i < 90; ++i) wide += ",0";
  for (int i = 0; i < 20; ++i) keys += ",\"" + std::to_string(i) + "\":0";
  return {R"({"n":null,"t":true,"f":[false,-7,18446744073709551615,2.5,1e300,-0.0],"s":"a\u00e9\n\ud83d\ude00","o":{"x y":{"z":[[],{}]}}})",
          R"({"a":1,"b":2,"a":3})",
          "[" + std::string(64, '[') + std::string(64, ']') + "]",
          wide + "]",
          wide + wide.substr(1) + "]",
          keys + "}",
          "\"" + std::string(101, 'x') + "\"",
          std::string(5000, ' ') + "1",
          "[1e999]",
          R"(["\ud800"])",
          "\"\xFF\"",
          "-9223372036854775808"};
}
