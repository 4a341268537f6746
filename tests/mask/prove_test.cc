// Proofs against brute force: random expressions, properties and sizes, every pair looked at by the predicates of
// terms.h. A verdict must agree with what is seen, and a counter-example must be the smallest one.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <tuple>

#include "mask/node.h"
#include "mask/terms.h"
#include "regard/error.h"
#include "regard/mask_proof.h"

namespace regard {
namespace {

using namespace mask_testing;
using Key = std::tuple<int64_t, int64_t, int64_t, int64_t>;  // q, k, batch, head

constexpr int kCasesEach = 15;  // in each of a hundred runs of a property

// A term without lists by position, so that claims are about all lengths.
Rule plain_term(int64_t size) {
  const auto numbers = [&] {
    std::vector<int64_t> n;
    for (int64_t r = 0, count = pick(0, 2) == 0 ? 1 : kBatch; r < count; ++r) n.push_back(pick(0, size + 3));
    return n;
  };
  const auto side = [&] { return pick(0, 4) == 0 ? kUnlimited : pick(0, size); };
  switch (pick(0, 12)) {
    case 0:
      return full();
    case 1:
      return none();
    case 2:
    case 3:
      return causal();
    case 4:
    case 5:
      return window(side(), side());
    case 6:
      return prefix(numbers());
    case 7:
      return lengths(numbers());
    case 8:
      return blocks(pick(1, 6));
    case 9:
      return chunk(pick(1, 6));
    case 10:
      return dilated(pick(1, 6));
    default: {
      std::vector<Rule> rules;
      for (int64_t h = 0; h < kHeads; ++h) rules.push_back(pick(0, 2) == 0 ? causal() : window(side(), side()));
      return per_head(rules);
    }
  }
}

Rule plain_rule(int64_t size, int levels) {
  const int64_t choice = levels == 0 ? 0 : pick(0, 5);
  if (choice == 0) return plain_term(size);
  const Rule x = plain_rule(size, levels - 1);
  if (choice == 1) return ~x;
  const Rule y = plain_rule(size, levels - 1);
  return choice % 2 == 0 ? (x & y) : (x | y);
}

// Where a claim about pairs fails, by its definition.
struct PairClaim {
  MaskProperty property;
  std::function<bool(const Rule&, const Pair&)> fails;
};

PairClaim random_claim(int64_t size, const std::function<Rule()>& other) {
  switch (pick(0, 7)) {
    case 0:
      return {MaskProperty::parse("causal"), [](const Rule& r, const Pair& p) { return r.sees(p) && p.k > p.q; }};
    case 1:
      return {MaskProperty::parse("decode-equals-prefill"),
              [](const Rule& r, const Pair& p) { return r.sees(p) && p.k > p.q; }};
    case 2: {
      const int64_t left = pick(0, size), right = pick(0, size);
      return {MaskProperty::parse("window(" + std::to_string(left) + ", " + std::to_string(right) + ")"),
              [=](const Rule& r, const Pair& p) { return r.sees(p) && (p.k < p.q - left || p.k > p.q + right); }};
    }
    case 3: {
      const int64_t slots = pick(1, size + 2), chunk = pick(1, 5);
      return {MaskProperty::parse("ring(" + std::to_string(slots) + ", " + std::to_string(chunk) + ")"),
              [=](const Rule& r, const Pair& p) {
                // The last key that is written when q is computed, and whether a later one has taken the slot of k.
                const int64_t written = p.q / chunk * chunk + chunk - 1;
                return r.sees(p) && p.k + slots <= written;
              }};
    }
    case 4: {
      const Rule side = other();
      MaskProperty property;
      property.kind = MaskProperty::Kind::kImplies;
      property.text = "implies:" + side.mask.text();
      property.mask = side.mask;
      return {property, [side](const Rule& r, const Pair& p) { return r.sees(p) && !side.sees(p); }};
    }
    default: {
      const Rule side = other();
      MaskProperty property;
      property.kind = MaskProperty::Kind::kEquals;
      property.text = "equals:" + side.mask.text();
      property.mask = side.mask;
      return {property, [side](const Rule& r, const Pair& p) { return r.sees(p) != side.sees(p); }};
    }
  }
}

std::optional<Key> brute_force(const Rule& rule, const PairClaim& claim, Interval queries, Interval keys) {
  for (int64_t q = queries.begin; q < queries.end; ++q)
    for (int64_t k = keys.begin; k < keys.end; ++k)
      for (int64_t b = 0; b < kBatch; ++b)
        for (int64_t h = 0; h < kHeads; ++h)
          if (claim.fails(rule, {b, h, q, k})) return Key{q, k, b, h};
  return std::nullopt;
}

Key key_of(const CounterExample& e) { return {e.q.value_or(-1), e.k.value_or(-1), e.batch, e.head}; }

ProofBounds all_rows() {
  ProofBounds bounds;
  bounds.batch = kBatch;
  bounds.num_q_heads = kHeads;
  return bounds;
}

// A proof for all lengths agrees with every pair of a box; a counter-example may lie behind the box, but then it is
// one.
void agrees(const Rule& rule, const PairClaim& claim, const Proof& proof, int64_t q_len, int64_t kv_len) {
  RC_ASSERT(proof.verdict != Verdict::kNotDecided);
  RC_ASSERT(proof.counter_example.has_value() == (proof.verdict == Verdict::kRefuted));
  const auto seen = brute_force(rule, claim, {0, q_len}, {0, kv_len});
  if (!proof.counter_example) {
    RC_ASSERT(!seen);
    return;
  }
  const Key found = key_of(*proof.counter_example);
  const auto [q, k, b, h] = found;
  RC_ASSERT(claim.fails(rule, {b, h, q, k}));
  if (seen) RC_ASSERT(found <= *seen);
  if (q < q_len && k < kv_len) RC_ASSERT(seen && found == *seen);
}

RC_GTEST_PROP(MaskProof, PairsForAllLengths, ()) {
  for (int i = 0; i < kCasesEach; ++i) {
    const int64_t size = pick(1, 12);
    const Rule rule = plain_rule(size, 3);
    const PairClaim claim = random_claim(size, [&] { return plain_rule(size, 2); });
    RC_LOG() << rule.mask.text() << "   " << claim.property.text << "\n";
    agrees(rule, claim, prove(rule.mask, claim.property, all_rows()), 44, 88);
  }
}

RC_GTEST_PROP(MaskProof, WhatFollowsIsProved, ()) {
  // Random claims are mostly wrong; these hold by the laws of the algebra, in a shape that hides it.
  for (int i = 0; i < kCasesEach; ++i) {
    const Rule a = plain_rule(9, 2), b = plain_rule(9, 2), c = plain_rule(9, 1);
    const auto check = [&](const Mask& mask, const char* kind, const Mask& other) {
      RC_LOG() << mask.text() << "   " << kind << other.text() << "\n";
      RC_ASSERT(prove(mask, MaskProperty::parse(kind + other.text()), all_rows()).verdict == Verdict::kProved);
    };
    check((a.mask & b.mask) | (a.mask & c.mask), "equals:", a.mask & (c.mask | b.mask));
    check(~(a.mask & b.mask), "equals:", ~b.mask | ~a.mask);
    check(a.mask & b.mask & c.mask, "implies:", c.mask | a.mask);
  }
}

RC_GTEST_PROP(MaskProof, PairsOfGivenLengths, ()) {
  for (int i = 0; i < kCasesEach; ++i) {
    const int64_t size = pick(1, 12);
    const bool lists = pick(0, 2) == 0;
    const auto any = [&](int levels) {
      return lists ? random_rule(size, Kinds::kAll, levels) : plain_rule(size, levels);
    };
    const Rule rule = any(3);
    const PairClaim claim = random_claim(size, [&] { return any(1); });
    RC_LOG() << rule.mask.text() << "   " << claim.property.text << "\n";
    ProofBounds bounds = all_rows();
    const int64_t begin = pick(0, 6);
    bounds.q_len = pick(0, size + 1);
    bounds.kv_len = pick(0, 2 * size);
    bounds.q_begin = begin;
    Proof proof;
    try {
      proof = prove(rule.mask, claim.property, bounds);
    } catch (const Error& error) {  // queries beyond the end of a list
      RC_ASSERT(lists);
      RC_ASSERT(std::string(error.what()).find("beyond the end of") != std::string::npos);
      continue;
    }
    RC_ASSERT(proof.verdict != Verdict::kNotDecided);
    const auto seen = brute_force(rule, claim, {begin, begin + *bounds.q_len}, {0, *bounds.kv_len});
    RC_ASSERT((proof.verdict == Verdict::kRefuted) == seen.has_value());
    if (seen) RC_ASSERT(key_of(*proof.counter_example) == *seen);
  }
}

// Several things at once: what a case of the reasoning looks like from inside. These find pairs far from the origin, if
// any, and rows that are empty only now and then.
Rule literals(int64_t far, int64_t most) {
  const auto literal = [&] {
    switch (pick(0, 9)) {
      case 0:
      case 1:
        return blocks(pick(2, most));
      case 2:
      case 3:
        return chunk(pick(2, most));
      case 4:
      case 5:
        return dilated(pick(2, most));
      case 6:
        return prefix({pick(0, far)});
      case 7:
        return window(pick(0, 2) == 0 ? kUnlimited : pick(0, far / 2), pick(0, most));
      default:
        return causal();
    }
  };
  Rule rule = literal();
  for (int64_t i = 0, n = pick(2, 6); i < n; ++i) {
    const Rule next = literal();
    rule = rule & (pick(0, 2) == 0 ? next : ~next);
  }
  return rule;
}

RC_GTEST_PROP(MaskProof, ManyThingsAtOnce, ()) {
  const PairClaim nothing{MaskProperty::parse("implies:none"), [](const Rule& r, const Pair& p) { return r.sees(p); }};
  for (int i = 0; i < kCasesEach; ++i) {
    const Rule rule = literals(40, 9);
    RC_LOG() << rule.mask.text() << "\n";
    const Proof proof = prove(rule.mask, nothing.property);
    RC_ASSERT(proof.verdict != Verdict::kNotDecided);
    std::optional<Key> seen;
    for (int64_t q = 0; q < 150 && !seen; ++q)
      for (int64_t k = 0; k < 300 && !seen; ++k)
        if (rule.sees({0, 0, q, k})) seen = Key{q, k, 0, 0};
    RC_ASSERT(proof.counter_example.has_value() || !seen);
    if (!proof.counter_example) continue;
    const auto [q, k, b, h] = key_of(*proof.counter_example);
    RC_ASSERT(rule.sees({0, 0, q, k}));
    const bool smallest = seen ? Key(q, k, b, h) == *seen : q >= 150 || k >= 300;
    RC_ASSERT(smallest);
  }
}

RC_GTEST_PROP(MaskProof, RowsThatAreSeldomEmpty, ()) {
  for (int i = 0; i < kCasesEach / 3; ++i) {
    const Rule rule =
        literals(20, 7) | literals(20, 7) | literals(20, 7) | (pick(0, 2) == 0 ? ~chunk(pick(2, 9)) : literals(20, 7));
    RC_LOG() << rule.mask.text() << "\n";
    ProofBounds bounds;
    for (bool rows : {true, false}) {
      const Proof proof = prove(rule.mask, MaskProperty::parse(rows ? "no-empty-row" : "reachable"), bounds);
      std::optional<Key> seen;
      for (int64_t x = 0; x < 500 && !seen; ++x) {  // the constants and one period of 420
        bool some = false;
        for (int64_t y = x; y >= 0 && !some; --y) some = rule.sees(rows ? Pair{0, 0, x, y} : Pair{0, 0, y, x});
        if (!some) seen = rows ? Key{x, -1, 0, 0} : Key{-1, x, 0, 0};
      }
      RC_ASSERT(proof.verdict == (seen ? Verdict::kRefuted : Verdict::kProved));
      if (seen) RC_ASSERT(key_of(*proof.counter_example) == *seen);
    }
  }
}

// no-empty-row and reachable; k or q is -1 in the answer.
std::optional<Key> bare(const Rule& rule, bool rows, Interval queries, Interval keys, bool all_lengths) {
  const Interval outer = rows ? queries : keys, inner = rows ? keys : queries;
  for (int64_t x = outer.begin; x < outer.end; ++x)
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t h = 0; h < kHeads; ++h) {
        bool seen = false;
        for (int64_t y = inner.begin; y < (all_lengths ? std::min(inner.end, x + 1) : inner.end) && !seen; ++y)
          seen = rule.sees(rows ? Pair{b, h, x, y} : Pair{b, h, y, x});
        if (!seen) return rows ? Key{x, -1, b, h} : Key{-1, x, b, h};
      }
  return std::nullopt;
}

RC_GTEST_PROP(MaskProof, RowsAndKeysForAllLengths, ()) {
  for (int i = 0; i < kCasesEach; ++i) {
    const Rule rule = plain_rule(pick(1, 12), 3);
    RC_LOG() << rule.mask.text() << "\n";
    for (bool rows : {true, false}) {
      const Proof proof = prove(rule.mask, MaskProperty::parse(rows ? "no-empty-row" : "reachable"), all_rows());
      RC_ASSERT(proof.verdict != Verdict::kNotDecided);
      const auto seen = bare(rule, rows, {0, 150}, {0, 150}, true);
      // An empty row comes within the constants and one period: 13 and 60 here.
      RC_ASSERT((proof.verdict == Verdict::kRefuted) == seen.has_value());
      if (seen) RC_ASSERT(key_of(*proof.counter_example) == *seen);
    }
  }
}

RC_GTEST_PROP(MaskProof, RowsAndKeysOfGivenLengths, ()) {
  for (int i = 0; i < kCasesEach; ++i) {
    const int64_t size = pick(1, 14);
    const bool lists = pick(0, 2) == 0;
    const Rule rule = lists ? random_rule(size, Kinds::kAll) : plain_rule(size, 3);
    RC_LOG() << rule.mask.text() << "\n";
    ProofBounds bounds = all_rows();
    const int64_t begin = pick(0, 5);
    bounds.q_len = pick(0, size + 1);
    bounds.kv_len = pick(0, 2 * size);
    bounds.q_begin = begin;
    for (bool rows : {true, false}) {
      Proof proof;
      try {
        proof = prove(rule.mask, MaskProperty::parse(rows ? "no-empty-row" : "reachable"), bounds);
      } catch (const Error&) {
        RC_ASSERT(lists);
        continue;
      }
      const auto seen = bare(rule, rows, {begin, begin + *bounds.q_len}, {0, *bounds.kv_len}, false);
      RC_ASSERT(proof.verdict == (seen ? Verdict::kRefuted : Verdict::kProved));
      if (seen) RC_ASSERT(key_of(*proof.counter_example) == *seen);
    }
  }
}

// The nodes of an explanation are the expression, whatever it is.
RC_GTEST_PROP(MaskProof, ExplanationsAddUp, ()) {
  const Rule rule = random_rule(9, Kinds::kAll);
  const std::function<void(const MaskNode&, const MaskExplanation&, const Pair&)> walk =
      [&](const MaskNode& node, const MaskExplanation& e, const Pair& at) {
        if (node.op == MaskOp::kPerHead) {
          RC_ASSERT(e.sees == e.parts[0].sees);
          return walk(*node.children[static_cast<size_t>(at.h)], e.parts[0], at);
        }
        RC_ASSERT(e.parts.size() == node.children.size());
        for (size_t i = 0; i < e.parts.size(); ++i) walk(*node.children[i], e.parts[i], at);
      };
  for (int64_t q = 0; q < 10; ++q)
    for (int64_t k = 0; k < 10; ++k) {
      const Pair at{pick(0, kBatch), pick(0, kHeads), q, k};
      const MaskExplanation e = explain(rule.mask, at.b, at.h, q, k);
      RC_ASSERT(e.sees == rule.sees(at));
      walk(rule.mask.node(), e, at);
    }
}

}  // namespace
}  // namespace regard
