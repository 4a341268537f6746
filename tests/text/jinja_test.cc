// The interpreter of chat templates: every construct against jinja2 (tests/golden/chat/constructs.jsonl), where errors point,
// how limits end, and that text keeps its origin.
#include <gmock/gmock.h>

#include <chrono>

#include "regard/error.h"
#include "text/chat_json.h"
#include "text/jinja/interpreter.h"

namespace regard::jinja {
namespace {

using ::testing::HasSubstr;

MarkedText run(std::string_view source, const Json& variables = Json::object(), const Limits& limits = {}) {
  const Template parsed = parse(source, limits).value_or_throw();
  Runtime maker(parsed.source, limits, golden_time);
  Variables given;
  for (const auto& [name, value] : variables.items()) given.emplace_back(name, to_jinja_value(maker, value));
  return render(parsed, given, limits, golden_time);
}

std::string text(std::string_view source, const Json& variables = Json::object()) { return std::string(run(source, variables).bytes()); }

// The code and message of the error that a template ends in.
struct Ending {
  Code code = Code::kInternal;
  std::string message = "no error";
};
Ending ending(std::string_view source, const Json& variables = Json::object(), const Limits& limits = {}) {
  try {
    run(source, variables, limits);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

TEST(Jinja, EveryConstructIsAsInJinja2) {
  const std::vector<Json> rows = read_json_lines(REGARD_TEST_DATA "/golden/chat/constructs.jsonl");
  ASSERT_GT(rows.size(), 150u);
  const Json& common = rows[0].at("variables");
  size_t rendered = 0;
  size_t refused = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::string name = rows[i].at("name");
    const std::string source = rows[i].at("template");
    Json variables = common;
    if (rows[i].contains("variables")) variables.update(rows[i].at("variables"));
    if (rows[i].contains("error")) {
      EXPECT_NE(ending(source, variables).message, "no error") << name << ": " << source;
      ++refused;
      continue;
    }
    try {
      EXPECT_EQ(text(source, variables), rows[i].at("expected").get<std::string>()) << name << ": " << source;
      ++rendered;
    } catch (const Error& error) {
      ADD_FAILURE() << name << ": " << error.what();
    }
  }
  EXPECT_GT(rendered, 110u);
  EXPECT_GT(refused, 35u);
}

}  // namespace
}  // namespace regard::jinja
