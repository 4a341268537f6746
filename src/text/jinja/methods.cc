// Methods of text, dicts and lists, and what `loop` offers.
#include <algorithm>
#include <array>
#include <cstring>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace regard::jinja {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

const MarkedText& text_of(Runtime& runtime, const Value& value, std::string_view what) {
  if (value.text() == nullptr) runtime.wrong("{} needs a str, not a {}", what, type_name(value));
  return *value.text();
}

// Offsets of the first and the last occurrence, both in linear time.
size_t find_first(std::string_view text, std::string_view part, size_t from) {
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? kNowhere : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}
size_t find_last(std::string_view text, std::string_view part) {
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_part(part.rbegin(), part.rend());
  const size_t found = find_first(reversed_text, reversed_part, 0);
  return found == kNowhere ? kNowhere : text.size() - found - part.size();
}

enum class End { kStart, kEnd };

// startswith and endswith, for one text or a tuple of them.
Value has_affix(Runtime& runtime, const MarkedText& text, Arguments& arguments, End end) {
  const Value affix = arguments.require("prefix or suffix");
  if (arguments.has_positional()) runtime.unsupported("a range in startswith or endswith is not supported");
  arguments.done();
  const auto matches = [&](const Value& value) {
    const std::string_view part = text_of(runtime, value, "startswith or endswith").bytes();
    runtime.read(part.size());
    return end == End::kStart ? text.bytes().starts_with(part) : text.bytes().ends_with(part);
  };
  if (affix.list() == nullptr || affix.list()->kind != List::Kind::kTuple) return Value(matches(affix));
  return Value(std::any_of(affix.list()->items.begin(), affix.list()->items.end(), matches));
}

Value strip_side(Runtime& runtime, const MarkedText& text, Arguments& arguments, Side side) {
  const Value* characters = arguments.next("chars");
  arguments.done();
  return Value(strip(runtime, text, side, characters));
}

// Runs of characters that are no white space, at most `limit` splits from the left.
std::vector<Value> split_at_space(Runtime& runtime, const MarkedText& text, int64_t limit) {
  std::vector<Value> parts;
  const std::string_view bytes = text.bytes();
  size_t at = 0;
  while (true) {
    while (at < bytes.size() && is_space(code_point_at(bytes, at).value)) at += code_point_at(bytes, at).bytes;
    if (at >= bytes.size()) return parts;
    if (limit >= 0 && parts.size() == static_cast<size_t>(limit)) {
      parts.emplace_back(runtime.slice(text, at, bytes.size()));
      return parts;
    }
    const size_t begin = at;
    while (at < bytes.size() && !is_space(code_point_at(bytes, at).value)) at += code_point_at(bytes, at).bytes;
    parts.emplace_back(runtime.slice(text, begin, at));
    runtime.step();
  }
}

Value split(Runtime& runtime, const MarkedText& text, Arguments& arguments, End from) {
  const Value* separator = arguments.next("sep");
  const int64_t limit = arguments.integer("maxsplit", -1);
  arguments.done();
  runtime.read(text.size());
  if (separator == nullptr || separator->is<None>()) {
    if (from == End::kEnd && limit >= 0) runtime.unsupported("rsplit at white space with a limit is not supported");
    return runtime.list(split_at_space(runtime, text, limit));
  }
  const std::string_view part = text_of(runtime, *separator, "split").bytes();
  if (part.empty()) runtime.wrong("the separator of split is empty");
  std::vector<Value> parts;
  if (from == End::kStart || limit < 0) {
    size_t at = 0;
    while (limit < 0 || parts.size() < static_cast<size_t>(limit)) {
      const size_t found = find_first(text.bytes(), part, at);
      if (found == kNowhere) break;
      parts.emplace_back(runtime.slice(text, at, found));
      runtime.step();
      at = found + part.size();
    }
    parts.emplace_back(runtime.slice(text, at, text.size()));
    return runtime.list(std::move(parts));
  }
  size_t end = text.size();
  while (parts.size() < static_cast<size_t>(limit)) {
    runtime.read(end);
    const size_t found = find_last(text.bytes().substr(0, end), part);
    if (found == kNowhere) break;
    parts.emplace_back(runtime.slice(text, found + part.size(), end));
    end = found;
  }
  parts.emplace_back(runtime.slice(text, 0, end));
  std::reverse(parts.begin(), parts.end());
  return runtime.list(std::move(parts));
}

Value partition(Runtime& runtime, const MarkedText& text, Arguments& arguments, End from) {
  const MarkedText separator = text_of(runtime, arguments.require("sep"), "partition");
  arguments.done();
  if (separator.empty()) runtime.wrong("the separator of partition is empty");
  runtime.read(text.size());
  const size_t found = from == End::kStart ? find_first(text.bytes(), separator.bytes(), 0) : find_last(text.bytes(), separator.bytes());
  const Value nothing = template_text("");
  if (found == kNowhere) {
    if (from == End::kStart) return runtime.list({Value(text), nothing, nothing}, List::Kind::kTuple);
    return runtime.list({nothing, nothing, Value(text)}, List::Kind::kTuple);
  }
  return runtime.list({Value(runtime.slice(text, 0, found)), Value(separator),
                       Value(runtime.slice(text, found + separator.size(), text.size()))},
                      List::Kind::kTuple);
}

