// The reader of the text form, by recursive descent:
//
//   expression  = conjunction { "|" conjunction }
//   conjunction = factor { "&" factor }
//   factor      = "~" factor | "(" expression ")" | term
//   term        = "full" | "none" | "causal"
//               | "window" "(" width "," width ")"              width: a number or "*"
//               | ("prefix" | "sinks" | "lengths") "(" row ")"
//               | ("blocks" | "chunk" | "dilated") "(" number ")"
//               | "documents" "(" rows [ ";" rows ] ")"
//               | "tree" "(" [ row ";" ] rows ")"
//               | "table" "(" name ")"
//               | "per_head" "(" expression { "," expression } ")"
//   rows        = row { "/" row }                               one row for all batch rows, or one for each
//   row         = name | [ number { "," number } ]
#include "mask/parse.h"

#include <algorithm>
#include <vector>

#include "mask/lexer.h"
#include "mask/node.h"

namespace regard {
namespace {

constexpr std::string_view kTerms[] = {"full",      "none",   "causal", "window",  "prefix", "sinks", "lengths",
                                       "documents", "blocks", "chunk",  "dilated", "tree",   "table", "per_head"};
constexpr size_t kShown = 96;  // columns of the offending line that an error repeats

// Edits (insert, drop, replace) between two short words.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::string suggestion(std::string_view word) {
  if (word == "not") return "; ~ is the negation";
  std::string_view best;
  size_t fewest = 3;
  for (std::string_view term : kTerms)
    if (word.size() < 16 && edits(word, term) < fewest) fewest = edits(word, best = term);
  return best.empty() ? "" : fmt::format("; did you mean '{}'?", best);
}

// Bytes as they may stand in a message: control and non-ASCII bytes become '?', so that columns stay columns.
std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c < ' ' || c > '~') c = '?';
  return out;
}

class Parser {
 public:
  Parser(std::string_view text, const Bindings& bindings) : text_(text), bindings_(bindings), lexer_(text) {
    advance();
  }

  Result<Mask> whole() {
    REGARD_TRY(Mask mask, expression());
    if (token_.kind != MaskToken::Kind::kEnd) return unexpected("&, | or the end");
    return mask;
  }

 private:
  void advance() { token_ = lexer_.next(); }

  bool accept(char sign) {
    if (!token_.is(sign)) return false;
    advance();
    return true;
  }

  // ---- saying no ----

