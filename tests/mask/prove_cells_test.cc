// The reasoning itself, on formulas that masks alone would seldom lead to: blocks that begin anywhere, residues of any
// kind, constants far from the origin. Each is compared with a walk over all pairs of a box.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "mask/prove.h"
#include "mask/residues.h"
#include "mask/terms.h"

namespace regard::mask_proof {
namespace {

using mask_testing::pick;
using Step = Formula::Step::Kind;

bool holds(const Atom& atom, int64_t x, int64_t y) {
  const auto block = [&](int64_t at, Wide phase) {
    int64_t b = 0, rest = at - static_cast<int64_t>(phase);
    for (; rest < 0; rest += atom.n) --b;
    return b + rest / atom.n;
  };
  const auto c = static_cast<int64_t>(atom.c);
  switch (atom.kind) {
    case Atom::Kind::kDiagonal:
      return y - x <= c;
    case Atom::Kind::kInner:
      return y < c;
    case Atom::Kind::kOuter:
      return x < c;
    case Atom::Kind::kBlockBefore:
      return block(y, atom.y_phase) < block(x, atom.x_phase);
    case Atom::Kind::kBlockNotAfter:
      return block(y, atom.y_phase) <= block(x, atom.x_phase);
    case Atom::Kind::kCongruent:
      return (y - x - c) % atom.n == 0;
  }
  return false;
}

bool evaluate(const Formula& formula, int64_t x, int64_t y) {
  std::vector<bool> stack;
  for (const Formula::Step& step : formula.steps) {
    if (step.kind == Step::kAtom) stack.push_back(holds(formula.atoms[step.atom], x, y));
    if (step.kind == Step::kTrue || step.kind == Step::kFalse) stack.push_back(step.kind == Step::kTrue);
    if (step.kind == Step::kNot) stack.back() = !stack.back();
    if (step.kind == Step::kAnd || step.kind == Step::kOr) {
      const bool last = stack.back();
      stack.pop_back();
      stack.back() = step.kind == Step::kAnd ? stack.back() && last : stack.back() || last;
    }
  }
  return stack.back();
}

Atom random_atom(int64_t far, int64_t most) {
  const auto phase = [&] { return static_cast<Wide>(pick(-most, most + 1)); };
  switch (pick(0, 10)) {
    case 0:
      return {.kind = Atom::Kind::kDiagonal, .c = pick(-far, far)};
    case 1:
      return {.kind = Atom::Kind::kDiagonal, .c = pick(-3, 4)};
    case 2:
      return {.kind = Atom::Kind::kInner, .c = pick(0, far)};
    case 3:
      return {.kind = Atom::Kind::kOuter, .c = pick(0, far)};
    case 4:
    case 5:
      return {.kind = Atom::Kind::kBlockBefore, .n = pick(1, most), .x_phase = phase(), .y_phase = phase()};
    case 6:
    case 7:
      return {.kind = Atom::Kind::kBlockNotAfter, .n = pick(1, most), .x_phase = phase(), .y_phase = phase()};
    default:
      return {.kind = Atom::Kind::kCongruent, .c = pick(-20, 20), .n = pick(1, 2 * most)};
  }
}

Formula random_formula(int64_t far, int64_t most, int64_t atoms) {
  Formula formula;
  formula.push(pick(0, 2) == 0 ? Step::kTrue : Step::kFalse);
  const Step joined = formula.steps[0].kind == Step::kTrue ? Step::kAnd : Step::kOr;
  for (int64_t i = 0, n = pick(1, atoms + 1); i < n; ++i) {
    Formula literal;
    literal.push(random_atom(far, most));
    if (pick(0, 2) == 0) literal.push(Step::kNot);
    // Mostly all of them at once: such places are rare, and far away.
    formula.join(literal, pick(0, 8) == 0 ? Step::kOr : joined == Step::kAnd || i > 0 ? Step::kAnd : Step::kOr);
  }
  return formula;
}

RC_GTEST_PROP(MaskProofCells, FirstPair, ()) {
  for (int i = 0; i < 40; ++i) {
    const Formula formula = random_formula(60, 7, 6);
    const int64_t begin = pick(0, 30);
    Budget budget(1'000'000, nullptr);
    const auto found = first_true(formula, {{begin, kPositions}, {pick(0, 2) * 20, kPositions}}, budget);
    if (found) {
      RC_ASSERT(evaluate(formula, found->x, found->y));
      RC_ASSERT(found->x >= begin);
    }
  }
}

RC_GTEST_PROP(MaskProofCells, FirstPairIsTheSmallest, ()) {
  for (int i = 0; i < 20; ++i) {
    const Formula formula = random_formula(60, 7, 6);
    const Domain domain{{pick(0, 30), pick(30, 140)}, {pick(0, 80), pick(80, 200)}};
    Budget budget(1'000'000, nullptr);
    const auto found = first_true(formula, domain, budget);
    std::optional<Found> seen;
    for (int64_t x = domain.x.begin; x < domain.x.end && !seen; ++x)
      for (int64_t y = domain.y.begin; y < domain.y.end && !seen; ++y)
        if (evaluate(formula, x, y)) seen = Found{x, y};
    RC_ASSERT(found == seen);
  }
}

RC_GTEST_PROP(MaskProofCells, FirstEmptyRowIsTheSmallest, ()) {
  for (int i = 0; i < 20; ++i) {
    Formula formula = random_formula(40, 5, 3);
    formula.join(random_formula(40, 5, 3), Step::kOr);
    formula.join(random_formula(40, 5, 3), Step::kOr);
    const Domain domain{{pick(0, 30), pick(30, 200)}, {pick(0, 20), pick(20, 200)}};
    Budget budget(10'000'000, nullptr);
    const auto found = first_empty(formula, domain, budget, kPositions);
    std::optional<int64_t> seen;
    for (int64_t x = domain.x.begin; x < domain.x.end && !seen; ++x) {
      bool some = false;
      for (int64_t y = domain.y.begin; y < domain.y.end && !some; ++y) some = evaluate(formula, x, y);
      if (!some) seen = x;
    }
    RC_ASSERT(found == seen);
  }
}

// Numbers in residue classes against a walk.
RC_GTEST_PROP(MaskProofCells, Residues, ()) {
  struct Class {
    int64_t n, c;
    bool member;
  };
  std::vector<Class> classes;
  Residues residues;
  for (int64_t i = 0, count = pick(0, 6); i < count; ++i) {
    classes.push_back({pick(1, 9), pick(-20, 20), pick(0, 3) == 0});
    if (classes.back().member) residues.require(classes.back().n, classes.back().c);
    if (!classes.back().member) residues.avoid(classes.back().n, classes.back().c);
  }
  const auto inside = [&](int64_t x) {
    return std::all_of(classes.begin(), classes.end(),
                       [&](const Class& one) { return ((x - one.c) % one.n == 0) == one.member; });
  };
  const int64_t from = pick(-3000, 3000);
  Budget budget(1'000'000, nullptr);
  std::optional<Wide> up, down;
  for (int64_t x = from; x < from + 2600 && !up; ++x)  // the common multiple of 1 to 8 is 840
    if (inside(x)) up = x;
  for (int64_t x = from; x > from - 2600 && !down; --x)
    if (inside(x)) down = x;
  RC_ASSERT(bool(residues.at_least(from, from + 100'000, budget) == up));
  RC_ASSERT(bool(residues.at_most(from, from - 100'000, budget) == down));
}

TEST(MaskProofCells, ResiduesOfHugeClasses) {
  Budget budget(1'000'000, nullptr);
  Residues residues;  // both sizes are prime; the common class has one member among positions
  residues.require(1'000'000'007, 5);
  residues.require(998'244'353, 7);
  const auto first = residues.at_least(0, static_cast<Wide>(1) << 62, budget);
  ASSERT_TRUE(first);
  EXPECT_EQ(static_cast<int64_t>(*first % 1'000'000'007), 5);
  EXPECT_EQ(static_cast<int64_t>(*first % 998'244'353), 7);
  EXPECT_LT(*first, static_cast<Wide>(1'000'000'007) * 998'244'353);
  residues.require((int64_t{1} << 61) - 1, 11);  // another prime: now almost surely none is left
  EXPECT_FALSE(residues.at_least(0, static_cast<Wide>(1) << 63, budget));
}

}  // namespace
}  // namespace regard::mask_proof
