// Expressions of the interpreter.
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter_impl.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace regard::jinja {

Value Interpreter::evaluate(const Expr& expr, Scope& scope) {
  const Depth depth(*this);
  runtime_.step();
  switch (expr.kind) {
    case Expr::Kind::kConstant: return expr.value;
    case Expr::Kind::kName: return evaluate_name(expr, scope);
    case Expr::Kind::kList:
    case Expr::Kind::kTuple: return evaluate_list(expr, scope);
    case Expr::Kind::kDict: return evaluate_dict(expr, scope);
    case Expr::Kind::kAttribute: {
      const Value object = evaluate(*expr.args[0], scope);
      runtime_.stand_at(expr.offset);
      return attribute_of(runtime_, object, expr.name);
    }
    case Expr::Kind::kItem: {
      const Value object = evaluate(*expr.args[0], scope);
      const Value key = evaluate(*expr.args[1], scope);
      runtime_.stand_at(expr.offset);
      return item_of(runtime_, object, key);
    }
    case Expr::Kind::kSlice: return evaluate_slice(expr, scope);
    case Expr::Kind::kCall: return evaluate_call(expr, scope, nullptr);
    case Expr::Kind::kFilter: return evaluate_filter(expr, scope);
    case Expr::Kind::kTest: return evaluate_test(expr, scope);
    case Expr::Kind::kNot: return Value(!truth(evaluate(*expr.args[0], scope)));
    case Expr::Kind::kNegate:
    case Expr::Kind::kPlus: {
      const Value value = evaluate(*expr.args[0], scope);
      runtime_.stand_at(expr.offset);
      Value negative = negate(runtime_, value);
      return expr.kind == Expr::Kind::kNegate ? negative : negate(runtime_, negative);
    }
    case Expr::Kind::kBinary: {
      const Value left = evaluate(*expr.args[0], scope);
      const Value right = evaluate(*expr.args[1], scope);
      runtime_.stand_at(expr.offset);
      return arithmetic(runtime_, expr.ops[0], left, right);
    }
    case Expr::Kind::kConcat: return evaluate_concat(expr, scope);
    case Expr::Kind::kCompare: return evaluate_compare(expr, scope);
    case Expr::Kind::kAnd:
    case Expr::Kind::kOr: {
      Value left = evaluate(*expr.args[0], scope);
      const bool decided = truth(left) == (expr.kind == Expr::Kind::kOr);
      return decided ? left : evaluate(*expr.args[1], scope);
    }
    case Expr::Kind::kCondition: {
      if (truth(evaluate(*expr.args[0], scope))) return evaluate(*expr.args[1], scope);
      return expr.args[2] != nullptr ? evaluate(*expr.args[2], scope) : Value();
    }
  }
  return {};
}

Value Interpreter::evaluate_name(const Expr& expr, Scope& scope) {
  if (const Value* value = scope.find(expr.name)) return *value;
  if (const std::string_view function = find_function(expr.name); !function.empty()) return Value(Function{function, false});
  if (is_unsupported_function(expr.name)) {
    runtime_.stand_at(expr.offset);
    runtime_.unsupported("function `{}` is not supported", expr.name);
  }
  return {};
}

Value Interpreter::evaluate_list(const Expr& expr, Scope& scope) {
  std::vector<Value> items;
  items.reserve(expr.args.size());
  for (const ExprPtr& part : expr.args) items.push_back(evaluate(*part, scope));
  runtime_.stand_at(expr.offset);
  return runtime_.list(std::move(items), expr.kind == Expr::Kind::kList ? List::Kind::kList : List::Kind::kTuple);
}

Value Interpreter::evaluate_dict(const Expr& expr, Scope& scope) {
  Dict dict;
  for (size_t i = 0; i + 1 < expr.args.size(); i += 2) {
    Value key = evaluate(*expr.args[i], scope);
    Value value = evaluate(*expr.args[i + 1], scope);
    runtime_.stand_at(expr.offset);
    runtime_.set(dict, std::move(key), std::move(value));
  }
  return runtime_.dict(std::move(dict));
}

Value Interpreter::evaluate_slice(const Expr& expr, Scope& scope) {
  const Value object = evaluate(*expr.args[0], scope);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expr.args[i + 1] != nullptr) bounds[i] = evaluate(*expr.args[i + 1], scope);
  }
  runtime_.stand_at(expr.offset);
  return slice_of(runtime_, object, bounds[0], bounds[1], bounds[2]);
}

