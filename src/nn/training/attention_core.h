// Attention between projected queries, keys and values, and its gradients, for the rows of a batch. float runs the kernels of
// attention/ (attention_core_float.cc), double the plain loops of kernels/reference (attention_core_double.cc).
// Weights are never stored: backward makes them again from lse.
#pragma once

#include <memory>
#include <vector>

#include "nn/training/context.h"
#include "nn/training/memory.h"
#include "nn/training/transformer_config.h"
#include "regard/score_terms.h"

namespace regard::nn::training {

struct AttentionCoreConfig {
  int64_t num_q_heads = 0, num_kv_heads = 0, head_dim = 0;
  double scale = 1;
  double softcap = 0;  ///< 0: none
  Mask mask;  ///< key lengths and documents are ANDed with it
  std::vector<float> alibi_slopes;  ///< none: no ALiBi
  int64_t t5_buckets = 0, t5_max_distance = 0;  ///< 0: no T5 bias
  T5Direction t5_direction = T5Direction::kBidirectional;
};

/// Heads of rows: element c of head h of row r is at data[r * row_stride + h * head_dim + c].
template <class T>
struct HeadRows {
  T* data = nullptr;
  int64_t row_stride = 0;
};

/// The learned score terms of a call; null: none. score_terms.h has the formulas.
template <class T>
struct CoreTerms {
  T* t5_table = nullptr;                                     ///< [buckets, num_q_heads]
  T *xl_u = nullptr, *xl_v = nullptr;                        ///< [num_q_heads, head_dim]
  T* xl_r = nullptr;                                         ///< [distances, num_q_heads, head_dim]
  int64_t first_distance = 0, distances = 0;                 ///< of xl_r
};

template <class T>
struct CoreCall {
  const Sequences* queries = nullptr;
  const Sequences* keys = nullptr;  ///< the same for self-attention
  HeadRows<const T> q, k, v;
  CoreTerms<const T> terms;
  double dropout = 0;  ///< rate; counts only while the clock is on
  uint64_t dropout_seed = 0;
};

/// Where the gradients go. Those of q, k and v are written, those of the terms are added.
template <class T>
struct CoreGradients {
  HeadRows<T> dq, dk, dv;
  CoreTerms<T> terms;
};

/// One for all layers of a stack that look at the same rows. Calls are planned once per shape; those with lists (lengths, documents)
/// anew when the lists are others. Planning allocates.
/// Threads: one call at a time.
template <class T>
class AttentionCore {
 public:
  explicit AttentionCore(AttentionCoreConfig config) : config_(std::move(config)) {}
  const AttentionCoreConfig& config() const noexcept { return config_; }

  /// Of forward: packed keys and values.
  size_t scratch(const Sequences& keys) const;
  /// out as q, lse [batch, num_q_heads, seq]. Padding rows give 0 and -inf.
  void forward(const Context<T>& context, const CoreCall<T>& call, HeadRows<T> out, T* lse, Memory scratch) const;
  void backward(const Context<T>& context, const CoreCall<T>& call, HeadRows<const T> out, const T* lse, HeadRows<const T> dout,
                const CoreGradients<T>& gradients) const;

 private:
  struct Plan;
  Plan& plan(const Context<T>& context, const CoreCall<T>& call) const;

  AttentionCoreConfig config_;
  mutable std::vector<std::shared_ptr<Plan>> plans_;  // of the last shapes
};

template <>
void AttentionCore<float>::forward(const Context<float>&, const CoreCall<float>&, HeadRows<float>, float*, Memory) const;
template <>
void AttentionCore<float>::backward(const Context<float>&, const CoreCall<float>&, HeadRows<const float>, const float*, HeadRows<const float>,
                                    const CoreGradients<float>&) const;
template <>
void AttentionCore<double>::forward(const Context<double>&, const CoreCall<double>&, HeadRows<double>, double*, Memory) const;
template <>
void AttentionCore<double>::backward(const Context<double>&, const CoreCall<double>&, HeadRows<const double>, const double*,
                                     HeadRows<const double>, const CoreGradients<double>&) const;

}  // namespace regard::nn::training
