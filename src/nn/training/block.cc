#include "nn/training/block.h"

#include <algorithm>

namespace regard::nn::training {

template <class T>
Block<T>::Block(ParameterStore<T>& store, const TransformerConfig& config, const BlockNames& names,
                std::shared_ptr<const AttentionCore<T>> self, std::shared_ptr<const AttentionCore<T>> cross, int64_t layer)
    : hidden_(config.hidden_size),
      placement_(config.placement),
      precision_(config.precision),
      residual_dropout_(config.residual_dropout),
      attention_dropout_(config.attention_dropout),
      layer_(layer) {
  const LinearStyle style{.bias = config.biases == Biases::kAll, .layout = names.layout, .precision = config.precision};
  LinearStyle projections = style, output = style;
  projections.bias = config.biases != Biases::kNone;
  output.bias = config.biases == Biases::kAll || config.biases == Biases::kAttention;
  const NormStyle norms{config.norm, config.norm_eps, config.norm_gain};
  const auto norm = [&](const std::string& name) { return Norm<T>(store, name, norms, hidden_); };
  self_norm_ = norm(names.self_norm);
  self_ = Attention<T>(store, Attention<T>::Kind::kSelf, names.self, hidden_, std::move(self), projections, output, norms);
  if (placement_ == NormPlacement::kSandwich) self_branch_norm_ = norm(names.self_branch_norm);
  if (!names.cross_norm.empty()) {
    cross_norm_ = norm(names.cross_norm);
    cross_.emplace(store, Attention<T>::Kind::kCross, names.cross, hidden_, std::move(cross), projections, output, norms);
  }
  if (!names.feed_forward_norm.empty()) {
    feed_forward_norm_ = norm(names.feed_forward_norm);
    feed_forward_.emplace(store, names.feed_forward, hidden_, config.intermediate_size, config.activation, style);
    if (placement_ == NormPlacement::kSandwich) feed_forward_branch_norm_ = norm(names.feed_forward_branch_norm);
  }
}

template <class T>
typename Block<T>::BranchSaved Block<T>::take_branch(Memory& memory, int64_t rows, Recompute recompute) const {
  BranchSaved saved;
  saved.norm = Norm<T>::take(memory, rows);
  if (placement_ == NormPlacement::kPost) saved.summed = memory.take<T>(rows * hidden_);
  if (placement_ == NormPlacement::kSandwich) {
    saved.branch = memory.take<T>(rows * hidden_);
    saved.branch_norm = Norm<T>::take(memory, rows);
  }
  if (placement_ != NormPlacement::kPost && recompute == Recompute::kNone) saved.normed = memory.take<T>(rows * hidden_);
  return saved;
}

template <class T>
typename Block<T>::Saved Block<T>::take(Memory& memory, int64_t rows, int64_t source_rows, Recompute recompute) const {
  Saved saved;
  saved.self = take_branch(memory, rows, recompute);
  saved.self_attention = self_.take(memory, rows, rows);
  if (cross_) {
    saved.cross = take_branch(memory, rows, recompute);
    saved.cross.input = memory.take<T>(rows * hidden_);
    saved.cross_attention = cross_->take(memory, rows, source_rows);
  }
  if (feed_forward_) {
    saved.feed_forward = take_branch(memory, rows, recompute);
    if (keeps_last_input(recompute)) saved.feed_forward.input = memory.take<T>(rows * hidden_);
    saved.activations = feed_forward_->take(memory, rows, recompute);
  }
  return saved;
}

template <class T>
typename Block<T>::Saved Block<T>::from(const Saved& saved, int64_t row, int64_t source_row) const {
  const auto branch = [&](const BranchSaved& b) {
    const int64_t at = row * hidden_;
    return BranchSaved{ahead(b.input, at), ahead(b.summed, at), ahead(b.normed, at), ahead(b.branch, at), b.norm.from(row), b.branch_norm.from(row)};
  };
  Saved part;
  part.self = branch(saved.self);
  part.self_attention = self_.from(saved.self_attention, row, row);
  if (cross_) {
    part.cross = branch(saved.cross);
    part.cross_attention = cross_->from(saved.cross_attention, row, source_row);
  }
  if (feed_forward_) {
    part.feed_forward = branch(saved.feed_forward);
    part.activations = saved.activations.from(row, feed_forward_->width());
  }
  return part;
}

template <class T>
MemoryPlan Block<T>::plan(const ThreadPool& pool, const PositionTables<T>& tables, const Sequences& sequences, const Sequences* source,
                          Recompute recompute) const {
  const int64_t rows = sequences.rows();
  Memory saved, scratch;
  take(saved, rows, source == nullptr ? 0 : source->rows(), recompute);
  // The branch or its input's gradient, normalised rows, what dropout leaves of a gradient, and that before a branch's own norm.
  const int more = (residual_dropout_ > 0 ? 1 : 0) + (placement_ == NormPlacement::kSandwich ? 1 : 0);
  for (int i = 0; i < 2 + more; ++i) scratch.take<T>(rows * hidden_);
  if (feed_forward_ && !keeps_last_input(recompute)) scratch.take<T>(rows * hidden_);
  MemoryPlan parts = self_.plan(pool, tables, sequences, sequences);
  if (cross_) parts = parts + cross_->plan(pool, tables, sequences, *source);
  if (feed_forward_) parts = parts + feed_forward_->plan(pool, rows, recompute);
  return {saved.used(), scratch.used() + parts.scratch};
}

// `run` maps normalised rows (kPre, kSandwich) or the stream itself (kPost) to the branch: run(x, y, scratch).
template <class T>
template <class Run>
void Block<T>::branch_forward(const Context<T>& context, const Sequences& sequences, const Branch& branch, const BranchSaved& saved, T* y,
                              Memory scratch, Run run) const {
  const int64_t rows = sequences.rows();
  const uint64_t seed = context.dropout.seed_of(layer_, branch.site);
  T* out = scratch.take<T>(rows * hidden_);
  if (placement_ == NormPlacement::kPost) {
    run(saved.input, out, scratch);
    add_dropped<T>(context, sequences, seed, residual_dropout_, saved.input, out, hidden_, saved.summed);
    branch.norm->forward(context, saved.summed, rows, saved.norm, y);
    return;
  }
  T* normed = saved.normed != nullptr ? saved.normed : scratch.take<T>(rows * hidden_);
  branch.norm->forward(context, saved.input, rows, saved.norm, normed);
  if (branch.on_branch == nullptr) {
    run(normed, out, scratch);
  } else {
    run(normed, saved.branch, scratch);
    branch.on_branch->forward(context, saved.branch, rows, saved.branch_norm, out);
  }
  add_dropped<T>(context, sequences, seed, residual_dropout_, saved.input, out, hidden_, y);
}

// `run` writes the gradient of its input: run(x, dy, dx, scratch).
template <class T>
template <class Run>
void Block<T>::branch_backward(const Context<T>& context, const Sequences& sequences, const Branch& branch, const BranchSaved& saved, T* dx,
                               Memory scratch, Run run) const {
  const int64_t rows = sequences.rows();
  const uint64_t seed = context.dropout.seed_of(layer_, branch.site);
  const bool drops = context.dropout.on && residual_dropout_ > 0;
  const auto dropped = [&](const T* dy) -> const T* {
    if (!drops) return dy;
    T* out = scratch.take<T>(rows * hidden_);
    add_dropped<T>(context, sequences, seed, residual_dropout_, nullptr, dy, hidden_, out);
    return out;
  };
  if (placement_ == NormPlacement::kPost) {
    T* dsummed = scratch.take<T>(rows * hidden_);
    branch.norm->backward(context, saved.summed, saved.norm, dx, rows, dsummed, Accumulate::kOverwrite);
    run(saved.input, dropped(dsummed), dx, scratch);
    add_rows<T>(context, dsummed, rows, hidden_, dx);
    return;
  }
  T* dnormed = scratch.take<T>(rows * hidden_);
  const T* dbranch = dropped(dx);
  if (branch.on_branch != nullptr) {
    T* before = scratch.take<T>(rows * hidden_);
    branch.on_branch->backward(context, saved.branch, saved.branch_norm, dbranch, rows, before, Accumulate::kOverwrite);
    dbranch = before;
  }
  T* normed = saved.normed;
  if (normed == nullptr) {
    normed = scratch.take<T>(rows * hidden_);
    branch.norm->forward(context, saved.input, rows, saved.norm, normed);
  }
  run(normed, dbranch, dnormed, scratch);
  branch.norm->backward(context, saved.input, saved.norm, dnormed, rows, dx);
}

template <class T>
void Block<T>::forward(const Context<T>& context, const PositionTables<T>& tables, const Sequences& sequences, const KeySource<T>* source,
                       const Saved& saved, T* y, Memory scratch) const {
  BranchSaved last = saved.feed_forward;
  if (!feed_forward_)
    last.input = y;
  else if (last.input == nullptr)
    last.input = scratch.take<T>(sequences.rows() * hidden_);
  T* after_self = cross_ ? saved.cross.input : last.input;
  branch_forward(context, sequences, {&self_norm_, on_branch(self_branch_norm_), DropoutSite::kAttentionBranch}, saved.self, after_self, scratch,
                 [&](const T* in, T* out, Memory rest) {
                   self_.forward(context, tables, sequences, in, nullptr, attention_dropout(context, DropoutSite::kAttention),
                                 saved.self_attention, out, rest);
                 });
  if (cross_)
    branch_forward(context, sequences, {&cross_norm_, nullptr, DropoutSite::kCrossBranch}, saved.cross, last.input, scratch,
                   [&](const T* in, T* out, Memory rest) {
                     cross_->forward(context, tables, sequences, in, source, attention_dropout(context, DropoutSite::kCrossAttention),
                                     saved.cross_attention, out, rest);
                   });
  if (feed_forward_)
    branch_forward(context, sequences, {&feed_forward_norm_, on_branch(feed_forward_branch_norm_), DropoutSite::kFeedForwardBranch}, last, y, scratch,
                   [&](const T* in, T* out, Memory rest) { feed_forward_->forward(context, in, sequences.rows(), saved.activations, out, rest); });
}

template <class T>
void Block<T>::backward(const Context<T>& context, const PositionTables<T>& tables, const Sequences& sequences, const KeySource<T>* source,
                        const Saved& saved, T* dx, Memory scratch) const {
  if (feed_forward_) {
    BranchSaved last = saved.feed_forward;
    Memory there = scratch;
    if (last.input == nullptr) {
      last.input = there.take<T>(sequences.rows() * hidden_);
      last_input(context, sequences, saved, last.input, there);
    }
    branch_backward(context, sequences, {&feed_forward_norm_, on_branch(feed_forward_branch_norm_), DropoutSite::kFeedForwardBranch}, last, dx, there,
                    [&](const T* in, const T* dout, T* din, Memory rest) {
                      feed_forward_->backward(context, in, saved.activations, dout, sequences.rows(), din, rest);
                    });
  }
  if (cross_)
    branch_backward(context, sequences, {&cross_norm_, nullptr, DropoutSite::kCrossBranch}, saved.cross, dx, scratch,
                    [&](const T* in, const T* dout, T* din, Memory rest) {
                      cross_->backward(context, tables, sequences, in, source, attention_dropout(context, DropoutSite::kCrossAttention),
                                       saved.cross_attention, dout, din, rest);
                    });
  branch_backward(context, sequences, {&self_norm_, on_branch(self_branch_norm_), DropoutSite::kAttentionBranch}, saved.self, dx, scratch,
                  [&](const T* in, const T* dout, T* din, Memory rest) {
                    self_.backward(context, tables, sequences, in, nullptr, attention_dropout(context, DropoutSite::kAttention),
                                   saved.self_attention, dout, din, rest);
                  });
}

template <class T>
void Block<T>::last_input(const Context<T>& context, const Sequences& sequences, const Saved& saved, T* y, Memory scratch) const {
  const BranchSaved& before = cross_ ? saved.cross : saved.self;
  if (cross_)
    cross_->project_out(context, saved.cross_attention, sequences.rows(), y, scratch);
  else
    self_.project_out(context, saved.self_attention, sequences.rows(), y, scratch);
  const uint64_t seed = context.dropout.seed_of(layer_, cross_ ? DropoutSite::kCrossBranch : DropoutSite::kAttentionBranch);
  add_dropped<T>(context, sequences, seed, residual_dropout_, before.input, y, hidden_, y);
}

template <class T>
std::vector<int> Block<T>::residual_weights() const {
  std::vector<int> weights = {self_.output().weight()};
  if (cross_) weights.push_back(cross_->output().weight());
  if (feed_forward_) weights.push_back(feed_forward_->down().weight());
  return weights;
}

template class Block<float>;
template class Block<double>;

}  // namespace regard::nn::training
