// Multi-head attention as a module: projections into heads, attention, and the projection back.
//
//   auto layer = MultiHeadAttention::from_torch(tensors, "self_attn.", num_heads);   // torch.nn.MultiheadAttention
//   layer.forward(x, Mask::causal(), {}, out);                                      // [batch, tokens, d_model]
//
// Weights in a file: load_multi_head_attention() in multi_head_attention_file.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/attention.h"
#include "regard/export.h"
#include "regard/mask.h"
#include "regard/talking_heads.h"
#include "regard/tensor.h"

namespace regard {

struct MultiHeadAttentionConfig {
  int64_t d_model = 0;       ///< width of the queries' input and of the output
  int64_t num_heads = 0;     ///< query heads
  int64_t num_kv_heads = 0;  ///< divides num_heads, consecutive query heads share one; 0: num_heads
  int64_t head_dim = 0;      ///< 1 to 512; 0: d_model / num_heads, which has to divide evenly
  int64_t key_width = 0;     ///< width of the input that keys are projected from; 0: d_model
  int64_t value_width = 0;   ///< of the one that values are projected from; 0: d_model
};

/// Matrices are [out, in] and biases [out]; a bias without data is none. All are copied, as f32.
struct MultiHeadAttentionWeights {
  /// One matrix whose rows are all queries, then all keys, then all values (all inputs have the width d_model), ...
  TensorView<const float> fused = {}, fused_bias = {};
  /// ... or one for each.
  TensorView<const float> query = {}, query_bias = {}, key = {}, key_bias = {}, value = {}, value_bias = {};
  TensorView<const float> output = {}, output_bias = {};  ///< [d_model, num_heads * head_dim]
  /// Heads mixed before and after the softmax, [num_heads, num_heads] each: the slower path of talking_heads.h.
  TalkingHeads talking;
};

/// y = concat over heads of attend(x_q W_q, x_k W_k, x_v W_v) times W_o, with biases. Vaswani et al., 2017, "Attention
/// is all you need", section 3.2.2. Copies share their weights. Threads: const functions from several at once.
class REGARD_API MultiHeadAttention {
 public:
  /// Errors: kInvalidArgument with the numbers where heads do not divide or a tensor has another shape;
  /// kResourceExhausted.
  MultiHeadAttention(const MultiHeadAttentionConfig& config, const MultiHeadAttentionWeights& weights);

  using Tensors = std::map<std::string, TensorView<const float>, std::less<>>;
  /// From the state of torch.nn.MultiheadAttention(batch_first = either): `prefix` in front of in_proj_weight or
  /// q/k/v_proj_weight, in_proj_bias, out_proj.weight, out_proj.bias. Where it was made with add_zero_attn, give
  /// AttentionOptions::sink zeros: a key of zeros with a value of zeros is that. Errors: as the constructor; kNotFound,
  /// naming the tensor, for one that is missing; kUnsupported for bias_k and bias_v (a learned key beside the
  /// sequence) and for other names behind the prefix.
  static MultiHeadAttention from_torch(const Tensors& tensors, std::string_view prefix, int64_t num_heads);

  /// As it was given, with zeros filled in; after without_heads() with the heads that are left.
  const MultiHeadAttentionConfig& config() const noexcept;
  /// The numbers that the query heads had when the module was made.
  const std::vector<int64_t>& heads() const noexcept;

  /// out [batch, q_len, d_model] from query [batch, q_len, d_model], key [batch, kv_len, key_width] and value [batch,
  /// kv_len, value_width]; strides are free, and out may be the memory of an input. Masks and terms by head are for the
  /// heads that are left. A row that sees nothing gives the bias of the output projection. Bits: a row depends on
  /// its own query and on the keys and values that it sees alone. Memory: the projected queries, keys and values.
  /// Errors: as attend(); with talking heads as attend_talking_heads().
  void forward(TensorView<const float> query, TensorView<const float> key, TensorView<const float> value,
               const Mask& mask, const AttentionOptions& options, TensorView<float> out) const;
  /// Self-attention: forward(x, x, x, ...), with one step for the three projections.
  void forward(TensorView<const float> x, const Mask& mask, const AttentionOptions& options,
               TensorView<float> out) const;

  /// The module without some query heads (numbers of heads()): their rows and columns are gone, and the result is what
  /// it is with their outputs set to zero. KV heads that nobody reads go too; where the rest would no longer be shared
  /// evenly, every head gets a KV head of its own. Errors: kInvalidArgument for a head that is not there or when none
  /// would be left; kUnsupported with talking heads, where no head has an output of its own.
  MultiHeadAttention without_heads(std::span<const int64_t> heads) const;

 private:
  struct Impl;
  explicit MultiHeadAttention(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace regard
