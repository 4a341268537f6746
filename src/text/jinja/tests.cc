// The tests of `value is name`.
#include <array>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"

namespace regard::jinja {
namespace {

// A test without arguments: what it asks of the value.
template <bool (*holds)(const Value&)>
bool plain(Runtime&, const Value& input, Arguments& arguments) {
  arguments.done();
  return holds(input);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is<None>(); }
bool is_string(const Value& v) { return v.is<String>(); }
bool is_boolean(const Value& v) { return v.is<bool>(); }
bool is_true(const Value& v) { return v.is<bool>() && truth(v); }
bool is_false(const Value& v) { return v.is<bool>() && !truth(v); }
bool is_integer(const Value& v) { return v.is<int64_t>(); }
bool is_float(const Value& v) { return v.is<double>(); }
bool is_number(const Value& v) { return v.is<bool>() || v.is<int64_t>() || v.is<double>(); }
bool is_mapping(const Value& v) { return v.is<DictRef>(); }
bool is_iterable(const Value& v) {
  return v.is_undefined() || v.is<String>() || v.is<ListRef>() || v.is<DictRef>() || v.is<std::shared_ptr<Loop>>();
}
bool is_sequence(const Value& v) {
  const List* list = v.list();
  if (list != nullptr) return list->kind != List::Kind::kGenerator && list->kind != List::Kind::kView;
  return v.is_undefined() || v.is<String>() || v.is<DictRef>();
}
bool is_callable(const Value& v) {
  return v.is_undefined() || v.is<Function>() || v.is<std::shared_ptr<const Macro>>();
}

template <Op op>
bool compares(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Value& other = arguments.require("other");
  arguments.done();
  return compare(runtime, op, input, other);
}

bool divides(Runtime& runtime, const Value& input, const Value& by, int64_t rest) {
  const Value remainder = arithmetic(runtime, Op::kMod, input, by);
  if (remainder.text() != nullptr) runtime.wrong("this test needs a number, not a {}", type_name(input));
  return equal(remainder, Value(rest));
}
bool is_divisible(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Value& by = arguments.require("num");
  arguments.done();
  return divides(runtime, input, by, 0);
}
bool is_even(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.done();
  return divides(runtime, input, Value(int64_t{2}), 0);
}
bool is_odd(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.done();
  return divides(runtime, input, Value(int64_t{2}), 1);
}

// Identity is defined here for what has one name in Python: none and the booleans.
bool is_same(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Value& other = arguments.require("other");
  arguments.done();
  if (!other.is<None>() && !other.is<bool>())
    runtime.unsupported("`sameas` is supported for none, true and false only");
  return (input.is<None>() && other.is<None>()) ||
         (input.is<bool>() && other.is<bool>() && truth(input) == truth(other));
}

struct NamedTest {
  std::string_view name;
  Test test;
};
constexpr auto kTests = std::to_array<NamedTest>({
    {"defined", plain<is_defined>},
    {"undefined", plain<is_undefined>},
    {"none", plain<is_none>},
    {"string", plain<is_string>},
    {"boolean", plain<is_boolean>},
    {"true", plain<is_true>},
    {"false", plain<is_false>},
    {"integer", plain<is_integer>},
    {"float", plain<is_float>},
    {"number", plain<is_number>},
    {"mapping", plain<is_mapping>},
    {"iterable", plain<is_iterable>},
    {"sequence", plain<is_sequence>},
    {"callable", plain<is_callable>},
    {"in", compares<Op::kIn>},
    {"eq", compares<Op::kEq>},
    {"equalto", compares<Op::kEq>},
    {"==", compares<Op::kEq>},
    {"ne", compares<Op::kNe>},
    {"!=", compares<Op::kNe>},
    {"lt", compares<Op::kLt>},
    {"lessthan", compares<Op::kLt>},
    {"<", compares<Op::kLt>},
    {"le", compares<Op::kLe>},
    {"<=", compares<Op::kLe>},
    {"gt", compares<Op::kGt>},
    {"greaterthan", compares<Op::kGt>},
    {">", compares<Op::kGt>},
    {"ge", compares<Op::kGe>},
    {">=", compares<Op::kGe>},
    {"divisibleby", is_divisible},
    {"even", is_even},
    {"odd", is_odd},
    {"sameas", is_same},
});

}  // namespace

Test find_test(std::string_view name) noexcept {
  for (const NamedTest& entry : kTests) {
    if (entry.name == name) return entry.test;
  }
  return nullptr;
}

}  // namespace regard::jinja
