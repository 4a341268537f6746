// Filters over lists and dicts.
#include <algorithm>
#include <array>

#include "text/jinja/builtins.h"
#include "text/jinja/merge_sort.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace regard::jinja {
namespace {

// Follows "a.b.0" from a value: each part as item (or attribute), numbers as index.
Value follow(Runtime& runtime, Value value, const Value& path) {
  int64_t index = 0;
  if (to_integer(path, index)) return item_of(runtime, value, path);
  if (path.text() == nullptr) runtime.wrong("an attribute is named by a str or int, not a {}", type_name(path));
  std::string_view rest = path.text()->bytes();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    runtime.read(part.size());
    const bool is_index =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string_view::npos;
    value = item_of(runtime, value,
                    is_index ? Value(int64_t{std::stoll(std::string(part))}) : template_text(std::string(part)));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

Value length_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.done();
  size_t length = 0;
  if (const MarkedText* text = input.text()) {
    runtime.read(text->size());
    length = count_code_points(text->bytes());
  } else if (input.dict() != nullptr) {
    length = input.dict()->size();
  } else if (input.list() != nullptr && input.list()->kind != List::Kind::kGenerator) {
    length = input.list()->items.size();
  } else if (!input.is_undefined()) {
    runtime.wrong("a {} has no length", type_name(input));
  }
  return Value(static_cast<int64_t>(length));
}

Value first_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.done();
  const ListRef items = runtime.items(input);
  return items->items.empty() ? Value() : items->items.front();
}

Value last_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.done();
  if (input.list() != nullptr && input.list()->kind == List::Kind::kGenerator)
    runtime.wrong("a generator cannot be read from its end");
  const ListRef items = runtime.items(input);
  return items->items.empty() ? Value() : items->items.back();
}

Value list_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.done();
  return runtime.list(runtime.items(input)->items);
}

Value join_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Value* separator = arguments.next("d");
  const Value* attribute = arguments.next("attribute");
  arguments.done();
  std::vector<Value> parts = runtime.items(input)->items;
  if (attribute != nullptr && !attribute->is<None>()) {
    for (Value& part : parts) part = follow(runtime, part, *attribute);
  }
  return Value(join(runtime, separator != nullptr ? to_text(runtime, *separator) : MarkedText(), parts));
}

Value reverse_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.done();
  std::vector<Value> items = runtime.items(input)->items;
  std::reverse(items.begin(), items.end());
  if (input.text() == nullptr) {
    const bool was_walked = input.list() != nullptr && input.list()->kind == List::Kind::kGenerator;
    return runtime.list(std::move(items), was_walked ? List::Kind::kList : List::Kind::kGenerator);
  }
  return Value(join(runtime, MarkedText(), items));
}

Value items_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.done();
  if (input.is_undefined()) return runtime.list({}, List::Kind::kGenerator);
  if (input.dict() == nullptr) runtime.wrong("`items` needs a dict, not a {}", type_name(input));
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.dict()->entries())
    pairs.push_back(runtime.list({key, value}, List::Kind::kTuple));
  return runtime.list(std::move(pairs), List::Kind::kGenerator);
}

// The filter named by the first argument, applied to each item; or an attribute of each.
Value map_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  std::vector<Value> items = runtime.items(input)->items;
  if (!arguments.has_positional()) {
    const Value attribute = arguments.require("attribute");
    const Value* fallback = arguments.next("default");
    arguments.done();
    for (Value& item : items) {
      item = follow(runtime, item, attribute);
      if (item.is_undefined() && fallback != nullptr) item = *fallback;
    }
    return runtime.list(std::move(items), List::Kind::kGenerator);
  }
  const Value name = arguments.require("");
  const Filter filter = name.text() != nullptr ? find_filter(name.text()->bytes()) : nullptr;
  if (filter == nullptr) runtime.unsupported("the filter named in `map` is not supported");
  const std::vector<Value> rest = arguments.rest();
  const Arguments::Named named = arguments.rest_named();
  for (Value& item : items) {
    runtime.step();
    Arguments own(runtime, name.text()->bytes(), rest, named);
    item = filter(runtime, item, own);
  }
  return runtime.list(std::move(items), List::Kind::kGenerator);
}

