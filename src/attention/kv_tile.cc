#include "attention/kv_tile.h"

#include <cstring>

namespace regard {

KvTile::KvTile(const KvGeometry& geometry, const std::shared_ptr<KvBudget>& budget, const char* function,
               int64_t tokens_wanted)
    : share_(budget, bytes(geometry), function, tokens_wanted), data_(static_cast<size_t>(geometry.tile_bytes())) {}

KvTile::Pointer KvTile::make(const KvGeometry& geometry, const std::shared_ptr<KvBudget>& budget, const char* function,
                             int64_t tokens_wanted) {
  Pointer tile(new KvTile(geometry, budget, function, tokens_wanted));
  std::memset(tile->data_.data(), 0xFF, tile->data_.size());  // all bits set is a NaN
  return tile;
}

KvTile::Pointer KvTile::copy(const KvGeometry& geometry, const std::shared_ptr<KvBudget>& budget, const char* function,
                             int64_t tokens_wanted) const {
  Pointer tile(new KvTile(geometry, budget, function, tokens_wanted));
  std::memcpy(tile->data_.data(), data_.data(), data_.size());
  return tile;
}

}  // namespace regard
