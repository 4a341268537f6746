#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "text/jinja/builtins.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace regard::jinja {
namespace {

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void refuse_operands(Runtime& runtime, Op op, const Value& left, const Value& right) {
  runtime.wrong("`{}` does not work on {} and {}", kSigns[static_cast<int>(op)], type_name(left), type_name(right));
}

Value repeat(Runtime& runtime, const Value& value, int64_t times) {
  if (const MarkedText* text = value.text()) {
    MarkedText out;
    if (text->empty() || times <= 0) return Value(out);
    if (static_cast<uint64_t>(times) > runtime.limits().max_output_bytes / text->size()) {
      runtime.fail(Code::kResourceExhausted, "the template uses more than {} bytes of text",
                   runtime.limits().max_output_bytes);
    }
    for (int64_t i = 0; i < times; ++i) runtime.append(out, *text);
    return Value(std::move(out));
  }
  const List& list = *value.list();
  std::vector<Value> items;
  if (list.items.empty()) return value;
  for (int64_t i = 0; i < times; ++i) {
    if (items.size() + list.items.size() > runtime.limits().max_items) {
      runtime.fail(Code::kResourceExhausted, "the template uses more than {} items in a list",
                   runtime.limits().max_items);
    }
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return runtime.list(std::move(items), list.kind);
}

bool is_text_or_list(const Value& value) {
  const List* list = value.list();
  return value.text() != nullptr ||
         (list != nullptr && (list->kind == List::Kind::kList || list->kind == List::Kind::kTuple));
}

Value integer_arithmetic(Runtime& runtime, Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Op::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Op::kSub:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Op::kMul:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Op::kDiv:
      if (b == 0) runtime.wrong("division by zero");
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case Op::kFloorDiv:
    case Op::kMod: {
      if (b == 0) runtime.wrong("division by zero");
      if (b == -1) {  // the smallest integer has no opposite
        overflow = op == Op::kFloorDiv && __builtin_sub_overflow(int64_t{0}, a, &result);
        break;
      }
      const int64_t rest = a % b;
      const bool adjust = rest != 0 && ((rest < 0) != (b < 0));  // Python rounds down
      result = op == Op::kMod ? (adjust ? rest + b : rest) : a / b - (adjust ? 1 : 0);
      break;
    }
    case Op::kPow:
      if (b < 0) {
        if (a == 0) runtime.wrong("division by zero");
        return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
      }
      result = 1;
      for (; b > 0 && !overflow; b >>= 1) {
        if ((b & 1) != 0) overflow = __builtin_mul_overflow(result, a, &result);
        if (b > 1 && !overflow) overflow = __builtin_mul_overflow(a, a, &a);
      }
      break;
    default:
      break;
  }
  if (overflow) runtime.unsupported("integers beyond 64 bits are not supported");
  return Value(result);
}

Value float_arithmetic(Runtime& runtime, Op op, double a, double b) {
  if ((op == Op::kDiv || op == Op::kFloorDiv || op == Op::kMod) && b == 0) runtime.wrong("division by zero");
  switch (op) {
    case Op::kAdd:
      return Value(a + b);
    case Op::kSub:
      return Value(a - b);
    case Op::kMul:
      return Value(a * b);
    case Op::kDiv:
      return Value(a / b);
    case Op::kFloorDiv:
      return Value(std::floor(a / b));
    case Op::kMod: {
      const double rest = std::fmod(a, b);
      return Value(rest != 0 && ((rest < 0) != (b < 0)) ? rest + b : rest);
    }
    default:
      runtime.unsupported("powers of floats are not supported");
  }
}

bool contains(Runtime& runtime, const Value& container, const Value& value) {
  if (const MarkedText* text = container.text()) {
    if (value.text() == nullptr) runtime.wrong("`in` a str needs a str, not a {}", type_name(value));
    const std::string_view all = text->bytes();
    const std::string_view part = value.text()->bytes();
    runtime.read(all.size());
    // memmem takes linear time on any input; string_view::find does not.
    return part.empty() || memmem(all.data(), all.size(), part.data(), part.size()) != nullptr;
  }
  if (const Dict* dict = container.dict()) return dict->find(value) != nullptr;
  const ListRef items = runtime.items(container);
  const uint64_t weight = extent_of(value).weight;
  return std::any_of(items->items.begin(), items->items.end(), [&](const Value& item) {
    runtime.step(std::min(weight, extent_of(item).weight));
    return equal(item, value);
  });
}

// Names that Python objects have and that are not given here: better refused than taken for absent.
constexpr std::string_view kOtherTextNames[] = {
    "casefold", "center",       "encode",    "expandtabs", "format_map",  "isalnum", "isalpha", "isascii", "isdecimal",
    "isdigit",  "isidentifier", "islower",   "isnumeric",  "isprintable", "istitle", "isupper", "ljust",   "maketrans",
    "rjust",    "swapcase",     "translate", "zfill",      "index",       "rindex",  "title"};
constexpr std::string_view kOtherListNames[] = {"append", "clear",  "copy",    "extend", "insert",
                                                "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kOtherDictNames[] = {"clear", "copy", "fromkeys", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kOtherNumberNames[] = {
    "real",     "imag",       "numerator",        "denominator", "bit_length", "bit_count", "conjugate",
    "to_bytes", "from_bytes", "as_integer_ratio", "is_integer",  "hex",        "fromhex"};

template <size_t N>
void refuse_name(Runtime& runtime, const std::string_view (&names)[N], std::string_view name, const Value& object) {
  if (std::find(std::begin(names), std::end(names), name) != std::end(names)) {
    runtime.unsupported("`{}` of a {} is not supported", name, type_name(object));
  }
}

// The attribute that Python would find on the object itself; undefined when it has none.
Value own_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (name.starts_with("__")) runtime.unsupported("attribute `{}` is not given to templates", name);
  if (const auto* ns = object.as<std::shared_ptr<Namespace>>()) {
    const Value* value = (*ns)->find(name);
    return value != nullptr ? *value : Value();
  }
  if (const auto* loop = object.as<std::shared_ptr<Loop>>()) {
    Value value;
    if (!loop_attribute(runtime, **loop, name, value)) runtime.unsupported("`loop.{}` is not supported", name);
    return value;
  }
  if (const std::string_view method = find_method(object, name); !method.empty()) return Value(Function{method, true});
  if (object.text() != nullptr) refuse_name(runtime, kOtherTextNames, name, object);
  if (object.list() != nullptr) refuse_name(runtime, kOtherListNames, name, object);
  if (object.dict() != nullptr) refuse_name(runtime, kOtherDictNames, name, object);
  double number = 0;
  if (to_number(object, number)) refuse_name(runtime, kOtherNumberNames, name, object);
  if (object.is<Function>() || object.is<std::shared_ptr<const Macro>>()) {
    runtime.unsupported("attributes of a function are not supported");
  }
  return {};
}

}  // namespace

