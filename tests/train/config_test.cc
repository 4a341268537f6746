// The table of fields: what it says of itself, reading, writing and refusing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "regard/error.h"
#include "regard/train.h"
#include "train/config_table.h"

namespace regard {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
    return error.what();
  }
  return "";
}
std::string refused(std::string_view json) {
  return message_of([&] { parse_train_config(json, "c.json"); });
}
std::string refused_field(std::string_view assignment) {
  return message_of([&] {
    TrainConfig config;
    set_train_field(config, assignment);
  });
}

void expect_part(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' has no '" << part << "'";
}

TEST(TrainConfig, EveryFieldHasADefaultInItsRangeAndAHelp) {
  std::set<std::string> names;
  for (const TrainConfigField& field : train_config_fields({})) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_TRUE(field.is_default);
    EXPECT_GT(field.help.size(), 5u) << field.name;
    EXPECT_EQ(field.help.back(), '.') << field.name;
    EXPECT_FALSE(field.range.empty()) << field.name;
    TrainConfig config;
    EXPECT_NO_THROW(set_train_field(config, field.name + "=" + field.value)) << field.name;
    EXPECT_EQ(train_config_json(config), train_config_json({})) << field.name;
  }
  EXPECT_EQ(names.size(), train_config::fields().size());
}

// A value that the field takes and that is not its default.
std::string another_value(const train_config::Field& field) {
  const train_config::Value value = field.get({});
  if (std::holds_alternative<train_config::Choice>(value)) return std::string(train_config::words(field).back());
  if (std::holds_alternative<uint64_t>(value)) return "12345678901234567890";
  if (std::holds_alternative<int64_t>(value)) return fmt::format("{}", static_cast<int64_t>(field.max));
  if (std::holds_alternative<double>(value)) return fmt::format("{}", field.max);
  return "something";
}

// Every field is really the member that its name says: a value that is set comes back, and nothing else changes.
TEST(TrainConfig, EveryFieldIsAMemberOfItsOwn) {
  const auto before = nlohmann::json::parse(train_config_json({}));
  for (const train_config::Field& field : train_config::fields()) {
    TrainConfig config;
    set_train_field(config, field.full_name() + "=" + another_value(field));
    const auto after = nlohmann::json::parse(train_config_json(config));
    const auto difference = nlohmann::json::diff(before, after);
    ASSERT_GE(difference.size(), 1u) << field.full_name();
    for (const auto& change : difference) {
      EXPECT_EQ(change["path"].get<std::string>().rfind(fmt::format("/{}/{}", field.section, field.name), 0), 0u) << difference.dump();
    }
    EXPECT_EQ(train_config_json(parse_train_config(train_config_json(config), "x")), train_config_json(config)) << field.full_name();
  }
}

TEST(TrainConfig, ReadsWhatStandsThere) {
  const TrainConfig config = parse_train_config(R"({
    "model": {"type": "llama", "heads": 6, "kv_heads": 2},
    "data": {"files": ["a.txt", "b.jsonl"], "documents": "mask_and_restart", "suffix": "\n\n"},
    "optimizer": {"kind": "sgd", "learning_rate": 0.05},
    "schedule": {"kind": "warmup_stable_decay"},
    "run": {"seed": 18446744073709551615, "steps": 7}
  })", "c.json");
  EXPECT_EQ(config.model.type, TrainConfig::Model::Type::kLlama);
  EXPECT_EQ(config.model.heads, 6);
  EXPECT_EQ(config.model.kv_heads, 2);
  EXPECT_EQ(config.model.layers, 4);
  EXPECT_EQ(config.data.files, (std::vector<std::string>{"a.txt", "b.jsonl"}));
  EXPECT_EQ(config.data.documents, TrainConfig::Data::Documents::kMaskAndRestart);
  EXPECT_EQ(config.data.suffix, "\n\n");
  EXPECT_EQ(config.optimizer.kind, TrainConfig::Optimizer::Kind::kSgd);
  EXPECT_EQ(config.optimizer.learning_rate, 0.05);
  EXPECT_EQ(config.schedule.kind, TrainConfig::Schedule::Kind::kWarmupStableDecay);
  EXPECT_EQ(config.run.seed, UINT64_MAX);
  EXPECT_EQ(config.run.steps, 7);
  EXPECT_EQ(parse_train_config(R"({"data": {"files": "one.txt"}})", "c").data.files, (std::vector<std::string>{"one.txt"}));
}

TEST(TrainConfig, SaysWhatIsWrong) {
  expect_part(refused(R"({"optimiser": {}})"), "there is no section 'optimiser'");
  expect_part(refused(R"({"optimizer": {"learning_rte": 1}})"), "no field optimizer.learning_rte; did you mean optimizer.learning_rate?");
  expect_part(refused(R"({"run": {"learning_rate": 1}})"), "did you mean optimizer.learning_rate?");
  expect_part(refused(R"({"run": {"batch": 0}})"), "run.batch is 0; expected a whole number, 1 to 1000000");
  expect_part(refused(R"({"run": {"batch": 1.5}})"), "run.batch is 1.5; expected a whole number, 1 to 1000000");
  expect_part(refused(R"({"run": {"batch": "many"}})"), "run.batch is 'many'; expected a whole number, 1 to 1000000");
  expect_part(refused(R"({"schedule": {"kind": "cosin"}})"), "schedule.kind is 'cosin'; expected constant, linear, cosine");
  expect_part(refused(R"({"optimizer": {"beta2": 1}})"), "expected 0 to 0.999999");
  expect_part(refused(R"({"data": {"files": [1]}})"), "data.files is");
  expect_part(refused(R"({"run": {"keep": 2.0}})"), "run.keep is 2.0; expected a whole number, 1 to 1000");
  expect_part(refused(R"({"data": {"validation_files": ["a", 2]}})"), "data.validation_files is a list with an integer as element 1; expected a list of texts");
  expect_part(refused_field("=3"), "expected section.field=value");
  expect_part(refused(R"({"run": 3})"), "the section run is");
  expect_part(refused("[]"), "expected an object with the sections");
  expect_part(refused_field("run.steps"), "expected section.field=value");
  expect_part(refused_field("run.step=3"), "did you mean run.steps?");
  expect_part(refused_field("run.steps=3x"), "run.steps is '3x'; expected a whole number, 0 to");
  expect_part(refused_field("run.steps="), "run.steps is ''");
  expect_part(refused_field("run.seed=-1"), "run.seed is '-1'");
  expect_part(refused_field("optimizer.learning_rate=nan"), "expected 0 to 100");
  expect_part(refused_field("xylophone=3"), "there is no field xylophone; 'regard train --print-config' lists them all");
  EXPECT_EQ(refused_field("xylophone=3").find("did you mean"), std::string::npos);
  try {
    parse_train_config("{", "c.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kCorruptData);
    expect_part(error.what(), "c.json");
  }
}

TEST(TrainConfig, SetsListsAndTexts) {
  TrainConfig config;
  set_train_field(config, "data.files=a.txt,b.txt");
  set_train_field(config, "data.mask_token=a=b");
  EXPECT_EQ(config.data.files, (std::vector<std::string>{"a.txt", "b.txt"}));
  EXPECT_EQ(config.data.mask_token, "a=b");
  set_train_field(config, "data.files=");
  EXPECT_TRUE(config.data.files.empty());
}

}  // namespace
}  // namespace regard
