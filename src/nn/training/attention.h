// The attention half of a layer: projections, rotation, attention, output projection; forward and backward. Self-attention and
// the attention of a decoder to an encoder's output differ in where keys and values come from.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "nn/training/attention_core.h"
#include "nn/training/linear.h"
#include "nn/training/norm.h"

namespace regard::nn::training {

/// Names of the parameters. With `fused` queries, keys and values are one projection.
struct AttentionNames {
  std::string fused, query, key, value, output;
  /// Transformer-XL's terms; empty: none.
  std::string relative, content_bias, position_bias;
  /// Norms of queries and keys, per head; empty: none. Not with `fused`.
  std::string query_norm, key_norm;
};

/// What the layers of a stack have in common.
template <class T>
struct PositionTables {
  RopeTable<T> rope;         ///< half 0: none
  int t5_table = -1;         ///< parameter [buckets, num_q_heads]
  std::vector<T> sinusoids;  ///< Transformer-XL: [2 max_positions - 1, hidden], of the distances from -(max_positions - 1) on
  int64_t max_positions = 0;
  bool causal = false;  ///< no query sees a key behind it, so that negative distances need no vector
};

/// The rows that keys and values come from.
template <class T>
struct KeySource {
  const Sequences* sequences = nullptr;
  const T* rows = nullptr;  ///< [rows, hidden]
  T* gradients = nullptr;   ///< added to in backward

  /// The same of `part`, which begins with sequence `first`.
  KeySource from(const Sequences& part, int64_t first, int64_t hidden) const {
    const int64_t at = first * sequences->seq * hidden;
    return {&part, ahead(rows, at), ahead(gradients, at)};
  }
};

template <class T>
class Attention {
 public:
  enum class Kind { kSelf, kCross };

  Attention() = default;
  /// `core` is shared by layers of a stack. The styles are those of queries, keys and values, of the output, and of norms of queries and keys.
  Attention(ParameterStore<T>& store, Kind kind, const AttentionNames& names, int64_t hidden, std::shared_ptr<const AttentionCore<T>> core,
            const LinearStyle& style, const LinearStyle& output_style, const NormStyle& norm);

  const Linear<T>& output() const noexcept { return output_; }

  /// Queries, keys and values by rows.
  struct Projected {
    T *q = nullptr, *k = nullptr, *v = nullptr;
    int64_t q_stride = 0, kv_stride = 0;
    Projected from(int64_t row, int64_t key_row) const {
      return {ahead(q, row * q_stride), ahead(k, key_row * kv_stride), ahead(v, key_row * kv_stride), q_stride, kv_stride};
    }
  };
  struct Saved {
    Projected projected;
    // Queries and keys before their norms, dense; null without.
    T *raw_q = nullptr, *raw_k = nullptr;
    typename Norm<T>::Saved q_norm, k_norm;
    T* out = nullptr;  // [rows, heads * head_dim]
    T* lse = nullptr;  // [batch, heads, seq]
  };
  Saved take(Memory& memory, int64_t rows, int64_t key_rows) const;
  /// What was taken for the sequences that begin with these rows.
  Saved from(const Saved& saved, int64_t row, int64_t key_row) const {
    const AttentionCoreConfig& core = core_->config();
    return {saved.projected.from(row, key_row),
            ahead(saved.raw_q, row * q_width_),
            ahead(saved.raw_k, key_row * kv_width_),
            saved.q_norm.from(row * core.num_q_heads),
            saved.k_norm.from(key_row * core.num_kv_heads),
            ahead(saved.out, row * q_width_),
            ahead(saved.lse, row * core.num_q_heads)};
  }
  MemoryPlan plan(const ThreadPool& pool, const PositionTables<T>& tables, const Sequences& sequences, const Sequences& keys) const;

  /// How often weights are left out.
  struct DropoutOf {
    double rate = 0;
    uint64_t seed = 0;
  };

  /// x and y are dense [rows, hidden]. Self-attention takes its keys from x and has no `source`.
  void forward(const Context<T>& context, const PositionTables<T>& tables, const Sequences& sequences, const T* x, const KeySource<T>* source,
               const DropoutOf& dropout, const Saved& saved, T* y, Memory scratch) const;
  /// The last of its products: y as forward() left it, from what that saved.
  void project_out(const Context<T>& context, const Saved& saved, int64_t rows, T* y, Memory scratch) const {
    output_.forward(context, {saved.out, {rows, q_width_}}, {y, {rows, hidden_}}, scratch);
  }
  /// Adds the gradients of parameters and source; writes dx.
  void backward(const Context<T>& context, const PositionTables<T>& tables, const Sequences& sequences, const T* x, const KeySource<T>* source,
                const DropoutOf& dropout, const Saved& saved, const T* dy, T* dx, Memory scratch) const;

 private:
  bool self() const noexcept { return kind_ == Kind::kSelf; }
  bool normed() const noexcept { return query_norm_.has_value(); }
  bool relative() const noexcept { return relative_.out() > 0; }
  Projected take_projected(Memory& memory, int64_t rows, int64_t key_rows) const;
  // The vectors of all distances that occur, projected.
  struct Distances {
    int64_t first = 0, count = 0;
    const T* sinusoids = nullptr;
    T* projected = nullptr;
  };
  Distances distances(const PositionTables<T>& tables, const Sequences& sequences, Memory& memory) const;
  CoreCall<T> call(const Context<T>& context, const PositionTables<T>& tables, const Sequences& sequences, const KeySource<T>* source,
                   const DropoutOf& dropout, const Saved& saved, const Distances& distances) const;

  Kind kind_ = Kind::kSelf;
  int64_t hidden_ = 0, q_width_ = 0, kv_width_ = 0;
  Linear<T> fused_, query_, key_, value_, output_, relative_;
  std::optional<Norm<T>> query_norm_, key_norm_;
  int content_bias_ = -1, position_bias_ = -1;
  std::shared_ptr<const AttentionCore<T>> core_;
};

}  // namespace regard::nn::training
