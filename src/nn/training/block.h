// One layer of a stack: self-attention, attention to an encoder, feed-forward, each a branch beside the residual stream with a
// norm before it, behind both, or before and behind it; forward and backward. A decoder of an encoder-decoder has all three, other layers the first and
// the last, and a layer without a feed-forward half the first alone.
#pragma once

#include <optional>
#include <string>

#include "nn/training/attention.h"
#include "nn/training/feed_forward.h"
#include "nn/training/norm.h"

namespace regard::nn::training {

/// Names of the parameters of a layer; an empty norm: no such branch.
struct BlockNames {
  std::string self_norm, cross_norm, feed_forward_norm;
  std::string self_branch_norm, feed_forward_branch_norm;  ///< kSandwich
  AttentionNames self, cross;
  FeedForwardNames feed_forward;
  WeightLayout layout = WeightLayout::kOutIn;
};

template <class T>
class Block {
 public:
  /// `layer` tells layers apart for dropout: unique in the model.
  Block(ParameterStore<T>& store, const TransformerConfig& config, const BlockNames& names,
        std::shared_ptr<const AttentionCore<T>> self, std::shared_ptr<const AttentionCore<T>> cross, int64_t layer);

  /// One branch: where it starts, what is normalised, and with Recompute::kNone the normalised rows.
  struct BranchSaved {
    T* input = nullptr;   // [rows, hidden]; the first one's is the block's own and not taken, the last one's may be computed again
    T* summed = nullptr;  // kPost: before the norm
    T* normed = nullptr;  // kPre and kSandwich with Recompute::kNone
    T* branch = nullptr;  // kSandwich: before its norm
    typename Norm<T>::Saved norm, branch_norm;
  };
  struct Saved {
    BranchSaved self, cross, feed_forward;
    typename Attention<T>::Saved self_attention, cross_attention;
    typename FeedForward<T>::Saved activations;
  };

  /// Everything but the block's input.
  Saved take(Memory& memory, int64_t rows, int64_t source_rows, Recompute recompute) const;
  /// What was taken for the sequences that begin with these rows.
  Saved from(const Saved& saved, int64_t row, int64_t source_row) const;
  MemoryPlan plan(const ThreadPool& pool, const PositionTables<T>& tables, const Sequences& sequences, const Sequences* source,
                  Recompute recompute) const;

  /// y = the layer's output for saved.self.input, both [rows, hidden] and kept apart. `source` is null without cross-attention.
  void forward(const Context<T>& context, const PositionTables<T>& tables, const Sequences& sequences, const KeySource<T>* source,
               const Saved& saved, T* y, Memory scratch) const;
  /// dx holds the gradient of y and gets that of x. Adds the gradients of parameters and source.
  void backward(const Context<T>& context, const PositionTables<T>& tables, const Sequences& sequences, const KeySource<T>* source,
                const Saved& saved, T* dx, Memory scratch) const;

  /// The matrices that write into the residual stream.
  std::vector<int> residual_weights() const;

 private:
  struct Branch {
    const Norm<T>* norm;
    const Norm<T>* on_branch;  // kSandwich
    DropoutSite site;
  };
  const Norm<T>* on_branch(const Norm<T>& norm) const noexcept { return placement_ == NormPlacement::kSandwich ? &norm : nullptr; }
  bool keeps_last_input(Recompute recompute) const noexcept {
    return placement_ != NormPlacement::kPre || precision_ == GemmPrecision::kF32 || recompute != Recompute::kCheap;
  }
  // The input of the feed-forward half, from what attention saved.
  void last_input(const Context<T>& context, const Sequences& sequences, const Saved& saved, T* y, Memory scratch) const;
  BranchSaved take_branch(Memory& memory, int64_t rows, Recompute recompute) const;
  template <class Run>
  void branch_forward(const Context<T>& context, const Sequences& sequences, const Branch& branch, const BranchSaved& saved, T* y,
                      Memory scratch, Run run) const;
  template <class Run>
  void branch_backward(const Context<T>& context, const Sequences& sequences, const Branch& branch, const BranchSaved& saved, T* dx,
                       Memory scratch, Run run) const;
  typename Attention<T>::DropoutOf attention_dropout(const Context<T>& context, DropoutSite site) const {
    return {attention_dropout_, context.dropout.seed_of(layer_, site)};
  }

  int64_t hidden_;
  NormPlacement placement_;
  GemmPrecision precision_;
  double residual_dropout_, attention_dropout_;
  int64_t layer_;
  Norm<T> self_norm_, cross_norm_, feed_forward_norm_, self_branch_norm_, feed_forward_branch_norm_;
  Attention<T> self_;
  std::optional<Attention<T>> cross_;
  std::optional<FeedForward<T>> feed_forward_;
};

}  // namespace regard::nn::training