void refuse_safe(Runtime& runtime, const Value& value) {
  const auto* string = value.as<String>();
  if (string != nullptr && string->safe) {
    runtime.unsupported("text marked `safe` can only be printed, compared and tested");
  }
}

Value arithmetic(Runtime& runtime, Op op, const Value& left, const Value& right) {
  if (left.is_undefined() || right.is_undefined())
    runtime.wrong("an undefined value cannot be used in `{}`", kSigns[static_cast<int>(op)]);
  refuse_safe(runtime, left);
  refuse_safe(runtime, right);
  int64_t a = 0;
  int64_t b = 0;
  const bool left_integer = to_integer(left, a);
  const bool right_integer = to_integer(right, b);
  if (left_integer && right_integer) return integer_arithmetic(runtime, op, a, b);
  double x = 0;
  double y = 0;
  if (to_number(left, x) && to_number(right, y)) return float_arithmetic(runtime, op, x, y);
  if (op == Op::kMul && is_text_or_list(left) && right_integer) return repeat(runtime, left, b);
  if (op == Op::kMul && is_text_or_list(right) && left_integer) return repeat(runtime, right, a);
  if (op == Op::kMod && left.text() != nullptr) return Value(format_percent(runtime, *left.text(), right));
  if (op != Op::kAdd) refuse_operands(runtime, op, left, right);
  if (left.text() != nullptr && right.text() != nullptr) {
    MarkedText sum;
    runtime.append(sum, *left.text());
    runtime.append(sum, *right.text());
    return Value(std::move(sum));
  }
  if (!is_text_or_list(left) || !is_text_or_list(right) || left.list() == nullptr || right.list() == nullptr ||
      left.list()->kind != right.list()->kind) {
    refuse_operands(runtime, op, left, right);
  }
  std::vector<Value> items = left.list()->items;
  items.insert(items.end(), right.list()->items.begin(), right.list()->items.end());
  return runtime.list(std::move(items), left.list()->kind);
}

