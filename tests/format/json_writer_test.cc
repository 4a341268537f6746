#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <functional>
#include <limits>

#include "format/json_reader.h"
#include "regard/error.h"
#include "regard/json.h"

namespace regard {
namespace {

TEST(JsonWriter, WritesInOrder) {
  JsonWriter json;
  json.begin_object().member("z", 1).member("a", "x\"\n").key("list").begin_array().value(true).null().begin_object().end().end();
  json.member("u", std::numeric_limits<uint64_t>::max()).member("i", std::numeric_limits<int64_t>::min()).end();
  EXPECT_EQ(json.finish(), R"({"z":1,"a":"x\"\n","list":[true,null,{}],"u":18446744073709551615,"i":-9223372036854775808})");
  EXPECT_EQ(json.value(std::string("again")).finish(), "\"again\"");
  json.begin_object().member("a", 1u).end();
  EXPECT_EQ(json.finish(JsonStyle::kIndented), "{\n  \"a\": 1\n}");
  EXPECT_EQ(json.begin_array().value(1ll).value(2ull).end().finish(), "[1,2]");
}

TEST(JsonWriter, NumbersReadBack) {
  JsonWriter json;
  json.begin_array().value(0.1f).value(0.1).value(1e30f).value(-0.0).value(std::numeric_limits<float>::denorm_min()).value(16777216.0f);
  json.value(3.4028234663852886e38f).value(1.0 / 3).end();
  const std::string text = json.finish();
  EXPECT_THAT(text, testing::StartsWith("[0.1,0.1,1e+30,-0.0,1e-45,16777216.0,"));
  auto document = JsonDocument::parse(text, "x");
  ASSERT_TRUE(document);
  const double expected[] = {0.1, 0.1, 1e30, -0.0, 1e-45, 16777216, 3.4028235e38, 1.0 / 3};
  size_t i = 0;
  for (const JsonValue v : *document->root().as_array()) EXPECT_EQ(*v.as_number(), expected[i++]);
  EXPECT_EQ(i, 8u);
}

TEST(JsonWriter, BadUtf8IsReplaced) {
  JsonWriter json;
  EXPECT_EQ(json.value("a\xFF\xE2\x82z").finish(), "\"a\xEF\xBF\xBD\xEF\xBF\xBDz\"");
  EXPECT_EQ(json.value(std::string_view("\0", 1)).finish(), "\"\\u0000\"");
  EXPECT_EQ(json.begin_object().member("\xC0", "\xED\xA0\x80").end().finish(), "{\"\xEF\xBF\xBD\":\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"}");
}

TEST(JsonWriter, RefusesWhatIsNoJson) {
  const auto code = [](const std::function<void(JsonWriter&)>& use) {
    JsonWriter json;
    try {
      use(json);
    } catch (const Error& error) {
      return static_cast<int>(error.code());
    }
    return 0;
  };
  EXPECT_EQ(code([](auto& j) { j.value(std::nan("")); }), 7);
  EXPECT_EQ(code([](auto& j) { j.value(INFINITY); }), 7);
  EXPECT_EQ(code([](auto& j) { j.value(-HUGE_VAL); }), 7);
  EXPECT_EQ(code([](auto& j) { j.begin_object().value(1); }), 2);
  EXPECT_EQ(code([](auto& j) { j.begin_object().member("a", 1).member("a", 2); }), 2);
  EXPECT_EQ(code([](auto& j) { j.begin_object().key("a").end(); }), 2);
  EXPECT_EQ(code([](auto& j) { j.begin_array().key("a"); }), 2);
  EXPECT_EQ(code([](auto& j) { j.begin_object().key("a").key("b"); }), 2);
  EXPECT_EQ(code([](auto& j) { j.key("a"); }), 2);
  EXPECT_EQ(code([](auto& j) { j.end(); }), 2);
  EXPECT_EQ(code([](auto& j) { j.finish(); }), 2);
  EXPECT_EQ(code([](auto& j) { j.begin_array().finish(); }), 2);
  EXPECT_EQ(code([](auto& j) { j.value(1).value(2); }), 2);
}

}  // namespace
}  // namespace regard
