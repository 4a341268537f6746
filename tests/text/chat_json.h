// Reads the goldens of chat templates: JSON as values of the interpreter and of the public interface.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "regard/chat_template.h"
#include "text/jinja/runtime.h"

namespace regard {

using Json = nlohmann::ordered_json;

/// One JSON value per line; lines end at LF and nowhere else.
inline std::vector<Json> read_json_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(Json::parse(line));
  return rows;
}

inline TemplateValue to_template_value(const Json& json) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    TemplateValue::Array items;
    for (const Json& item : json) items.push_back(to_template_value(item));
    return items;
  }
  TemplateValue::Object members;
  for (const auto& [name, member] : json.items()) members.emplace_back(name, to_template_value(member));
  return members;
}

inline std::vector<ChatMessage> to_messages(const Json& json) {
  std::vector<ChatMessage> messages;
  for (const Json& message : json) {
    ChatMessage& out = messages.emplace_back();
    for (const auto& [name, value] : message.items()) {
      if (name == "role") {
        out.role = value.get<std::string>();
      } else if (name == "content") {
        out.content = to_template_value(value);
      } else {
        out.extra.emplace_back(name, to_template_value(value));
      }
    }
  }
  return messages;
}

/// The same for the interpreter; all text is marked as contents.
inline jinja::Value to_jinja_value(jinja::Runtime& runtime, const Json& json) {
  if (json.is_null()) return jinja::None{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return jinja::MarkedText(json.get<std::string>(), jinja::Origin::kContent);
  if (json.is_array()) {
    std::vector<jinja::Value> items;
    for (const Json& item : json) items.push_back(to_jinja_value(runtime, item));
    return runtime.list(std::move(items));
  }
  jinja::Dict dict;
  for (const auto& [name, member] : json.items()) {
    runtime.set(dict, jinja::MarkedText(name, jinja::Origin::kContent), to_jinja_value(runtime, member));
  }
  return runtime.dict(std::move(dict));
}

/// The moment for which the goldens were made: Tuesday, 3 February 2026, 14:05:09.
inline std::tm golden_time() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mon = 1;
  time.tm_mday = 3;
  time.tm_hour = 14;
  time.tm_min = 5;
  time.tm_sec = 9;
  time.tm_wday = 2;
  time.tm_yday = 33;
  return time;
}

}  // namespace regard
