// The interpreter: it walks the tree. Statements are in interpreter.cc, expressions in evaluate.cc.
#pragma once

#include <memory>
#include <string_view>
#include <unordered_map>

#include "text/jinja/interpreter.h"

namespace regard::jinja {

/// Names and their values; what is not found here is looked for in the parent. A scope lives as long as the statement
/// that made it, and its parent lives longer.
struct Scope : std::enable_shared_from_this<Scope> {
  explicit Scope(Scope* outer) : parent(outer) {}
  Scope* parent;
  std::unordered_map<std::string_view, Value> names;

  const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
      const auto it = scope->names.find(name);
      if (it != scope->names.end()) return &it->second;
    }
    return nullptr;
  }
};

class Interpreter {
 public:
  Interpreter(const Template& parsed, Runtime& runtime) : template_(parsed), runtime_(runtime) {}
  MarkedText run(const Variables& variables);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // Counts how deep the interpreter is in its own recursion.
  class Depth {
   public:
    explicit Depth(Interpreter& interpreter);
    ~Depth() { --interpreter_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Interpreter& interpreter_;
  };

  // Statements (interpreter.cc).
  Flow execute(const Block& block, Scope& scope);
  Flow execute(const Stmt& stmt, Scope& scope);
  Flow execute_if(const Stmt& stmt, Scope& scope);
  Flow execute_for(const Stmt& stmt, Scope& scope);
  void execute_set(const Stmt& stmt, Scope& scope);
  void execute_call(const Stmt& stmt, Scope& scope);
  Flow execute_with(const Stmt& stmt, Scope& scope);
  ListRef filtered(const Stmt& stmt, const ListRef& items, Scope& scope);
  void assign(const Expr& target, Value value, Scope& scope);
  MarkedText capture(const Block& block, Scope& scope);
  Value piped(const Expr& filters, MarkedText text, Scope& scope);
  Value call_macro(const Macro& macro, Arguments& arguments, const Value* caller);

  // Expressions (evaluate.cc).
  Value evaluate(const Expr& expr, Scope& scope);
  Value evaluate_name(const Expr& expr, Scope& scope);
  Value evaluate_list(const Expr& expr, Scope& scope);
  Value evaluate_dict(const Expr& expr, Scope& scope);
  Value evaluate_slice(const Expr& expr, Scope& scope);
  Value evaluate_call(const Expr& expr, Scope& scope, const Value* caller);
  Value evaluate_filter(const Expr& expr, Scope& scope);
  Value evaluate_test(const Expr& expr, Scope& scope);
  Value evaluate_concat(const Expr& expr, Scope& scope);
  Value evaluate_compare(const Expr& expr, Scope& scope);
  Value call_loop_method(Loop& loop, std::string_view method, Arguments& arguments);
  Arguments arguments_of(const Expr& expr, std::string_view callee, Scope& scope);

  const Template& template_;
  Runtime& runtime_;
  MarkedText* out_ = nullptr;      // where text goes: the result, or what a block captures
  const Value* piped_ = nullptr;   // the input of a filter chain that stands behind a block
  int depth_ = 0;
};

}  // namespace regard::jinja
