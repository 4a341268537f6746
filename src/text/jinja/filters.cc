// Filters that make or read text, numbers and JSON.
#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace regard::jinja {
namespace {

const MarkedText& text_argument(Runtime& runtime, std::string_view what, const Value& value) {
  if (value.text() == nullptr) runtime.wrong("{} is a str, not a {}", what, type_name(value));
  return *value.text();
}

Value trim_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Value* characters = arguments.next("chars");
  arguments.done();
  return Value(strip(runtime, to_text(runtime, input), Side::kBoth, characters));
}

Value upper_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.done();
  return Value(upper(runtime, to_text(runtime, input)));
}

Value lower_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.done();
  return Value(lower(runtime, to_text(runtime, input)));
}

Value capitalize_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.done();
  return Value(capitalize(runtime, to_text(runtime, input)));
}

// Every word begins with a capital; words begin after white space, hyphens and opening brackets.
Value title_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.done();
  const MarkedText text = to_text(runtime, input);
  const std::string_view bytes = text.bytes();
  MarkedText out;
  const auto flush = [&](size_t begin, size_t end) {
    if (begin == end) return;
    const size_t second = begin + code_point_at(bytes, begin).bytes;
    runtime.append(out, upper(runtime, runtime.slice(text, begin, second)));
    runtime.append(out, lower(runtime, runtime.slice(text, second, end)));
  };
  size_t word = 0;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = code_point_at(bytes, at);
    const bool separates =
        is_space(c.value) || c.value == '-' || c.value == '(' || c.value == '{' || c.value == '[' || c.value == '<';
    if (separates) {
      flush(word, at);
      runtime.append(out, text, at, at + c.bytes);
      word = at + c.bytes;
    }
    at += c.bytes;
  }
  flush(word, bytes.size());
  return Value(std::move(out));
}

Value replace_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const MarkedText from = to_text(runtime, arguments.require("old"));
  const MarkedText to = to_text(runtime, arguments.require("new"));
  const Value* count = arguments.next("count");
  arguments.done();
  int64_t times = -1;
  if (count != nullptr && !count->is<None>() && !to_integer(*count, times))
    runtime.wrong("replace needs an int as `count`");
  return Value(replace(runtime, to_text(runtime, input), from, to, times));
}

Value indent_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Value* width = arguments.next("width");
  const bool first = arguments.flag("first", false);
  const bool blank = arguments.flag("blank", false);
  arguments.done();
  MarkedText indentation;
  int64_t count = 4;
  if (width != nullptr && width->text() != nullptr) {
    indentation = *width->text();
  } else {
    if (width != nullptr && !to_integer(*width, count)) runtime.wrong("indent needs an int or a str as `width`");
    indentation = *arithmetic(runtime, Op::kMul, template_text(" "), Value(count)).text();
  }
  MarkedText text = text_argument(runtime, "what `indent` works on", input);
  runtime.append(text, "\n", Origin::kTemplate);  // as Jinja does, so that a last empty line counts
  const std::vector<Value> lines = split_lines(runtime, text);
  MarkedText out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) runtime.append(out, "\n", Origin::kTemplate);
    const bool indents = i == 0 ? first : (blank || !lines[i].text()->empty());
    if (indents) runtime.append(out, indentation);
    runtime.append(out, *lines[i].text());
  }
  return Value(std::move(out));
}

Value string_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.done();
  return input.is<String>() ? input : Value(to_text(runtime, input));
}

Value safe_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.done();
  return Value(String{std::make_shared<const MarkedText>(to_text(runtime, input)), true});
}

Value format_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Value values = runtime.list(arguments.rest(), List::Kind::kTuple);
  arguments.done();
  return Value(format_percent(runtime, to_text(runtime, input), values));
}

