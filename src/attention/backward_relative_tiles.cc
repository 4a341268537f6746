// Keys whose encoding positions follow each other: all rows of a head at once. Between a row's key j and its column lies
// a number that depends on the row alone, so what is a rectangle of rows and keys is a band of rows and columns.
#include <bit>

#include "attention/backward_relative.h"
#include "attention/backward_terms.h"

namespace regard {

using kernels::BackwardBlock;
using kernels::kLanes;
using kernels::kBlockRows;
using kernels::kPanelKeys;
using kernels::kPanelsPerTile;
using kernels::kTileKeys;
using kernels::kWeightStride;

namespace {

constexpr int kRowFloats = BackwardRelativeScratch::kRowFloats;

constexpr int64_t vector_of(int64_t column) { return column & ~int64_t{kLanes - 1}; }

// Which of the keys from ... from + 63 row r sees, as bits; none beyond the ends of the block.
uint64_t seen_word(const BackwardStep& step, int r, int64_t from) noexcept {
  if (step.seen == nullptr) return interval_word(0, int64_t{step.panels} * kPanelKeys, from);
  const int64_t w = from >= 0 ? from / kPanelKeys : -((kPanelKeys - 1 - from) / kPanelKeys);
  const auto shift = static_cast<int>(from - w * kPanelKeys);
  const auto word = [&](int64_t at) { return at >= 0 && at < step.panels ? step.seen[r][at] : 0; };
  return shift == 0 ? word(w) : word(w) >> shift | word(w + 1) << (64 - shift);
}

// The sum of x over the keys of [begin, end) that row r sees, rising; false when it sees none.
bool sum_seen(const BackwardStep& step, int r, int64_t begin, int64_t end, const float* x, float& sum) noexcept {
  bool any = false;
  for (int64_t from = begin / kPanelKeys * kPanelKeys; from < end; from += kPanelKeys)
    for (uint64_t left = seen_word(step, r, from) & interval_word(begin, end, from); left != 0; left &= left - 1) {
      const float y = x[from + std::countr_zero(left)];
      sum = any ? sum + y : y;
      any = true;
    }
  return any;
}

}  // namespace

BackwardRelative::Reach BackwardRelative::reach_of(const BackwardStep& step, const BackwardRows& rows, int r,
                                                   const BackwardRelativeScratch& scratch) const noexcept {
  const Interval span = rows.span(step.row_block, r);
  const int64_t keys = int64_t{step.panels} * kPanelKeys;
  return {static_cast<int>(std::clamp<int64_t>(span.begin - step.keys->base, 0, keys)),
          static_cast<int>(std::clamp<int64_t>(span.end - step.keys->base, 0, keys)),
          count_ - 1 + xl_.first_distance + scratch.item->first_encoding - scratch.query[r]};
}

// Rows that look at nothing belong to no run.
template <class F>
void BackwardRelative::for_each_run(const BackwardStep& step, const BackwardRows& rows, const HeadRows& head, int most,
                                    int64_t spread, const BackwardRelativeScratch& scratch, F f) const noexcept {
  for (int n = 0; n < head.count;) {
    Run run{n, n, 0, {}};
    int64_t farthest = 0;
    for (; run.end < head.count && run.end - run.begin < most; ++run.end) {
      const Reach reach = reach_of(step, rows, head.first + run.end * group_, scratch);
      if (reach.lo >= reach.hi) break;
      const int64_t first = clamped(reach.column + reach.lo), end = clamped(reach.column + reach.hi - 1) + 1;
      if (run.end == run.begin) {
        run.nearest = farthest = reach.column;
        run.columns = {first, end};
        continue;
      }
      if (std::max(farthest, reach.column) - std::min(run.nearest, reach.column) > spread) break;
      run.nearest = std::min(run.nearest, reach.column);
      farthest = std::max(farthest, reach.column);
      run.columns = {std::min(run.columns.begin, first), std::max(run.columns.end, end)};
    }
    run.columns = {std::max<int64_t>(run.columns.begin, 0), std::min(run.columns.end, count_)};
    if (run.end > run.begin) f(run);
    n = std::max(run.end, n + 1);
  }
}

void BackwardRelative::multiply(const BackwardStep& step, const BackwardRows& rows,
                                const BackwardRelativeScratch& scratch) const noexcept {
  if (!scratch.item->straight) return;
  for_each_head(rows.block(step.row_block), [&](const HeadRows& head) {
    const float* panels = term_.panels(table_, head.head);
    for_each_run(step, rows, head, RelativeTerm::kRows, RelativeTerm::kSpread, scratch, [&](const Run& run) {
      // A row's floats begin with a column in front of all of its keys; rows that are beyond the clamp altogether have
      // one column, which may be anywhere.
      const int64_t first = vector_of(run.columns.begin), end = vector_of(run.columns.end + kLanes - 1);
      const bool fits = first >= vector_of(run.nearest) && end <= vector_of(run.nearest) + kRowFloats;
      const int64_t origin = fits ? vector_of(run.nearest) : first;
      const int place = head.at + run.begin;
      std::fill_n(scratch.origin + place, run.end - run.begin, origin);
      if (run.columns.empty()) return;
      kernels::kernels().attention->dots(scratch.position + int64_t{place} * padded_, padded_, run.end - run.begin,
                                         head_dim_, panels, first, static_cast<int>(end - first),
                                         scratch.tile + int64_t{place} * kRowFloats + (first - origin), kRowFloats);
    });
  });
}

const float* BackwardRelative::term(const BackwardStep& step, int head, int r, int lo, int hi, const int64_t* encoding,
                                    float* into, const BackwardRelativeScratch& scratch) const noexcept {
  if (!scratch.item->straight) return term_by_keys(step, head, r, encoding, into, scratch);
  const int64_t column = count_ - 1 + xl_.first_distance + scratch.item->first_encoding - scratch.query[r];
  const float* products = scratch.tile + int64_t{scratch.place[r]} * kRowFloats;
  const int64_t origin = scratch.origin[scratch.place[r]];
  if (clamped(column + lo) < 0 || clamped(column + hi - 1) >= count_) {  // not every distance has a vector
    for (int j = lo; j < hi; ++j) {
      const int64_t at = clamped(column + j);
      if (at >= 0 && at < count_)
        into[j] = products[at - origin];
      else if ((seen_word(step, r, j) & 1) != 0)
        missing_.store(true, std::memory_order_relaxed);
    }
    return into;
  }
  // [from, to): the keys this side of the clamp.
  const int64_t from = std::clamp<int64_t>(low_ - column, lo, hi), to = std::clamp<int64_t>(high_ + 1 - column, from, hi);
  if (from == lo && to == hi) return products + (column - origin);
  if (from > lo) std::fill(into + lo, into + from, products[low_ - origin]);
  std::copy(products + (column + from - origin), products + (column + to - origin), into + from);
  if (to < hi) std::fill(into + to, into + hi, products[high_ - origin]);
  return into;
}

// What row r has of the tile of columns from `first` on, db being that of its keys.
void BackwardRelative::move_row(const BackwardStep& step, int r, int64_t column, int64_t first, const float* db,
                                float* to, uint64_t* seen) const noexcept {
  const int64_t keys = int64_t{step.panels} * kPanelKeys, end = std::min(first + kTileKeys, count_);
  // [inner, outer): the keys this side of the clamp; [begin, until) those of them that are in the tile.
  const int64_t inner = std::clamp<int64_t>(low_ - column, 0, keys),
                outer = std::clamp<int64_t>(high_ + 1 - column, inner, keys);
  const int64_t begin = std::clamp(first - column, inner, outer), until = std::clamp(end - column, begin, outer);
  std::copy(db + begin, db + until, to + (column + begin - first));
  for (int w = 0; w < kPanelsPerTile; ++w) {
    const int64_t from = first + int64_t{w} * kPanelKeys - column;
    seen[w] = seen_word(step, r, from) & interval_word(begin, until, from);
  }
  const auto add_up = [&](int64_t at, int64_t key, int64_t last) {
    float sum;
    if (at < first || at >= end || !sum_seen(step, r, key, last, db, sum)) return;
    to[at - first] = sum;
    seen[(at - first) / kPanelKeys] |= uint64_t{1} << ((at - first) % kPanelKeys);
  };
  // The key at the clamp is one of those that share its vector.
  if (inner > 0) add_up(low_, 0, std::min(inner + 1, outer));
  if (outer < keys) add_up(high_, std::max(outer - 1, inner), keys);
}

template <class F>
void BackwardRelative::for_each_tile(const BackwardStep& step, const BackwardRows& rows, const HeadRows& head,
                                     const float* db, const BackwardRelativeScratch& scratch, F f) const noexcept {
  for_each_run(step, rows, head, kBlockRows, kTileKeys, scratch, [&](const Run& run) {
    for (int64_t first = run.columns.begin; first < run.columns.end; first += kTileKeys) {
      for (int n = run.begin; n < run.end; ++n) {
        const int r = head.first + n * group_;
        move_row(step, r, reach_of(step, rows, r, scratch).column, first, db + int64_t{r} * kWeightStride,
                 scratch.tile + int64_t{n - run.begin} * kWeightStride, scratch.seen[n - run.begin]);
      }
      BackwardBlock block{};
      block.q = scratch.position + int64_t{head.at + run.begin} * padded_;
      block.rows = run.end - run.begin;
      block.panels = static_cast<int>(std::min<int64_t>((run.columns.end - first + kPanelKeys - 1) / kPanelKeys,
                                                        kPanelsPerTile));
      block.head_dim = head_dim_;
      block.seen = scratch.seen;
      block.ds = scratch.tile;
      f(block, first, head.first + run.begin * group_);
    }
  });
}

void BackwardRelative::add(const BackwardStep& step, const BackwardRows& rows, const int64_t* encoding, const float* db,
                           const BackwardRelativeScratch& scratch) const noexcept {
  if (scratch.dr == nullptr) return;
  if (!scratch.item->straight) return add_by_rows(step, rows, encoding, db, scratch);
  for_each_head(rows.block(step.row_block), [&](const HeadRows& head) {
    for_each_tile(step, rows, head, db, scratch, [&](const BackwardBlock& block, int64_t first, int) {
      use({first, first + int64_t{block.panels} * kPanelKeys}, scratch);
      kernels::kernels().attention_backward->add_keys(block, scratch.dr + vectors(head.head % group_, first), nullptr);
    });
  });
}

void BackwardRelative::add_in_turn(const BackwardStep& step, const BackwardRows& rows, const int64_t* encoding,
                                   const float* db, const BackwardRelativeScratch& scratch) noexcept {
  if (!scratch.item->straight) return add_by_rows_in_turn(step, rows, encoding, db, scratch);
  for_each_head(rows.block(step.row_block), [&](const HeadRows& head) {
    for_each_tile(step, rows, head, db, scratch, [&](BackwardBlock& block, int64_t first, int row) {
      block.k_rows = r_.data() + vectors(head.head, first);
      float* dq[kBlockRows];
      for (int n = 0; n < block.rows; ++n) dq[n] = relative_dq(step.row_block, row + n * group_);
      kernels::kernels().attention_backward->add_queries(block, dq);
    });
  });
}

}  // namespace regard
