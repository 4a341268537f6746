// Claims about cuts over ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mask/prove.h"

namespace regard::mask_proof {

/// A run of positions that exactly one rank holds, or not exactly one.
struct Part {
  Interval positions;
  int64_t ranks = 1;  ///< how many hold it
  int64_t begin = 0;  ///< where the part of the one rank begins
};

/// The cut of `positions` as runs, in rising order. Nothing for stripes: they are no few runs, and every position has
/// one rank.
std::optional<std::vector<Part>> parts_of(const ShardCut& cut, Interval positions);

/// Position p as its rank counts when it begins at 0.
int64_t local_position(const ShardCut& cut, const std::vector<Part>* parts, int64_t p);

}  // namespace regard::mask_proof
