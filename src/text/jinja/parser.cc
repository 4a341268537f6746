#include "text/jinja/parser.h"

#include <algorithm>
#include <utility>

#include "text/jinja/parser_impl.h"

namespace regard::jinja {

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (++parser.nesting_ > parser.limits_.max_nesting) {
    --parser.nesting_;
    parser.refuse(Code::kResourceExhausted, parser.current().offset,
                  fmt::format("nesting beyond {} levels", parser.limits_.max_nesting));
  }
}

void Parser::refuse(Code code, size_t offset, std::string_view what) const {
  throw Refusal{{code, message_at(source_, offset, what)}};
}

bool Parser::skip_operator(std::string_view op) {
  if (!at_operator(op)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

void Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) refuse_here(fmt::format("expected `{}`", op));
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) refuse_here(fmt::format("expected `{}`", name));
}

void Parser::expect(Token::Kind kind, std::string_view what) {
  if (!at(kind)) refuse_here(fmt::format("expected {}", what));
  take();
}

std::string Parser::take_name(std::string_view what) {
  if (!at(Token::Kind::kName)) refuse_here(fmt::format("expected {}", what));
  return take().text;
}

Block Parser::parse_template() {
  Block body = parse_block({});
  if (!at(Token::Kind::kEnd)) refuse_here("statement that ends nothing");
  return body;
}

// Statements up to a tag that begins with one of `ends`; the tag's `{%` is taken, its name is not.
Block Parser::parse_block(std::initializer_list<std::string_view> ends) {
  const Nesting nesting(*this);
  Block block;
  while (!at(Token::Kind::kEnd)) {
    const size_t offset = current().offset;
    if (at(Token::Kind::kText)) {
      block.push_back(std::make_unique<Stmt>());
      block.back()->offset = static_cast<uint32_t>(offset);
      block.back()->text = template_text(take().text);
    } else if (at(Token::Kind::kPrintBegin)) {
      take();
      auto stmt = std::make_unique<Stmt>();
      stmt->kind = Stmt::Kind::kPrint;
      stmt->offset = static_cast<uint32_t>(offset);
      stmt->expr = parse_tuple(Condition::kAllowed);
      expect(Token::Kind::kPrintEnd, "`}}`");
      block.push_back(std::move(stmt));
    } else {
      expect(Token::Kind::kBlockBegin, "a statement");
      if (!at(Token::Kind::kName)) refuse_here("expected the name of a statement");
      if (std::find(ends.begin(), ends.end(), current().text) != ends.end()) return block;
      block.push_back(parse_statement());
    }
  }
  if (ends.size() != 0) refuse_here(fmt::format("missing `{{% {} %}}`", *(ends.end() - 1)));
  return block;
}

StmtPtr Parser::parse_statement() {
  auto stmt = std::make_unique<Stmt>();
  const size_t offset = current().offset;
  stmt->offset = static_cast<uint32_t>(offset);
  const std::string name = take().text;
  if (name == "if") return parse_if(std::move(stmt));
  if (name == "for") return parse_for(std::move(stmt));
  if (name == "set") return parse_set(std::move(stmt));
  if (name == "macro") return parse_macro(std::move(stmt));
  if (name == "call") return parse_call(std::move(stmt));
  if (name == "with") return parse_with(std::move(stmt));
  if (name == "filter") {
    stmt->kind = Stmt::Kind::kFilter;
    stmt->expr = parse_filters(parse_filter(nullptr));
    end_tag();
    parse_body(*stmt, "endfilter");
    return stmt;
  }
  if (name == "generation") {  // marks what the assistant wrote; the text is the same
    stmt->kind = Stmt::Kind::kScope;
    end_tag();
    parse_body(*stmt, "endgeneration");
    return stmt;
  }
  if (name == "break" || name == "continue") {
    if (loops_ == 0) refuse(Code::kCorruptData, offset, fmt::format("`{}` outside of a loop", name));
    stmt->kind = name == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue;
    end_tag();
    return stmt;
  }
  if (name == "else" || name == "elif" || name.starts_with("end")) {
    refuse(Code::kCorruptData, offset, fmt::format("`{}` without its beginning", name));
  }
  unsupported(offset, fmt::format("statement `{}` is not supported", name));
}

void Parser::parse_body(Stmt& stmt, std::string_view end) {
  stmt.body = parse_block({end});
  expect_name(end);
  end_tag();
}

StmtPtr Parser::parse_if(StmtPtr stmt) {
  stmt->kind = Stmt::Kind::kIf;
  ExprPtr condition = parse_tuple(Condition::kNotAllowed);
  while (true) {
    end_tag();
    Block body = condition != nullptr ? parse_block({"elif", "else", "endif"}) : parse_block({"endif"});
    stmt->branches.emplace_back(std::move(condition), std::move(body));
    if (skip_name("endif")) break;
    condition = skip_name("elif") ? parse_tuple(Condition::kNotAllowed) : nullptr;
    if (condition == nullptr) expect_name("else");
  }
  end_tag();
  return stmt;
}

