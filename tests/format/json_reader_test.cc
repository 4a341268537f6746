// What the JSON reader accepts, refuses and says, by hand-written texts; the grammar cases follow RFC 8259.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "format/json_reader.h"

namespace regard {
namespace {

using testing::HasSubstr;

std::string why(const std::string& text, const JsonLimits& limits = {}) {
  auto document = JsonDocument::parse(text, "x.json", limits);
  return document ? "accepted" : document.failure().message;
}

std::string repeat(const std::string& part, size_t n) {
  std::string all;
  for (size_t i = 0; i < n; ++i) all += part;
  return all;
}

TEST(JsonReader, ReadsEveryType) {
  auto document = JsonDocument::parse(R"({"n":null,"t":true,"f":false,"i":-7,"u":18446744073709551615,"d":2.5,"e":1e3,
                                         "s":"a\u00e9\u0000\n","a":[1,[2,3],{}],"o":{"x":{"y":[0,"z"]}}})", "x.json");
  ASSERT_TRUE(document);
  const JsonDocument moved = std::move(*document);
  const JsonObject o = *moved.root().as_object();
  EXPECT_EQ(o.size(), 10u);
  EXPECT_TRUE(o.find("n")->is_null());
  EXPECT_TRUE(*o.find("t")->as_bool());
  EXPECT_FALSE(*o.find("f")->as_bool());
  EXPECT_EQ(*o.find("i")->as_integer(), -7);
  EXPECT_EQ(*o.find("u")->as_unsigned(), 18446744073709551615u);
  EXPECT_EQ(*o.find("d")->as_number(), 2.5);
  EXPECT_EQ(*o.find("e")->as_number(), 1000.0);
  EXPECT_EQ(*o.find("i")->as_number(), -7.0);
  EXPECT_EQ(*o.find("u")->as_number(), 18446744073709551616.0);
  EXPECT_EQ(*o.find("s")->as_string(), std::string_view("a\xC3\xA9\0\n", 5));
  std::vector<JsonType> types;
  for (const JsonValue v : *o.find("a")->as_array()) types.push_back(v.type());
  EXPECT_THAT(types, testing::ElementsAre(JsonType::kInteger, JsonType::kArray, JsonType::kObject));
  EXPECT_EQ(o.find("a")->as_array()->size(), 3u);
  EXPECT_FALSE(o.find("missing").has_value());
  EXPECT_TRUE(o.find("a")->as_array()->begin() != o.find("a")->as_array()->end());
  EXPECT_FALSE(o.empty());
  EXPECT_FALSE(o.find("a")->as_array()->empty());
}

TEST(JsonReader, RefusalsNameThePlace) {
  auto document = JsonDocument::parse(R"({"a b":[1,{"rope":{"factor":"8"}}],"big":9223372036854775808,"r":1.0,"neg":-1,"x":true})", "config.json");
  ASSERT_TRUE(document);
  const JsonObject o = *document->root().as_object();
  auto second = ++o.find("a b")->as_array()->begin();
  const JsonObject rope = *(*(*second).as_object()).find("rope")->as_object();
  const JsonValue factor = *rope.find("factor");
  EXPECT_EQ(factor.path(), "$[\"a b\"][1].rope.factor");
  EXPECT_EQ(factor.as_number().failure().message, "[json] config.json: $[\"a b\"][1].rope.factor: expected a number, found a string");
  EXPECT_THAT(o.find("big")->as_integer().failure().message, HasSubstr("found 9223372036854775808"));
  EXPECT_THAT(o.find("r")->as_integer().failure().message, HasSubstr("$.r: expected an integer, found a number with a fraction"));
  EXPECT_THAT(o.find("neg")->as_unsigned().failure().message, HasSubstr("from 0 to"));
  EXPECT_THAT(o.find("r")->as_unsigned().failure().message, HasSubstr("non-negative integer"));
  EXPECT_THAT(o.find("neg")->as_integer(0, 5).failure().message, HasSubstr("from 0 to 5, found -1"));
  EXPECT_THAT(o.find("big")->as_unsigned(3).failure().message, HasSubstr("from 0 to 3"));
  EXPECT_THAT(o.find("r")->as_number(2, 3).failure().message, HasSubstr("from 2 to 3, found 1"));
  EXPECT_THAT(o.find("x")->as_string().failure().message, HasSubstr("expected a string, found a boolean"));
  EXPECT_THAT(o.find("x")->as_array().failure().message, HasSubstr("expected an array"));
  EXPECT_THAT(o.find("x")->as_object().failure().message, HasSubstr("expected an object"));
  EXPECT_THAT(o.find("r")->as_bool().failure().message, HasSubstr("expected a boolean"));
  EXPECT_THAT(rope.get("type").failure().message, HasSubstr("$[\"a b\"][1].rope: the key \"type\" is missing"));
  EXPECT_EQ(*rope.get("factor")->as_string(), "8");
  EXPECT_EQ(document->root().path(), "$");
}

TEST(JsonReader, OptionalMembersTakeNullForAbsent) {
  auto document = JsonDocument::parse(R"({"null":null,"i":3,"d":0.5,"s":"x","b":true,"o":{},"a":[]})", "x");
  ASSERT_TRUE(document);
  const JsonObject o = *document->root().as_object();
  EXPECT_EQ(*o.optional_integer("null", 0, 9), std::nullopt);
  EXPECT_EQ(*o.optional_integer("none", 0, 9), std::nullopt);
  EXPECT_EQ(*o.optional_integer("i", 0, 9), 3);
  EXPECT_FALSE(o.optional_integer("i", 0, 2));
  EXPECT_FALSE(o.optional_integer("d", 0, 2));
  EXPECT_EQ(*o.optional_number("d", 0, 1), 0.5);
  EXPECT_EQ(*o.optional_string("s"), "x");
  EXPECT_EQ(*o.optional_bool("b"), true);
  EXPECT_TRUE(o.optional_object("o")->has_value());
  EXPECT_TRUE(o.optional_array("a")->has_value());
  EXPECT_FALSE(o.optional_array("o"));
}

TEST(JsonReader, F07NotOneJsonValue) {
  for (const char* text : {"", "  ", "{", "{}{}", "{} x", "[1,]", "{\"a\":1,}", "{a:1}", "'a'", "nul", "01", "1.", ".5", "+1", "0x1",
                           "NaN", "Infinity", "-Infinity", "1e999", "\"a\nb\"", "\"\\x\"", "/*c*/1"}) {
    EXPECT_THAT(why(text), HasSubstr("x.json: not valid JSON")) << text;
  }
  EXPECT_THAT(why(std::string("{}\0", 3)), HasSubstr("not valid JSON"));
  EXPECT_FALSE(JsonDocument::parse(std::string_view(), "x"));
}

TEST(JsonReader, F08NotUtf8) {
  for (const std::string& text : {std::string("\"\xC0\xAF\""), std::string("\"\xED\xA0\x80\""), std::string("\"\xFF\""), std::string("\"\xE2\x82\""),
                                  std::string("\xEF\xBB\xBF{}"), std::string("\xFF\xFE{\0}\0", 6), std::string(R"("\ud800")"), std::string(R"("\udc00")"),
                                  std::string(R"("\ud800\u0041")")}) {
    EXPECT_THAT(why(text), HasSubstr("not valid JSON")) << text;
  }
  EXPECT_EQ(why(R"("\ud83d\ude00")"), "accepted");
}

TEST(JsonReader, F09DepthIsLimitedExactly) {
  const auto nested = [](size_t n) { return repeat("[", n) + repeat("]", n); };
  EXPECT_EQ(why(nested(64)), "accepted");
  EXPECT_THAT(why(nested(65)), HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(why(nested(66)), HasSubstr("nested deeper than 64 levels"));
  EXPECT_EQ(why(repeat("{\"a\":", 63) + "[]" + repeat("}", 63)), "accepted");
  EXPECT_THAT(why(repeat("{\"a\":", 64) + "[]" + repeat("}", 64)), HasSubstr("nested deeper"));
  EXPECT_NE(why(repeat("[", 100000)), "accepted");
  EXPECT_THAT(why(nested(100000)), HasSubstr("nested deeper"));
}

TEST(JsonReader, F10DuplicateKeysAtAnyLevel) {
  EXPECT_THAT(why(R"({"a":1,"b":2,"a":3})"), HasSubstr("$: the key \"a\" stands there twice"));
  EXPECT_THAT(why(R"({"x":[{"dtype":1,"dtype":1}]})"), HasSubstr("$.x[0]: the key \"dtype\" stands there twice"));
  EXPECT_THAT(why(R"({"a":1,"\u0061":2})"), HasSubstr("twice"));  // the same key, spelt with an escape
  EXPECT_EQ(why(R"({"a":{"a":{"a":1}},"A":1,"":2," ":3})"), "accepted");
  std::string many = "{";
  for (int i = 0; i < 50000; ++i) many += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_EQ(why(many + "\"z\":0}"), "accepted");
  EXPECT_THAT(why(many + "\"k31234\":0}"), HasSubstr("\"k31234\" stands there twice"));
}

TEST(JsonReader, LimitsHoldExactly) {
  JsonLimits limits;
  limits.max_keys = 3;
  EXPECT_EQ(why(R"({"a":{"b":0,"c":0}})", limits), "accepted");
  EXPECT_THAT(why(R"({"a":{"b":0,"c":0,"d":0}})", limits), HasSubstr("more than 3 keys"));
  limits = {};
  limits.max_string_bytes = 4;
  EXPECT_EQ(why(R"(["abcd"])", limits), "accepted");
  EXPECT_THAT(why(R"(["x","abcde"])", limits), HasSubstr("$[1]: a string of 5 bytes, the limit is 4"));
  EXPECT_THAT(why(R"({"abcde":1})", limits), HasSubstr("a string of 5 bytes"));
  limits = {};
  limits.max_bytes = 8;
  EXPECT_EQ(why("[1,2,3 ]", limits), "accepted");
  EXPECT_THAT(why("[1,2,3  ]", limits), HasSubstr("9 bytes, the limit is 8"));
  limits = {};
  limits.max_values = 4;
  EXPECT_EQ(why("[1,2,3]", limits), "accepted");
  EXPECT_THAT(why("[1,2,3,4]", limits), HasSubstr("more than 4 values"));
  EXPECT_EQ(why("[\",,,,,,,,[\\\"{\",2,3]", limits), "accepted");  // commas inside a string are not values
  EXPECT_EQ(JsonDocument::parse("[1,2,3,4]", "x", limits).failure().code, Code::kResourceExhausted);
}

TEST(JsonReader, MessagesHoldNoControlBytes) {
  auto document = JsonDocument::parse("{\"a\\u001b[31m\":{\"b\":1}}", "x");
  ASSERT_TRUE(document);
  for (const auto [key, value] : *document->root().as_object())
    EXPECT_EQ(value.as_string().failure().message, "[json] x: $[\"a\\x1b[31m\"]: expected a string, found an object");
}

TEST(JsonReader, CountsBeyondTheParsersOwnCounter) {
  JsonLimits limits;
  limits.max_bytes = size_t{1} << 27;
  limits.max_values = size_t{1} << 25;
  const size_t n = (size_t{1} << 24) + 5;
  std::string text = "[0";
  text.reserve(2 * n + 1);
  for (size_t i = 1; i < n; ++i) text += ",0";
  text += ']';
  auto document = JsonDocument::parse(text, "x", limits);
  ASSERT_TRUE(document);
  EXPECT_EQ(document->root().as_array()->size(), n);
}

TEST(Json, IntegersBeyond64BitsAreReals) {
  // As in the tokenizer_config.json of Llama: the largest length that a Python float can name.
  const auto document = JsonDocument::parse(
      R"({"n": 1000000000000000019884624838656, "s": "99999999999999999999 \\\" 1", "m": [-9223372036854775809, 18446744073709551615, -0, 7]})", "doc");
  ASSERT_TRUE(document) << document.failure().message;
  const JsonObject o = *document->root().as_object();
  EXPECT_EQ(o.find("n")->type(), JsonType::kReal);
  EXPECT_EQ(*o.find("n")->as_number(), 1000000000000000019884624838656.0);
  EXPECT_FALSE(o.find("n")->as_integer());
  EXPECT_EQ(*o.find("s")->as_string(), "99999999999999999999 \\\" 1");
  const JsonArray m = *o.find("m")->as_array();
  auto element = m.begin();
  EXPECT_EQ(*(*element).as_number(), -9223372036854775808.0);
  EXPECT_EQ(*(*++element).as_unsigned(), 18446744073709551615u);
  EXPECT_EQ(*(*++element).as_integer(), 0);
  EXPECT_EQ(*(*++element).as_integer(), 7);
  EXPECT_FALSE(JsonDocument::parse("1e999", "doc"));
  EXPECT_FALSE(JsonDocument::parse("[01]", "doc"));
}

}  // namespace
}  // namespace regard
