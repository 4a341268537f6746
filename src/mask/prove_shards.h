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

/// A cut as what it does to positions at all lengths. With none of these: nothing.
struct LocalAxis {
  bool by_length = false;   ///< contiguous parts, which begin where the length says
  int64_t ranks = 1;
  int64_t period = 0;       ///< what stays of a position, that modulo the period: stripes; contiguous parts have 1
  std::vector<Part> parts;  ///< ranges
};

/// Nothing for ranges that leave gaps or overlap.
std::optional<LocalAxis> local_axis(const ShardCut& cut);

struct LocalFailure {
  Found at;
  int64_t length = 0;  ///< of queries and keys, at which it happens
};

/// The smallest pair that ranks which count from their own first position get wrong at some length, for a mask without
/// lists. Not for ranges on both axes.
std::optional<LocalFailure> first_local_failure(const Mask& mask, int64_t batch, int64_t head, const LocalAxis& queries,
                                                const LocalAxis& keys, Budget& budget);

/// Pairs for which one of them is true and the other is not.
Formula difference(const Formula& a, const Formula& b);

/// Position p as its rank counts when it begins at 0.
int64_t local_position(const ShardCut& cut, const std::vector<Part>* parts, int64_t p);

}  // namespace regard::mask_proof
