// What the weights of a row amount to, tile by tile, for statistics that are taken along with attention: the weights are
// those that AttentionKernels::tile() leaves in its scratch. Asked for rarely, so it is no part of a KernelSet.
#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace regard::kernels {

/// Sums over the keys of a tile that a row sees, p_j = 2^(s_j - m) with m the largest score among them.
struct TileSums {
  float log_sum;    ///< of p_j log2 p_j
  float index_sum;  ///< of p_j j, j from 0 to 255
  float set_sum;    ///< of p_j over the keys of a set
  int32_t first;    ///< the lowest j with p_j = 1; -1: none
};

struct AttentionStatisticsKernels {
  /// Of up to so many rows in a call, tile() leaves the weights of all: [rows][256] of its scores.
  int micro_rows;

  /// The sums of one row: weights [256], of which those are read whose bit is set in `seen` [4], and their 16 neighbours of
  /// the same vector; `set` [4] may be null for the empty one. Sums are in f32, lane by lane in rising order.
  TileSums (*tile_sums)(const float* weights, const uint64_t* seen, const uint64_t* set) noexcept;
};

}  // namespace regard::kernels