Value find(Runtime& runtime, const MarkedText& text, Arguments& arguments, End from) {
  const std::string_view part = text_of(runtime, arguments.require("sub"), "find").bytes();
  if (arguments.has_positional()) runtime.unsupported("a range in find is not supported");
  arguments.done();
  runtime.read(text.size());
  const size_t found = from == End::kStart ? find_first(text.bytes(), part, 0) : find_last(text.bytes(), part);
  if (found == kNowhere) return Value(int64_t{-1});
  return Value(static_cast<int64_t>(count_code_points(text.bytes().substr(0, found))));
}

Value count_text(Runtime& runtime, const MarkedText& text, Arguments& arguments) {
  const std::string_view part = text_of(runtime, arguments.require("sub"), "count").bytes();
  if (arguments.has_positional()) runtime.unsupported("a range in count is not supported");
  arguments.done();
  runtime.read(text.size());
  if (part.empty()) return Value(static_cast<int64_t>(count_code_points(text.bytes())) + 1);
  int64_t count = 0;
  for (size_t at = find_first(text.bytes(), part, 0); at != kNowhere; at = find_first(text.bytes(), part, at + part.size())) ++count;
  return Value(count);
}

Value remove_affix(Runtime& runtime, const MarkedText& text, Arguments& arguments, End end) {
  const std::string_view part = text_of(runtime, arguments.require("affix"), "removeprefix or removesuffix").bytes();
  arguments.done();
  if (end == End::kStart && text.bytes().starts_with(part)) return Value(runtime.slice(text, part.size(), text.size()));
  if (end == End::kEnd && text.bytes().ends_with(part)) return Value(runtime.slice(text, 0, text.size() - part.size()));
  return Value(text);
}

Value replace_method(Runtime& runtime, const MarkedText& text, Arguments& arguments) {
  const MarkedText from = text_of(runtime, arguments.require("old"), "replace");
  const MarkedText to = text_of(runtime, arguments.require("new"), "replace");
  const int64_t count = arguments.integer("count", -1);
  arguments.done();
  return Value(replace(runtime, text, from, to, count));
}

Value join_method(Runtime& runtime, const MarkedText& text, Arguments& arguments) {
  const ListRef parts = runtime.items(arguments.require("iterable"));
  arguments.done();
  for (const Value& part : parts->items) text_of(runtime, part, "join");
  return Value(join(runtime, text, parts->items));
}

// "{} {0} {name}".format(...): no attributes, no items, no format of numbers.
Value format_method(Runtime& runtime, const MarkedText& format, Arguments& arguments) {
  const std::vector<Value> positional = arguments.rest();
  const Arguments::Named named = arguments.rest_named();
  const std::string_view bytes = format.bytes();
  MarkedText out;
  size_t used = 0;
  size_t kept = 0;
  for (size_t at = bytes.find_first_of("{}"); at != kNowhere; at = bytes.find_first_of("{}", kept)) {
    runtime.append(out, format, kept, at);
    if (at + 1 < bytes.size() && bytes[at + 1] == bytes[at]) {
      runtime.append(out, format, at, at + 1);
      kept = at + 2;
      continue;
    }
    const size_t close = bytes.find('}', at);
    if (bytes[at] == '}' || close == kNowhere) runtime.wrong("single brace in a format");
    const std::string_view field = bytes.substr(at + 1, close - at - 1);
    if (field.find_first_of("{.[:!") != kNowhere) runtime.unsupported("only plain fields are supported in a format");
    kept = close + 1;
    if (!field.empty() && field.find_first_not_of("0123456789") != kNowhere) {
      const auto it = std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == field; });
      if (it == named.end()) runtime.wrong("the format names a value that is not given");
      runtime.append(out, to_text(runtime, it->second));
      continue;
    }
    const size_t index = field.empty() ? used++ : (field.size() < 6 ? static_cast<size_t>(std::stoul(std::string(field))) : kNowhere);
    if (index >= positional.size()) runtime.wrong("the format needs more values than given");
    runtime.append(out, to_text(runtime, positional[index]));
  }
  runtime.append(out, format, kept, bytes.size());
  return Value(std::move(out));
}

Value is_space_method(Runtime& runtime, const MarkedText& text, Arguments& arguments) {
  arguments.done();
  return Value(!text.empty() && strip(runtime, text, Side::kBoth, nullptr).empty());
}

using TextMethod = Value (*)(Runtime&, const MarkedText&, Arguments&);
template <auto function, auto option>
Value with(Runtime& runtime, const MarkedText& text, Arguments& arguments) {
  return function(runtime, text, arguments, option);
}
template <auto function>
Value plain(Runtime& runtime, const MarkedText& text, Arguments& arguments) {
  arguments.done();
  return Value(function(runtime, text));
}
Value split_lines_method(Runtime& runtime, const MarkedText& text, Arguments& arguments) {
  arguments.done();
  return runtime.list(split_lines(runtime, text));
}

