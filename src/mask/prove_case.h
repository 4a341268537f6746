// What a claim is asked of: the mask and the other side, their batch rows and heads, and over which positions.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "mask/prove.h"

namespace regard::mask_proof {

struct Case {
  Mask mask;                  // with the hard limits
  std::optional<Mask> other;  // implied, or equal
  const MaskProperty& property;
  bool lists = false;        // of the mask or the other side
  bool all_lengths = false;  // no length given and no list that ends
  int64_t batches = 1, heads = 1;
  std::vector<Domain> domains;  // x: queries, y: keys; one, or one per batch row

  const Domain& domain(int64_t b) const { return domains[domains.size() == 1 ? 0 : static_cast<size_t>(b)]; }
};

/// Errors: kInvalidArgument when mask, property and bounds do not fit each other.
Case set_up(const Mask& mask, const MaskProperty& property, const ProofBounds& bounds);

/// "all lengths", "64 queries and 64 keys", ...
std::string scope_of(const Case& c);

/// Calls visit(b, h) for all batch rows and heads that the masks tell apart.
template <class Visit>
void each_row_and_head(const Case& c, const Visit& visit) {
  const auto any = [&](auto asks) { return asks(c.mask) || (c.other && asks(*c.other)); };
  const bool by_batch = any([](const Mask& m) { return m.depends_on_batch(); }) || c.domains.size() > 1;
  const bool by_head = any([](const Mask& m) { return m.depends_on_head(); });
  for (int64_t b = 0; b < (by_batch ? c.batches : std::min<int64_t>(1, c.batches)); ++b)
    for (int64_t h = 0; h < (by_head ? c.heads : std::min<int64_t>(1, c.heads)); ++h) visit(b, h);
}

}  // namespace regard::mask_proof
