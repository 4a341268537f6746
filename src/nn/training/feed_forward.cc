#include "nn/training/feed_forward.h"

namespace regard::nn::training {

template <class T>
FeedForward<T>::FeedForward(ParameterStore<T>& store, const FeedForwardNames& names, int64_t hidden, int64_t width, Activation activation,
                            const LinearStyle& style)
    : activation_(activation), hidden_(hidden), width_(width), precision_(style.precision) {
  if (!names.gate.empty()) gate_ = Linear<T>(store, names.gate, hidden, width, style);
  up_ = Linear<T>(store, names.up, hidden, width, style);
  down_ = Linear<T>(store, names.down, width, hidden, style);
}

template <class T>
typename FeedForward<T>::Saved FeedForward<T>::take(Memory& memory, int64_t rows, Recompute recompute) const {
  Saved saved;
  if (keeps_products(recompute)) {
    if (gated()) saved.gate = memory.take<T>(rows * width_);
    saved.up = memory.take<T>(rows * width_);
  }
  if (recompute == Recompute::kNone) saved.active = memory.take<T>(rows * width_);
  return saved;
}

template <class T>
MemoryPlan FeedForward<T>::plan(const ThreadPool& pool, int64_t rows, Recompute recompute) const {
  Memory saved, scratch;
  take(saved, rows, recompute);
  const int products = keeps_products(recompute) ? 0 : gated() ? 2 : 1, activated = recompute == Recompute::kNone ? 0 : 1;
  for (int i = 0; i < products + activated; ++i) scratch.take<T>(rows * width_);
  const size_t linear = (gate_.plan(pool, rows) + up_.plan(pool, rows) + down_.plan(pool, rows)).scratch;
  return {saved.used(), scratch.used() + linear};
}

template <class T>
typename FeedForward<T>::Saved FeedForward<T>::complete(Saved saved, int64_t rows, Memory& scratch) const {
  if (gated() && saved.gate == nullptr) saved.gate = scratch.take<T>(rows * width_);
  if (saved.up == nullptr) saved.up = scratch.take<T>(rows * width_);
  if (saved.active == nullptr) saved.active = scratch.take<T>(rows * width_);
  return saved;
}

template <class T>
void FeedForward<T>::project(const Context<T>& context, const T* x, int64_t rows, const Saved& all, Memory scratch) const {
  if (gated()) gate_.forward(context, {x, {rows, hidden_}}, {all.gate, {rows, width_}}, scratch);
  up_.forward(context, {x, {rows, hidden_}}, {all.up, {rows, width_}}, scratch);
}

template <class T>
void FeedForward<T>::activate(const Context<T>& context, const Saved& all, int64_t rows) const {
  if (gated())
    activate_gated_rows<T>(context, activation_, all.gate, all.up, rows, width_, all.active);
  else
    activate_rows<T>(context, activation_, all.up, rows, width_, all.active);
}

template <class T>
void FeedForward<T>::forward(const Context<T>& context, const T* x, int64_t rows, const Saved& saved, T* y, Memory scratch) const {
  const Saved all = complete(saved, rows, scratch);
  project(context, x, rows, all, scratch);
  activate(context, all, rows);
  down_.forward(context, {all.active, {rows, width_}}, {y, {rows, hidden_}}, scratch);
}

template <class T>
void FeedForward<T>::backward(const Context<T>& context, const T* x, const Saved& saved, const T* dy, int64_t rows, T* dx,
                              Memory scratch) const {
  const Saved all = complete(saved, rows, scratch);
  if (saved.up == nullptr) project(context, x, rows, all, scratch);
  if (saved.active == nullptr) activate(context, all, rows);
  // Gradients take the place of what they are the gradients of.
  T *const dactive = all.active, *const dgate = all.gate;
  down_.backward(context, {all.active, {rows, width_}}, {dy, {rows, hidden_}}, {dactive, {rows, width_}}, scratch);
  if (!gated()) {
    activate_rows_backward<T>(context, activation_, all.up, dactive, rows, width_, dactive);
    up_.backward(context, {x, {rows, hidden_}}, {dactive, {rows, width_}}, {dx, {rows, hidden_}}, scratch);
    return;
  }
  activate_gated_rows_backward<T>(context, activation_, all.gate, all.up, dactive, rows, width_, dgate, dactive);
  up_.backward(context, {x, {rows, hidden_}}, {dactive, {rows, width_}}, {dx, {rows, hidden_}}, scratch);
  gate_.backward(context, {x, {rows, hidden_}}, {dgate, {rows, width_}}, {dx, {rows, hidden_}}, scratch, Accumulate::kAdd);
}

template class FeedForward<float>;
template class FeedForward<double>;

}  // namespace regard::nn::training
