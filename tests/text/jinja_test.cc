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

// Errors say where: line, column, and the source from there.
struct Wrong {
  std::string_view source;
  Code code;
  std::string_view place;
  std::string_view words;
};

TEST(Jinja, ErrorsPointAtTheText) {
  const Wrong cases[] = {
      {"a\nb {{ foo.bar.baz }}", Code::kInvalidArgument, "line 2, column 10", "no attribute `bar`, near `bar.baz }}`"},
      {"{{ 1 +\n  'a' }}", Code::kInvalidArgument, "line 1, column 6", "`+` does not work on int and str, near `+`"},
      {"x\r\n{{ n | nosuch }}", Code::kUnsupported, "line 2, column 8", "filter `nosuch` is not supported, near `nosuch }}`"},
      {"{{ n is nosuch }}", Code::kUnsupported, "line 1, column 9", "test `nosuch` is not supported"},
      {"\n\n{% include 'x' %}", Code::kUnsupported, "line 3, column 4", "statement `include` is not supported, near `include 'x' %}`"},
      {"{% import 'x' as y %}", Code::kUnsupported, "line 1, column 4", "statement `import` is not supported"},
      {"{% for x in y recursive %}{% endfor %}", Code::kUnsupported, "line 1, column 15", "recursive"},
      {"{{ f(*xs) }}", Code::kUnsupported, "line 1, column 6", "unpacking of arguments"},
      {"{{ xs[1, 2] }}", Code::kUnsupported, "line 1, column 8", "several subscripts"},
      {"{{ 99999999999999999999 }}", Code::kUnsupported, "line 1, column 4", "integer beyond 64 bits"},
      {"{{ 0x10 }}", Code::kUnsupported, "line 1, column 4", "not decimal"},
      {"{{ '\\N{DASH}' }}", Code::kUnsupported, "line 1, column 5", "character by name"},
      {"{{ '\\ud800' }}", Code::kUnsupported, "line 1, column 5", "no character"},
      {"{{ '\\x4' }}", Code::kCorruptData, "line 1, column 5", "cut short"},
      {"{{ \xC3\xA4 }}", Code::kUnsupported, "line 1, column 4", "unexpected character, near `?? }}`"},
      {"{{ a $ b }}", Code::kCorruptData, "line 1, column 6", "unexpected character, near `$ b }}`"},
      {"{{ (1] }}", Code::kCorruptData, "line 1, column 6", "closes nothing"},
      {"ab {{ n", Code::kCorruptData, "line 1, column 4", "no `}}` for"},
      {"{% if n %}\nx", Code::kCorruptData, "line 2, column 2", "missing `{% endif %}`"},
      {"{% for x in y %}{% endif %}", Code::kCorruptData, "line 1, column 20", "`endif` without its beginning"},
      {"{% break %}", Code::kCorruptData, "line 1, column 4", "outside of a loop"},
      {"{% for x in y %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", Code::kCorruptData, "line 1, column 35", "outside of a loop"},
      {"{{ f(a=1, a=2) }}", Code::kCorruptData, "line 1, column 11", "given twice"},
      {"{{ f(a=1, 2) }}", Code::kCorruptData, "line 1, column 11", "after a named one"},
      {"{% macro m(a=1, b) %}{% endmacro %}", Code::kCorruptData, "line 1, column 17", "without a default"},
      {"{{ 01 }}", Code::kCorruptData, "line 1, column 4", "leading zeros"},
      {"{{ 1a }}", Code::kCorruptData, "line 1, column 4", "runs into a name"},
      {"{{ lipsum() }}", Code::kUnsupported, "line 1, column 4", "`lipsum` is not supported"},
      {"{{ 'a'.encode() }}", Code::kUnsupported, "line 1, column 8", "`encode` of a str is not supported"},
      {"{{ ''.__class__ }}", Code::kUnsupported, "line 1, column 7", "`__class__` is not given to templates"},
      {"{{ [].append(1) }}", Code::kUnsupported, "line 1, column 7", "`append` of a list"},
      {"{{ range(3) }}", Code::kUnsupported, "line 1, column 1", "apply `list` first"},
      {"{{ '<' + ('a' | safe) }}", Code::kUnsupported, "line 1, column 8", "marked `safe`"},
      {"{{ 2 ** 64 }}", Code::kUnsupported, "line 1, column 6", "beyond 64 bits"},
      {"{{ 'x'.upper | list }}", Code::kInvalidArgument, "line 1, column 16", "function"},
      {"{% set f = 'x'.upper %}{{ f() }}", Code::kUnsupported, "line 1, column 27", "where it is named"},
      {"{{ '%x' % 1 }}", Code::kUnsupported, "line 1, column 9", "supported in a format"},
      {"{{ strftime_now('%c') }}", Code::kUnsupported, "line 1, column 4", "strftime_now"},
      {"{% macro m() %}{{ varargs }}{% endmacro %}", Code::kUnsupported, "line 1, column 19", "`varargs`"},
      {"{% for i in [1] %}{% macro m() %}x{% endmacro %}{% set ns.m = m %}{% endfor %}{{ ns.m() }}", Code::kInvalidArgument, "line 1, column 56", "namespace only"},
      {"{% set ns = namespace() %}{% for i in [1] %}{% macro m() %}x{% endmacro %}{% set ns.m = m %}{% endfor %}{{ ns.m() }}",
       Code::kUnsupported, "line 1, column 111", "after the block that defined it"},
  };
  for (const Wrong& wrong : cases) {
    const Ending got = ending(wrong.source);
    EXPECT_EQ(got.code, wrong.code) << wrong.source << "\n" << got.message;
    EXPECT_THAT(got.message, HasSubstr(std::string(wrong.place) + ":")) << wrong.source;
    EXPECT_THAT(got.message, HasSubstr(std::string(wrong.words))) << wrong.source;
  }
}

