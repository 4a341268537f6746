#include "attention/row_block.h"

#include <algorithm>

namespace regard {

using kernels::AttentionTile;
using kernels::kMaxBlockRows;
using kernels::kPanelsPerTile;
using kernels::kTileKeys;

RowScratch RowScratch::carve(Carver& carver, int head_dim, int value_dim, int block_rows) {
  const auto rows = static_cast<size_t>(block_rows);
  constexpr size_t kSpare = kernels::kLanes;
  RowScratch s;
  s.q = carver.take<float>(rows * static_cast<size_t>(head_dim));
  s.scores = carver.take<float>(size_t{kernels::kMaxMicroRows} * kTileKeys);
  s.o = carver.take<float>(rows * static_cast<size_t>(kernels::padded_dim(value_dim)));
  s.m = carver.take<float>(rows + kSpare);
  s.l = carver.take<float>(rows + kSpare);
  s.lse = carver.take<float>(rows);
  s.lo = carver.take<int32_t>(rows);
  s.hi = carver.take<int32_t>(rows);
  s.begin = carver.take<int64_t>(rows);
  s.end = carver.take<int64_t>(rows);
  s.words = reinterpret_cast<uint64_t(*)[kPanelsPerTile]>(carver.take<uint64_t>(rows * kPanelsPerTile));
  return s;
}

RowBlock::RowBlock(const SequenceQueries& sequence, const AttentionShape& shape, const MaskPlan& mask, int kv_head,
                   int64_t first_row, int rows, const RowScratch& scratch) noexcept
    : sequence_(sequence),
      shape_(shape),
      mask_(mask),
      group_(shape.num_q_heads / shape.num_kv_heads),
      kv_head_(kv_head),
      first_row_(first_row),
      rows_(rows),
      heads_(mask.depends_on_head() ? group_ : 1),
      queries_{},
      scratch_(scratch) {
  const KvView& keys = sequence.keys;
  for (int r = 0; r < rows; ++r) {
    const bool same_as_before = heads_ == 1 && r > 0 && token(r) == token(r - 1);
    if (same_as_before) {
      scratch.begin[r] = scratch.begin[r - 1];
      scratch.end[r] = scratch.end[r - 1];
      continue;
    }
    const int64_t p = position(r);
    scratch.begin[r] = scratch.end[r] = 0;
    if (p < 0) continue;
    const Interval seen = mask.hull(sequence.batch_row, head(r), p);
    scratch.begin[r] = std::max(seen.begin, keys.begin);
    scratch.end[r] = std::min(seen.end, keys.end);
    queries_ =
        queries_.empty() ? Interval{p, p + 1} : Interval{std::min(queries_.begin, p), std::max(queries_.end, p + 1)};
  }
  shared_ = {*std::max_element(scratch.begin, scratch.begin + rows), *std::min_element(scratch.end, scratch.end + rows)};
}

void RowBlock::find_queries(const float** q) const noexcept {
  for (int r = 0; r < rows_; ++r)
    q[r] = sequence_.q + token(r) * sequence_.q_token_stride + head(r) * sequence_.q_head_stride;
}

void RowBlock::load_queries(uint32_t* pairs) noexcept {
  const float* q[kMaxBlockRows];
  find_queries(q);
  kernels::kernels().attention_bf16->pack_queries(q, rows_, shape_.head_dim, pairs);
}

void RowBlock::load_queries(float factor) noexcept {
  const float* q[kMaxBlockRows];
  find_queries(q);
  kernels::kernels().attention->scale_queries(q, rows_, shape_.head_dim, factor, scratch_.q);
}

bool RowBlock::lower(int64_t index, AttentionTile& tile) noexcept {
  const KvView& view = sequence_.keys;
  const int64_t base = view.tile_id(index) * kTileKeys;
  bool nothing = true, everything = shared_.begin <= base && base + kTileKeys <= shared_.end;
  if (everything && mask_.rows_are_intervals() && view.written == nullptr) {
    tile.lo = tile.hi = nullptr;
    tile.words = nullptr;
    place(index, tile);
    return true;
  }
  for (int r = 0; r < rows_ && !everything; ++r) {
    const auto lo = static_cast<int32_t>(std::clamp<int64_t>(scratch_.begin[r] - base, 0, kTileKeys));
    const auto hi = static_cast<int32_t>(std::clamp<int64_t>(scratch_.end[r] - base, 0, kTileKeys));
    scratch_.lo[r] = lo;
    scratch_.hi[r] = hi;
    nothing = nothing && lo >= hi;
  }
  if (nothing && !everything) return false;
  tile.lo = everything ? nullptr : scratch_.lo;
  tile.hi = everything ? nullptr : scratch_.hi;
  tile.words = nullptr;
  const uint64_t* written = view.written == nullptr ? nullptr : view.written + index * kPanelsPerTile;
  const Interval keys{std::max(base, view.begin), std::min(base + kTileKeys, view.end)};
  if (!lower_words(keys, written, tile)) return false;
  place(index, tile);
  return true;
}

void RowBlock::place(int64_t index, AttentionTile& tile) const noexcept {
  tile.type = sequence_.keys.geometry.type;
  tile.scale_block = sequence_.keys.geometry.scale_block;
  for (int w = 0; w < kPanelsPerTile; ++w) {
    tile.k[w] = sequence_.keys.keys(index, w, kv_head_);
    tile.v[w] = sequence_.keys.values(index, w, kv_head_);
    tile.scales[w] = sequence_.keys.scales(index, w, kv_head_);
  }
}

TileClass RowBlock::classify(Interval keys) const noexcept {
  const int first_head = kv_head_ * group_;
  const TileClass first = mask_.classify(sequence_.batch_row, first_head, queries_, keys);
  for (int h = 1; h < heads_; ++h)
    if (mask_.classify(sequence_.batch_row, first_head + h, queries_, keys) != first) return TileClass::kPartial;
  return first;
}

// Bits where intervals do not say everything. The words of a row are evaluated only here: in tiles that reasoning about
// intervals cannot decide.
bool RowBlock::lower_words(Interval keys, const uint64_t* written, AttentionTile& tile) noexcept {
  bool evaluate = false;
  if (!mask_.rows_are_intervals()) {
    const TileClass kind = classify(keys);
    if (kind == TileClass::kEmpty) return false;
    evaluate = kind == TileClass::kPartial;
  }
  if (!evaluate && written == nullptr) return true;
  const int64_t base = keys.begin / kTileKeys * kTileKeys;
  tile.words = scratch_.words;
  if (tile.lo == nullptr && written == nullptr && group_ == 1 && sequence_.positions == nullptr) {
    mask_.fill_words(sequence_.batch_row, head(0), {position(0), position(0) + rows_}, base, kPanelsPerTile, *scratch_.words);
    return true;
  }
  for (int r = 0; r < rows_; ++r) {
    uint64_t* words = scratch_.words[r];
    if (tile.lo != nullptr && scratch_.lo[r] >= scratch_.hi[r]) {
      std::fill_n(words, kPanelsPerTile, uint64_t{0});
    } else if (heads_ == 1 && r > 0 && token(r) == token(r - 1)) {
      std::copy_n(scratch_.words[r - 1], kPanelsPerTile, words);
    } else {
      if (evaluate)
        mask_.fill_words(sequence_.batch_row, head(r), position(r), base, kPanelsPerTile, words);
      else
        std::fill_n(words, kPanelsPerTile, ~uint64_t{0});
      if (written != nullptr)
        for (int w = 0; w < kPanelsPerTile; ++w) words[w] &= written[w];
    }
  }
  return true;
}

TileRange tile_range(const SequenceQueries& sequence, const AttentionShape& shape, const MaskPlan& mask, int kv_head,
                     int64_t first_row, int64_t rows) noexcept {
  const KvView& keys = sequence.keys;
  const int group = shape.num_q_heads / shape.num_kv_heads;
  const int64_t first_token = first_row / group, last_token = (first_row + rows - 1) / group;
  Interval queries;
  if (sequence.positions == nullptr) {
    queries = {sequence.first_position + first_token, sequence.first_position + last_token + 1};
  } else {
    for (int64_t t = first_token; t <= last_token; ++t) {
      const int64_t p = sequence.positions[t];
      if (p < 0) continue;
      queries =
          queries.empty() ? Interval{p, p + 1} : Interval{std::min(queries.begin, p), std::max(queries.end, p + 1)};
    }
  }
  if (queries.empty() || keys.num_tiles == 0) return {};
  Interval seen{keys.end, keys.begin};
  for (int h = 0; h < (mask.depends_on_head() ? group : 1); ++h) {
    const Interval hull = mask.hull(sequence.batch_row, kv_head * group + h, queries);
    if (hull.empty()) continue;
    seen = {std::min(seen.begin, std::max(hull.begin, keys.begin)), std::max(seen.end, std::min(hull.end, keys.end))};
  }
  if (seen.empty()) return {};
  const int64_t first = seen.begin / kTileKeys, last = (seen.end - 1) / kTileKeys;
  if (keys.tile_ids == nullptr) return {first - keys.first_tile, last - keys.first_tile + 1};
  const int64_t* ids_end = keys.tile_ids + keys.num_tiles;
  return {std::lower_bound(keys.tile_ids, ids_end, first) - keys.tile_ids,
          std::upper_bound(keys.tile_ids, ids_end, last) - keys.tile_ids};
}

}  // namespace regard
