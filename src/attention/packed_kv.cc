#include "attention/packed_kv.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/checked.h"
#include "runtime/thread_pool.h"

namespace regard {

using kernels::kPanelKeys;
using kernels::kPanelsPerTile;
using kernels::kTileKeys;

KeyOrder sort_keys(const PackSource& source, int64_t batch_row) {
  KeyOrder order;
  if (source.positions == nullptr) return order;
  for (int64_t i = 0; i < source.kv_len; ++i) {
    const int64_t position = source.positions[i];
    if (position == -1) continue;
    require(position >= 0 && position <= PackedKv::kMaxPosition,
            "[attention] key {} of batch row {} has position {}, expected -1 (unwritten) or 0 to {}", i, batch_row,
            position, PackedKv::kMaxPosition);
    order.slot.push_back(i);
  }
  std::sort(order.slot.begin(), order.slot.end(),
            [&](int64_t a, int64_t b) { return source.positions[a] < source.positions[b]; });
  for (int64_t slot : order.slot) order.position.push_back(source.positions[slot]);
  const auto twice = std::adjacent_find(order.position.begin(), order.position.end());
  if (twice != order.position.end()) {
    const auto at = static_cast<size_t>(twice - order.position.begin());
    fail(Code::kInvalidArgument,
         "[attention] keys {} and {} of batch row {} both have position {}: positions must be unique within a row",
         std::min(order.slot[at], order.slot[at + 1]), std::max(order.slot[at], order.slot[at + 1]), batch_row, *twice);
  }
  return order;
}

PackedKv::PackedKv(const KvGeometry& geometry, const std::vector<PackSource>& sources, ThreadPool& pool)
    : PackedKv(geometry, sources) {
  data_ = AlignedBuffer<std::byte>(bytes());
  pack(sources, data_.data(), pool);
}

PackedKv::PackedKv(const KvGeometry& geometry, const std::vector<PackSource>& sources)
    : geometry_(geometry), tiles_before_{0} {
  for (size_t b = 0; b < sources.size(); ++b) {
    const PackSource& source = sources[b];
    orders_.push_back(sort_keys(source, static_cast<int64_t>(b)));
    KvView view;
    view.geometry = geometry;
    if (source.positions == nullptr) {
      view.begin = source.k_begin;
      view.end = source.k_begin + source.kv_len;
      if (source.kv_len > 0) view.first_tile = view.begin / kTileKeys;
      view.num_tiles = source.kv_len == 0 ? 0 : ceil_div<int64_t>(view.end, kTileKeys) - view.first_tile;
      for (int64_t t = 0; t < view.num_tiles; ++t) tile_ids_.push_back(view.first_tile + t);
    } else if (const std::vector<int64_t>& positions = orders_.back().position; !positions.empty()) {
      view.begin = positions.front();
      view.end = positions.back() + 1;
      for (int64_t p : positions)
        if (tile_ids_.size() == tiles_before_.back() || tile_ids_.back() != p / kTileKeys)
          tile_ids_.push_back(p / kTileKeys);
      view.num_tiles = static_cast<int64_t>(tile_ids_.size() - tiles_before_.back());
    }
    tiles_before_.push_back(tile_ids_.size());
    views_.push_back(view);
  }

  const size_t tiles = tile_ids_.size();
  const auto bytes = checked_mul<size_t>(tiles, static_cast<size_t>(geometry.tile_bytes()));
  if (!bytes) fail(Code::kResourceExhausted, "[attention] {} tiles of {} keys are too many", tiles, kTileKeys);
  written_.assign(tiles * kPanelsPerTile, 0);
  blocks_.resize(tiles * kPanelsPerTile);
  for (size_t b = 0; b < sources.size(); ++b) {
    KvView& view = views_[b];
    view.runs = blocks_.data() + tiles_before_[b] * kPanelsPerTile;
    view.tile_ids = tile_ids_.data() + tiles_before_[b];
    if (sources[b].positions == nullptr) continue;
    view.written = written_.data() + tiles_before_[b] * kPanelsPerTile;
    size_t t = tiles_before_[b];
    for (int64_t p : orders_[b].position) {
      while (tile_ids_[t] != p / kTileKeys) ++t;
      written_[t * kPanelsPerTile + static_cast<size_t>(p % kTileKeys / kPanelKeys)] |= uint64_t{1} << (p % kPanelKeys);
    }
  }

}

void PackedKv::pack(const std::vector<PackSource>& sources, std::byte* memory, ThreadPool& pool) {
  const int64_t block_stride = geometry_.num_kv_heads * geometry_.block_bytes();
  for (size_t i = 0; i < blocks_.size(); ++i) blocks_[i] = memory + static_cast<int64_t>(i) * block_stride;
  const auto pack = [&](int64_t item, int) {
    const auto block = static_cast<size_t>(item), tile = block / kPanelsPerTile;
    const auto b = static_cast<size_t>(std::upper_bound(tiles_before_.begin(), tiles_before_.end(), tile) -
                                       tiles_before_.begin() - 1);
    pack_block(geometry_, sources[b], orders_[b],
               tile_ids_[tile] * kTileKeys + static_cast<int64_t>(block % kPanelsPerTile) * kPanelKeys,
               memory + item * block_stride);
  };
  pool.for_each(static_cast<int64_t>(blocks_.size()), pack);
}

void PackedKv::pack_block(const KvGeometry& geometry, const PackSource& source, const KeyOrder& order,
                          int64_t first_position, std::byte* block) {
  Run runs[kPanelKeys];
  int n = 0, written = 0;
  if (source.positions == nullptr) {
    const int64_t begin = std::max(first_position, source.k_begin);
    const int64_t end = std::min(first_position + kPanelKeys, source.k_begin + source.kv_len);
    if (begin < end) {
      runs[n++] = {begin - source.k_begin, static_cast<int32_t>(end - begin),
                   static_cast<int32_t>(begin - first_position)};
      written = runs[0].count;
    }
  } else {
    auto i = static_cast<size_t>(std::lower_bound(order.position.begin(), order.position.end(), first_position) -
                                 order.position.begin());
    for (; i < order.position.size() && order.position[i] < first_position + kPanelKeys; ++i, ++written) {
      const auto column = static_cast<int32_t>(order.position[i] - first_position);
      if (n > 0 && runs[n - 1].column + runs[n - 1].count == column &&
          runs[n - 1].token + runs[n - 1].count == order.slot[i])
        ++runs[n - 1].count;
      else
        runs[n++] = {order.slot[i], 1, column};
    }
  }
  // Slots that hold no key are NaN: nothing of them may enter a result.
  const int64_t bytes = geometry.num_kv_heads * geometry.block_bytes();
  if (written < kPanelKeys) std::memset(block, 0xFF, static_cast<size_t>(bytes));
  for (int h = 0; h < geometry.num_kv_heads; ++h, block += geometry.block_bytes())
    for (int r = 0; r < n; ++r)
      write_block(geometry, source.rows, runs[r].token, runs[r].count, h, block, runs[r].column);
}

}  // namespace regard
