// Reading and writing configurations. What the fields are stands in config_table.cc; here is how one is set.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "format/json_reader.h"
#include "format/names.h"
#include "regard/json.h"
#include "train/config_table.h"

namespace regard {

using train_config::Choice;
using train_config::Field;
using train_config::Value;

namespace {

const Field* find_field(std::string_view name) {
  for (const Field& field : train_config::fields())
    if (field.full_name() == name) return &field;
  return nullptr;
}

bool is_section(std::string_view name) {
  const auto all = train_config::fields();
  return std::any_of(all.begin(), all.end(), [&](const Field& field) { return field.section == name; });
}

[[noreturn]] void refuse_value(const Field& field, std::string_view from, std::string_view given) {
  const bool whole = std::holds_alternative<int64_t>(field.get(TrainConfig()));
  fail(Code::kInvalidArgument, "[train] {}: {} is {}; expected {}{}", from, field.full_name(), given, whole ? "a whole number, " : "", train_config::range_text(field));
}

Value chosen(const Field& field, std::string_view from, std::string_view word) {
  const auto words = train_config::words(field);
  const auto at = std::find(words.begin(), words.end(), word);
  if (at == words.end()) refuse_value(field, from, fmt::format("'{}'", printable(word)));
  return Choice{static_cast<size_t>(at - words.begin())};
}

Value json_value(const Field& field, std::string_view from, const JsonValue& json) {
  const auto given = [&] {
    const auto number = json.as_number();
    const auto word = json.as_string();
    if (number) return json.as_integer() ? fmt::format("{}", *number) : fmt::format("{:#}", *number);  // 2.0 is shown as what it is
    return word ? fmt::format("'{}'", printable(*word)) : std::string(json_type_name(json.type()));
  };
  const auto checked = [&](const auto& result) {
    if (!result) refuse_value(field, from, given());
    return *result;
  };
  const Value current = field.get(TrainConfig());
  if (std::holds_alternative<Choice>(current)) return chosen(field, from, checked(json.as_string()));
  if (std::holds_alternative<std::string>(current)) return std::string(checked(json.as_string()));
  if (std::holds_alternative<uint64_t>(current)) return checked(json.as_unsigned());
  if (std::holds_alternative<double>(current)) return checked(json.as_number(field.min, field.max));
  if (std::holds_alternative<int64_t>(current)) {
    return checked(json.as_integer(static_cast<int64_t>(field.min), static_cast<int64_t>(field.max)));
  }
  std::vector<std::string> list;
  if (const auto one = json.as_string()) return std::vector<std::string>{std::string(*one)};
  for (const JsonValue element : checked(json.as_array())) {
    const auto text = element.as_string();
    if (!text) refuse_value(field, from, fmt::format("a list with {} as element {}", json_type_name(element.type()), list.size()));
    list.emplace_back(*text);
  }
  return list;
}

Value text_value(const Field& field, std::string_view text) {
  constexpr std::string_view kFrom = "--set";
  const auto number = [&]<class T>(T value) -> Value {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool inside = static_cast<double>(value) >= field.min && static_cast<double>(value) <= field.max;  // false for NaN
    if (error != std::errc() || end != text.data() + text.size() || !inside) refuse_value(field, kFrom, fmt::format("'{}'", printable(text)));
    return value;
  };
  const Value current = field.get(TrainConfig());
  if (std::holds_alternative<Choice>(current)) return chosen(field, kFrom, text);
  if (std::holds_alternative<uint64_t>(current)) return number(uint64_t{0});
  if (std::holds_alternative<int64_t>(current)) return number(int64_t{0});
  if (std::holds_alternative<double>(current)) return number(0.0);
  if (std::holds_alternative<std::string>(current)) return std::string(text);
  std::vector<std::string> list;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    if (end > 0) list.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return list;
}

void write_value(JsonWriter& json, const Field& field, const Value& value) {
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    json.begin_array();
    for (const std::string& text : *list) json.value(text);
    json.end();
  } else if (const auto* whole = std::get_if<int64_t>(&value)) {
    json.value(*whole);
  } else if (const auto* natural = std::get_if<uint64_t>(&value)) {
    json.value(*natural);
  } else if (const auto* real = std::get_if<double>(&value)) {
    json.value(*real);
  } else {
    json.value(train_config::value_text(field, value));
  }
}

}  // namespace

TrainConfig parse_train_config(std::string_view text, std::string_view name) {
  const JsonDocument document = JsonDocument::parse(text, name).value_or_throw();
  const auto sections = document.root().as_object();
  if (!sections) fail(Code::kInvalidArgument, "[train] {}: expected an object with the sections model, data, optimizer, schedule and run", name);
  TrainConfig config;
  for (const auto [section, members] : *sections) {
    if (!is_section(section)) {
      fail(Code::kInvalidArgument, "[train] {}: there is no section '{}'; there are model, data, optimizer, schedule and run{}", name, printable(section),
           train_config::meant(section));
    }
    const auto object = members.as_object();
    if (!object) fail(Code::kInvalidArgument, "[train] {}: the section {} is {}; expected an object", name, section, json_type_name(members.type()));
    for (const auto [key, value] : *object) {
      const std::string full = fmt::format("{}.{}", section, key);
      const Field* field = find_field(full);
      if (field == nullptr) fail(Code::kInvalidArgument, "[train] {}: there is no field {}{}", name, printable(full), train_config::meant(full));
      field->set(config, json_value(*field, name, value));
      config.given.push_back(full);
    }
  }
  return config;
}

void set_train_field(TrainConfig& config, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    fail(Code::kInvalidArgument, "[train] --set {}: expected section.field=value", printable(assignment));
  }
  const std::string_view name = assignment.substr(0, equals);
  const Field* field = find_field(name);
  if (field == nullptr) fail(Code::kInvalidArgument, "[train] --set: there is no field {}{}", printable(name), train_config::meant(name));
  field->set(config, text_value(*field, assignment.substr(equals + 1)));
  config.given.emplace_back(name);
}

std::vector<TrainConfigField> train_config_fields(const TrainConfig& config) {
  const TrainConfig defaults;
  std::vector<TrainConfigField> all;
  for (const Field& field : train_config::fields()) {
    const Value value = field.get(config);
    all.push_back({field.full_name(), std::string(field.help), train_config::range_text(field), train_config::value_text(field, value),
                   value == field.get(defaults)});
  }
  return all;
}

std::string train_config_json(const TrainConfig& config) {
  JsonWriter json;
  json.begin_object();
  std::string_view section;
  for (const Field& field : train_config::fields()) {
    if (field.section != section) {
      if (!section.empty()) json.end();
      section = field.section;
      json.key(section).begin_object();
    }
    json.key(field.name);
    write_value(json, field, field.get(config));
  }
  return json.end().end().finish(JsonStyle::kIndented) + "\n";
}

}  // namespace regard
