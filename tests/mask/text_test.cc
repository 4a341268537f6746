// Printing and reading: every expression survives, precedence is what the manual says, and errors point at the fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <unordered_set>

#include "mask/node.h"
#include "mask/parse.h"
#include "mask/terms.h"
#include "regard/error.h"

namespace regard {
namespace {

using namespace mask_testing;
using ::testing::HasSubstr;

std::string error_of(std::string_view text, const Bindings& bindings = {}) {
  const Result<Mask> result = parse_mask(text, bindings);
  return result ? "no error: " + result->text() : result.failure().message;
}

Code code_of(std::string_view text) {
  const Result<Mask> result = parse_mask(text, {});
  return result ? Code{0} : result.failure().code;
}

RC_GTEST_PROP(MaskText, ParsingWhatWasPrintedGivesTheSameMask, ()) {
  const Mask mask = random_rule(pick(1, 12), Kinds::kAll, 5).mask;
  const Mask again = Mask::parse(mask.text(), mask.bindings());
  RC_ASSERT(again == mask);
  RC_ASSERT(again.hash() == mask.hash());
  RC_ASSERT(again.text() == mask.text());
}

RC_GTEST_PROP(MaskText, AnyTextIsReadOrRefused, (const std::string& noise)) {
  static const char* const kWords[] = {"causal",   "window", "(",   ")",       ",", "~",    "&",
                                       "|",        "3",      "*",   "/",       ";", "tree", "documents",
                                       "per_head", "-1",     "ids", "lengths", " ", "\n",   "table"};
  std::string text;
  for (int64_t i = 0, n = pick(0, 20); i < n; ++i) text += std::string(kWords[pick(0, std::size(kWords))]) + " ";
  if (pick(0, 3) == 0) text += noise;
  const Bindings bindings{{{"ids", MaskList{0, 1}}}, {}};
  const Result<Mask> result = parse_mask(text, bindings);
  if (result) {
    RC_ASSERT(Mask::parse(result->text(), result->bindings()) == *result);
  } else {
    RC_ASSERT(result.failure().message.rfind("[Mask::parse] ", 0) == 0);
  }
}

TEST(MaskText, Precedence) {
  const Mask c = Mask::causal(), w = Mask::window(127, 0), s = Mask::prefix(4);
  EXPECT_EQ(Mask::parse("causal & window(127, 0) | sinks(4)"), (c & w) | s);
  EXPECT_EQ(Mask::parse("causal & (window(127, 0) | sinks(4))"), c & (w | s));
  EXPECT_EQ(Mask::parse("~causal & prefix(4)"), ~c & s);
  EXPECT_EQ(Mask::parse("~(causal & prefix(4))"), ~(c & s));
  EXPECT_EQ(Mask::parse("causal | prefix(4) & window(127,0) | ~~causal"), c | (s & w) | ~~c);
  EXPECT_EQ((c & (w | s)).text(), "causal & (window(127, 0) | prefix(4))");
  EXPECT_EQ(((c & w) | ~s).text(), "causal & window(127, 0) | ~prefix(4)");
  EXPECT_EQ((~(c | w)).text(), "~(causal | window(127, 0))");
}

// Query 0 sees keys 1 to 3 without the parentheses, and only itself with them.
TEST(MaskText, WithoutParenthesesTheSinksAreNotCausal) {
  const Mask meant = Mask::parse("causal & (window(127, 0) | sinks(4))"),
             slip = Mask::parse("causal & window(127, 0) | sinks(4)");
  for (int64_t k = 0; k < 8; ++k) {
    EXPECT_EQ(meant.allowed(0, 0, 0, k), k == 0);
    EXPECT_EQ(slip.allowed(0, 0, 0, k), k < 4);
  }
}

TEST(MaskText, EveryTermIsRead) {
  const MaskList ids = MaskList::per_row({{0, 0, 1}, {0, 1, 1}});
  const uint8_t bits[] = {1, 0, 0, 1};
  const BitTable table = BitTable::from_array(Polarity::kKeep, TensorView<const uint8_t>(bits, {2, 2}));
  const Bindings bindings{{{"ids", ids}, {"n", MaskList{3, 5}}}, {{"seen", table}}};
  const std::pair<const char*, Mask> cases[] = {
      {"full", Mask::full()},
      {" none ", Mask::none()},
      {"window(*, 0)", Mask::window(kUnlimited, 0)},
      {"window(3,*)", Mask::window(3, kUnlimited)},
      {"prefix(3)", Mask::prefix(3)},
      {"sinks(3, 5)", Mask::prefix({3, 5})},
      {"lengths(n)", Mask::lengths({3, 5})},
      {"documents(-7, 0, 1)", Mask::documents({-7, 0, 1})},
      {"documents(0, 0, 1 / 0, 1, 1)", Mask::documents(ids)},
      {"documents(ids)", Mask::documents(ids)},
      {"documents(0, 1; ids)", Mask::documents({0, 1}, ids)},
      {"documents()", Mask::documents(MaskList())},
      {"blocks(2) & chunk(3)", Mask::blocks(2) & Mask::chunk(3)},
      {"dilated(4)", Mask::dilated(4)},
      {"tree(-1, 0, 0)", Mask::tree({-1, 0, 0})},
      {"tree(3, 4; -1, 0 / -1)", Mask::tree({3, 4}, MaskList::per_row({{-1, 0}, {-1}}))},
      {"tree(n; -1)", Mask::tree({3, 5}, {-1})},
      {"table(seen)", Mask::table("other", table)},
      {"per_head(causal, window(1, 0) | prefix(1))",
       Mask::per_head({Mask::causal(), Mask::window(1, 0) | Mask::prefix(1)})},
  };
  for (const auto& [text, mask] : cases) EXPECT_EQ(Mask::parse(text, bindings), mask) << text;
  EXPECT_EQ(Mask::parse("documents(ids) & table(seen)", bindings).text(), "documents(ids) & table(seen)");
  EXPECT_EQ(Mask::documents(ids).text(), "documents(0, 0, 1 / 0, 1, 1)");
  EXPECT_EQ(Mask::parse("tree(3; -1, 0)").text(), "tree(3; -1, 0)");
  EXPECT_EQ(Mask::window(kUnlimited, 2).text(), "window(*, 2)");
}

TEST(MaskText, ErrorsPointAtTheFault) {
  EXPECT_EQ(error_of("causal & windw(3, 0)"),
            "[Mask::parse] column 10: found 'windw', expected a term (full, none, causal, window, prefix, sinks, "
            "lengths, documents, "
            "blocks, chunk, dilated, tree, table, per_head); did you mean 'window'?\n"
            "  causal & windw(3, 0)\n"
            "           ^~~~~");
  EXPECT_NE(error_of("not causal").find("per_head); ~ is the negation\n"), std::string::npos);
  EXPECT_EQ(error_of("window(-1, 0)"),
            "[Mask::parse] column 8: found '-1', expected a width of 0 or more, or * for no end\n"
            "  window(-1, 0)\n"
            "         ^~");
  EXPECT_EQ(error_of("causal &\n  | full"),
            "[Mask::parse] line 2, column 3: found '|', expected a term, ~ or (\n"
            "    | full\n"
            "    ^");
  EXPECT_EQ(error_of(""), "[Mask::parse] column 1: found the end, expected a term, ~ or (\n  \n  ^");
  EXPECT_THAT(error_of("causal causal"), HasSubstr("column 8: found 'causal', expected &, | or the end"));
  EXPECT_THAT(error_of("(causal"), HasSubstr("column 8: found the end, expected &, | or )"));
  EXPECT_THAT(error_of("window(3)"), HasSubstr("column 9: found ')', expected , and the width to the right"));
  EXPECT_THAT(error_of("blocks(0)"), HasSubstr("column 8: found '0', expected a number of 1 or more"));
  EXPECT_THAT(error_of("chunk(*)"), HasSubstr("found '*'"));
  EXPECT_THAT(error_of("dilated"), HasSubstr("expected ( after dilated"));
  EXPECT_THAT(error_of("prefix(-3)"), HasSubstr("found '-3', expected a number of 0 or more"));
  EXPECT_THAT(error_of("lengths()"), HasSubstr("column 9: found ')', expected a number of 0 or more"));
  EXPECT_THAT(error_of("lengths(3, ids)"), HasSubstr("column 12: found 'ids'"));
  EXPECT_THAT(error_of("documents(ids)"), HasSubstr("the name of a list (none is bound; the command takes --bind ids=ids.npy)"));
  EXPECT_THAT(error_of("documents(idz)", {{{"ids", MaskList{0}}}, {}}), HasSubstr("(bound: ids)"));
  EXPECT_THAT(error_of("table(3)"), HasSubstr("the name of a table"));
  EXPECT_THAT(error_of("tree(0, 5)"), HasSubstr("column 1: node 0 is its own ancestor"));
  EXPECT_THAT(error_of("causal & tree(-1, 5)"), HasSubstr("column 10: node 1 hangs from 5"));
  EXPECT_THAT(error_of("tree(-1, 2, 1)"), HasSubstr("its own ancestor"));
  EXPECT_THAT(error_of("documents(0 / 1; 0 / 1 / 2)"), HasSubstr("query ids for 2 batch rows and key ids for 3"));
  EXPECT_THAT(error_of("prefix(99999999999999999999)"), HasSubstr("below 2^63"));
  EXPECT_THAT(error_of("prefix(3x)"), HasSubstr("found '3x'"));
  EXPECT_THAT(error_of("causal \x01\xff"), HasSubstr("found '?'"));
  EXPECT_THAT(error_of("full()"), HasSubstr("expected &, | or the end"));
  EXPECT_THAT(error_of("per_head(causal causal)"), HasSubstr("expected &, |, a comma or )"));
}

TEST(MaskText, LongLinesAreCutAroundTheFault) {
  std::string text = "causal";
  for (int i = 0; i < 100; ++i) text += " | causal";
  text += " ! causal";
  for (int i = 0; i < 100; ++i) text += " | causal";
  const std::string message = error_of(text);
  EXPECT_LT(message.size(), 400u);
  EXPECT_THAT(message, HasSubstr("column 908: found '!'"));
  // The caret stands under the sign.
  const size_t line = message.find('\n') + 1, caret = message.find('\n', line) + 1;
  EXPECT_EQ(message[line + message.find('^', caret) - caret], '!');
}

TEST(MaskText, Limits) {
  const auto nested = [](int levels) { return std::string(static_cast<size_t>(levels), '~') + "causal"; };
  EXPECT_EQ(code_of(nested(kMaxMaskDepth - 1)), Code{0});
  EXPECT_EQ(code_of(nested(kMaxMaskDepth)), Code::kResourceExhausted);
  EXPECT_EQ(code_of(std::string(100'000, '(')), Code::kResourceExhausted);
  EXPECT_EQ(code_of(std::string(100'000, '~')), Code::kResourceExhausted);

  const auto wide = [](int64_t terms) {
    std::string text = "causal";
    for (int64_t i = 1; i < terms; ++i) text += "|causal";
    return text;
  };
  EXPECT_EQ(code_of(wide(kMaxMaskNodes - 1)), Code{0});  // and one | over them all
  EXPECT_EQ(code_of(wide(kMaxMaskNodes)), Code::kResourceExhausted);
  EXPECT_EQ(code_of(std::string(kMaxMaskText - 6, ' ') + "causal"), Code{0});
  EXPECT_EQ(code_of(std::string(kMaxMaskText - 5, ' ') + "causal"), Code::kResourceExhausted);

  Mask deep = Mask::causal();
  for (int i = 1; i < kMaxMaskDepth; ++i) deep = i % 2 == 0 ? deep & Mask::full() : deep | Mask::none();
  EXPECT_EQ(Mask::parse(deep.text()), deep);
  EXPECT_THROW(~deep, Error);
  Mask doubled = Mask::causal();
  EXPECT_THROW(for (int i = 0; i < 60; ++i) doubled = ~doubled & doubled, Error);
}

TEST(MaskText, EqualityAndHashAreByContent) {
  const Mask a = Mask::documents(MaskList{0, 0, 1}.named("ids")), b = Mask::documents(MaskList{0, 0, 1}.named("other"));
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_NE(a, Mask::documents({0, 0, 2}));
  EXPECT_NE(a, Mask::documents({0, 0, 1}, {0, 0, 1}));  // two lists have axes of their own
  EXPECT_NE(Mask::prefix(3), Mask::lengths({3}));
  EXPECT_NE(Mask::causal() & Mask::full(), Mask::full() & Mask::causal());
  EXPECT_EQ((Mask::causal() & Mask::full()) & Mask::none(), Mask::causal() & (Mask::full() & Mask::none()));
  EXPECT_NE(Mask::window(1, 2), Mask::window(2, 1));
  EXPECT_NE(MaskList::per_row({{0, 1}, {2}}), MaskList::per_row({{0}, {1, 2}}));

  std::unordered_set<uint64_t> hashes;
  int masks = 0;
  for (int64_t l = 0; l < 20; ++l)
    for (int64_t r = 0; r < 20; ++r, ++masks) hashes.insert((Mask::window(l, r) | Mask::prefix(l)).hash());
  EXPECT_EQ(hashes.size(), static_cast<size_t>(masks));

  // One name cannot stand for two lists, or the text would not say which is meant.
  EXPECT_THROW(a & Mask::documents(MaskList{5}.named("ids")), Error);
  EXPECT_NO_THROW(a & Mask::prefix(MaskList{0, 0, 1}.named("ids")));
}

TEST(MaskText, TermsCheckTheirNumbers) {
  EXPECT_THROW(Mask::window(-1, 0), Error);
  EXPECT_THROW(Mask::window(0, -1), Error);
  EXPECT_THROW(Mask::blocks(0), Error);
  EXPECT_THROW(Mask::chunk(-2), Error);
  EXPECT_THROW(Mask::dilated(0), Error);
  EXPECT_THROW(Mask::prefix(-1), Error);
  EXPECT_THROW(Mask::lengths(MaskList::per_row({{1}, {2}})), Error);
  EXPECT_THROW(Mask::lengths(MaskList()), Error);
  EXPECT_THROW(Mask::per_head({}), Error);
  EXPECT_THROW(MaskList::per_row(std::vector<std::vector<int64_t>>{}), Error);
  EXPECT_THROW(MaskList::per_row({1, 2, 3}, 2, 2), Error);
  EXPECT_THROW(MaskList{1}.named("3x"), Error);
  EXPECT_THROW(Mask::full().allowed(-1, 0, 0, 0), Error);
  EXPECT_THROW(Mask::lengths({1, 2}).allowed(2, 0, 0, 0), Error);
  EXPECT_EQ(Mask(), Mask::full());
}

TEST(MaskText, DependenceIsKnown) {
  EXPECT_FALSE(Mask::parse("causal & lengths(3)").depends_on_batch());
  EXPECT_TRUE(Mask::parse("causal & lengths(3, 4)").depends_on_batch());
  EXPECT_TRUE(Mask::parse("tree(1; -1 / -1)").depends_on_batch());
  EXPECT_TRUE(Mask::parse("~per_head(causal, full)").depends_on_head());
  EXPECT_TRUE(Mask::parse("prefix(3) | window(1, 1)").compares_positions());
  EXPECT_TRUE(Mask::parse("documents(0, 1)").compares_positions());
  for (const char* text : {"full", "~none", "prefix(3)", "lengths(3)", "window(*, *)", "documents(0; 0, 1)"})
    EXPECT_FALSE(Mask::parse(text).compares_positions()) << text;
}

}  // namespace
}  // namespace regard
