#include "mask/prove_case.h"

#include <fmt/format.h>

#include <algorithm>

#include "mask/node.h"

namespace regard::mask_proof {
namespace {

using Kind = MaskProperty::Kind;

// How many batch rows or heads the lists of a mask are for, 1 where they serve all.
void count_rows(const MaskNode& node, int64_t& batches, int64_t& heads) {
  const bool numbers = node.op == MaskOp::kPrefix || node.op == MaskOp::kLengths || node.op == MaskOp::kTree;
  batches = std::max({batches, numbers ? node.first.size() : node.first.rows(), node.second.rows()});
  if (node.bits) {
    batches = std::max(batches, node.bits->batch());
    heads = std::max(heads, node.bits->heads());
  }
  if (node.op == MaskOp::kPerHead) heads = std::max(heads, static_cast<int64_t>(node.children.size()));
  for (const auto& child : node.children) count_rows(*child, batches, heads);
}

// Where the shortest list of the mask ends for batch row b.
void shorten(const MaskNode& node, int64_t b, Domain& domain) {
  const auto end_at = [&](int64_t q, int64_t k) {
    domain.x.end = std::min(domain.x.end, q);
    domain.y.end = std::min(domain.y.end, k);
  };
  if (node.op == MaskOp::kDocuments)
    end_at(node.first.size(node.first.row_of(b)), node.second.size(node.second.row_of(b)));
  if (node.op == MaskOp::kTree) {
    const int64_t base = node.first.row()[node.first.size() == 1 ? 0 : b];
    const int64_t end = saturating_add(base, node.second.size(node.second.row_of(b)));
    end_at(end, end);
  }
  if (node.op == MaskOp::kTable) end_at(node.bits->q_len(), node.bits->kv_len());
  for (const auto& child : node.children) shorten(*child, b, domain);
}

Mask with_limits(const Mask& mask, const MaskLimits& limits) {
  Mask result = mask;
  if (!limits.key_lengths.empty()) result &= Mask::lengths(MaskList(limits.key_lengths));
  if (limits.documents) result &= Mask::documents(limits.documents->q_ids, limits.documents->k_ids);
  return result;
}

std::optional<Mask> other_side(const MaskProperty& property) {
  switch (property.kind) {
    case Kind::kCausal:
    case Kind::kDecodeEqualsPrefill:
      return Mask::causal();
    case Kind::kImplies:
    case Kind::kEquals:
      require(property.mask.has_value(), "[prove] the property '{}' has no mask to compare with", property.text);
      return property.mask;
    default:
      return std::nullopt;
  }
}

}  // namespace

Case set_up(const Mask& mask, const MaskProperty& property, const ProofBounds& bounds) {
  Case c{with_limits(mask, bounds.limits), other_side(property), property, false, false, 1, 1, {}};
  require(property.size >= (property.kind == Kind::kRing ? 1 : 0) && property.chunk >= 1,
          "[prove] ring({}, {}) given; expected at least one slot and chunks of at least 1", property.size,
          property.chunk);
  std::vector<const Mask*> sides{&c.mask};
  if (c.other) sides.push_back(&*c.other);
  for (const Mask* side : sides) {
    count_rows(side->node(), c.batches, c.heads);
    c.lists = c.lists || has_lists(side->node());
  }
  c.batches = bounds.batch.value_or(c.batches);
  c.heads = bounds.num_q_heads.value_or(c.heads);
  for (const Mask* side : sides) MaskPlan(*side, {}, c.batches, c.heads);  // refuses what does not fit

  if (bounds.q_len || bounds.kv_len) {
    const int64_t q_len = bounds.q_len.value_or(bounds.kv_len.value_or(0)), kv_len = bounds.kv_len.value_or(q_len);
    const bool compares =
        c.mask.compares_positions() || (c.other && c.other->compares_positions()) || property.kind == Kind::kRing;
    require(q_len >= 0 && kv_len >= 0, "[prove] {} queries and {} keys given; expected 0 or more", q_len, kv_len);
    require(bounds.q_begin || q_len == kv_len || !compares,
            "[prove] {} queries and {} keys, but not where the queries stand among them; state q_begin: 0 for the "
            "first queries, {} for the last",
            q_len, kv_len, kv_len - q_len);
    const int64_t begin = bounds.q_begin.value_or(0);
    require(begin >= 0 && begin <= kPositions - q_len, "[prove] queries from position {} on given", begin);
    c.domains = {{{begin, begin + q_len}, {0, kv_len}}};
    for (const Mask* side : sides) {
      const MaskPlan plan(*side, {}, c.batches, c.heads);
      for (int64_t b = 0; b < c.batches; ++b) plan.check_queries(b, c.domains[0].x);
    }
    return c;
  }
  require(!bounds.q_begin || *bounds.q_begin == 0, "[prove] q_begin {} given without a number of queries",
          bounds.q_begin.value_or(0));
  c.all_lengths = !c.lists;
  for (int64_t b = 0; b < (c.lists ? c.batches : 1); ++b) {
    c.domains.push_back({{0, kPositions}, {0, kPositions}});
    for (const Mask* side : sides) shorten(side->node(), b, c.domains.back());
  }
  return c;
}

std::string scope_of(const Case& c) {
  if (c.all_lengths) return "all lengths";
  const Domain& d = c.domains.front();
  const std::string sizes = d.x.begin == 0 ? fmt::format("{} queries and {} keys", d.x.end - d.x.begin, d.y.end)
                                           : fmt::format("{} queries from position {} on and {} keys",
                                                         d.x.end - d.x.begin, d.x.begin, d.y.end);
  return c.domains.size() > 1 ? "the extent of the lists of each batch row, first " + sizes : sizes;
}

}  // namespace regard::mask_proof