Arguments Interpreter::arguments_of(const Expr& expr, std::string_view callee, Scope& scope) {
  std::vector<Value> positional;
  for (size_t i = 1; i < expr.args.size(); ++i) positional.push_back(evaluate(*expr.args[i], scope));
  Arguments::Named named;
  for (const auto& [name, value] : expr.keywords) named.emplace_back(name, evaluate(*value, scope));
  runtime_.stand_at(expr.offset);
  return {runtime_, callee, std::move(positional), std::move(named)};
}

Value Interpreter::evaluate_call(const Expr& expr, Scope& scope, const Value* caller) {
  const Expr& callee = *expr.args[0];
  Value object;
  Value function;
  if (callee.kind == Expr::Kind::kAttribute) {
    object = evaluate(*callee.args[0], scope);
    runtime_.stand_at(callee.offset);
    function = attribute_of(runtime_, object, callee.name);
  } else {
    function = evaluate(callee, scope);
  }
  const std::string_view name = callee.name.empty() ? std::string_view("the function") : std::string_view(callee.name);
  Arguments arguments = arguments_of(expr, name, scope);
  runtime_.stand_at(callee.offset);
  if (const auto* macro = function.as<std::shared_ptr<const Macro>>()) return call_macro(**macro, arguments, caller);
  if (caller != nullptr) runtime_.unsupported("a call block needs a macro");
  const Function* named = function.as<Function>();
  if (named == nullptr) runtime_.wrong("a value of type {} cannot be called", type_name(function));
  if (!named->is_method) return call_function(runtime_, named->name, arguments);
  if (callee.kind != Expr::Kind::kAttribute) runtime_.unsupported("method `{}` can only be called where it is named", named->name);
  if (const auto* loop = object.as<std::shared_ptr<Loop>>()) return call_loop_method(**loop, named->name, arguments);
  if (find_method(object, callee.name).empty()) {
    runtime_.unsupported("method `{}` can only be called where it is named", named->name);
  }
  return call_method(runtime_, object, named->name, arguments);
}

Value Interpreter::call_loop_method(Loop& loop, std::string_view method, Arguments& arguments) {
  std::vector<Value> values = arguments.rest();
  arguments.done();
  if (method == "cycle") {
    if (values.empty()) runtime_.wrong("loop.cycle needs values");
    return values[loop.index % values.size()];
  }
  bool same = loop.changed_called && values.size() == loop.last_changed.size();
  for (size_t i = 0; same && i < values.size(); ++i) same = compare(runtime_, Op::kEq, values[i], loop.last_changed[i]);
  loop.changed_called = true;
  loop.last_changed = std::move(values);
  return Value(!same);
}

Value Interpreter::evaluate_filter(const Expr& expr, Scope& scope) {
  const Value input = expr.args[0] != nullptr ? evaluate(*expr.args[0], scope) : *piped_;
  Arguments arguments = arguments_of(expr, expr.name, scope);
  const auto* string = input.as<String>();
  if (string != nullptr && string->safe && expr.name != "safe" && expr.name != "tojson" && expr.name != "length" && expr.name != "string") {
    refuse_safe(runtime_, input);
  }
  return find_filter(expr.name)(runtime_, input, arguments);
}

Value Interpreter::evaluate_test(const Expr& expr, Scope& scope) {
  const Value input = evaluate(*expr.args[0], scope);
  Arguments arguments = arguments_of(expr, expr.name, scope);
  return Value(find_test(expr.name)(runtime_, input, arguments));
}

Value Interpreter::evaluate_concat(const Expr& expr, Scope& scope) {
  MarkedText out;
  for (const ExprPtr& part : expr.args) {
    const Value value = evaluate(*part, scope);
    runtime_.stand_at(expr.offset);
    refuse_safe(runtime_, value);
    runtime_.append(out, to_text(runtime_, value));
  }
  return Value(std::move(out));
}

Value Interpreter::evaluate_compare(const Expr& expr, Scope& scope) {
  Value left = evaluate(*expr.args[0], scope);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = evaluate(*expr.args[i + 1], scope);
    runtime_.stand_at(expr.offset);
    if (!compare(runtime_, expr.ops[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

}  // namespace regard::jinja