Value negate(Runtime& runtime, const Value& value) {
  int64_t integer = 0;
  if (to_integer(value, integer)) return integer_arithmetic(runtime, Op::kSub, 0, integer);
  if (const double* number = value.as<double>()) return Value(-*number);
  runtime.wrong("`-` does not work on a {}", type_name(value));
}

bool compare(Runtime& runtime, Op op, const Value& left, const Value& right) {
  runtime.step(std::min(extent_of(left).weight, extent_of(right).weight));
  switch (op) {
    case Op::kEq:
      return equal(left, right);
    case Op::kNe:
      return !equal(left, right);
    case Op::kIn:
      return contains(runtime, right, left);
    case Op::kNotIn:
      return !contains(runtime, right, left);
    default:
      break;
  }
  const int result = order(left, right);
  if (result == kNoOrder) runtime.wrong("a {} and a {} have no order", type_name(left), type_name(right));
  if (result == kUnordered) return false;
  switch (op) {
    case Op::kLt:
      return result < 0;
    case Op::kLe:
      return result <= 0;
    case Op::kGt:
      return result > 0;
    default:
      return result >= 0;
  }
}

Value attribute_of(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.is_undefined()) runtime.wrong("an undefined value has no attribute `{}`", name);
  Value own = own_attribute(runtime, object, name);
  if (!own.is_undefined() || object.dict() == nullptr) return own;
  const Value* item = object.dict()->find(name);
  return item != nullptr ? *item : Value();
}

Value item_of(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) runtime.wrong("an undefined value has no items");
  if (const Dict* dict = object.dict()) {
    if (const Value* item = dict->find(key)) return *item;
  }
  int64_t index = 0;
  if (to_integer(key, index)) {
    if (const MarkedText* text = object.text()) {
      refuse_safe(runtime, object);
      const std::string_view bytes = text->bytes();
      runtime.read(2 * bytes.size());
      const auto length = static_cast<int64_t>(count_code_points(bytes));
      if (index < 0) index += length;
      if (index < 0 || index >= length) return {};
      const size_t begin = byte_offset(bytes, static_cast<size_t>(index));
      return Value(runtime.slice(*text, begin, begin + code_point_at(bytes, begin).bytes));
    }
    const List* list = object.list();
    if (list == nullptr || list->kind == List::Kind::kView || list->kind == List::Kind::kGenerator) return {};
    const auto length = static_cast<int64_t>(list->items.size());
    if (index < 0) index += length;
    if (index < 0 || index >= length) return {};
    return list->items[static_cast<size_t>(index)];
  }
  return key.text() != nullptr ? own_attribute(runtime, object, key.text()->bytes()) : Value();
}

