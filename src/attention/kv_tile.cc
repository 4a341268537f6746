#include "attention/kv_tile.h"

#include <cstring>

namespace regard {

KvTile::KvTile(const KvGeometry& geometry, const std::shared_ptr<KvBudget>& budget, const char* function,
               int64_t tokens_wanted, Arena* arena)
    : share_(budget, bytes(geometry), function, tokens_wanted) {
  const auto size = static_cast<size_t>(geometry.tile_bytes());
  data_ = arena == nullptr ? AlignedBuffer<std::byte>(size) : AlignedBuffer<std::byte>(size, *arena);
}

KvTile::Pointer KvTile::make(const KvGeometry& geometry, const std::shared_ptr<KvBudget>& budget, const char* function,
                             int64_t tokens_wanted, Arena* arena) {
  Pointer tile(new KvTile(geometry, budget, function, tokens_wanted, arena));
  std::memset(tile->data_.data(), 0xFF, tile->data_.size());  // all bits set is a NaN
  return tile;
}

KvTile::Pointer KvTile::copy(const KvGeometry& geometry, const std::shared_ptr<KvBudget>& budget, const char* function,
                             int64_t tokens_wanted) const {
  Pointer tile(new KvTile(geometry, budget, function, tokens_wanted, nullptr));
  std::memcpy(tile->data_.data(), data_.data(), data_.size());
  return tile;
}

}  // namespace regard