  Failure complain(Code code, const MaskToken& at, const std::string& what) const {
    const size_t line_begin = at.offset == 0 ? 0 : text_.rfind('\n', at.offset - 1) + 1;  // npos + 1 is 0
    const size_t line_end = std::min(text_.find('\n', at.offset), text_.size());
    const size_t column = at.offset - line_begin;
    const auto line_number =
        std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(line_begin), '\n') + 1;
    const size_t cut = column > kShown / 2 && line_end - line_begin > kShown ? column - kShown / 2 : 0;
    const std::string_view shown = text_.substr(line_begin + cut, std::min(kShown, line_end - line_begin - cut));
    const size_t caret = column - cut,
                 width = std::max<size_t>(1, std::min(at.text.size(), kShown - std::min(caret, kShown)));
    const bool many_lines = text_.find('\n') != std::string_view::npos;
    return {code, fmt::format("[Mask::parse] {}column {}: {}\n  {}\n  {:{}}^{:~<{}}",
                              many_lines ? fmt::format("line {}, ", line_number) : "", column + 1, what,
                              printable(shown), "", caret, "", width - 1)};
  }

  Failure unexpected(std::string_view expected) const {
    const std::string found =
        token_.kind == MaskToken::Kind::kEnd ? "the end" : "'" + printable(token_.text.substr(0, 40)) + "'";
    return complain(Code::kInvalidArgument, token_, fmt::format("found {}, expected {}", found, expected));
  }

  // The complaints of the terms themselves, pointed at `at`.
  template <class Build>
  Result<Mask> build(const MaskToken& at, Build make) const {
    try {
      return make();
    } catch (const Error& error) {
      const std::string_view what = error.what();
      const size_t bracket = what.find("] ");
      return complain(error.code(), at, std::string(what.substr(bracket == std::string_view::npos ? 0 : bracket + 2)));
    }
  }

  // ---- expressions ----

  Result<Mask> expression() {
    return chain('|', MaskOp::kOr, [this] { return conjunction(); });
  }
  Result<Mask> conjunction() {
    return chain('&', MaskOp::kAnd, [this] { return factor(); });
  }

  template <class Operand>
  Result<Mask> chain(char sign, MaskOp op, Operand operand) {
    const MaskToken at = token_;
    std::vector<Mask> operands;
    do {
      REGARD_TRY(Mask mask, operand());
      operands.push_back(std::move(mask));
    } while (accept(sign));
    return build(at, [&] { return join_masks(op, operands); });
  }

  Result<Mask> factor() {
    const MaskToken at = token_;
    if (++terms_ > kMaxMaskNodes)
      return complain(Code::kResourceExhausted, at, fmt::format("more than {} terms and operators", kMaxMaskNodes));
    if (accept('~')) {
      REGARD_TRY(Mask mask, nested(at, [this] { return factor(); }));
      return build(at, [&] { return ~mask; });
    }
    if (accept('(')) {
      REGARD_TRY(Mask mask, nested(at, [this] { return expression(); }));
      if (!accept(')')) return unexpected("&, | or )");
      return mask;
    }
    return term();
  }

  template <class Inner>
  Result<Mask> nested(const MaskToken& at, Inner inner) {
    if (depth_ + 1 >= kMaxMaskDepth)
      return complain(Code::kResourceExhausted, at, fmt::format("nested more than {} levels deep", kMaxMaskDepth));
    ++depth_;
    Result<Mask> result = inner();
    --depth_;
    return result;
  }

  // ---- terms ----

  Result<Mask> term() {
    const MaskToken at = token_;
    if (at.kind != MaskToken::Kind::kName) return unexpected("a term, ~ or (");
    if (std::find(std::begin(kTerms), std::end(kTerms), at.text) == std::end(kTerms))
      return unexpected(fmt::format("a term ({}){}", fmt::join(kTerms, ", "), suggestion(at.text)));
    advance();
    if (at.text == "full") return Mask::full();
    if (at.text == "none") return Mask::none();
    if (at.text == "causal") return Mask::causal();
    if (!accept('(')) return unexpected(fmt::format("( after {}", at.text));
    REGARD_TRY(Mask mask, arguments(at));
    if (!accept(')')) return unexpected(closing_);
    return mask;
  }

  Result<Mask> arguments(const MaskToken& at) {
    closing_ = ")";
    if (at.text == "window") {
      REGARD_TRY(const int64_t left, width());
      if (!accept(',')) return unexpected(", and the width to the right");
      REGARD_TRY(const int64_t right, width());
      return build(at, [&] { return Mask::window(left, right); });
    }
    if (at.text == "prefix" || at.text == "sinks" || at.text == "lengths") {
      REGARD_TRY(MaskList n, row(0, "a number of 0 or more"));
      return build(at, [&] { return at.text == "lengths" ? Mask::lengths(n) : Mask::prefix(n); });
    }
    if (at.text == "documents") {
      REGARD_TRY(MaskList ids, rows("an id"));
      if (!accept(';')) return build(at, [&] { return Mask::documents(ids); });
      REGARD_TRY(MaskList k_ids, rows("an id"));
      return build(at, [&] { return Mask::documents(ids, k_ids); });
    }
    if (at.text == "tree") {
      REGARD_TRY(MaskList first, rows("a parent"));
      if (!accept(';')) return build(at, [&] { return Mask::tree(first); });
      REGARD_TRY(MaskList parents, rows("a parent"));
      return build(at, [&] { return Mask::tree(first, parents); });
    }
    if (at.text == "table") return table();
    if (at.text == "per_head") {
      std::vector<Mask> masks;
      do {
        REGARD_TRY(Mask mask, nested(at, [this] { return expression(); }));
        masks.push_back(std::move(mask));
      } while (accept(','));
      closing_ = "&, |, a comma or )";
      return build(at, [&] { return Mask::per_head(masks); });
    }
    REGARD_TRY(const int64_t n, number(1, "a number of 1 or more"));
    return build(at, [&] {
      return at.text == "blocks" ? Mask::blocks(n) : at.text == "chunk" ? Mask::chunk(n) : Mask::dilated(n);
    });
  }

  Result<int64_t> width() {
    if (accept('*')) return kUnlimited;
    return number(0, "a width of 0 or more, or * for no end");
  }

  Result<int64_t> number(int64_t least, std::string_view expected) {
    if (token_.kind == MaskToken::Kind::kHuge) return unexpected(fmt::format("{} below 2^63", expected));
    if (token_.kind != MaskToken::Kind::kNumber || token_.value < least) return unexpected(expected);
    const int64_t value = token_.value;
    advance();
    return value;
  }

  bool at_number() const { return token_.kind == MaskToken::Kind::kNumber || token_.kind == MaskToken::Kind::kHuge; }

  Result<std::vector<int64_t>> numbers(int64_t least, std::string_view expected) {
    std::vector<int64_t> values;
    do {
      REGARD_TRY(const int64_t value, number(least, expected));
      values.push_back(value);
    } while (accept(','));
    return values;
  }

  // One row: a name, or at least one number.
  Result<MaskList> row(int64_t least, const std::string& expected) {
    closing_ = "a comma or )";
    if (token_.kind == MaskToken::Kind::kName) return bound_list();
    if (!at_number()) return unexpected(expected + ", or the name of a list");
    REGARD_TRY(auto values, numbers(least, expected));
    return MaskList(std::move(values));
  }

  // A name, or rows parted by '/', any of which may be empty.
  Result<MaskList> rows(const std::string& expected) {
    closing_ = "a comma, /, ; or )";
    if (token_.kind == MaskToken::Kind::kName) return bound_list();
    std::vector<std::vector<int64_t>> all;
    do {
      all.emplace_back();
      if (token_.is('/') || token_.is(';') || token_.is(')')) continue;
      if (!at_number()) return unexpected(expected + " (a number), or the name of a list");
      REGARD_TRY(all.back(), numbers(std::numeric_limits<int64_t>::min(), expected));
    } while (accept('/'));
    return MaskList::per_row(all);
  }

  template <class Map>
  std::string bound_names(const Map& map) const {
    std::string names;
    for (const auto& [name, value] : map) names += (names.empty() ? "" : ", ") + name;
    return names.empty() ? fmt::format("none is bound; the command takes --bind {}={}.npy", token_.text, token_.text) : "bound: " + names;
  }

  Result<MaskList> bound_list() {
    closing_ = "; or )";
    const auto found = bindings_.lists.find(token_.text);
    if (found == bindings_.lists.end())
      return unexpected(fmt::format("a number, or the name of a list ({})", bound_names(bindings_.lists)));
    advance();
    return found->second.named(found->first);
  }

  Result<Mask> table() {
    if (token_.kind != MaskToken::Kind::kName) return unexpected("the name of a table");
    const MaskToken at = token_;
    const auto found = bindings_.tables.find(token_.text);
    if (found == bindings_.tables.end())
      return unexpected(fmt::format("the name of a table ({})", bound_names(bindings_.tables)));
    advance();
    return build(at, [&] { return Mask::table(found->first, found->second); });
  }

  std::string_view text_;
  const Bindings& bindings_;
  MaskLexer lexer_;
  MaskToken token_;
  std::string_view closing_ = ")";  // what may stand where the parenthesis of the current term would close
  int depth_ = 0;
  int64_t terms_ = 0;
};

}  // namespace

Result<Mask> parse_mask(std::string_view text, const Bindings& bindings) {
  if (text.size() > kMaxMaskText)
    return failure(Code::kResourceExhausted, "[Mask::parse] the text has {} bytes; at most {} are read", text.size(),
                   kMaxMaskText);
  return Parser(text, bindings).whole();
}

Mask Mask::parse(std::string_view text, const Bindings& bindings) {
  return parse_mask(text, bindings).value_or_throw();
}

}  // namespace regard