enum class Keep { kPassing, kFailing };
enum class Look { kAtItem, kAtAttribute };

// select, reject, selectattr, rejectattr: the items (or those with the attribute) for which a test holds or fails.
Value select_items(Runtime& runtime, const Value& input, Arguments& arguments, Keep keep, Look look) {
  const Value attribute = look == Look::kAtAttribute ? arguments.require("attribute") : Value();
  Test test = nullptr;
  Value name;
  if (arguments.has_positional()) {
    name = arguments.require("");
    test = name.text() != nullptr ? find_test(name.text()->bytes()) : nullptr;
    if (test == nullptr) runtime.unsupported("the test named in `select` or `reject` is not supported");
  }
  const std::vector<Value> rest = arguments.rest();
  const Arguments::Named named = arguments.rest_named();
  std::vector<Value> kept;
  const ListRef items = runtime.items(input);
  for (const Value& item : items->items) {
    runtime.step();
    const Value looked_at = look == Look::kAtAttribute ? follow(runtime, item, attribute) : item;
    bool passes = truth(looked_at);
    if (test != nullptr) {
      Arguments own(runtime, name.text()->bytes(), rest, named);
      passes = test(runtime, looked_at, own);
    }
    if (passes == (keep == Keep::kPassing)) kept.push_back(item);
  }
  return runtime.list(std::move(kept), List::Kind::kGenerator);
}

Value select_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  return select_items(runtime, input, arguments, Keep::kPassing, Look::kAtItem);
}
Value reject_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  return select_items(runtime, input, arguments, Keep::kFailing, Look::kAtItem);
}
Value selectattr_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  return select_items(runtime, input, arguments, Keep::kPassing, Look::kAtAttribute);
}
Value rejectattr_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  return select_items(runtime, input, arguments, Keep::kFailing, Look::kAtAttribute);
}

enum class Case { kIgnored, kRespected };

// What an item is compared by: itself or an attribute, text without case unless asked for.
Value sort_key(Runtime& runtime, const Value& item, const Value* attribute, Case letter_case) {
  Value key = attribute != nullptr && !attribute->is<None>() ? follow(runtime, item, *attribute) : item;
  if (letter_case == Case::kIgnored && key.text() != nullptr) return Value(lower(runtime, *key.text()));
  return key;
}

bool is_before(Runtime& runtime, const Value& left, const Value& right) {
  runtime.step(std::min(extent_of(left).weight, extent_of(right).weight));
  const int result = order(left, right);
  if (result == kNoOrder) runtime.wrong("a {} and a {} have no order", type_name(left), type_name(right));
  return result == -1;
}

struct Keyed {
  Value key;
  Value item;
};

std::vector<Keyed> keyed_items(Runtime& runtime, const std::vector<Value>& items, const Value* attribute,
                               Case letter_case) {
  std::vector<Keyed> keyed;
  for (const Value& item : items) keyed.push_back({sort_key(runtime, item, attribute, letter_case), item});
  return keyed;
}

// Stable in both directions, as sorted(reverse=True) of Python.
std::vector<Value> sorted(Runtime& runtime, std::vector<Keyed> keyed, bool descending) {
  merge_sort(keyed, [&](const Keyed& left, const Keyed& right) {
    return descending ? is_before(runtime, right.key, left.key) : is_before(runtime, left.key, right.key);
  });
  std::vector<Value> items;
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return items;
}

Value sort_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const bool descending = arguments.flag("reverse", false);
  const Case letter_case = arguments.flag("case_sensitive", false) ? Case::kRespected : Case::kIgnored;
  const Value* attribute = arguments.next("attribute");
  arguments.done();
  if (attribute != nullptr && attribute->text() != nullptr &&
      attribute->text()->bytes().find(',') != std::string_view::npos) {
    runtime.unsupported("sorting by several attributes is not supported");
  }
  return runtime.list(
      sorted(runtime, keyed_items(runtime, runtime.items(input)->items, attribute, letter_case), descending));
}

