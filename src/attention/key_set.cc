#include "attention/key_set.h"

#include <algorithm>

#include "attention/tensor_check.h"
#include "base/check.h"

namespace regard {

using kernels::kTileKeys;

namespace {

// Number of the tile that holds a position, which has to be there.
int64_t tile_index(const KvView& view, int64_t position) {
  const int64_t id = position / kTileKeys;
  if (view.tile_ids == nullptr) return id - view.first_tile;
  return std::lower_bound(view.tile_ids, view.tile_ids + view.num_tiles, id) - view.tile_ids;
}

}  // namespace

KeyColumns::KeyColumns(const KvView& view, const PackSource& source, int64_t first)
    : k_begin_(source.k_begin), kv_len_(source.kv_len), first_(first) {
  if (source.positions == nullptr) return;
  columns_.assign(static_cast<size_t>(view.num_tiles * kTileKeys), -1);
  for (int64_t j = 0; j < source.kv_len; ++j)
    if (const int64_t p = source.positions[j]; p >= 0)
      columns_[static_cast<size_t>(tile_index(view, p) * kTileKeys + p % kTileKeys)] = first + j;
}

KeySetBits::KeySetBits(std::string_view function, const CallSizes& sizes, const CallRows& rows,
                       const CallPositions& positions, const KeySet& set, const Mask& mask,
                       const AttentionOptions& options)
    : bits_(set.bits) {
  require(!set.mask || set.bits.rank == 0, "[{}] the set of keys is given as a mask and as bits, expected one of them",
          function);
  if (set.mask) {
    // A set that compares positions needs to know them as the mask does.
    if (!mask.compares_positions()) CallPositions(function, sizes, rows, *set.mask, options);
    plan_.emplace(*set.mask, MaskLimits{}, rows.batch(), sizes.num_q_heads);
    positions.check_queries(*plan_);
  } else if (bits_.rank > 0) {
    const bool by_entry = bits_.rank == 2;
    check_tensor(function, "the set's bits", bits_, by_entry ? 2 : 1);
    require((by_entry ? bits_.shape[1] : bits_.shape[0]) == sizes.kv_len &&
                (!by_entry || bits_.shape[0] == 1 || bits_.shape[0] == sizes.batch),
            "[{}] the set's bits have shape {}, expected [{}] or [{}, {}]", function, shape_text(bits_), sizes.kv_len,
            sizes.batch, sizes.kv_len);
  }
}

}  // namespace regard
