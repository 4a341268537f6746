// What may come to attention scores besides q . k: biases by distance (ALiBi, T5, Transformer-XL), a bias of any
// numbers, a sink, and dropout. They are fields of AttentionOptions (attention.h); the order is always
//
//   scale, soft-cap, bias, mask, softmax
//
// where bias = ((ALiBi + T5) + dense) + Transformer-XL's relative term, each an f32 number, summed in that order in
// f32. A bias is a number and has a gradient; a mask says who may look. A bias of -inf gives its pair the weight 0, one
// of +inf or NaN makes the rows that see it NaN, and what stands where a row may not look never matters.
//
// Distances are taken between encoding positions (AttentionOptions::q_encoding_positions), which are the positions
// unless given. So a chunk of a prompt, a decoded token and a padded row have the biases that they have in the whole
// text.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/export.h"
#include "regard/tensor.h"

namespace regard {

/// -slope * |query - key|, in f64 and rounded once, by query head.
/// Press, Smith, Lewis, 2022, "Train short, test long: attention with linear biases enables input length
/// extrapolation", section 3 (there for keys before their query; the absolute value makes it serve both directions).
struct Alibi {
  std::vector<float> slopes;  ///< one per query head
};

/// The published slopes: 2^(-8 i / n) for i = 1 .. n where n is a power of two. For other numbers of heads those of the
/// next lower power of two n, then every other one of 2n, as the authors' code has it. Errors: kInvalidArgument for
/// less than 1 or more than 65,536 heads.
REGARD_API std::vector<float> alibi_slopes(int64_t num_heads);

/// Which keys T5's buckets tell apart.
enum class T5Direction {
  kBidirectional,  ///< half of the buckets for keys behind the query (encoders)
  kCausal,         ///< all buckets for keys up to the query; later ones are in bucket 0 (decoders)
};

/// The bucket of a distance, 0 .. buckets - 1: exact up to half of the buckets of a direction, logarithmic up to
/// `max_distance`, the last one beyond.
/// Raffel et al., 2020, "Exploring the limits of transfer learning with a unified text-to-text transformer",
/// section 2.1. Errors: kInvalidArgument for fewer than 2 buckets of a direction, an odd number of buckets for two
/// directions, or a max_distance that is not beyond the exact buckets.
REGARD_API int64_t t5_bucket(int64_t key_minus_query, int64_t buckets, int64_t max_distance, T5Direction direction);

/// A learned number for each bucket of distances and each query head.
struct T5Bias {
  TensorView<const float> table;  ///< [buckets, num_q_heads], as `relative_attention_bias.weight` in files
  T5Direction direction = T5Direction::kBidirectional;
  int64_t max_distance = 128;
};

/// scale ((q + u) . k + (q + v) . r[query - key]) in place of scale q . k. The first part is the score, which a
/// soft-cap bounds; the second one is a bias. A key that is seen at a distance without a vector is refused. Dai et al.,
/// 2019, "Transformer-XL: attentive language models beyond a fixed-length context", section 3.3.
struct TransformerXl {
  TensorView<const float> u{}, v{};  ///< [num_q_heads, head_dim]: `r_w_bias` and `r_r_bias` of files; no data: none
  /// [distances, num_q_heads, head_dim]: r[i] is for the distance first_distance + i from key to query, the projected
  /// sinusoid (`r_net`) of that distance.
  TensorView<const float> r{};
  int64_t first_distance =
      0;              ///< negative where keys behind their query have vectors, too (Yang et al., 2019, "XLNet")
  int64_t clamp = 0;  ///< larger distances, in either direction, take the vector of this one; 0: none do
};

/// Weights are left out at random, and those that are kept divided by 1 - rate; lse knows nothing of it. Which ones is
/// a function of (seed; batch row, query head, query position, key position) alone: the same for any number of threads,
/// cut into calls, and recomputation. A value whose weight is left out does not matter, even if it is NaN. Dropout
/// happens in calls that are given one, and in no others. Srivastava et al., 2014, "Dropout: a simple way to prevent
/// neural networks from overfitting"; kernels/dropout.h has the function.
struct Dropout {
  double rate = 0;  ///< 0 <= rate < 1; 0 leaves out nothing
  uint64_t seed = 0;
  /// What attention_weights() gives.
  enum class Weights { kBefore, kAfter } weights = Weights::kBefore;
  /// The number that the function takes for the call's first batch row; the others follow. A batch that is cut into
  /// several calls so drops what the whole one drops.
  int64_t first_batch_row = 0;
};

}  // namespace regard
