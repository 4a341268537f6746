#include "nn/training/feed_forward.h"

namespace regard::nn::training {

template <class T>
FeedForward<T>::FeedForward(ParameterStore<T>& store, const FeedForwardNames& names, int64_t hidden, int64_t width, Activation activation,
                            const LinearStyle& style)
    : activation_(activation), hidden_(hidden), width_(width) {
  if (!names.gate.empty()) gate_ = Linear<T>(store, names.gate, hidden, width, style);
  up_ = Linear<T>(store, names.up, hidden, width, style);
  down_ = Linear<T>(store, names.down, width, hidden, style);
}

template <class T>
typename FeedForward<T>::Saved FeedForward<T>::take(Memory& memory, int64_t rows, Recompute recompute) const {
  Saved saved;
  if (gated()) saved.gate = memory.take<T>(rows * width_);
  saved.up = memory.take<T>(rows * width_);
  if (recompute == Recompute::kNone) saved.active = memory.take<T>(rows * width_);
  return saved;
}

template <class T>
MemoryPlan FeedForward<T>::plan(const ThreadPool& pool, int64_t rows, Recompute recompute) const {
  Memory saved, scratch;
  take(saved, rows, recompute);
  if (recompute != Recompute::kNone) scratch.take<T>(rows * width_);  // activated values, then their gradients
  const size_t products = (gate_.plan(pool, rows) + up_.plan(pool, rows) + down_.plan(pool, rows)).scratch;
  return {saved.used(), scratch.used() + products};
}

template <class T>
void FeedForward<T>::activate(const Context<T>& context, const Saved& saved, int64_t rows, T* y) const {
  if (gated())
    activate_gated_rows<T>(context, activation_, saved.gate, saved.up, rows, width_, y);
  else
    activate_rows<T>(context, activation_, saved.up, rows, width_, y);
}

template <class T>
void FeedForward<T>::forward(const Context<T>& context, const T* x, int64_t rows, const Saved& saved, T* y, Memory scratch) const {
  T* active = saved.active != nullptr ? saved.active : scratch.take<T>(rows * width_);
  if (gated()) gate_.forward(context, {x, {rows, hidden_}}, {saved.gate, {rows, width_}}, scratch);
  up_.forward(context, {x, {rows, hidden_}}, {saved.up, {rows, width_}}, scratch);
  activate(context, saved, rows, active);
  down_.forward(context, {active, {rows, width_}}, {y, {rows, hidden_}}, scratch);
}

template <class T>
void FeedForward<T>::backward(const Context<T>& context, const T* x, const Saved& saved, const T* dy, int64_t rows, T* dx,
                              Memory scratch) const {
  // Gradients take the place of what they are the gradients of.
  T* active = saved.active != nullptr ? saved.active : scratch.take<T>(rows * width_);
  if (saved.active == nullptr) activate(context, saved, rows, active);
  T* dactive = active;
  down_.backward(context, {active, {rows, width_}}, {dy, {rows, hidden_}}, {dactive, {rows, width_}}, scratch);
  if (!gated()) {
    activate_rows_backward<T>(context, activation_, saved.up, dactive, rows, width_, dactive);
    up_.backward(context, {x, {rows, hidden_}}, {dactive, {rows, width_}}, {dx, {rows, hidden_}}, scratch);
    return;
  }
  activate_gated_rows_backward<T>(context, activation_, saved.gate, saved.up, dactive, rows, width_, saved.gate, dactive);
  up_.backward(context, {x, {rows, hidden_}}, {dactive, {rows, width_}}, {dx, {rows, hidden_}}, scratch);
  gate_.backward(context, {x, {rows, hidden_}}, {saved.gate, {rows, width_}}, {dx, {rows, hidden_}}, scratch, Accumulate::kAdd);
}

template class FeedForward<float>;
template class FeedForward<double>;

}  // namespace regard::nn::training
