// The one table of what a training run can be told: name, default, range and help of every field of TrainConfig.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "regard/train.h"

namespace regard::train_config {

/// Whether a run that goes on may have another value than it began with.
enum class OnResume { kFixed, kFree };

/// The place of a word in the list of a field's choices.
struct Choice {
  size_t index = 0;
  bool operator==(const Choice&) const = default;
};
using Value = std::variant<int64_t, uint64_t, double, std::string, std::vector<std::string>, Choice>;

struct Field {
  std::string_view section;
  std::string_view name;
  Value (*get)(const TrainConfig& config);
  void (*set)(TrainConfig& config, const Value& value);  // the alternative that get() gives
  double min, max;           // of numbers
  std::string_view choices;  // of choices: words separated by '|', in the order of the enum
  OnResume on_resume;
  std::string_view help;

  std::string full_name() const { return std::string(section) + "." + std::string(name); }
};

/// All fields, section by section.
std::span<const Field> fields();

/// The words of a choice.
std::vector<std::string_view> words(const Field& field);
/// "1 to 1000", "adamw, sgd", "a text".
std::string range_text(const Field& field);
/// A value as set_train_field() takes it.
std::string value_text(const Field& field, const Value& value);

/// "; did you mean optimizer.learning_rate?", or where all fields are listed when none is near.
std::string meant(std::string_view name);

}  // namespace regard::train_config
