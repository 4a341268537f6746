// Expressions, loosest binding first: condition, or, and, not, comparison, sum, ~, product, power, sign, postfix,
// filter. The order is Jinja's, not Python's: ~ binds tighter than +, and a filter takes the sign with it.
#include <algorithm>
#include <array>

#include "text/jinja/builtins.h"
#include "text/jinja/parser_impl.h"

namespace regard::jinja {
namespace {

struct Spelling {
  std::string_view text;
  Op op;
};
constexpr std::array<Spelling, 6> kComparisons = {
    {{"==", Op::kEq}, {"!=", Op::kNe}, {"<", Op::kLt}, {"<=", Op::kLe}, {">", Op::kGt}, {">=", Op::kGe}}};
constexpr std::array<Spelling, 4> kProducts = {
    {{"*", Op::kMul}, {"/", Op::kDiv}, {"//", Op::kFloorDiv}, {"%", Op::kMod}}};

template <size_t N>
const Spelling* find_spelling(const std::array<Spelling, N>& table, const Token& token) {
  if (token.kind != Token::Kind::kOperator) return nullptr;
  const auto it = std::find_if(table.begin(), table.end(), [&](const Spelling& s) { return s.text == token.text; });
  return it == table.end() ? nullptr : &*it;
}

}  // namespace

ExprPtr Parser::node(Expr::Kind kind, size_t offset) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->offset = static_cast<uint32_t>(offset);
  return expr;
}

// Every part goes through here, so no tree is deeper than the limit: also not one that loops built, like a + b + c +
// ...
void Parser::add(Expr& parent, ExprPtr part) const {
  if (part != nullptr) {
    parent.depth = std::max(parent.depth, part->depth + 1);
    if (parent.depth > limits_.max_nesting) {
      refuse(Code::kResourceExhausted, parent.offset, fmt::format("expression beyond {} levels", limits_.max_nesting));
    }
  }
  parent.args.push_back(std::move(part));
}

ExprPtr Parser::node(Expr::Kind kind, size_t offset, ExprPtr first, ExprPtr second) const {
  ExprPtr expr = node(kind, offset);
  add(*expr, std::move(first));
  if (second != nullptr) add(*expr, std::move(second));
  return expr;
}

bool Parser::at_expression_end() const {
  return at(Token::Kind::kPrintEnd) || at(Token::Kind::kBlockEnd) || at(Token::Kind::kEnd) || at_operator(")") ||
         at_operator("=");
}

// Expressions with commas between them make a tuple.
ExprPtr Parser::parse_tuple(Condition condition) {
  const size_t offset = current().offset;
  if (at_expression_end()) refuse_here("expected an expression");
  ExprPtr first = parse_expression(condition);
  if (!at_operator(",")) return first;
  ExprPtr tuple = node(Expr::Kind::kTuple, offset, std::move(first));
  while (skip_operator(",")) {
    if (at_expression_end()) break;
    add(*tuple, parse_expression(condition));
  }
  return tuple;
}

