// Masks with lists, read row by row: parts of a row that are empty or full by intervals are decided at once, and only
// what stays undecided is looked at bit by bit.
#include <algorithm>
#include <bit>

#include "mask/prove.h"

namespace regard::mask_proof {
namespace {

constexpr int64_t kRowsAtOnce = 256;

Interval meet(Interval a, Interval b) noexcept { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

// Calls visit(run) for the visible runs of `keys` from the left, until it returns false.
template <class Visit>
bool runs_of(const Rows& rows, int64_t q, Interval keys, Budget& budget, const Visit& visit) {
  if (keys.empty()) return true;
  budget.spend();
  const TileClass kind = rows.plan.classify(rows.batch, rows.head, {q, q + 1}, keys);
  if (kind == TileClass::kEmpty) return true;
  if (kind == TileClass::kFull) return visit(keys);
  if (keys.end - keys.begin > 64) {
    const int64_t middle = keys.begin + (keys.end - keys.begin) / 2;
    return runs_of(rows, q, {keys.begin, middle}, budget, visit) && runs_of(rows, q, {middle, keys.end}, budget, visit);
  }
  uint64_t words[2];  // 64 keys lie in at most two words
  const int64_t first = keys.begin / 64 * 64;
  rows.plan.fill_words(rows.batch, rows.head, q, first, keys.end - first > 64 ? 2 : 1, words);
  for (int64_t k = keys.begin; k < keys.end; ++k)
    if ((words[(k - first) / 64] >> ((k - first) % 64) & 1) != 0 && !visit(Interval{k, k + 1})) return false;
  return true;
}

std::optional<int64_t> first_key(const Rows& rows, int64_t q, Interval keys, Budget& budget) {
  std::optional<int64_t> first;
  runs_of(rows, q, meet(keys, rows.plan.hull(rows.batch, rows.head, q)), budget, [&](Interval run) {
    first = run.begin;
    return false;
  });
  return first;
}

}  // namespace

std::optional<Found> first_seen(const Rows& rows, Budget& budget, int64_t most) {
  const int64_t end = most < kPositions ? std::min(rows.queries.end, most + 1) : rows.queries.end;
  for (int64_t begin = rows.queries.begin; begin < end; begin += kRowsAtOnce) {
    const Interval some{begin, std::min(begin + kRowsAtOnce, end)};
    budget.spend();
    if (rows.plan.classify(rows.batch, rows.head, some, rows.keys) == TileClass::kEmpty) continue;
    for (int64_t q = some.begin; q < some.end; ++q) {
      const std::vector<Interval> counting = rows.counting ? rows.counting(q) : std::vector<Interval>{rows.keys};
      for (const Interval& part : counting)
        if (const auto k = first_key(rows, q, meet(part, rows.keys), budget)) return Found{q, *k};
    }
  }
  return std::nullopt;
}

std::optional<int64_t> first_empty_row(const Rows& rows, Budget& budget, int64_t most) {
  for (int64_t q = rows.queries.begin; q < rows.queries.end && q <= most; ++q) {
    budget.spend();
    if (!first_key(rows, q, rows.keys, budget)) return q;
  }
  return std::nullopt;
}

std::optional<int64_t> first_unseen_key(const Rows& rows, Budget& budget) {
  // Where runs begin and end, summed up: how many queries see each key.
  std::vector<int64_t> change(static_cast<size_t>(std::max<int64_t>(0, rows.keys.end - rows.keys.begin)) + 1);
  budget.spend(static_cast<int64_t>(change.size()));
  for (int64_t q = rows.queries.begin; q < rows.queries.end; ++q)
    runs_of(rows, q, meet(rows.keys, rows.plan.hull(rows.batch, rows.head, q)), budget, [&](Interval run) {
      ++change[static_cast<size_t>(run.begin - rows.keys.begin)];
      --change[static_cast<size_t>(run.end - rows.keys.begin)];
      return true;
    });
  int64_t seen_by = 0;
  for (size_t k = 0; k + 1 < change.size(); ++k)
    if ((seen_by += change[k]) == 0) return rows.keys.begin + static_cast<int64_t>(k);
  return std::nullopt;
}

}  // namespace regard::mask_proof