// A beginning of a template is either refused or a template; never a crash, and never text that the whole does not know.
TEST(Jinja, EveryPrefixIsReadOrRefused) {
  const std::vector<Json> rows = read_json_lines(REGARD_TEST_DATA "/golden/chat/constructs.jsonl");
  size_t refused = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::string source = rows[i].at("template");
    for (size_t length = 0; length < source.size(); ++length) refused += ending(source.substr(0, length), rows[0].at("variables")).message == "no error" ? 0u : 1u;
  }
  EXPECT_GT(refused, 5000u);
}

// Templates that try to use up time, memory or the stack end in an error, quickly.
TEST(Jinja, HostileTemplatesEndQuickly) {
  const std::string many(100'000, '(');
  std::string sum = "{{ 1";
  std::string elifs = "{% if 0 %}";
  std::string dots = "{{ a";
  std::string ifs;
  for (int i = 0; i < 20'000; ++i) {
    sum += "+1";
    dots += ".b";
    ifs += "{% if 1 %}";
  }
  const std::string double_it = "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}";
  const std::string sources[] = {
      "{{ " + many,
      "{{ " + many + std::string(100'000, ')') + " }}",
      "{{ " + std::string(100'000, '[') + " }}",
      "{{ " + std::string(100'000, '-') + "1 }}",
      "{{ " + std::string(200'000, '!') + " }}",
      sum + " }}",
      dots + " }}",
      ifs,
      "{{ 'a' * 10**9 }}",
      "{{ 'a' * 10**18 }}",
      "{{ [1] * 10**9 }}",
      "{{ range(10**9) | list }}",
      "{{ range(0, -(10**15), -1) | list }}",
      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
      "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
      "{% for i in range(100000) %}{% set x = 'ab' * 100000 %}{% endfor %}",
      "{% for i in range(100000) %}{% set x = ('ab' * 100000) | upper %}{% endfor %}",
      "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ (s + 'b') in s }}{% endfor %}",
      "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s | length }}{% endfor %}",
      "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s[-1] }}{% endfor %}",
      "{% set s = 'a' * 10000000 %}{{ s | list }}",
      "{% set s = 'a' * 1000000 %}{{ s.replace('', s) }}",
      "{% set s = 'a' * 1000000 %}{{ s.replace('a', s) }}",
      "{{ ('a' * 1000000) | list | join('b' * 1000) }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(x) %}{{ m([x]) }}{% endmacro %}{{ m(1) }}",
      "{% macro m(x) %}{{ m(x ~ x) }}{% endmacro %}{{ m('abc') }}",
      "{% macro m() %}{% for i in range(1000) %}{{ m() }}{% endfor %}{% endmacro %}{{ m() }}",
      double_it,
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(60) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x == ns.x }}",
      "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
      "{% for i in range(100000) %}{{ range(100000) | sort | first }}{% endfor %}",
      "{{ 10 ** 10 ** 10 }}",
      "{{ 'x' | indent(10**12) }}",
      "{{ [1] | tojson(indent=10**12) }}",
      "{{ '%s' * 1000000 % 1 }}",
  };
  Limits limits;
  limits.max_steps /= 5;  // keeps sanitized runs short
  for (const std::string& source : sources) {
    const auto start = std::chrono::steady_clock::now();
    const Ending got = ending(source, Json::object(), limits);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_NE(got.message, "no error") << source.substr(0, 100);
    EXPECT_LT(took.count(), 5.0) << source.substr(0, 100);  // a plain build takes up to 0.2 s
    EXPECT_LT(got.message.size(), 300u);
  }
}

// Chains of namespaces are freed without recursion, and namespaces that hold themselves are freed at all.
TEST(Jinja, NamespacesAreFreed) {
  EXPECT_EQ(text("{% set ns = namespace() %}{% for i in range(100000) %}{% set new = namespace(next=ns.next) %}{% set ns.next = new %}{% endfor %}ok"), "ok");
  EXPECT_EQ(text("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = [b] %}{% set a.a = a %}ok"), "ok");
}

TEST(Jinja, EachLimitCountsExactly) {
  const auto code_with = [](std::string_view source, const Limits& limits) { return ending(source, Json::object(), limits).code; };
  for (const int delta : {-1, 0, 1}) {
    const Code expected = delta < 0 ? Code::kResourceExhausted : Code::kInternal;  // kInternal: no error
    Limits limits;
    limits.max_output_bytes = static_cast<size_t>(10 + delta);
    EXPECT_EQ(code_with("{{ 'abcde' }}abcde", limits), expected);
    EXPECT_EQ(code_with("{% set x = 'a' * 10 %}", limits), expected);
    limits = {};
    limits.max_items = static_cast<size_t>(10 + delta);
    EXPECT_EQ(code_with("{% set x = [1, 2] * 5 %}", limits), expected);
    EXPECT_EQ(code_with("{% for c in 'abcdefghij' %}{% endfor %}", limits), expected);
    limits = {};
    limits.max_range = static_cast<size_t>(10 + delta);
    EXPECT_EQ(code_with("{% set x = range(10) %}", limits), expected);
    limits = {};
    limits.max_value_depth = 3 + delta;
    EXPECT_EQ(code_with("{% set x = [[{'a': 1}]] %}", limits), expected);
    limits = {};
    limits.max_value_weight = static_cast<uint64_t>(6 + delta);
    EXPECT_EQ(code_with("{% set x = [[1, 2], [3]] %}", limits), expected);
    limits = {};
    limits.max_source_bytes = static_cast<size_t>(5 + delta);
    EXPECT_EQ(code_with("abcde", limits), expected);
    limits = {};
    limits.max_nesting = 8 + delta;  // the template, and two levels for each parenthesis and for what it holds
    EXPECT_EQ(code_with("{{ (((1))) }}", limits), expected) << delta;
  }
}

// The content bytes of a rendering, runs in brackets: "a[b]c".
std::string marked(std::string_view source, const Json& variables) {
  std::string out;
  run(source, variables).for_each_run([&](std::string_view bytes, Origin origin) {
    out += origin == Origin::kContent ? "[" + std::string(bytes) + "]" : std::string(bytes);
  });
  return out;
}

TEST(Jinja, ContentsStayContents) {
  const Json variables = {{"c", "<|end|>"}, {"m", {{"k", "<x>"}, {"<y>", 1}}}, {"l", {"<a>", "<b>"}}, {"s", " <|x|> \n"}, {"q", "'\"\n"}};
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"<{{ c }}>", "<[<|end|>]>"},
      {"{{ '<|' + c + '|>' }}", "<|[<|end|>]|>"},
      {"{{ 'a' ~ c ~ 1 }}", "a[<|end|>]1"},
      {"{{ s | trim }}{{ s.strip() }}.{{ s.lstrip(' <') }}", "[<|x|><|x|>].[|x|> \n]"},
      {"{{ c[1:4] }}{{ c[0] }}{{ c[::-1] }}{{ c[::2] }}{{ c | first }}{{ c | reverse }}", "[|en<>|dne|<<ed><>|dne|<]"},
      {"{{ c.split('n')[0] }}.{{ c.split('n', 1)[1] }}.{{ (c + ' ' + c).split()[1] }}.{{ c.rsplit('|', 1) | last }}", "[<|e].[d|>].[<|end|>].[>]"},
      {"{{ c.partition('|')[2] }}{{ c.removeprefix('<') }}{{ c.splitlines()[0] }}", "[end|>|end|><|end|>]"},
      {"{{ l | join('-') }}.{{ '-'.join(l) }}.{{ c | list | join }}", "[<a>]-[<b>].[<a>]-[<b>].[<|end|>]"},
      {"{{ c | upper }}{{ c | lower }}{{ c | capitalize }}{{ c | title }}{{ c.upper() }}", "[<|END|><|end|><|end|><|end|><|END|>]"},
      {"{{ c | indent(2, true) }}", "  [<|end|>]"},
      {"{{ '%s!' % c }}{{ '%s' | format(c) }}{{ '{}!'.format(c) }}{{ c % () }}", "[<|end|>]![<|end|><|end|>]![<|end|>]"},
      {"{{ c | tojson }}{{ m | tojson }}{{ q | tojson }}", "\"[<|end|>]\"{\"[k]\": \"[<x>]\", \"[<y>]\": 1}\"['\\\"\\n]\""},
      {"{{ m }}{{ l }}{{ [q] }}", "{'[k]': '[<x>]', '[<y>]': 1}['[<a>]', '[<b>]']['[\\'\"\\n]']"},
      {"{{ c | string }}{{ c | default('x') }}{{ foo | default(c) }}{{ c | safe }}{{ c * 2 }}", "[<|end|><|end|><|end|><|end|><|end|><|end|>]"},
      {"{% for x in c %}{{ x }}{% endfor %}.{% for k in m %}{{ k }}{% endfor %}", "[<|end|>].[k<y>]"},
      {"{% set x %}<{{ c }}>{% endset %}{{ x }}{% filter upper %}a{{ c }}{% endfilter %}", "<[<|end|>]>A[<|END|>]"},
      {"{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(c) }}{{ f(c) | upper | trim('<') }}", "<[<|end|>]>[|END|>]>"},
      {"{{ l | map('upper') | join }}{{ l | sort | first }}{{ l | select('eq', '<b>') | join }}{{ m | dictsort | first | last }}", "[<A><B><a><b>]1"},
      {"{% set ns = namespace(x='') %}{% for x in l %}{% set ns.x = ns.x + x %}{% endfor %}{{ ns.x }}", "[<a><b>]"},
      {"{{ strftime_now(c) }}{{ strftime_now('%Y' ~ c) }}", "[<|end|>]2026[<|end|>]"},
      // What replaces contents is where the contents wanted it, so it counts as contents too.
      {"{{ c.replace('end', '<|im_end|>') }}", "[<|<|im_end|>|>]"},
      {"{{ ('end' + c).replace('end', 'X') }}", "X[<|X|>]"},
      {"{{ ('a' + c + 'b').replace('', '.') }}", ".a[.<.|.e.n.d.|.>.]b."},
      {"{{ (c ~ 'x' ~ c)[5:10] }}", "[|>]x[<|]"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(marked(source, variables), expected) << source;
}

TEST(Jinja, BytesThatAreNotUtf8PassThrough) {
  const std::string bytes = "\xFF\xC3(\xED\xA0\x80\xF0\x9F z";
  const Limits limits;
  for (const std::string_view source : {"{{ c }}", "{{ c | trim }}", "{{ c | list | join }}", "{{ c[:] }}", "{{ c[::-1][::-1] }}", "{{ c.split('q')[0] }}"}) {
    const Template parsed = parse(source).value_or_throw();
    EXPECT_EQ(render(parsed, {{"c", MarkedText(bytes, Origin::kContent)}}, limits, golden_time).bytes(), bytes) << source;
  }
}

TEST(MarkedText, SlicesAndAppendsKeepOrigins) {
  MarkedText text("ab", Origin::kTemplate);
  text.append("", Origin::kContent);
  text.append("cd", Origin::kContent);
  text.append("ef", Origin::kContent);
  text.append("gh", Origin::kTemplate);
  const std::string origins = "ttcccctt";
  for (size_t begin = 0; begin <= 8; ++begin) {
    for (size_t end = begin; end <= 8; ++end) {
      std::string got;
      text.slice(begin, end).for_each_run([&](std::string_view bytes, Origin origin) { got.append(bytes.size(), origin == Origin::kContent ? 'c' : 't'); });
      EXPECT_EQ(got, origins.substr(begin, end - begin));
      const bool has_content = got.find('c') != std::string::npos;
      EXPECT_EQ(text.origin(begin, end), has_content ? Origin::kContent : Origin::kTemplate);
    }
  }
}

}  // namespace
}  // namespace regard::jinja
