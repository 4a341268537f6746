// The parser: recursive descent over the tokens. Statements are in parser.cc, expressions in parser_expression.cc.
// A refusal travels as the exception Refusal inside these two files and becomes a Result at the end of parse().
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"
#include "text/jinja/limits.h"
#include "text/jinja/position.h"

namespace regard::jinja {

struct Refusal {
  Failure failure;
};

class Parser {
 public:
  Parser(std::string_view source, std::vector<Token> tokens, const Limits& limits)
      : source_(source), tokens_(std::move(tokens)), limits_(limits) {}

  Block parse_template();

 private:
  enum class Condition { kAllowed, kNotAllowed };  // whether `a if b else c` may stand here

  // Counts how deep the parser is in its own recursion.
  class Nesting {
   public:
    explicit Nesting(Parser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  // Tokens.
  const Token& current() const { return tokens_[next_]; }
  const Token& look_ahead() const { return tokens_[next_ + (current().kind == Token::Kind::kEnd ? 0 : 1)]; }
  Token take() { return current().kind == Token::Kind::kEnd ? current() : std::move(tokens_[next_++]); }
  bool at(Token::Kind kind) const { return current().kind == kind; }
  bool at_operator(std::string_view op) const { return at(Token::Kind::kOperator) && current().text == op; }
  bool at_name(std::string_view name) const { return at(Token::Kind::kName) && current().text == name; }
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  void expect(Token::Kind kind, std::string_view what);
  std::string take_name(std::string_view what);
  [[noreturn]] void refuse(Code code, size_t offset, std::string_view what) const;
  [[noreturn]] void refuse_here(std::string_view what) const { refuse(Code::kCorruptData, current().offset, what); }
  [[noreturn]] void unsupported(size_t offset, std::string_view what) const {
    refuse(Code::kUnsupported, offset, what);
  }

  // Statements (parser.cc).
  Block parse_block(std::initializer_list<std::string_view> ends);
  StmtPtr parse_statement();
  StmtPtr parse_if(StmtPtr stmt);
  StmtPtr parse_for(StmtPtr stmt);
  StmtPtr parse_set(StmtPtr stmt);
  StmtPtr parse_macro(StmtPtr stmt);
  StmtPtr parse_call(StmtPtr stmt);
  StmtPtr parse_with(StmtPtr stmt);
  void parse_parameters(Stmt& stmt);
  void parse_body(Stmt& stmt, std::string_view end);
  void end_tag() { expect(Token::Kind::kBlockEnd, "`%}`"); }
  ExprPtr parse_target(std::string_view until);
  ExprPtr parse_target_item();

  // Expressions (parser_expression.cc), loosest binding first.
  ExprPtr parse_tuple(Condition condition);
  ExprPtr parse_expression(Condition condition = Condition::kAllowed);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary();
  ExprPtr parse_signed();
  ExprPtr parse_primary();
  ExprPtr parse_parenthesis();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_attribute(ExprPtr object);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_call_arguments(ExprPtr callee);
  ExprPtr parse_filters(ExprPtr expr);
  ExprPtr parse_filter(ExprPtr input);
  ExprPtr parse_test(ExprPtr expr);
  void parse_arguments(Expr& expr);
  bool at_expression_end() const;

  ExprPtr node(Expr::Kind kind, size_t offset) const;
  void add(Expr& parent, ExprPtr part) const;
  ExprPtr node(Expr::Kind kind, size_t offset, ExprPtr first, ExprPtr second = nullptr) const;

  std::string_view source_;
  std::vector<Token> tokens_;
  const Limits& limits_;
  size_t next_ = 0;
  int nesting_ = 0;
  int loops_ = 0;   // loops around the current statement, inside the current macro
  int macros_ = 0;  // macros around it
};

}  // namespace regard::jinja
