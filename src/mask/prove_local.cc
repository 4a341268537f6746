// Ranks that count from their own first position, at every length at once.
//
// A cut moves a position down, to where it stands in its rank's part, and moved again and again it comes to a place that
// stays: stripes of s positions to p mod s; contiguous parts, which have some length that begins one at p, to 0; ranges
// to their first one. So the claim holds at all lengths exactly when the mask repeats itself: with period s, as a
// constant, or range for range. And the first pair that breaks the repetition is the smallest counter-example if it is
// moved at all, as everything before it repeats itself and it is moved to something before it. It is not moved only where
// contiguous parts that begin at or before it do not reach that far on the other axis.
#include <algorithm>

#include "mask/prove_shards.h"

namespace regard::mask_proof {
namespace {

using Step = Formula::Step::Kind;

constexpr Interval kAll{0, kPositions};

struct Asked {
  const Mask& mask;
  int64_t batch, head;
  Budget& budget;

  // The smallest pair of `domain` at which the mask differs from itself moved by `shift`, unless it is behind `most`.
  std::optional<Found> first_unlike(Shift shift, const Domain& domain, std::optional<Found> most) const {
    const Formula here = formula_of(mask, batch, head, Axes::kQueryOutside),
                  moved = formula_of(mask, batch, head, Axes::kQueryOutside, shift);
    return first_true(difference(here, moved), domain, budget, most);
  }
};

void keep_smaller(std::optional<Found>& best, const std::optional<Found>& found) {
  if (found && (!best || *found < *best)) best = found;
}

// The first key that is unlike the key that it comes to, whatever the queries; or the first query.
void look_along(const Asked& asked, const LocalAxis& axis, Axes moving, std::optional<Found>& best) {
  const auto ask = [&](int64_t by, Interval positions) {
    if (moving == Axes::kKeyOutside)
      keep_smaller(best, asked.first_unlike({0, by}, {kAll, positions}, best));
    else
      keep_smaller(best, asked.first_unlike({by, 0}, {positions, kAll}, best));
  };
  if (axis.period > 0) ask(axis.period, {axis.period, kPositions});
  for (const Part& part : axis.parts)
    if (part.begin > 0) ask(part.begin, part.positions);
}

bool is_moved(const LocalAxis& axis, int64_t at, int64_t other) {
  if (axis.by_length) return at > 0 && static_cast<Wide>(at) * axis.ranks > other;
  if (axis.period > 0) return at >= axis.period;
  return std::any_of(axis.parts.begin(), axis.parts.end(), [&](const Part& part) {
    return part.begin > 0 && part.positions.begin <= at && at < part.positions.end;
  });
}

// A length at which contiguous parts are of `each` positions and the pair is there.
int64_t length_for(const Found& at, Wide each, int64_t ranks) {
  const Wide length = std::max<Wide>(static_cast<Wide>(std::max(at.x, at.y)) + 1, (each - 1) * ranks + 1);
  return static_cast<int64_t>(std::min<Wide>(length, kPositions));
}

// Contiguous keys, in the first query whose keys are not all alike; key `change` is the first other one. Parts of more
// than q / ranks keys are the ones that there are where query q is.
std::optional<LocalFailure> first_in_row(const Asked& asked, int64_t q, int64_t change, int64_t ranks) {
  const int64_t least = q / ranks + 1;
  Formula other = formula_of(asked.mask, asked.batch, asked.head, Axes::kQueryOutside);
  if (asked.mask.allowed(asked.batch, asked.head, q, 0)) other.push(Step::kNot);
  // Key k is moved to 0 by parts of k keys, and to `change` by parts of `least` where it is that far behind one.
  const Wide key = static_cast<Wide>(change) + least;
  const Found behind{q, static_cast<int64_t>(std::min<Wide>(key, kPositions))};
  const auto found = first_true(other, {{q, q + 1}, {least, kPositions}}, asked.budget, behind);
  if (found) return LocalFailure{*found, length_for(*found, found->y, ranks)};
  if (key >= kPositions) return std::nullopt;  // no position
  return LocalFailure{behind, length_for(behind, least, ranks)};
}

// The parts of the keys below `end`, and by how much each is moved.
template <class F>
void each_part(const LocalAxis& keys, int64_t end, F f) {
  if (keys.period > 0) {
    for (int64_t stripe = 0; stripe * keys.period < end; ++stripe) {
      const int64_t begin = stripe * keys.period;
      f(Interval{begin, std::min(begin + keys.period, end)}, begin - stripe / keys.ranks * keys.period);
    }
  } else if (keys.parts.empty()) {
    f(Interval{0, end}, int64_t{0});
  }
  for (const Part& part : keys.parts)
    if (part.positions.begin < end)
      f(Interval{part.positions.begin, std::min(part.positions.end, end)}, part.begin);
}

// Contiguous queries whose first other one is not moved together with its key: parts of 1, 2, ... queries, as long as
// they begin one before the smallest pair that was found.
LocalFailure first_by_parts(const Asked& asked, int64_t ranks, const LocalAxis& keys) {
  std::optional<Found> best;
  look_along(asked, keys, Axes::kKeyOutside, best);
  int64_t each_of_best = 1;
  for (int64_t each = 1; !best || each <= best->x; ++each) {
    const int64_t end = each * ranks;
    for (int64_t begin = each; begin < end && (!best || begin <= best->x); begin += each)
      each_part(keys, end, [&](Interval positions, int64_t moved) {
        asked.budget.spend();
        const auto found = asked.first_unlike({begin, moved}, {{begin, begin + each}, positions}, best);
        if (!found || (best && !(*found < *best))) return;
        best = found;
        each_of_best = each;
      });
  }
  return {*best, length_for(*best, each_of_best, ranks)};
}

}  // namespace

Formula difference(const Formula& a, const Formula& b) {
  Formula lost = b, leaked = a;
  lost.push(Step::kNot);
  lost.join(a, Step::kAnd);
  leaked.push(Step::kNot);
  leaked.join(b, Step::kAnd);
  lost.join(leaked, Step::kOr);
  return lost;
}

std::optional<LocalAxis> local_axis(const ShardCut& cut) {
  LocalAxis axis;
  axis.ranks = cut.ranks;
  if (cut.kind == ShardCut::Kind::kRanges) {
    axis.parts = *parts_of(cut, kAll);
    if (std::any_of(axis.parts.begin(), axis.parts.end(), [](const Part& part) { return part.ranks != 1; })) return {};
  } else if (cut.ranks > 1) {
    axis.by_length = cut.kind == ShardCut::Kind::kContiguous;
    axis.period = axis.by_length ? 1 : cut.stripe;
  }
  return axis;
}

std::optional<LocalFailure> first_local_failure(const Mask& mask, int64_t batch, int64_t head, const LocalAxis& queries,
                                                const LocalAxis& keys, Budget& budget) {
  const Asked asked{mask, batch, head, budget};
  std::optional<Found> first;
  look_along(asked, keys, Axes::kKeyOutside, first);
  look_along(asked, queries, Axes::kQueryOutside, first);
  if (!first) return std::nullopt;
  if (is_moved(queries, first->x, first->y) || is_moved(keys, first->y, first->x))
    return LocalFailure{*first, length_for(*first, 1, 1)};
  if (keys.by_length) return first_in_row(asked, first->x, first->y, keys.ranks);
  return first_by_parts(asked, queries.ranks, keys);
}

}  // namespace regard::mask_proof