Value slice_of(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step_value) {
  if (object.is_undefined()) runtime.wrong("an undefined value has no items");
  refuse_safe(runtime, object);
  const auto bound = [&](const Value& value, int64_t fallback) {
    int64_t integer = fallback;
    if (value.is_undefined() || value.is<None>()) return fallback;
    if (!to_integer(value, integer)) runtime.wrong("the bounds of a slice are ints, not a {}", type_name(value));
    return integer;
  };
  const int64_t step = bound(step_value, 1);
  if (step == 0) runtime.wrong("the step of a slice cannot be 0");
  const MarkedText* text = object.text();
  const List* list = object.list();
  if (text == nullptr && (list == nullptr || list->kind == List::Kind::kView || list->kind == List::Kind::kGenerator)) {
    runtime.wrong("a {} cannot be sliced", type_name(object));
  }
  if (text != nullptr) runtime.read(2 * text->size());
  const auto length = static_cast<int64_t>(text != nullptr ? count_code_points(text->bytes()) : list->items.size());
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? length : length - 1;
  const auto clamp = [&](const Value& value, int64_t fallback) {
    int64_t at = bound(value, fallback);
    if (value.is_undefined() || value.is<None>()) return fallback;
    if (at < 0) at += length;
    return std::clamp(at, low, high);
  };
  const int64_t begin = clamp(start, step > 0 ? low : high);
  const int64_t end = clamp(stop, step > 0 ? high : low);
  if (text != nullptr && step == 1) {
    const size_t first = byte_offset(text->bytes(), static_cast<size_t>(begin));
    const size_t last = std::max(first, byte_offset(text->bytes(), static_cast<size_t>(end)));
    return Value(runtime.slice(*text, first, last));
  }
  const ListRef items = text != nullptr ? runtime.items(object) : *object.as<ListRef>();
  std::vector<Value> picked;
  // The step may be huge: what is left to the end is compared, never the sum.
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    runtime.step();
    picked.push_back(items->items[static_cast<size_t>(at)]);
    if (step > 0 ? step >= end - at : step <= end - at) break;
    at += step;
  }
  if (text == nullptr) return runtime.list(std::move(picked), list->kind);
  MarkedText joined;
  for (const Value& item : picked) runtime.append(joined, *item.text());
  return Value(std::move(joined));
}

MarkedText format_percent(Runtime& runtime, const MarkedText& format, const Value& values) {
  const List* tuple = values.list() != nullptr && values.list()->kind == List::Kind::kTuple ? values.list() : nullptr;
  size_t used = 0;
  MarkedText out;
  const std::string_view bytes = format.bytes();
  size_t kept = 0;
  for (size_t at = bytes.find('%'); at != std::string_view::npos; at = bytes.find('%', kept)) {
    runtime.append(out, format, kept, at);
    const char type = at + 1 < bytes.size() ? bytes[at + 1] : '\0';
    kept = at + 2;
    if (type == '%') {
      runtime.append(out, format, at, at + 1);
      continue;
    }
    if (type != 's' && type != 'r' && type != 'd' && type != 'i')
      runtime.unsupported("only %s, %r, %d, %i and %% are supported in a format");
    const size_t given = tuple != nullptr ? tuple->items.size() : 1;
    if (used >= given) runtime.wrong("the format needs more than {} values", given);
    const Value& value = tuple != nullptr ? tuple->items[used] : values;
    ++used;
    int64_t integer = 0;
    if (type == 's' || type == 'r') {
      runtime.append(out, type == 's' ? to_text(runtime, value) : to_literal(runtime, value));
    } else if (to_integer(value, integer)) {
      runtime.append(out, fmt::format("{}", integer), Origin::kTemplate);
    } else {
      runtime.wrong("%d needs an int, not a {}", type_name(value));
    }
  }
  runtime.append(out, format, std::min(kept, bytes.size()), bytes.size());
  const bool may_ignore = tuple == nullptr && (values.dict() != nullptr || values.list() != nullptr);
  if (used < (tuple != nullptr ? tuple->items.size() : 1) && !may_ignore)
    runtime.wrong("the format uses fewer values than given");
  return out;
}

}  // namespace regard::jinja
