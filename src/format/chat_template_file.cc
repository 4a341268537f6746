#include "format/chat_template_file.h"

#include "format/json_reader.h"

namespace regard {

Result<std::optional<std::string>> chat_template_of_config(std::string_view text) {
  REGARD_TRY(const JsonDocument document, JsonDocument::parse(text, "tokenizer_config.json"));
  REGARD_TRY(const JsonObject root, document.root().as_object());
  const std::optional<JsonValue> value = root.find("chat_template");
  if (!value || value->is_null()) return std::optional<std::string>();
  if (value->type() == JsonType::kString) {
    REGARD_TRY(const std::string_view source, value->as_string());
    return std::optional<std::string>(source);
  }
  REGARD_TRY(const JsonArray list, value->as_array());
  for (const JsonValue entry : list) {
    REGARD_TRY(const JsonObject named, entry.as_object());
    REGARD_TRY(const JsonValue name_value, named.get("name"));
    REGARD_TRY(const std::string_view name, name_value.as_string());
    REGARD_TRY(const JsonValue source_value, named.get("template"));
    REGARD_TRY(const std::string_view source, source_value.as_string());
    if (name == "default") return std::optional<std::string>(source);
  }
  return std::optional<std::string>();
}

}  // namespace regard
