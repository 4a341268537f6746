#include "text/jinja/interpreter.h"

#include <utility>

#include "text/jinja/interpreter_impl.h"
#include "text/jinja/print.h"

namespace regard::jinja {
namespace {

constexpr uint64_t kTurnCost = 8;  // steps for making and freeing the scope of one turn of a loop

}  // namespace

Interpreter::Depth::Depth(Interpreter& interpreter) : interpreter_(interpreter) {
  const int limit = interpreter.runtime_.limits().max_depth;
  if (interpreter.depth_ >= limit) {
    interpreter.runtime_.fail(Code::kResourceExhausted, "the template nests deeper than {} levels (macros that call themselves?)", limit);
  }
  ++interpreter.depth_;
}

MarkedText Interpreter::run(const Variables& variables) {
  const auto given = std::make_shared<Scope>(nullptr);
  for (const auto& [name, value] : variables) given->names[name] = value;
  const auto top = std::make_shared<Scope>(given.get());
  MarkedText out;
  out_ = &out;
  execute(template_.body, *top);
  return out;
}

Interpreter::Flow Interpreter::execute(const Block& block, Scope& scope) {
  for (const StmtPtr& stmt : block) {
    if (const Flow flow = execute(*stmt, scope); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Stmt& stmt, Scope& scope) {
  const Depth depth(*this);
  runtime_.stand_at(stmt.offset);
  runtime_.step();
  switch (stmt.kind) {
    case Stmt::Kind::kText:
      runtime_.append(*out_, *stmt.text.text());
      return Flow::kNext;
    case Stmt::Kind::kPrint: {
      const Value value = evaluate(*stmt.expr, scope);
      runtime_.stand_at(stmt.offset);
      runtime_.append(*out_, to_text(runtime_, value));
      return Flow::kNext;
    }
    case Stmt::Kind::kIf:
      return execute_if(stmt, scope);
    case Stmt::Kind::kFor:
      return execute_for(stmt, scope);
    case Stmt::Kind::kSet:
    case Stmt::Kind::kSetBlock:
      execute_set(stmt, scope);
      return Flow::kNext;
    case Stmt::Kind::kMacro: {
      auto macro = std::make_shared<Macro>();
      macro->definition = &stmt;
      macro->scope = scope.weak_from_this();
      scope.names[stmt.name] = Value(std::shared_ptr<const Macro>(std::move(macro)));
      return Flow::kNext;
    }
    case Stmt::Kind::kCall:
      execute_call(stmt, scope);
      return Flow::kNext;
    case Stmt::Kind::kFilter: {
      const auto inner = std::make_shared<Scope>(&scope);
      const Value value = piped(*stmt.expr, capture(stmt.body, *inner), scope);
      if (value.text() == nullptr) runtime_.wrong("a filter block must end in a str, not a {}", type_name(value));
      runtime_.append(*out_, *value.text());
      return Flow::kNext;
    }
    case Stmt::Kind::kWith:
      return execute_with(stmt, scope);
    case Stmt::Kind::kScope: {
      const auto inner = std::make_shared<Scope>(&scope);
      return execute(stmt.body, *inner);
    }
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_if(const Stmt& stmt, Scope& scope) {
  for (const auto& [condition, body] : stmt.branches) {
    if (condition == nullptr || truth(evaluate(*condition, scope))) return execute(body, scope);
  }
  return Flow::kNext;
}

// The items for which the `if` of a for holds; `loop` counts only these.
ListRef Interpreter::filtered(const Stmt& stmt, const ListRef& items, Scope& scope) {
  std::vector<Value> kept;
  for (const Value& item : items->items) {
    runtime_.step(kTurnCost);
    const auto inner = std::make_shared<Scope>(&scope);
    inner->names["loop"] = Value();  // the loop does not exist yet, and an outer one is not meant
    assign(*stmt.target, item, *inner);
    if (truth(evaluate(*stmt.test, *inner))) kept.push_back(item);
  }
  return *runtime_.list(std::move(kept)).as<ListRef>();
}

Interpreter::Flow Interpreter::execute_for(const Stmt& stmt, Scope& scope) {
  const Value iterable = evaluate(*stmt.expr, scope);
  runtime_.stand_at(stmt.offset);
  ListRef items = runtime_.items(iterable);
  if (stmt.test != nullptr) items = filtered(stmt, items, scope);
  const auto loop = std::make_shared<Loop>();
  loop->items = items;
  bool completed = false;  // as in Jinja, a body that `continue` always leaves has not run as far as else is concerned
  Flow flow = Flow::kNext;
  for (size_t i = 0; i < items->items.size(); ++i) {
    loop->index = i;
    runtime_.step(kTurnCost);
    const auto inner = std::make_shared<Scope>(&scope);  // what one turn sets is gone in the next
    inner->names["loop"] = Value(loop);
    assign(*stmt.target, items->items[i], *inner);
    flow = execute(stmt.body, *inner);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNext) completed = true;
  }
  if (completed || stmt.otherwise.empty()) return Flow::kNext;
  const auto inner = std::make_shared<Scope>(&scope);
  return execute(stmt.otherwise, *inner);
}

void Interpreter::assign(const Expr& target, Value value, Scope& scope) {
  runtime_.step();
  if (target.kind == Expr::Kind::kName) {
    scope.names[target.name] = std::move(value);
    return;
  }
  if (target.kind == Expr::Kind::kAttribute) {
    const Expr& object = *target.args[0];
    runtime_.stand_at(object.offset);
    const Value* found = scope.find(object.name);
    const auto* ns = found != nullptr ? found->as<std::shared_ptr<Namespace>>() : nullptr;
    if (ns == nullptr) runtime_.wrong("attributes can be set on a namespace only");
    if (target.name.starts_with("_")) runtime_.unsupported("attributes that begin with an underscore are not supported");
    (*ns)->set(target.name, std::move(value));
    return;
  }
  runtime_.stand_at(target.offset);
  const ListRef items = runtime_.items(value);
  if (items->items.size() != target.args.size()) {
    runtime_.wrong("{} values cannot be assigned to {} names", items->items.size(), target.args.size());
  }
  for (size_t i = 0; i < target.args.size(); ++i) assign(*target.args[i], items->items[i], scope);
}

void Interpreter::execute_set(const Stmt& stmt, Scope& scope) {
  if (stmt.kind == Stmt::Kind::kSet) return assign(*stmt.target, evaluate(*stmt.expr, scope), scope);
  const auto inner = std::make_shared<Scope>(&scope);
  MarkedText text = capture(stmt.body, *inner);
  assign(*stmt.target, stmt.expr != nullptr ? piped(*stmt.expr, std::move(text), scope) : Value(std::move(text)), scope);
}

void Interpreter::execute_call(const Stmt& stmt, Scope& scope) {
  auto body = std::make_shared<Macro>();
  body->definition = &stmt;
  body->scope = scope.weak_from_this();
  const Value caller{std::shared_ptr<const Macro>(std::move(body))};
  const Value value = evaluate_call(*stmt.expr, scope, &caller);
  runtime_.append(*out_, to_text(runtime_, value));
}

Interpreter::Flow Interpreter::execute_with(const Stmt& stmt, Scope& scope) {
  const auto inner = std::make_shared<Scope>(&scope);
  for (const auto& [target, value] : stmt.assignments) assign(*target, evaluate(*value, scope), *inner);
  return execute(stmt.body, *inner);
}

// The text that a block writes. `break` and `continue` cannot leave it: what they would leave is inside.
MarkedText Interpreter::capture(const Block& block, Scope& scope) {
  MarkedText text;
  MarkedText* const outer = std::exchange(out_, &text);
  const Flow flow = execute(block, scope);
  out_ = outer;
  if (flow != Flow::kNext) runtime_.unsupported("leaving a loop from inside a set or filter block is not supported");
  return text;
}

Value Interpreter::piped(const Expr& filters, MarkedText text, Scope& scope) {
  const Value input(std::move(text));
  const Value* const outer = std::exchange(piped_, &input);
  Value value = evaluate(filters, scope);
  piped_ = outer;
  return value;
}

Value Interpreter::call_macro(const Macro& macro, Arguments& arguments, const Value* caller) {
  const Depth depth(*this);
  const std::shared_ptr<Scope> defined_in = macro.scope.lock();
  if (defined_in == nullptr) runtime_.unsupported("this macro is called after the block that defined it has ended");
  const Stmt& definition = *macro.definition;
  const auto scope = std::make_shared<Scope>(defined_in.get());
  if (definition.kind == Stmt::Kind::kMacro) scope->names["caller"] = caller != nullptr ? *caller : Value();
  std::vector<const Expr*> defaults;
  for (const auto& [name, fallback] : definition.parameters) {
    const Value* given = arguments.next(name);
    if (given != nullptr) scope->names[name] = *given;
    defaults.push_back(given == nullptr ? fallback.get() : nullptr);
    if (given == nullptr && fallback == nullptr) scope->names[name] = Value();
  }
  arguments.done();
  for (size_t i = 0; i < defaults.size(); ++i) {
    if (defaults[i] != nullptr) scope->names[definition.parameters[i].first] = evaluate(*defaults[i], *scope);
  }
  return Value(capture(definition.body, *scope));
}

MarkedText render(const Template& parsed, const Variables& variables, const Limits& limits, const Clock& clock) {
  Runtime runtime(parsed.source, limits, clock);
  return Interpreter(parsed, runtime).run(variables);
}

}  // namespace regard::jinja