StmtPtr Parser::parse_for(StmtPtr stmt) {
  stmt->kind = Stmt::Kind::kFor;
  stmt->target = parse_target("in");
  expect_name("in");
  stmt->expr = parse_tuple(Condition::kNotAllowed);
  if (skip_name("if")) stmt->test = parse_expression();
  if (at_name("recursive")) unsupported(current().offset, "recursive loops are not supported");
  end_tag();
  ++loops_;
  stmt->body = parse_block({"else", "endfor"});
  --loops_;
  if (skip_name("else")) {
    end_tag();
    stmt->otherwise = parse_block({"endfor"});
  }
  expect_name("endfor");
  end_tag();
  return stmt;
}

// One name, or names with commas between them, which take the items of a list.
ExprPtr Parser::parse_target(std::string_view until) {
  const size_t offset = current().offset;
  ExprPtr first = parse_target_item();
  if (!at_operator(",")) return first;
  ExprPtr tuple = node(Expr::Kind::kTuple, offset, std::move(first));
  while (skip_operator(",")) {
    if (at_operator("=") || (!until.empty() && at_name(until))) break;
    add(*tuple, parse_target_item());
  }
  return tuple;
}

ExprPtr Parser::parse_target_item() {
  const Nesting nesting(*this);
  const size_t offset = current().offset;
  if (skip_operator("(")) {
    ExprPtr inner = parse_target("");
    expect_operator(")");
    return inner;
  }
  ExprPtr target = node(Expr::Kind::kName, offset);
  target->name = take_name("a name to assign to");
  for (const std::string_view taken : {"true", "false", "none", "True", "False", "None", "loop"}) {
    if (target->name == taken) refuse(Code::kCorruptData, offset, fmt::format("cannot assign to `{}`", taken));
  }
  return target;
}

StmtPtr Parser::parse_set(StmtPtr stmt) {
  const size_t offset = current().offset;
  if (look_ahead().kind == Token::Kind::kOperator && look_ahead().text == ".") {
    ExprPtr object = parse_target_item();
    expect_operator(".");
    stmt->target = node(Expr::Kind::kAttribute, offset, std::move(object));
    stmt->target->name = take_name("the name of an attribute");
    if (at_operator(",")) unsupported(current().offset, "assigning several attributes at once is not supported");
  } else {
    stmt->target = parse_target("");
  }
  if (skip_operator("=")) {
    stmt->kind = Stmt::Kind::kSet;
    stmt->expr = parse_tuple(Condition::kAllowed);
    end_tag();
    return stmt;
  }
  stmt->kind = Stmt::Kind::kSetBlock;
  if (at_operator("|")) stmt->expr = parse_filters(nullptr);
  end_tag();
  parse_body(*stmt, "endset");
  return stmt;
}

// "(name, name=default, ...)".
void Parser::parse_parameters(Stmt& stmt) {
  expect_operator("(");
  while (!at_operator(")")) {
    if (!stmt.parameters.empty()) expect_operator(",");
    if (at_operator(")")) break;
    const size_t offset = current().offset;
    std::string name = parse_target_item()->name;
    ExprPtr fallback;
    if (skip_operator("=")) {
      fallback = parse_expression();
    } else if (!stmt.parameters.empty() && stmt.parameters.back().second != nullptr) {
      refuse(Code::kCorruptData, offset, "parameter without a default after one with a default");
    }
    stmt.parameters.emplace_back(std::move(name), std::move(fallback));
  }
  expect_operator(")");
}

StmtPtr Parser::parse_macro(StmtPtr stmt) {
  stmt->kind = Stmt::Kind::kMacro;
  stmt->name = parse_target_item()->name;
  parse_parameters(*stmt);
  end_tag();
  ++macros_;
  const int loops_around = std::exchange(loops_, 0);
  parse_body(*stmt, "endmacro");
  loops_ = loops_around;
  --macros_;
  return stmt;
}

StmtPtr Parser::parse_call(StmtPtr stmt) {
  stmt->kind = Stmt::Kind::kCall;
  stmt->name = "caller";
  if (at_operator("(")) parse_parameters(*stmt);
  const size_t offset = current().offset;
  stmt->expr = parse_expression();
  if (stmt->expr->kind != Expr::Kind::kCall) refuse(Code::kCorruptData, offset, "expected the call of a macro");
  end_tag();
  ++macros_;
  const int loops_around = std::exchange(loops_, 0);
  parse_body(*stmt, "endcall");
  loops_ = loops_around;
  --macros_;
  return stmt;
}

StmtPtr Parser::parse_with(StmtPtr stmt) {
  stmt->kind = Stmt::Kind::kWith;
  while (!at(Token::Kind::kBlockEnd)) {
    if (!stmt->assignments.empty()) expect_operator(",");
    ExprPtr target = parse_target_item();
    expect_operator("=");
    stmt->assignments.emplace_back(std::move(target), parse_expression());
  }
  end_tag();
  parse_body(*stmt, "endwith");
  return stmt;
}

Result<Template> parse(std::string_view source, const Limits& limits) {
  if (source.size() > limits.max_source_bytes) {
    return failure(Code::kResourceExhausted, "[chat template] the template has {} bytes, the limit is {}",
                   source.size(), limits.max_source_bytes);
  }
  Template parsed;
  parsed.source = normalize_newlines(source);
  REGARD_TRY(std::vector<Token> tokens, tokenize(parsed.source));
  try {
    parsed.body = Parser(parsed.source, std::move(tokens), limits).parse_template();
  } catch (Refusal& refusal) {
    return std::move(refusal.failure);
  }
  return parsed;
}

}  // namespace regard::jinja