Value tojson_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  JsonStyle style;
  style.ascii_only = arguments.flag("ensure_ascii", false);
  const Value* indent = arguments.next("indent");
  if (indent != nullptr && !indent->is<None>()) {
    int64_t width = 0;
    if (indent->text() != nullptr) {
      style.indent = indent->text()->bytes();
    } else {
      if (!to_integer(*indent, width)) runtime.wrong("tojson needs an int or a str as `indent`");
      style.indent = arithmetic(runtime, Op::kMul, template_text(" "), Value(width)).text()->bytes();
    }
    style.item_separator = ",";
  }
  const Value* separators = arguments.next("separators");
  if (separators != nullptr && !separators->is<None>()) {
    const List* pair = separators->list();
    if (pair == nullptr || pair->items.size() != 2) runtime.wrong("tojson needs two strs as `separators`");
    style.item_separator = text_argument(runtime, "a separator", pair->items[0]).bytes();
    style.key_separator = text_argument(runtime, "a separator", pair->items[1]).bytes();
  }
  style.sort_keys = arguments.flag("sort_keys", false);
  arguments.done();
  return Value(to_json(runtime, input, style));
}

// The float written in a text, as float() of Python reads it; false when it is none.
bool read_float(std::string_view text, double& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.starts_with('+') || text.find('_') != std::string_view::npos) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

Value int_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Value* fallback = arguments.next("default");
  if (arguments.integer("base", 10) != 10) runtime.unsupported("only base 10 is supported by `int`");
  arguments.done();
  if (input.is_undefined()) runtime.wrong("an undefined value is no number");
  int64_t integer = 0;
  if (to_integer(input, integer)) return Value(integer);
  double number = 0;
  bool is_number = to_number(input, number);
  if (input.text() != nullptr) {
    const MarkedText trimmed = strip(runtime, *input.text(), Side::kBoth, nullptr);
    std::string_view text = trimmed.bytes();
    if (text.find('_') != std::string_view::npos)
      runtime.unsupported("numbers with underscores are not supported by `int`");
    is_number = read_float(text, number);
    if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), integer);
    if (error == std::errc() && end == text.data() + text.size()) return Value(integer);
  }
  if (!is_number || !std::isfinite(number)) return fallback != nullptr ? *fallback : Value(int64_t{0});
  if (std::abs(number) >= 0x1p63) runtime.unsupported("integers beyond 64 bits are not supported");
  return Value(static_cast<int64_t>(number));
}

Value float_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Value* fallback = arguments.next("default");
  arguments.done();
  if (input.is_undefined()) runtime.wrong("an undefined value is no number");
  double number = 0;
  if (to_number(input, number)) return Value(number);
  if (input.text() != nullptr) {
    const MarkedText trimmed = strip(runtime, *input.text(), Side::kBoth, nullptr);
    if (trimmed.bytes().find('_') != std::string_view::npos)
      runtime.unsupported("numbers with underscores are not supported by `float`");
    if (read_float(trimmed.bytes(), number)) return Value(number);
  }
  return fallback != nullptr ? *fallback : Value(0.0);
}

Value abs_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.done();
  int64_t integer = 0;
  if (to_integer(input, integer)) return integer < 0 ? negate(runtime, input) : Value(integer);
  if (const double* number = input.as<double>()) return Value(std::abs(*number));
  runtime.wrong("`abs` does not work on a {}", type_name(input));
}

Value default_filter(Runtime&, const Value& input, Arguments& arguments) {
  const Value* fallback = arguments.next("default_value");
  const bool for_false = arguments.flag("boolean", false);
  arguments.done();
  if (!input.is_undefined() && (!for_false || truth(input))) return input;
  return fallback != nullptr ? *fallback : template_text("");
}

constexpr auto kTextFilters = std::to_array<NamedFilter>({
    {"abs", abs_filter},
    {"capitalize", capitalize_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"float", float_filter},
    {"format", format_filter},
    {"indent", indent_filter},
    {"int", int_filter},
    {"lower", lower_filter},
    {"replace", replace_filter},
    {"safe", safe_filter},
    {"string", string_filter},
    {"title", title_filter},
    {"tojson", tojson_filter},
    {"trim", trim_filter},
    {"upper", upper_filter},
});

}  // namespace

std::span<const NamedFilter> text_filters() noexcept { return kTextFilters; }

Filter find_filter(std::string_view name) noexcept {
  for (const auto table : {text_filters(), list_filters()}) {
    for (const NamedFilter& entry : table) {
      if (entry.name == name) return entry.filter;
    }
  }
  return nullptr;
}

}  // namespace regard::jinja
