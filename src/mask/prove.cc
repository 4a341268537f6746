// prove(): what each property claims, in which order places are compared, and what the answer says.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "mask/node.h"
#include "mask/prove_case.h"
#include "mask/prove_shards.h"

namespace regard {

using namespace mask_proof;

namespace {

using Kind = MaskProperty::Kind;

/// The smallest failure: a query and a key, or one of them (the other is 0).
struct Failing {
  Found at;
  int64_t batch = 0, head = 0;
  int64_t length = 0;  // of a call that has it, where that matters and no length was given
};

// ---- claims about pairs ----

using Step = Formula::Step::Kind;

// Pairs that a ring buffer has lost.
Formula overwritten(const MaskProperty& ring) {
  Formula formula;
  formula.push(
      {.kind = Atom::Kind::kBlockBefore, .n = ring.chunk, .y_phase = static_cast<Wide>(ring.chunk) - ring.size});
  return formula;
}

// x or y lies in one of the parts.
Formula inside(const std::vector<Part>& parts, Atom::Kind axis) {
  Formula formula;
  formula.push(Step::kFalse);
  for (const Part& part : parts) {
    Formula one;
    one.push({.kind = axis, .c = part.positions.end});
    one.push({.kind = axis, .c = part.positions.begin});
    one.push(Step::kNot);
    one.push(Step::kAnd);
    formula.join(one, Step::kOr);
  }
  return formula;
}

// Positions that no rank holds, or several.
std::vector<Part> misheld(const ShardCut& cut, Interval positions) {
  if (cut.kind != ShardCut::Kind::kRanges) return {};
  std::vector<Part> parts = *parts_of(cut, positions);
  parts.erase(std::remove_if(parts.begin(), parts.end(), [](const Part& part) { return part.ranks == 1; }),
              parts.end());
  return parts;
}

Formula wrong_pairs(const Case& c, int64_t b, int64_t h) {
  Formula wrong = formula_of(c.mask, b, h, Axes::kQueryOutside);
  if (c.other) {
    Formula other = formula_of(*c.other, b, h, Axes::kQueryOutside);
    Formula more = other;
    const Formula seen = wrong;
    other.push(Step::kNot);
    wrong.join(other, Step::kAnd);
    if (c.property.kind == Kind::kEquals) {
      Formula hidden = seen;
      hidden.push(Step::kNot);
      more.join(hidden, Step::kAnd);
      wrong.join(more, Step::kOr);
    }
  } else if (c.property.kind == Kind::kRing) {
    wrong.join(overwritten(c.property), Step::kAnd);
  } else {
    Formula cut = inside(misheld(c.property.q_cut, c.domain(b).x), Atom::Kind::kOuter);
    cut.join(inside(misheld(c.property.k_cut, c.domain(b).y), Atom::Kind::kInner), Step::kOr);
    wrong.join(cut, Step::kAnd);
  }
  return wrong;
}

// The same as an expression, and beside it which keys of a row count.
Mask wrong_mask(const Case& c) {
  if (!c.other) return c.mask;
  Mask wrong = c.mask & ~*c.other;
  if (c.property.kind == Kind::kEquals) wrong |= *c.other & ~c.mask;
  return wrong;
}

std::function<std::vector<Interval>(int64_t)> counting_keys(const Case& c, int64_t b) {
  const MaskProperty& p = c.property;
  if (p.kind == Kind::kRing)
    return [&p](int64_t q) { return std::vector<Interval>{{0, ring_limit(q, p.size, p.chunk)}}; };
  if (p.kind != Kind::kShards) return {};
  const Domain& d = c.domain(b);
  std::vector<Interval> keys;
  for (const Part& part : misheld(p.k_cut, d.y)) keys.push_back(part.positions);
  return [queries = misheld(p.q_cut, d.x), keys, all = d.y](int64_t q) {
    for (const Part& part : queries)
      if (part.positions.begin <= q && q < part.positions.end) return std::vector<Interval>{all};
    return keys;
  };
}

void keep_smaller(std::optional<Failing>& best, const std::optional<Found>& found, int64_t b, int64_t h) {
  if (found && (!best || *found < best->at)) best = Failing{*found, b, h};
}

std::optional<Failing> first_wrong_pair(const Case& c, Budget& budget) {
  std::optional<Failing> best;
  const auto most = [&] { return best ? std::optional<Found>(best->at) : std::nullopt; };
  if (!c.lists) {
    each_row_and_head(c, [&](int64_t b, int64_t h) {
      keep_smaller(best, first_true(wrong_pairs(c, b, h), c.domain(b), budget, most()), b, h);
    });
    return best;
  }
  const MaskPlan plan(wrong_mask(c), {}, c.batches, c.heads);
  each_row_and_head(c, [&](int64_t b, int64_t h) {
    const Domain& d = c.domain(b);
    const Rows rows{plan, b, h, d.x, d.y, counting_keys(c, b)};
    keep_smaller(best, first_seen(rows, budget, best ? best->at.x : kPositions), b, h);
  });
  return best;
}

// ---- claims about whole rows and columns ----

std::optional<Failing> first_bare(const Case& c, Budget& budget) {
  const bool rows = c.property.kind == Kind::kNoEmptyRow;
  const MaskPlan plan(c.mask, {}, c.batches, c.heads);
  std::optional<Failing> best;
  each_row_and_head(c, [&](int64_t b, int64_t h) {
    const Domain& d = c.domain(b);
    const int64_t most = !best ? kPositions : rows ? best->at.x : best->at.y;
    std::optional<int64_t> bare;
    if (c.lists) {
      const Rows read{plan, b, h, d.x, d.y, {}};
      bare = rows ? first_empty_row(read, budget, most) : first_unseen_key(read, budget);
    } else {
      Formula formula = formula_of(c.mask, b, h, rows ? Axes::kQueryOutside : Axes::kKeyOutside);
      if (c.all_lengths) {  // the shortest call that has this position has none behind it
        Formula there;
        there.push({.kind = Atom::Kind::kDiagonal, .c = 0});
        formula.join(there, Step::kAnd);
      }
      bare = first_empty(formula, rows ? d : Domain{d.y, d.x}, budget, most);
    }
    if (bare) keep_smaller(best, rows ? Found{*bare, 0} : Found{0, *bare}, b, h);
  });
  return best;
}

// ---- ranks that count from their own first position ----

std::optional<Failing> first_local_difference(const Case& c, Budget& budget, std::optional<Failing> best) {
  const MaskProperty& p = c.property;
  const bool stripes = p.q_cut.kind == ShardCut::Kind::kStriped || p.k_cut.kind == ShardCut::Kind::kStriped;
  const int64_t cost = 1 + c.mask.node().nodes / 8;
  each_row_and_head(c, [&](int64_t b, int64_t h) {
    const Domain& d = c.domain(b);
    const auto q_parts = parts_of(p.q_cut, d.x), k_parts = parts_of(p.k_cut, d.y);
    if (!c.lists && !stripes) {
      for (const Part& q : *q_parts)
        for (const Part& k : *k_parts) {
          if (q.ranks != 1 || k.ranks != 1) continue;
          const Formula whole = formula_of(c.mask, b, h, Axes::kQueryOutside);
          const Formula moved = formula_of(c.mask, b, h, Axes::kQueryOutside, {q.begin, k.begin});
          const auto most = best ? std::optional<Found>(best->at) : std::nullopt;
          keep_smaller(best, first_true(difference(whole, moved), {q.positions, k.positions}, budget, most), b, h);
        }
      return;
    }
    const auto* q_at = q_parts ? &*q_parts : nullptr;
    const auto* k_at = k_parts ? &*k_parts : nullptr;
    const auto held = [](const std::vector<Part>* parts, int64_t position) {
      return parts == nullptr || std::none_of(parts->begin(), parts->end(), [&](const Part& part) {
               return part.ranks != 1 && part.positions.begin <= position && position < part.positions.end;
             });
    };
    for (int64_t q = d.x.begin; q < d.x.end; ++q) {
      if (best && best->at.x < q) return;
      if (!held(q_at, q)) continue;
      for (int64_t k = d.y.begin; k < d.y.end; ++k) {
        budget.spend(cost);
        const bool moved = c.mask.allowed(b, h, local_position(p.q_cut, q_at, q), local_position(p.k_cut, k_at, k));
        if (!held(k_at, k) || c.mask.allowed(b, h, q, k) == moved) continue;
        keep_smaller(best, Found{q, k}, b, h);
        break;
      }
    }
  });
  return best;
}

// The same where no length is given and a cut depends on it, or has no few parts.
std::optional<Failing> first_at_some_length(const Case& c, const LocalAxis& queries, const LocalAxis& keys,
                                            Budget& budget) {
  std::optional<Failing> best;
  each_row_and_head(c, [&](int64_t b, int64_t h) {
    const auto found = first_local_failure(c.mask, b, h, queries, keys, budget);
    if (!found) return;
    const std::optional<Found> before = best ? std::optional<Found>(best->at) : std::nullopt;
    keep_smaller(best, found->at, b, h);
    if (best->at != before && (queries.by_length || keys.by_length)) best->length = found->length;
  });
  return best;
}

// ---- the answer ----

std::string shown(const Mask& mask) {
  const std::string text = mask.text();
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

int64_t ranks_of(const ShardCut& cut, Interval positions, int64_t p) {
  for (const Part& part : misheld(cut, positions))
    if (part.positions.begin <= p && p < part.positions.end) return part.ranks;
  return 1;
}

CounterExample tell_shards(const Case& c, const Failing& failing, CounterExample e) {
  const MaskProperty& p = c.property;
  const auto [b, h, q, k] = std::tuple(failing.batch, failing.head, failing.at.x, failing.at.y);
  const Domain d = failing.length > 0 ? Domain{{0, failing.length}, {0, failing.length}} : c.domain(b);
  const int64_t times = ranks_of(p.q_cut, d.x, q) * ranks_of(p.k_cut, d.y, k);
  e.because = explain_decision(c.mask, b, h, q, k);
  if (times != 1) {
    e.expected = "computed once";
    e.found = times == 0 ? "computed by no rank" : fmt::format("computed {} times", times);
    return e;
  }
  const auto q_parts = parts_of(p.q_cut, d.x), k_parts = parts_of(p.k_cut, d.y);
  const int64_t lq = local_position(p.q_cut, q_parts ? &*q_parts : nullptr, q),
                lk = local_position(p.k_cut, k_parts ? &*k_parts : nullptr, k);
  const bool visible = c.mask.allowed(b, h, q, k);
  e.expected = visible ? "visible" : "hidden";
  e.found = visible ? "hidden" : "visible";
  e.because = fmt::format("{}; to its rank{} it is query {} and key {}, {}", e.because,
                          failing.length > 0 ? fmt::format(", of {} queries and keys,", failing.length) : "", lq, lk,
                          explain_decision(c.mask, b, h, lq, lk));
  return e;
}

CounterExample tell(const Case& c, const Failing& failing) {
  const MaskProperty& p = c.property;
  const auto [b, h, q, k] = std::tuple(failing.batch, failing.head, failing.at.x, failing.at.y);
  CounterExample e{b, h, q, k, "hidden", "visible", {}};
  if (p.kind == Kind::kShards) return tell_shards(c, failing, e);
  if (p.kind == Kind::kNoEmptyRow || p.kind == Kind::kReachable) {
    const bool rows = p.kind == Kind::kNoEmptyRow;
    const Interval across = rows ? c.domain(b).y : c.domain(b).x;
    const int64_t own = rows ? q : k;  // the pair on the diagonal stands for all of them, where there is one
    e.expected = rows ? "sees a key" : "seen by a query";
    e.found = rows ? "sees no key" : "seen by no query";
    if (across.empty()) {
      e.because = rows ? "there are no keys" : "there are no queries";
    } else {
      const int64_t other = across.begin <= own && own < across.end ? own : across.begin;
      e.because = fmt::format("{} {} is {}", rows ? "key" : "query", other,
                              explain_decision(c.mask, b, h, rows ? q : other, rows ? other : k));
    }
    if (rows)
      e.k.reset();
    else
      e.q.reset();
    return e;
  }
  const bool visible = c.mask.allowed(b, h, q, k);
  e.because = explain_decision(c.mask, b, h, q, k);
  if (!visible) std::swap(e.expected, e.found);
  if (p.kind == Kind::kEquals || (p.kind == Kind::kImplies && p.text.starts_with("implies")))
    e.because += fmt::format("; under {} it is {}", shown(*c.other), explain_decision(*c.other, b, h, q, k));
  if (p.kind == Kind::kRing) e.because += fmt::format("; its slot {} holds a later key by then", k % p.size);
  return e;
}

void collect_sizes(const MaskNode& node, std::vector<int64_t>& sizes) {
  if (node.op == MaskOp::kBlocks || node.op == MaskOp::kChunk || node.op == MaskOp::kDilated) sizes.push_back(node.a);
  for (const auto& child : node.children) collect_sizes(*child, sizes);
}

std::string out_of_work(const Case& c, int64_t max_work) {
  const MaskProperty& p = c.property;
  if (p.kind == Kind::kShards && p.positions == ShardPositions::kLocal && c.all_lengths)
    return fmt::format("more than {} steps; parts of many more queries would have to be tried; give the lengths",
                       max_work);
  std::vector<int64_t> sizes;
  collect_sizes(c.mask.node(), sizes);
  if (c.other) collect_sizes(c.other->node(), sizes);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  if (c.lists || sizes.size() < 2)
    return fmt::format("more than {} steps; the lists or the expression are too large", max_work);
  if (sizes.size() > 8) sizes.resize(8);
  return fmt::format("more than {} steps; how blocks and steps of {} fall together would have to be followed too far",
                     max_work, fmt::join(sizes, ", "));
}

}  // namespace

Proof prove(const Mask& mask, const MaskProperty& property, const ProofBounds& bounds) {
  Case c = set_up(mask, property, bounds);
  Proof proof;
  proof.property = property.text;
  proof.scope = scope_of(c);
  proof.method =
      c.lists ? "every row, from the runs of keys it sees" : "cases over the order of positions, blocks and residues";
  Budget budget(bounds.max_work, bounds.stop);
  std::optional<Failing> failing;
  try {
    if (property.kind == Kind::kNoEmptyRow || property.kind == Kind::kReachable) {
      failing = first_bare(c, budget);
    } else {
      failing = first_wrong_pair(c, budget);
    }
    if (property.kind == Kind::kShards && property.positions == ShardPositions::kLocal) {
      const bool ranges = property.q_cut.kind == ShardCut::Kind::kRanges &&
                          property.k_cut.kind == ShardCut::Kind::kRanges;
      if (c.all_lengths && !ranges) {
        const auto queries = local_axis(property.q_cut), keys = local_axis(property.k_cut);
        if (!queries || !keys) {
          proof.reason = "ranges leave gaps or overlap, which the claim without 'local' finds; give the lengths for this one";
          return proof;
        }
        failing = first_at_some_length(c, *queries, *keys, budget);
      } else {
        failing = first_local_difference(c, budget, failing);
      }
    }
  } catch (const OutOfWork&) {
    proof.reason = out_of_work(c, bounds.max_work);
    return proof;
  }
  proof.verdict = failing ? Verdict::kRefuted : Verdict::kProved;
  if (failing) proof.counter_example = tell(c, *failing);
  return proof;
}

}  // namespace regard
