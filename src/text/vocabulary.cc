#include "text/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace regard {
namespace {

constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio

constexpr uint64_t mix(uint64_t x) noexcept {
  x ^= x >> 32;
  x *= kMultiplier;
  return x ^ x >> 29;
}

uint64_t hash_of(std::string_view text) noexcept {
  uint64_t hash = text.size() * kMultiplier;
  while (text.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, text.data(), 8);
    hash = mix(hash ^ word) * kMultiplier;
    text.remove_prefix(8);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, text.data(), text.size());
  return mix(hash ^ rest);
}

size_t slots_for(size_t entries) { return std::bit_ceil(std::max<size_t>(entries * 2, 16)); }

}  // namespace

Result<Vocabulary> Vocabulary::make(std::vector<std::string> pieces, std::string_view origin) {
  Vocabulary v;
  v.pieces_ = std::move(pieces);
  v.slots_.assign(slots_for(v.pieces_.size()), kNoToken);
  v.mask_ = v.slots_.size() - 1;
  for (int32_t id = 0; id < v.size(); ++id) {
    const std::string& piece = v.piece(id);
    if (piece.empty()) continue;
    v.longest_ = std::max(v.longest_, piece.size());
    size_t slot = hash_of(piece) & v.mask_;
    for (; v.slots_[slot] != kNoToken; slot = (slot + 1) & v.mask_) {
      if (v.piece(v.slots_[slot]) == piece)
        return corrupt("[build_tokenizer] {}: the tokens {} and {} are the same: '{}'", origin, v.slots_[slot], id, piece);
    }
    v.slots_[slot] = id;
  }
  return v;
}

int32_t Vocabulary::find(std::string_view piece) const noexcept {
  if (piece.empty() || piece.size() > longest_) return kNoToken;
  for (size_t slot = hash_of(piece) & mask_; slots_[slot] != kNoToken; slot = (slot + 1) & mask_) {
    if (pieces_[static_cast<size_t>(slots_[slot])] == piece) return slots_[slot];
  }
  return kNoToken;
}

MergeTable::MergeTable(size_t expected) : slots_(slots_for(expected)), mask_(slots_.size() - 1) {}

bool MergeTable::insert(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t slot = mix(key) & mask_;
  for (; slots_[slot].key != kFree; slot = (slot + 1) & mask_) {
    if (slots_[slot].key == key) return false;
  }
  slots_[slot] = {key, merge};
  return true;
}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const noexcept {
  const uint64_t key = key_of(left, right);
  for (size_t slot = mix(key) & mask_; slots_[slot].key != kFree; slot = (slot + 1) & mask_) {
    if (slots_[slot].key == key) return &slots_[slot].merge;
  }
  return nullptr;
}

}  // namespace regard
