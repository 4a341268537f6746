// What queries look at, asked of an attention that has been computed: the largest weights of each row, how much each
// key is looked at, and what a row amounts to in a few numbers.
//
//   regard::attend(q, k, v, mask, options, out, lse);
//   regard::attention_top_keys(q, k, lse, mask, options, {0, q_len}, keys, weights);
//
// Whole rectangles, rows ({i, i + 1} x all keys) and columns (all queries x {j, j + 1}) are given by
// attention_weights() in attention.h. All of these rebuild the weights w = exp(s - lse) tile by tile from q, k and the
// lse of attend(), with the kernels, mask and score terms of that call: the output stays what it is to the bit, and no
// memory of the size q_len x kv_len is taken. Weights are those before dropout unless Dropout::weights says otherwise.
//
// With packed sequences (AttentionOptions::q_offsets) queries and keys are numbers within the tensors: a query has weight
// 0 on every key of another sequence, a row behind the last one is an empty row, and the batch is 1.
#pragma once

#include <cstdint>
#include <optional>

#include "regard/attention.h"
#include "regard/export.h"
#include "regard/mask.h"
#include "regard/tensor.h"

namespace regard {

/// The keys that each of `queries` (numbers within q_len) looks at most, by falling weight.
///
/// Shapes: q, k, lse as in attend(); keys and weights [batch, num_q_heads, queries.end - queries.begin, n], where n is
/// how many are wanted. A key is given by its number within kv_len; of equal weights the lowest number comes first.
/// Keys whose weight is 0 or NaN are not listed: where fewer than n are left (in empty rows all) the rest is -1 with
/// weight 0. Cost: the scores once more, and n numbers for each of 96 rows per thread. Errors, aliasing, threads: as
/// attend().
REGARD_API void attention_top_keys(TensorView<const float> q, TensorView<const float> k, TensorView<const float> lse,
                                   const Mask& mask, const AttentionOptions& options, Interval queries,
                                   TensorView<int64_t> keys, TensorView<float> weights);

/// sums[b, h, j] = sum over i in `queries` of w[b, h, i, j]: how much each key is looked at.
///
/// Shapes: q, k, lse as in attend(); sums [batch, num_q_heads, kv_len]. A key that no query sees has 0. Summed in f64
/// in the order of the queries, so the bits do not depend on the number of threads. Errors, aliasing, threads: as
/// attend().
REGARD_API void attention_column_sums(TensorView<const float> q, TensorView<const float> k, TensorView<const float> lse,
                                      const Mask& mask, const AttentionOptions& options, Interval queries,
                                      TensorView<float> sums);

/// The keys whose share is asked for: those that a mask allows the query (prefix(4): the first four; window(0, 0): the
/// own one), or those whose byte is not 0. Nothing given: none. Packed sequences are batch rows to the mask, not to bits.
struct KeySet {
  std::optional<Mask> mask = {};
  TensorView<const uint8_t> bits = {};  ///< [kv_len] or [batch, kv_len]
};

/// One number for each row, [batch, num_q_heads, queries.end - queries.begin]; one without data is not computed. The
/// sums run over the keys j that row i sees, with p the position of the query and k_j that of the key.
struct RowStatistics {
  TensorView<float> total = {};     ///< sum of w_j: 1, or with a sink what the sink leaves
  TensorView<float> entropy = {};   ///< -sum of w_j ln w_j, in nats; 0 ln 0 is 0. A uniform row over n keys has ln n
  TensorView<float> distance = {};  ///< sum of w_j (p - k_j) / sum of w_j: how far back the row looks, in positions
  TensorView<float> mass = {};      ///< sum of w_j over the keys of the KeySet
  TensorView<float> largest = {};   ///< the largest w_j ...
  TensorView<int64_t> largest_key = {};  ///< ... and the number of its key, the lowest of equal ones
};

/// The statistics of the rows of `queries` (numbers within q_len).
///
/// Shapes: q, k, lse as in attend(). Empty rows give 0, and -1 as largest_key. A row whose lse is NaN gives NaN, and
/// -1. With a sink the weights are those of the row, so they sum to less than 1; a part of 1 - total went to the sink.
/// Accuracy: summed in f64; lse is rounded to f32, which limits each weight to about |lse| * 6e-8 relative.
/// Errors, aliasing, threads: as attend(); kInvalidArgument also where both parts of the KeySet are given, and where
/// mass is wanted without one. Source: Vig and Belinkov, 2019, "Analyzing the structure of attention in a Transformer
/// language model", equations 3 (distance) and 4 (entropy); Clark et al., 2019, "What does BERT look at?", sections 3.2
/// and 3.3.
REGARD_API void attention_statistics(TensorView<const float> q, TensorView<const float> k, TensorView<const float> lse,
                                     const Mask& mask, const AttentionOptions& options, Interval queries,
                                     const KeySet& set, const RowStatistics& statistics);

/// attend() that takes the statistics of all its rows along, in the one pass over the keys that it makes anyway:
/// attention_statistics() with nothing computed twice. out and lse have the bits of attend().
///
/// Shapes: q, k, v, out, lse as in attend(); the statistics [batch, num_q_heads, q_len]. They are what
/// attention_statistics() gives to rounding: sums within a tile of 256 keys are in f32, those of tiles in f64; largest_key is
/// a key whose weight is the largest to rounding. Cost: some forty vector instructions for each 16 weights beside the
/// operations of attend(). Errors: as attend() and attention_statistics(); kUnsupported, naming it, for an arithmetic of bf16
/// dot products and for Dropout::Weights::kAfter.
REGARD_API void attend_with_statistics(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                                       const Mask& mask, const AttentionOptions& options, TensorView<float> out,
                                       TensorView<float> lse, const KeySet& set, const RowStatistics& statistics);

}  // namespace regard
