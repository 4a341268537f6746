// The tree of a parsed template. Expr and Stmt are one struct each, with a kind that says which members count; the
// parser is the only one that makes them and the interpreter the only one that reads them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace regard::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class Op {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn,
};

struct Expr {
  enum class Kind {
    kConstant,   // value
    kName,       // name
    kList,       // args
    kTuple,      // args
    kDict,       // args: key, value, key, value ...
    kAttribute,  // args[0] . name
    kItem,       // args[0] [ args[1] ]
    kSlice,      // args[0] [ args[1] : args[2] : args[3] ], absent ones null
    kCall,       // args[0] ( args[1]..., keywords )
    kFilter,     // args[0] | name(args[1]..., keywords); args[0] is null for the text of a block
    kTest,       // args[0] is name(args[1]..., keywords)
    kNot,
    kNegate,
    kPlus,     // args[0]
    kBinary,   // args[0] ops[0] args[1], arithmetic
    kConcat,   // args joined as text
    kCompare,  // args[0] ops[0] args[1] ops[1] args[2] ..., each compared with the next
    kAnd,
    kOr,         // args[0], args[1]
    kCondition,  // args[1] if args[0] else args[2]; args[2] may be null
  };
  Kind kind = Kind::kConstant;
  uint32_t offset = 0;  // into the source, for error messages
  int depth = 1;        // 1 + the greatest depth of a part
  std::string name;
  Value value;
  std::vector<Op> ops;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Block = std::vector<StmtPtr>;

struct Stmt {
  enum class Kind {
    kText,      // text
    kPrint,     // expr
    kIf,        // branches: condition (null for else) and body
    kFor,       // for target in expr if test: body, else: otherwise
    kSet,       // target = expr
    kSetBlock,  // target = text of body, through the filter chain in expr if any
    kMacro,     // name(parameters): body
    kCall,      // call(parameters) expr: body
    kFilter,    // the filter chain in expr applied to the text of body
    kWith,      // assignments: body
    kScope,     // body in a scope of its own (generation)
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  uint32_t offset = 0;
  std::string name;
  Value text;
  ExprPtr target;
  ExprPtr expr;
  ExprPtr test;
  std::vector<std::pair<ExprPtr, Block>> branches;
  std::vector<std::pair<ExprPtr, ExprPtr>> assignments;     // of with: target, value
  std::vector<std::pair<std::string, ExprPtr>> parameters;  // of a macro: name, default (may be null)
  Block body;
  Block otherwise;
};

}  // namespace regard::jinja
