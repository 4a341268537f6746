// Transformer-XL's relative term, row by row of a tile.
#include <algorithm>
#include <bit>

#include "attention/score_terms.h"
#include "base/check.h"

namespace regard {

using kernels::AttentionTile;
using kernels::kLanes;
using kernels::kTileKeys;

namespace {

struct Reach {
  int lo, hi;
};
Reach reach_of(const AttentionTile& tile, int r) noexcept {
  return {tile.lo == nullptr ? 0 : tile.lo[r], tile.hi == nullptr ? kTileKeys : tile.hi[r]};
}

bool sees(const AttentionTile& tile, int r, int j) noexcept {
  return tile.words == nullptr || (tile.words[r][j / 64] >> (j % 64) & 1) != 0;
}

}  // namespace

void ScoreTerms::note_missing(int64_t distance) const noexcept {
  missing_distance_.store(-distance, std::memory_order_relaxed);
  distance_missing_.store(true, std::memory_order_relaxed);
}

void ScoreTerms::check_distances(std::string_view function) const {
  if (!distance_missing_.load(std::memory_order_relaxed)) return;
  fail(Code::kInvalidArgument,
       "[{}] xl.r has no vector for the distance {} from a key to a query that sees it: give the distances that the "
       "mask "
       "allows, or a clamp",
       function, missing_distance_.load(std::memory_order_relaxed));
}

// Runs of rows of one head that stand close together are multiplied at once.
void ScoreTerms::relative_rows(const Placed& placed, const RowBlock& block, int64_t index, int64_t base,
                               const TermScratch& scratch, const AttentionTile& tile) const noexcept {
  if (placed.distances > 0) {
    for (int head = 0; head < std::min(num_q_heads_ / num_kv_heads_, block.rows()); ++head)
      relative_slices(placed, block, base, head, scratch, tile);
    return;
  }
  for (int r = 0; r < block.rows(); ++r) {
    const Reach reach = reach_of(tile, r);
    if (reach.lo < reach.hi) relative_pairs(placed, block, index, base, r, scratch, tile);
  }
}

// The rows first_row, first_row + group, ...: those of one head, in the order of their tokens.
void ScoreTerms::relative_slices(const Placed& placed, const RowBlock& block, int64_t base, int first_row,
                                 const TermScratch& scratch, const AttentionTile& tile) const noexcept {
  const int group = num_q_heads_ / num_kv_heads_, head = block.head(first_row);
  const float* panels = relative_.panels(placed.relative, head);
  // The column of the tile's first key in the table, for a row.
  const auto column = [&](int r) { return base - query_encoding(placed, block, r) - placed.first_distance; };
  for (int r = first_row; r < block.rows();) {
    if (const Reach reach = reach_of(tile, r); reach.lo >= reach.hi) {
      r += group;
      continue;
    }
    int rows = 0, last = r;
    int64_t low = INT64_MAX, high = INT64_MIN, nearest = column(r), farthest = nearest;
    for (int next = r; next < block.rows() && rows < RelativeTerm::kRows; next += group) {
      const Reach reach = reach_of(tile, next);
      if (reach.lo >= reach.hi) break;
      const int64_t x = column(next);
      if (std::max(farthest, x) - std::min(nearest, x) > RelativeTerm::kSpread) break;
      nearest = std::min(nearest, x);
      farthest = std::max(farthest, x);
      low = std::min(low, x + reach.lo);
      high = std::max(high, x + reach.hi);
      last = next;
      ++rows;
    }
    // A row's floats begin with column `origin`, so that all 256 of its keys lie among them; what is seen is computed.
    const int64_t origin = nearest / kLanes * kLanes, first = low / kLanes * kLanes,
                  end = (high + kLanes - 1) / kLanes * kLanes;
    float* out = scratch.relative + int64_t{r} * RelativeTerm::kRowFloats + (first - origin);
    kernels::kernels().attention->dots(scratch.relative_q + int64_t{r} * head_dim_, int64_t{group} * head_dim_, rows,
                                       head_dim_, panels, first, static_cast<int>(end - first), out,
                                       int64_t{group} * RelativeTerm::kRowFloats);
    for (int row = r; row <= last; row += group) {
      const int64_t x = column(row), distance = x + placed.first_distance;
      scratch.relative_rows[row] = scratch.relative + int64_t{row} * RelativeTerm::kRowFloats + (x - origin);
      const Reach reach = reach_of(tile, row);
      if (relative_.has(distance + reach.lo) && relative_.has(distance + reach.hi - 1)) continue;
      for (int j = reach.lo; j < reach.hi; ++j)
        if (!relative_.has(distance + j) && sees(tile, row, j)) note_missing(distance + j);
    }
    r = last + group;
  }
}

// Keys at any encoding positions: one vector of columns at a time, while the next key needs another one.
void ScoreTerms::relative_pairs(const Placed& placed, const RowBlock& block, int64_t index, int64_t base, int r,
                                const TermScratch& scratch, const AttentionTile& tile) const noexcept {
  const float* panels = relative_.panels(placed.relative, block.head(r));
  const int64_t* encoding =
      placed.encoding_of_column.empty() ? nullptr : placed.encoding_of_column.data() + index * kTileKeys;
  const int64_t query = query_encoding(placed, block, r);
  float* row = scratch.relative + int64_t{r} * RelativeTerm::kRowFloats;
  scratch.relative_rows[r] = row;
  float products[kLanes];
  int64_t have = -1;
  const Reach reach = reach_of(tile, r);
  for (int j = reach.lo; j < reach.hi; ++j) {
    if (!sees(tile, r, j)) continue;
    const int64_t distance = (encoding == nullptr ? base + j : encoding[j]) - query, x = relative_.column(distance);
    if (x < 0) {
      note_missing(distance);
      continue;
    }
    if (x / kLanes != have) {
      have = x / kLanes;
      kernels::kernels().attention->dots(scratch.relative_q + int64_t{r} * head_dim_, 0, 1, head_dim_, panels,
                                         have * kLanes, kLanes, products, 0);
    }
    row[j] = products[x % kLanes];
  }
}

}  // namespace regard