ExprPtr Parser::parse_expression(Condition condition) {
  if (condition == Condition::kNotAllowed) return parse_or();
  const Nesting nesting(*this);
  ExprPtr expr = parse_or();
  while (at_name("if")) {
    const size_t offset = take().offset;
    ExprPtr test = parse_or();
    ExprPtr whole = node(Expr::Kind::kCondition, offset, std::move(test), std::move(expr));
    add(*whole, skip_name("else") ? parse_expression() : nullptr);
    expr = std::move(whole);
  }
  return expr;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (at_name("or")) {
    const size_t offset = take().offset;
    left = node(Expr::Kind::kOr, offset, std::move(left), parse_and());
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (at_name("and")) {
    const size_t offset = take().offset;
    left = node(Expr::Kind::kAnd, offset, std::move(left), parse_not());
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!at_name("not")) return parse_compare();
  const Nesting nesting(*this);
  const size_t offset = take().offset;
  return node(Expr::Kind::kNot, offset, parse_not());
}

ExprPtr Parser::parse_compare() {
  const size_t offset = current().offset;
  ExprPtr first = parse_sum();
  ExprPtr chain;
  while (true) {
    Op op = Op::kIn;
    if (const Spelling* spelling = find_spelling(kComparisons, current())) {
      op = spelling->op;
      take();
    } else if (skip_name("in")) {
      op = Op::kIn;
    } else if (at_name("not") && look_ahead().kind == Token::Kind::kName && look_ahead().text == "in") {
      take();
      take();
      op = Op::kNotIn;
    } else {
      break;
    }
    if (chain == nullptr) chain = node(Expr::Kind::kCompare, offset, std::move(first));
    chain->ops.push_back(op);
    add(*chain, parse_sum());
  }
  return chain != nullptr ? std::move(chain) : std::move(first);
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (at_operator("+") || at_operator("-")) {
    const Token op = take();
    left = node(Expr::Kind::kBinary, op.offset, std::move(left), parse_concat());
    left->ops.push_back(op.text == "+" ? Op::kAdd : Op::kSub);
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  const size_t offset = current().offset;
  ExprPtr first = parse_product();
  if (!at_operator("~")) return first;
  ExprPtr concat = node(Expr::Kind::kConcat, offset, std::move(first));
  while (skip_operator("~")) add(*concat, parse_product());
  return concat;
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (const Spelling* spelling = find_spelling(kProducts, current())) {
    const size_t offset = take().offset;
    left = node(Expr::Kind::kBinary, offset, std::move(left), parse_power());
    left->ops.push_back(spelling->op);
  }
  return left;
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary();
  while (at_operator("**")) {
    const size_t offset = take().offset;
    left = node(Expr::Kind::kBinary, offset, std::move(left), parse_unary());
    left->ops.push_back(Op::kPow);
  }
  return left;
}

ExprPtr Parser::parse_unary() { return parse_filters(parse_signed()); }

ExprPtr Parser::parse_signed() {
  if (!at_operator("-") && !at_operator("+")) return parse_postfix(parse_primary());
  const Nesting nesting(*this);
  const Token sign = take();
  ExprPtr whole = node(sign.text == "-" ? Expr::Kind::kNegate : Expr::Kind::kPlus, sign.offset, parse_signed());
  return parse_postfix(std::move(whole));
}

ExprPtr Parser::parse_primary() {
  const size_t offset = current().offset;
  if (at_operator("(")) return parse_parenthesis();
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  ExprPtr constant = node(Expr::Kind::kConstant, offset);
  if (at(Token::Kind::kString)) {
    std::string text = take().text;
    while (at(Token::Kind::kString)) text += take().text;  // strings side by side are one
    constant->value = template_text(std::move(text));
    return constant;
  }
  if (at(Token::Kind::kInteger)) {
    constant->value = Value(take().integer);
    return constant;
  }
  if (at(Token::Kind::kFloat)) {
    constant->value = Value(take().number);
    return constant;
  }
  if (!at(Token::Kind::kName)) refuse_here("expected an expression");
  std::string name = take().text;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    constant->value = Value(name == "true" || name == "True");
    return constant;
  }
  if (name == "none" || name == "None") {
    constant->value = Value(None{});
    return constant;
  }
  if (macros_ > 0 && (name == "varargs" || name == "kwargs")) {
    unsupported(offset, fmt::format("`{}` of a macro is not supported", name));
  }
  constant->kind = Expr::Kind::kName;
  constant->name = std::move(name);
  return constant;
}

ExprPtr Parser::parse_parenthesis() {
  const Nesting nesting(*this);
  const size_t offset = current().offset;
  expect_operator("(");
  if (skip_operator(")")) return node(Expr::Kind::kTuple, offset);
  ExprPtr inner = parse_tuple(Condition::kAllowed);
  expect_operator(")");
  return inner;
}

ExprPtr Parser::parse_list() {
  const Nesting nesting(*this);
  ExprPtr list = node(Expr::Kind::kList, current().offset);
  expect_operator("[");
  while (!at_operator("]")) {
    if (!list->args.empty()) expect_operator(",");
    if (at_operator("]")) break;
    add(*list, parse_expression());
  }
  expect_operator("]");
  return list;
}

ExprPtr Parser::parse_dict() {
  const Nesting nesting(*this);
  ExprPtr dict = node(Expr::Kind::kDict, current().offset);
  expect_operator("{");
  while (!at_operator("}")) {
    if (!dict->args.empty()) expect_operator(",");
    if (at_operator("}")) break;
    add(*dict, parse_expression());
    expect_operator(":");
    add(*dict, parse_expression());
  }
  expect_operator("}");
  return dict;
}

ExprPtr Parser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (at_operator(".")) {
      expr = parse_attribute(std::move(expr));
    } else if (at_operator("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (at_operator("(")) {
      expr = parse_call_arguments(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_attribute(ExprPtr object) {
  expect_operator(".");
  const size_t offset = current().offset;
  if (at(Token::Kind::kInteger)) {
    ExprPtr index = node(Expr::Kind::kConstant, offset);
    index->value = Value(take().integer);
    return node(Expr::Kind::kItem, offset, std::move(object), std::move(index));
  }
  ExprPtr attribute = node(Expr::Kind::kAttribute, offset, std::move(object));
  attribute->name = take_name("the name of an attribute");
  return attribute;
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  const Nesting nesting(*this);
  const size_t offset = current().offset;
  expect_operator("[");
  ExprPtr start = at_operator(":") ? nullptr : parse_expression();
  if (skip_operator("]")) return node(Expr::Kind::kItem, offset, std::move(object), std::move(start));
  if (at_operator(",")) unsupported(current().offset, "several subscripts are not supported");
  expect_operator(":");
  ExprPtr slice = node(Expr::Kind::kSlice, offset, std::move(object));
  add(*slice, std::move(start));
  add(*slice, at_operator(":") || at_operator("]") ? nullptr : parse_expression());
  add(*slice, skip_operator(":") && !at_operator("]") ? parse_expression() : nullptr);
  expect_operator("]");
  return slice;
}

ExprPtr Parser::parse_call_arguments(ExprPtr callee) {
  const size_t offset = callee->offset;
  ExprPtr call = node(Expr::Kind::kCall, offset, std::move(callee));
  parse_arguments(*call);
  return call;
}

// "(value, ..., name=value, ...)".
void Parser::parse_arguments(Expr& expr) {
  const Nesting nesting(*this);
  expect_operator("(");
  bool first = true;
  while (!at_operator(")")) {
    if (!first) expect_operator(",");
    first = false;
    if (at_operator(")")) break;
    if (at_operator("*") || at_operator("**")) unsupported(current().offset, "unpacking of arguments is not supported");
    if (at(Token::Kind::kName) && look_ahead().kind == Token::Kind::kOperator && look_ahead().text == "=") {
      const size_t offset = current().offset;
      std::string name = take().text;
      take();
      for (const auto& keyword : expr.keywords) {
        if (keyword.first == name) refuse(Code::kCorruptData, offset, "argument given twice");
      }
      add(expr, parse_expression());
      expr.keywords.emplace_back(std::move(name), std::move(expr.args.back()));
      expr.args.pop_back();
    } else if (!expr.keywords.empty()) {
      refuse_here("positional argument after a named one");
    } else {
      add(expr, parse_expression());
    }
  }
  expect_operator(")");
}

ExprPtr Parser::parse_filters(ExprPtr expr) {
  while (true) {
    if (skip_operator("|")) {
      expr = parse_filter(std::move(expr));
    } else if (at_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (expr != nullptr && at_operator("(") &&
               (expr->kind == Expr::Kind::kFilter || expr->kind == Expr::Kind::kTest)) {
      unsupported(current().offset, "calling what a filter or test gives is not supported");
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_filter(ExprPtr input) {
  ExprPtr filter = node(Expr::Kind::kFilter, current().offset, std::move(input));
  filter->name = take_name("the name of a filter");
  if (find_filter(filter->name) == nullptr || at_operator(".")) {
    unsupported(filter->offset, fmt::format("filter `{}` is not supported", filter->name));
  }
  if (at_operator("(")) parse_arguments(*filter);
  return filter;
}

ExprPtr Parser::parse_test(ExprPtr expr) {
  take();
  const size_t is_not = current().offset;
  const bool negated = skip_name("not");
  ExprPtr test = node(Expr::Kind::kTest, current().offset, std::move(expr));
  test->name = take_name("the name of a test");
  if (find_test(test->name) == nullptr || at_operator(".")) {
    unsupported(test->offset, fmt::format("test `{}` is not supported", test->name));
  }
  const bool at_word = at(Token::Kind::kName) && !at_name("else") && !at_name("or") && !at_name("and");
  if (at_operator("(")) {
    parse_arguments(*test);
  } else if (at_word || at(Token::Kind::kString) || at(Token::Kind::kInteger) || at(Token::Kind::kFloat) ||
             at_operator("[") || at_operator("{")) {
    if (at_name("is")) refuse_here("tests cannot be chained with `is`");
    if (at_name("if") || at_name("in") || at_name("not")) {
      unsupported(current().offset, fmt::format("put the test in parentheses before `{}`", current().text));
    }
    add(*test, parse_postfix(parse_primary()));
  }
  return negated ? node(Expr::Kind::kNot, is_not, std::move(test)) : std::move(test);
}

}  // namespace regard::jinja
