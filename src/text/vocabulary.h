// Pieces by id and ids by piece.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace regard {

inline constexpr int32_t kNoToken = -1;

/// An immutable vocabulary. The index is a flat hash table with linear probing, at most half full.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// Empty pieces have no entry in the index. Failure: two ids with the same piece, named with both.
  static Result<Vocabulary> make(std::vector<std::string> pieces, std::string_view origin);

  int32_t size() const noexcept { return static_cast<int32_t>(pieces_.size()); }
  const std::string& piece(int32_t id) const { return pieces_[static_cast<size_t>(id)]; }
  bool has(int32_t id) const noexcept { return id >= 0 && id < size(); }
  int32_t find(std::string_view piece) const noexcept;
  size_t longest() const noexcept { return longest_; }

 private:
  std::vector<std::string> pieces_;
  std::vector<int32_t> slots_;
  size_t mask_ = 0, longest_ = 0;
};

/// (left id, right id) -> (rank, merged id), flat like the vocabulary's index.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = 0;
    int32_t id = kNoToken;
  };
  explicit MergeTable(size_t expected = 0);
  /// False when the pair is there already (the first stays).
  bool insert(int32_t left, int32_t right, Merge merge);
  /// nullptr when the pair does not merge.
  const Merge* find(int32_t left, int32_t right) const noexcept;

 private:
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};  // no pair: ids are not negative
  static uint64_t key_of(int32_t left, int32_t right) noexcept {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

}  // namespace regard
