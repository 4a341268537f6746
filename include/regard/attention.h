// Attention over tensors that are there as a whole: what each query sees is a Mask, everything else is in
// AttentionOptions.
//
//   regard::attend(q, k, v, Mask::causal(), {}, out, lse);
//
// Models read their keys and values from caches instead; their attention is the same arithmetic to the bit.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "regard/export.h"
#include "regard/mask.h"
#include "regard/score_terms.h"
#include "regard/stop_token.h"
#include "regard/tensor.h"

namespace regard {

/// How q . k and the sums of values are computed. The softmax is in f32 either way.
enum class AttentionArithmetic {
  kF32,
  /// q, k, v and the weights are rounded to bf16 (to nearest even; below the normal range to 0), their products summed in
  /// f32 by the processor's bf16 dot products. About twice as fast; the error is that of rounding q, k and v, and of
  /// rounding the weights beside it. A row's bits depend on what they depend on in f32.
  kBf16Dots,
};

struct AttentionOptions {
  /// Multiplies q . k; 1 / sqrt(head_dim) where nothing is given. Any finite number, 0 and negative ones included.
  std::optional<double> scale;

  /// s -> softcap * tanh(s / softcap), after the scale and before biases and mask; 0: none.
  double softcap = 0;

  /// kBf16Dots needs an instruction set that has them (avx512_bf16) and takes no `xl`.
  AttentionArithmetic arithmetic = AttentionArithmetic::kF32;

  /// Biases, added to the scores after the soft-cap; score_terms.h says how. `bias` is [batch, num_q_heads, q_len,
  /// kv_len] with 1 in place of any extent for "the same for all", in natural units; strides are free. Nothing given:
  /// none.
  TensorView<const float> bias;
  std::optional<Alibi> alibi;
  std::optional<T5Bias> t5;
  std::optional<TransformerXl> xl;

  /// [num_q_heads]: the score of one more key of each head that has no value: it is in the denominator, once, and in
  /// lse. A row that sees nothing gives out 0 and its sink as lse. -inf: none for that head; +inf and NaN make rows
  /// NaN. Xiao et al., 2024, "Efficient streaming language models with attention sinks", in the learned form of OpenAI,
  /// 2025, "gpt-oss-120b & gpt-oss-20b model card", section 2.2.
  TensorView<const float> sink;

  /// For training: weights that are left out at random.
  std::optional<Dropout> dropout;

  /// Where the queries and keys stand: query i has position q_begin + i, key j has k_begin + j. One number for all
  /// batch rows or one per row; nothing given means 0 and 0, which is accepted only where q_len = kv_len or no term of
  /// the mask compares a query's position with a key's.
  std::vector<int64_t> q_begin, k_begin;

  /// Or the position of every slot, [q_len] or [batch, q_len] and [kv_len] or [batch, kv_len], in any order; -1 is a
  /// slot that was never written: such a query is an empty row, such a key is not seen. Key positions are unique within
  /// a row; sums run by rising position. Replaces q_begin or k_begin.
  TensorView<const int64_t> q_positions, k_positions;

  /// The position that biases by distance take a slot for, where it is another one than the mask's: nodes of a tree,
  /// documents that count from 0 again. Shapes as q_positions and k_positions; what they hold for an unwritten slot
  /// does not matter.
  TensorView<const int64_t> q_encoding_positions, k_encoding_positions;

  /// Key lengths and documents, ANDed with the mask whatever it says.
  MaskLimits limits;

  /// Sequences of any lengths behind each other in tensors [1, heads, total, dim]: sequence s has the queries from
  /// q_offsets[s] up to q_offsets[s + 1] and the keys from k_offsets[s] on likewise; k_offsets may be left out where
  /// they are the same. The first of them is 0, none is less than the one before, and a sequence may be empty. Each
  /// sequence is a batch row for everything that counts batch rows: mask, limits, q_begin (0 each unless given), bias
  /// ([sequences, heads, longest q, longest k]), dropout; lists of positions are [total]. Queries behind the last
  /// offset are empty rows, keys there are not seen. The bits are those of a call for each sequence alone.
  std::vector<int64_t> q_offsets, k_offsets;

  /// One number per batch row (or one for all, or none): queries from this index on are padding, which gives empty
  /// rows.
  std::vector<int64_t> query_lengths;

  /// Polled between tiles; see StopToken. Null: never.
  const StopToken* stop = nullptr;
};

/// out = softmax(mask(softcap(scale q k^T) + bias)) v, with a sink in the softmax's denominator where one is given.
///
/// Shapes: q [batch, num_q_heads, q_len, head_dim], k [batch, num_kv_heads, kv_len, head_dim],
/// v [batch, num_kv_heads, kv_len, value_dim], out [batch, num_q_heads, q_len, value_dim], lse [batch, num_q_heads,
/// q_len] or no data. num_q_heads is a multiple of num_kv_heads, and query head h reads KV head h / (num_q_heads /
/// num_kv_heads). head_dim and value_dim are 1 to 512. batch, q_len and kv_len may be 0. Strides are free for inputs (0
/// and negative ones included); [batch, seq, heads, dim] tensors are views with their axes exchanged. Units: lse is the
/// natural logarithm of the sum of exponentials. Empty rows (no visible key, or only scores of -inf) give out 0 and lse
/// -inf (with a sink: the sink). Keys, values and biases that a query may not see do not change its row, even when they
/// are NaN; a NaN that it does see comes through. Aliasing: out and lse share no memory with the inputs, with each
/// other or with themselves. Threads: runs on the default pool; callable from several threads. A row's bits do not
/// depend on the other rows, the batch or the number of threads. Cost: 2 (head_dim + value_dim) operations per visible
/// pair, tiles without one are skipped; memory for one packed copy of k and v, and a copy of each tensor whose last
/// stride is not 1. Errors: kInvalidArgument for shapes, strides, positions and numbers that do not fit, and for
/// queries beyond a list of the mask; kUnsupported for head sizes above 512 and for an arithmetic that the instruction
/// set in use does not have; kResourceExhausted; kCancelled, with the
/// outputs undefined. Source: Vaswani et al., 2017, "Attention is all you need", equation 1; Dao, 2023,
/// "FlashAttention-2", for the tiles.
REGARD_API void attend(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                       const Mask& mask, const AttentionOptions& options, TensorView<float> out,
                       TensorView<float> lse = {});

/// The weights that attend() used, for the rectangle of `queries` and `keys` (indices into q_len and kv_len, not
/// positions): w = exp(s - lse), rebuilt from q, k and the lse that attend() gave under the same mask and options.
///
/// Shapes: q, k, lse as in attend(); weights [batch, num_q_heads, queries.end - queries.begin, keys.end - keys.begin].
/// A pair that is masked gives exactly 0, and so do all pairs of a row whose lse is -inf. With a sink the weights of a
/// row sum to less than 1. They are those before dropout, unless Dropout::weights says otherwise.
/// Accuracy: lse is rounded to f32, which limits a weight to about |lse| * 6e-8 relative.
/// Memory: the packed keys, nothing of the size q_len x kv_len. Errors, aliasing, threads: as attend().
REGARD_API void attention_weights(TensorView<const float> q, TensorView<const float> k, TensorView<const float> lse,
                                  const Mask& mask, const AttentionOptions& options, Interval queries, Interval keys,
                                  TensorView<float> weights);

}  // namespace regard
