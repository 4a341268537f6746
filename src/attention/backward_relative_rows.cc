// Keys at encoding positions of any order: row by row, one vector of the table after the other.
#include <bit>

#include "attention/backward_relative.h"
#include "attention/backward_terms.h"

namespace regard {

using kernels::kPanelKeys;
using kernels::kPanelsPerTile;
using kernels::kTileKeys;
using kernels::kWeightStride;

// The keys of the block that row r sees, rising.
template <class F>
void BackwardRelative::for_each_seen(const BackwardStep& step, int r, F f) {
  for (int w = 0; w < step.panels; ++w)
    for (uint64_t left = step.seen == nullptr ? ~uint64_t{0} : step.seen[r][w]; left != 0; left &= left - 1)
      f(kPanelKeys * w + std::countr_zero(left));
}

const float* BackwardRelative::term_by_keys(const BackwardStep& step, int head, int r, const int64_t* encoding,
                                            float* into, const BackwardRelativeScratch& scratch) const noexcept {
  const float* panels = term_.panels(table_, head);
  float products[kPanelKeys];
  int64_t have = -1;
  for_each_seen(step, r, [&](int j) {
    const int64_t column = term_.column(encoding[j] - scratch.query[r]);
    if (column < 0) {
      missing_.store(true, std::memory_order_relaxed);
      return;
    }
    if (column / kPanelKeys != have) {
      have = column / kPanelKeys;
      kernels::kernels().attention->dots(scratch.position + int64_t{scratch.place[r]} * padded_, 0, 1, head_dim_,
                                         panels, have * kPanelKeys, kPanelKeys, products, 0);
    }
    into[j] = products[column % kPanelKeys];
  });
  return into;
}

template <class F>
void BackwardRelative::for_each_window(const BackwardStep& step, int r, const int64_t* encoding, const float* db,
                                       const BackwardRelativeScratch& scratch, F f) const noexcept {
  int64_t tile = -1;
  uint64_t* words = scratch.seen[0];
  for_each_seen(step, r, [&](int j) {
    const int64_t column = term_.column(encoding[j] - scratch.query[r]);
    if (column < 0) return;
    if (column / kTileKeys != tile) {
      if (tile >= 0) f(tile * kTileKeys);
      tile = column / kTileKeys;
      std::fill_n(words, kPanelsPerTile, uint64_t{0});
    }
    const int64_t at = column % kTileKeys;
    uint64_t& word = words[at / 64];
    const uint64_t bit = uint64_t{1} << (at % 64);
    const float x = db[int64_t{r} * kWeightStride + j];
    scratch.tile[at] = (word & bit) != 0 ? scratch.tile[at] + x : x;
    word |= bit;
  });
  if (tile >= 0) f(tile * kTileKeys);
}

void BackwardRelative::add_by_rows(const BackwardStep& step, const BackwardRows& rows, const int64_t* encoding,
                                   const float* db, const BackwardRelativeScratch& scratch) const noexcept {
  const BackwardRowBlock& row_block = rows.block(step.row_block);
  for (int r = 0; r < row_block.rows; ++r) {
    if (!rows.takes_part(step.row_block, r)) continue;
    const int in_group = rows.head(row_block, r) % group_;
    for_each_window(step, r, encoding, db, scratch, [&](int64_t first) {
      kernels::BackwardBlock block{};
      block.q = scratch.position + int64_t{scratch.place[r]} * padded_;
      block.rows = 1;
      block.panels = kPanelsPerTile;
      block.head_dim = head_dim_;
      block.seen = scratch.seen;
      block.ds = scratch.tile;
      use({first, std::min(first + kTileKeys, columns_)}, scratch);
      kernels::kernels().attention_backward->add_keys(block, scratch.dr + vectors(in_group, first), nullptr);
    });
  }
}

void BackwardRelative::add_by_rows_in_turn(const BackwardStep& step, const BackwardRows& rows, const int64_t* encoding,
                                           const float* db, const BackwardRelativeScratch& scratch) noexcept {
  const BackwardRowBlock& row_block = rows.block(step.row_block);
  for (int r = 0; r < row_block.rows; ++r) {
    if (!rows.takes_part(step.row_block, r)) continue;
    float* dq = relative_dq(step.row_block, r);
    for_each_window(step, r, encoding, db, scratch, [&](int64_t first) {
      kernels::BackwardBlock block{};
      block.rows = 1;
      block.panels = kPanelsPerTile;
      block.head_dim = head_dim_;
      block.k_rows = r_.data() + vectors(rows.head(row_block, r), first);
      block.seen = scratch.seen;
      block.ds = scratch.tile;
      kernels::kernels().attention_backward->add_queries(block, &dq);
    });
  }
}

}  // namespace regard