struct NamedMethod {
  std::string_view name;
  TextMethod method;
};
constexpr auto kTextMethods = std::to_array<NamedMethod>({
    {"capitalize", plain<capitalize>},
    {"count", count_text},
    {"endswith", with<has_affix, End::kEnd>},
    {"find", with<find, End::kStart>},
    {"format", format_method},
    {"isspace", is_space_method},
    {"join", join_method},
    {"lower", plain<lower>},
    {"lstrip", with<strip_side, Side::kLeft>},
    {"partition", with<partition, End::kStart>},
    {"removeprefix", with<remove_affix, End::kStart>},
    {"removesuffix", with<remove_affix, End::kEnd>},
    {"replace", replace_method},
    {"rfind", with<find, End::kEnd>},
    {"rpartition", with<partition, End::kEnd>},
    {"rsplit", with<split, End::kEnd>},
    {"rstrip", with<strip_side, Side::kRight>},
    {"split", with<split, End::kStart>},
    {"splitlines", split_lines_method},
    {"startswith", with<has_affix, End::kStart>},
    {"strip", with<strip_side, Side::kBoth>},
    {"upper", plain<upper>},
});

constexpr std::string_view kDictMethods[] = {"get", "items", "keys", "values"};
constexpr std::string_view kListMethods[] = {"count", "index"};

Value call_dict_method(Runtime& runtime, const Dict& dict, std::string_view method, Arguments& arguments) {
  if (method == "get") {
    const Value& key = arguments.require("key");
    const Value* fallback = arguments.next("default");
    arguments.done();
    const Value* found = dict.find(key);
    return found != nullptr ? *found : (fallback != nullptr ? *fallback : Value(None{}));
  }
  arguments.done();
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries()) {
    runtime.step();
    items.push_back(method == "keys" ? key : (method == "values" ? value : runtime.list({key, value}, List::Kind::kTuple)));
  }
  return runtime.list(std::move(items), List::Kind::kView);
}

Value call_list_method(Runtime& runtime, const List& list, std::string_view method, Arguments& arguments) {
  const Value& wanted = arguments.require("value");
  arguments.done();
  int64_t count = 0;
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (!compare(runtime, Op::kEq, list.items[i], wanted)) continue;
    if (method == "index") return Value(static_cast<int64_t>(i));
    ++count;
  }
  if (method == "index") runtime.wrong("the value is not in the list");
  return Value(count);
}

template <class Names>
std::string_view find_name(const Names& names, std::string_view name) noexcept {
  const auto it = std::find(std::begin(names), std::end(names), name);
  return it == std::end(names) ? std::string_view() : *it;
}

}  // namespace

std::string_view find_method(const Value& object, std::string_view name) noexcept {
  if (object.dict() != nullptr) return find_name(kDictMethods, name);
  if (const List* list = object.list()) {
    const bool has_methods = list->kind != List::Kind::kView && list->kind != List::Kind::kGenerator;
    return has_methods ? find_name(kListMethods, name) : std::string_view();
  }
  if (object.text() == nullptr) return {};
  for (const NamedMethod& entry : kTextMethods) {
    if (entry.name == name) return entry.name;
  }
  return {};
}

Value call_method(Runtime& runtime, const Value& object, std::string_view method, Arguments& arguments) {
  if (const Dict* dict = object.dict()) return call_dict_method(runtime, *dict, method, arguments);
  if (const List* list = object.list()) return call_list_method(runtime, *list, method, arguments);
  refuse_safe(runtime, object);
  const auto it = std::find_if(kTextMethods.begin(), kTextMethods.end(), [&](const NamedMethod& m) { return m.name == method; });
  return it->method(runtime, *object.text(), arguments);
}

bool loop_attribute(Runtime&, const Loop& loop, std::string_view name, Value& value) {
  const auto length = static_cast<int64_t>(loop.items->items.size());
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") value = Value(index + 1);
  else if (name == "index0") value = Value(index);
  else if (name == "first") value = Value(index == 0);
  else if (name == "last") value = Value(index + 1 == length);
  else if (name == "length") value = Value(length);
  else if (name == "revindex") value = Value(length - index);
  else if (name == "revindex0") value = Value(length - index - 1);
  else if (name == "depth") value = Value(int64_t{1});  // recursive loops are not supported
  else if (name == "depth0") value = Value(int64_t{0});
  else if (name == "previtem") value = index == 0 ? Value() : loop.items->items[loop.index - 1];
  else if (name == "nextitem") value = index + 1 == length ? Value() : loop.items->items[loop.index + 1];
  else if (name == "cycle") value = Value(Function{"cycle", true});
  else if (name == "changed") value = Value(Function{"changed", true});
  else return false;
  return true;
}

}  // namespace regard::jinja