Value dictsort_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Case letter_case = arguments.flag("case_sensitive", false) ? Case::kRespected : Case::kIgnored;
  const Value* by = arguments.next("by");
  const bool descending = arguments.flag("reverse", false);
  arguments.done();
  if (input.dict() == nullptr) runtime.wrong("`dictsort` needs a dict, not a {}", type_name(input));
  const std::string_view part = by == nullptr ? "key" : (by->text() != nullptr ? by->text()->bytes() : "");
  if (part != "key" && part != "value") runtime.wrong("`dictsort` sorts by \"key\" or \"value\"");
  const Value index(int64_t{part == "key" ? 0 : 1});
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.dict()->entries())
    pairs.push_back(runtime.list({key, value}, List::Kind::kTuple));
  return runtime.list(sorted(runtime, keyed_items(runtime, pairs, &index, letter_case), descending));
}

Value unique_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Case letter_case = arguments.flag("case_sensitive", false) ? Case::kRespected : Case::kIgnored;
  const Value* attribute = arguments.next("attribute");
  arguments.done();
  Dict seen;
  std::vector<Value> kept;
  for (Keyed& entry : keyed_items(runtime, runtime.items(input)->items, attribute, letter_case)) {
    if (!is_hashable(entry.key)) runtime.unsupported("`unique` of a {} is not supported", type_name(entry.key));
    if (seen.find(entry.key) != nullptr) continue;
    runtime.set(seen, std::move(entry.key), Value(None{}));
    kept.push_back(std::move(entry.item));
  }
  return runtime.list(std::move(kept), List::Kind::kGenerator);
}

Value extreme(Runtime& runtime, const Value& input, Arguments& arguments, bool greatest) {
  const Case letter_case = arguments.flag("case_sensitive", false) ? Case::kRespected : Case::kIgnored;
  const Value* attribute = arguments.next("attribute");
  arguments.done();
  const std::vector<Keyed> keyed = keyed_items(runtime, runtime.items(input)->items, attribute, letter_case);
  const Keyed* best = nullptr;
  for (const Keyed& entry : keyed) {
    if (best == nullptr ||
        (greatest ? is_before(runtime, best->key, entry.key) : is_before(runtime, entry.key, best->key)))
      best = &entry;
  }
  return best == nullptr ? Value() : best->item;
}
Value min_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  return extreme(runtime, input, arguments, false);
}
Value max_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  return extreme(runtime, input, arguments, true);
}

Value sum_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Value* attribute = arguments.next("attribute");
  const Value* start = arguments.next("start");
  arguments.done();
  Value sum = start != nullptr ? *start : Value(int64_t{0});
  if (sum.text() != nullptr) runtime.wrong("`sum` does not join strs; use `join`");
  const ListRef items = runtime.items(input);
  for (const Value& item : items->items) {
    const bool whole = attribute == nullptr || attribute->is<None>();
    sum = arithmetic(runtime, Op::kAdd, sum, whole ? item : follow(runtime, item, *attribute));
  }
  return sum;
}

constexpr auto kListFilters = std::to_array<NamedFilter>({
    {"count", length_filter},
    {"dictsort", dictsort_filter},
    {"first", first_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last_filter},
    {"length", length_filter},
    {"list", list_filter},
    {"map", map_filter},
    {"max", max_filter},
    {"min", min_filter},
    {"reject", reject_filter},
    {"rejectattr", rejectattr_filter},
    {"reverse", reverse_filter},
    {"select", select_filter},
    {"selectattr", selectattr_filter},
    {"sort", sort_filter},
    {"sum", sum_filter},
    {"unique", unique_filter},
});

}  // namespace

std::span<const NamedFilter> list_filters() noexcept { return kListFilters; }

}  // namespace regard::jinja
