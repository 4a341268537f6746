// Attention over parts of the keys, put together: for keys that lie in different places, or that came at different
// times.
//
// Two ways. merge_attention() takes finished results, (out, lse) of each part, and is right to rounding for parts of
// any kind. PartialAttention takes the parts into one running sum and gives the bits of a single attend() where the
// parts are whole tiles of 256 positions, in order:
//
//   regard::PartialAttention state(batch, num_q_heads, q_len, value_dim);
//   for (each part) regard::attend_onto(state, q, part.k, part.v, mask, options_of(part));   // options.k_begin = 256 n
//   state.finish(sink, out, lse);
//
// A sink belongs to the whole row, once: parts have none, and it comes last (add_sink(), PartialAttention::finish()).
#pragma once

#include <memory>

#include "regard/attention.h"
#include "regard/export.h"
#include "regard/mask.h"
#include "regard/tensor.h"

namespace regard {

/// (out, lse) of the keys of both parts, from what attend() gave for part a and part b of them without a sink:
///   lse = log (exp(lse_a) + exp(lse_b)),  out = exp(lse_a - lse) out_a + exp(lse_b - lse) out_b
///
/// Shapes: out_a, out_b and out [batch, num_q_heads, q_len, value_dim]; lse_a, lse_b and lse [batch, num_q_heads,
/// q_len]. A part whose lse is -inf saw nothing and is neutral: the other part is the result bit for bit, and what
/// stands in the neutral part's out is not read; two of them give 0 and -inf. An lse of +inf or NaN makes the row NaN.
/// Commutative to the bit; associative to rounding (products and sums are in f64, results are rounded to f32 once).
/// Aliasing: out and lse may be the very views of part a or of part b; apart from that they share no memory with
/// anything. Threads: callable from several. Errors: kInvalidArgument for shapes and strides. Source: Dao et al., 2023,
/// "Flash-Decoding for long-context inference"; the state of Milakov and Gimelshein, 2018, "Online normalizer
/// calculation for softmax", section 3.1.
REGARD_API void merge_attention(TensorView<const float> out_a, TensorView<const float> lse_a,
                                TensorView<const float> out_b, TensorView<const float> lse_b, TensorView<float> out,
                                TensorView<float> lse);

/// Counts a sink (AttentionOptions::sink), once, after the last merge:
///   lse' = log (exp(lse) + exp(sink)),  out' = exp(lse - lse') out
///
/// Shapes: out [batch, num_q_heads, q_len, value_dim] and lse [batch, num_q_heads, q_len], both changed in place; sink
/// [num_q_heads]. A row that saw nothing keeps out 0 and gets its sink as lse; a sink of -inf changes nothing; one of
/// +inf or NaN makes rows NaN. Errors: kInvalidArgument for shapes and strides.
REGARD_API void add_sink(TensorView<float> out, TensorView<float> lse, TensorView<const float> sink);

/// The running result (m, l, o) of rows over the keys that they have met so far: m the largest score in units of log2,
/// l the sum of 2^(score - m), o the sum of 2^(score - m) v, not yet divided by l.
class REGARD_API PartialAttention {
 public:
  /// Rows that have met no key: (-inf, 0, 0). Errors: kInvalidArgument, kUnsupported for sizes out of range (value_dim
  /// is 1 to 512); kResourceExhausted.
  PartialAttention(int64_t batch, int64_t num_q_heads, int64_t q_len, int64_t value_dim);
  PartialAttention(PartialAttention&&) noexcept;
  PartialAttention& operator=(PartialAttention&&) noexcept;
  ~PartialAttention();

  /// Folds in what `other` has met, keys that stand behind those of this state. The bits are those of attend_onto()
  /// where `other` has met keys of one tile alone (positions [256 n, 256 n + 256)); rounding beyond. Errors:
  /// kInvalidArgument for a state of another size.
  void fold(const PartialAttention& other);

  /// out and lse as attend() gives them, with a sink [num_q_heads] where it has data. The state stays as it is. Errors:
  /// kInvalidArgument for shapes and strides.
  void finish(TensorView<const float> sink, TensorView<float> out, TensorView<float> lse = {}) const;

 private:
  friend REGARD_API void attend_onto(PartialAttention& state, TensorView<const float> q, TensorView<const float> k,
                                     TensorView<const float> v, const Mask& mask, const AttentionOptions& options);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// attend() that folds its keys into `state` instead of finishing; arguments as there, keys at other positions
/// (k_begin, k_positions) in every call.
///
/// Bits: when the keys of the calls are whole tiles, each tile's 256 positions in one call and tiles in rising order,
/// the finished state has the bits of one attend() over all of them. Parts cut elsewhere, or met in another order,
/// differ by rounding. Packed sequences (options.q_offsets, the same in every call) have one state [1, num_q_heads,
/// total, value_dim]; each call's k_offsets and k_begin say which keys of each sequence it brings. Errors: as attend();
/// kUnsupported for options.sink, which finish() takes, and for options.dropout; with an error the state is undefined.
REGARD_API void attend_onto(PartialAttention& state, TensorView<const float> q, TensorView<const float> k,
                            TensorView<const float> v, const Mask& mask, const AttentionOptions& options);

}  // namespace regard
