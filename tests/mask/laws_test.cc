// The laws of the algebra, each checked on every pair of a square against the operators alone, and on plans, where a
// law is easy to break: both sides must give the same words and, for interval terms, the same tile classes.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "mask/plan.h"
#include "mask/terms.h"

namespace regard {
namespace {

using namespace mask_testing;

constexpr int64_t kSize = 24;

bool same_plans(const Mask& x, const Mask& y) {
  const MaskPlan px(x, {}, kBatch, kHeads), py(y, {}, kBatch, kHeads);
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t q = 0; q < kSize; ++q) {
        uint64_t wx = 0, wy = 0;
        px.fill_words(b, h, q, 0, 1, &wx);
        py.fill_words(b, h, q, 0, 1, &wy);
        if (wx != wy) return false;
      }
  return true;
}

// One law: two expressions of up to three operands that must mean the same.
void holds(const std::function<std::pair<Rule, Rule>(const Rule&, const Rule&, const Rule&)>& law) {
  const int64_t size = pick(1, 16);
  const auto operand = [&] { return random_rule(size, Kinds::kAll, 1); };
  const Rule a = operand(), b = operand(), c = operand();
  const auto [x, y] = law(a, b, c);
  RC_ASSERT(same_everywhere(x.mask, y.mask, kSize));
  RC_ASSERT(same_plans(x.mask, y.mask));
  const Rule p = random_rule(size, Kinds::kIntervals, 1), q = random_rule(size, Kinds::kIntervals, 1),
             r = random_rule(size, Kinds::kIntervals, 1);
  const auto [s, t] = law(p, q, r);
  const MaskPlan ps(s.mask, {}, kBatch, kHeads), pt(t.mask, {}, kBatch, kHeads);
  for (int64_t row = 0; row < kSize; row += 5)
    for (int64_t key = 0; key < kSize; key += 6)
      for (int64_t batch = 0; batch < kBatch; ++batch)
        RC_ASSERT(ps.classify(batch, 0, {row, row + 5}, {key, key + 6}) ==
                  pt.classify(batch, 0, {row, row + 5}, {key, key + 6}));
}

using Sides = std::pair<Rule, Rule>;

RC_GTEST_PROP(MaskLaws, DeMorgan, ()) {
  holds([](const Rule& a, const Rule& b, const Rule&) { return Sides{~(a & b), ~a | ~b}; });
  holds([](const Rule& a, const Rule& b, const Rule&) { return Sides{~(a | b), ~a & ~b}; });
}

RC_GTEST_PROP(MaskLaws, DoubleNegation, ()) {
  holds([](const Rule& a, const Rule&, const Rule&) { return Sides{~~a, a}; });
}

RC_GTEST_PROP(MaskLaws, Idempotence, ()) {
  holds([](const Rule& a, const Rule&, const Rule&) { return Sides{a & a, a}; });
  holds([](const Rule& a, const Rule&, const Rule&) { return Sides{a | a, a}; });
}

RC_GTEST_PROP(MaskLaws, CommutingAndAssociating, ()) {
  holds([](const Rule& a, const Rule& b, const Rule& c) { return Sides{(a & b) & c, c & (b & a)}; });
  holds([](const Rule& a, const Rule& b, const Rule& c) { return Sides{(a | b) | c, c | (b | a)}; });
}

RC_GTEST_PROP(MaskLaws, Distribution, ()) {
  holds([](const Rule& a, const Rule& b, const Rule& c) { return Sides{a & (b | c), (a & b) | (a & c)}; });
  holds([](const Rule& a, const Rule& b, const Rule& c) { return Sides{a | (b & c), (a | b) & (a | c)}; });
}

RC_GTEST_PROP(MaskLaws, Absorption, ()) {
  holds([](const Rule& a, const Rule& b, const Rule&) { return Sides{a & (a | b), a}; });
  holds([](const Rule& a, const Rule& b, const Rule&) { return Sides{a | (a & b), a}; });
}

RC_GTEST_PROP(MaskLaws, ComplementsAndNeutralElements, ()) {
  holds([](const Rule& a, const Rule&, const Rule&) { return Sides{a & ~a, none()}; });
  holds([](const Rule& a, const Rule&, const Rule&) { return Sides{a | ~a, full()}; });
  holds([](const Rule& a, const Rule&, const Rule&) { return Sides{a & full(), a | none()}; });
}

// What some terms are in other words.
TEST(MaskLaws, TermsInOtherWords) {
  const auto same = [](const char* x, const char* y) { return same_everywhere(Mask::parse(x), Mask::parse(y), kSize); };
  EXPECT_TRUE(same("causal", "window(*, 0)"));
  EXPECT_TRUE(same("window(*, *)", "full"));
  EXPECT_TRUE(same("causal & window(0, *)", "chunk(1)"));
  EXPECT_TRUE(same("blocks(1)", "causal"));
  EXPECT_TRUE(same("dilated(1)", "~none"));
  EXPECT_TRUE(same("tree(-1, 0, 1, 2)", "causal & prefix(4) & documents(0, 0, 0, 0)"));
  EXPECT_TRUE(same("blocks(4) & ~prefix(0)", "chunk(4) | causal"));
  EXPECT_TRUE(same("window(3, 0)", "causal & window(3, 3)"));
  EXPECT_FALSE(same("window(3, 0)", "window(2, 0)"));
  EXPECT_FALSE(same("causal", "full"));
}

}  // namespace
}  // namespace regard
