// An encoder or a decoder: embedding, layers, and the last norm of stacks whose norms stand before branches; forward and backward.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nn/training/block.h"
#include "nn/training/embedding.h"

namespace regard::nn::training {

enum class StackKind { kEncoder, kDecoder };

template <class T>
class Stack {
 public:
  /// `config` is completed; `tokens` is the embedding's parameter, which stacks share; `first_layer` numbers the layers within
  /// the model.
  Stack(ParameterStore<T>& store, const TransformerConfig& config, StackKind kind, int tokens, int64_t first_layer);

  struct Saved {
    std::vector<T*> inputs;                         // of each layer, and the output of the last one
    std::vector<typename Block<T>::Saved> blocks;   // with Recompute::kFull one group's of one layer
    typename Norm<T>::Saved norm;
    T* out = nullptr;  // [rows, hidden]
  };
  /// Lays out `saved` in `memory`, all but the output; measures over an empty one. Allocates nothing when it was laid out before.
  void take(Memory& memory, const Sequences& sequences, const Sequences* source, Saved& saved) const;
  /// The output comes into being when the layers need no scratch any more, and may lie over that.
  void take_out(Memory& memory, const Sequences& sequences, Saved& saved) const;
  /// Scratch only: what is saved is what take() takes.
  MemoryPlan plan(const ThreadPool& pool, const Sequences& sequences, const Sequences* source) const;

  /// Leaves the result in saved.out.
  void forward(const Context<T>& context, const Sequences& sequences, const KeySource<T>* source, std::span<const int32_t> ids, Saved& saved,
               Memory scratch) const;
  /// dout is the gradient of saved.out and is overwritten, as is what was saved; it may lie over scratch, like the output. Adds all
  /// gradients, those of the source too.
  void backward(const Context<T>& context, const Sequences& sequences, const KeySource<T>* source, std::span<const int32_t> ids,
                const Saved& saved, T* dout, Memory scratch) const;

  std::vector<int> residual_weights() const;

 private:
  uint64_t embedding_seed(const Context<T>& context) const { return context.dropout.seed_of(first_layer_, DropoutSite::kEmbedding); }

  const PositionTables<T>& tables_of(size_t layer) const { return !windowed_.empty() && windowed_[layer] ? windowed_tables_ : tables_; }

  /// Sequences that go through a layer together.
  int64_t group_of(const Sequences& sequences, const Sequences* source) const;
  /// f(context, sequences, source, first row, first row of the source) for every group.
  template <class F>
  void for_each_group(const Context<T>& context, const Sequences& sequences, const KeySource<T>* source, F f) const;
  /// What a layer saved of the group that begins there.
  typename Block<T>::Saved saved_of(const Saved& saved, size_t layer, int64_t row, int64_t source_row) const;

  int64_t hidden_;
  Recompute recompute_;
  int64_t group_rows_;
  bool whole_batches_;  // the batch is one group
  double embedding_dropout_;
  int64_t first_layer_;
  std::vector<bool> windowed_;  // by layer; empty: none
  PositionTables<T> tables_, windowed_tables_;
  Embedding<T> embedding_;
  std::vector<Block<T>> blocks_;
  std::optional<Norm<T>> norm_;
};

}  // namespace regard::nn::training
