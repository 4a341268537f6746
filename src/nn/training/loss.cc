#include "nn/training/loss.h"

#include <algorithm>

#include "nn/rows.h"

namespace regard::nn::training {

// As many as stay in the second-level cache with their logits, but enough for the head's product to be worth packing.
template <class T>
int64_t LinearCrossEntropy<T>::chunk_rows(int64_t rows) const noexcept {
  constexpr int64_t kElements = int64_t{1} << 18, kFewest = 192;
  return std::min(rows, std::max(kFewest, kElements / (head_.out() + head_.in())));
}

template <class T>
void LinearCrossEntropy<T>::scaled_row(const T* x, T* y) const noexcept {
  for (int64_t i = 0; i < head_.in(); ++i) y[i] = scale_ * x[i];
}

template <class T>
MemoryPlan LinearCrossEntropy<T>::plan(const ThreadPool& pool, int64_t rows) const {
  const int64_t chunk = chunk_rows(rows);
  Memory scratch;
  scratch.take<int64_t>(rows);
  scratch.take<RowLoss>(chunk);
  scratch.take<T>(chunk * head_.in());
  scratch.take<T>(chunk * head_.in());
  scratch.take<T>(chunk * head_.out());
  if (softcap_ > 0) scratch.take<T>(chunk * head_.out());
  return {0, scratch.used() + head_.plan(pool, rows).scratch};
}

template <class T>
LossSum LinearCrossEntropy<T>::run(const Context<T>& context, const Sequences& sequences, const T* x, std::span<const int32_t> labels,
                                   double factor, T* dx, Memory scratch) const {
  const int64_t rows = sequences.rows(), hidden = head_.in(), classes = head_.out(), chunk = chunk_rows(rows);
  int64_t* counted = scratch.take<int64_t>(rows);
  RowLoss* losses = scratch.take<RowLoss>(chunk);
  T *input = scratch.take<T>(chunk * hidden), *dinput = scratch.take<T>(chunk * hidden), *logits = scratch.take<T>(chunk * classes);
  T* capped = softcap_ > 0 ? scratch.take<T>(chunk * classes) : nullptr;
  LossSum sum;
  for (int64_t r = 0; r < rows; ++r) {
    if (labels[static_cast<size_t>(r)] != kIgnoredLabel && sequences.is_token(r))
      counted[sum.counted++] = r;
    else if (dx != nullptr)
      std::fill_n(dx + r * hidden, hidden, T{0});
  }
  int64_t sequence = -1;  // the one that is being counted; its rows follow each other, also across chunks
  bool without_mistake = false;

  for (int64_t first = 0; first < sum.counted; first += chunk) {
    const int64_t n = std::min(chunk, sum.counted - first);
    for_each_row(context.pool, n, hidden, [&](int64_t i) { scaled_row(x + counted[first + i] * hidden, input + i * hidden); });
    const TensorView<const T> in(input, {n, hidden});
    head_.forward(context, in, {logits, {n, classes}}, scratch);
    for_each_row(context.pool, n, 8 * classes, [&](int64_t i) {
      const int64_t label = labels[static_cast<size_t>(counted[first + i])];
      T* row = logits + i * classes;
      T* const gradient = dx == nullptr ? nullptr : row;
      if (capped == nullptr) {
        losses[i] = cross_entropy_row<T>(options_, row, classes, label, factor, gradient);
        return;
      }
      T* const soft = capped + i * classes;
      soft_cap_row<T>(softcap_, row, classes, soft);
      losses[i] = cross_entropy_row<T>(options_, soft, classes, label, factor, gradient);
      if (gradient != nullptr) soft_cap_row_backward<T>(softcap_, soft, classes, gradient);
    });
    for (int64_t i = 0; i < n; ++i) {
      sum.nats += losses[i].nats;
      sum.objective += losses[i].objective;
      sum.correct += losses[i].correct ? 1 : 0;
      if (counted[first + i] / sequences.seq != sequence) {
        sequence = counted[first + i] / sequences.seq;
        sum.exact += without_mistake ? 1 : 0;
        ++sum.sequences;
        without_mistake = true;
      }
      without_mistake = without_mistake && losses[i].correct;
    }
    if (dx == nullptr) continue;
    head_.backward(context, in, {logits, {n, classes}}, {dinput, {n, hidden}}, scratch);
    for_each_row(context.pool, n, hidden, [&](int64_t i) { scaled_row(dinput + i * hidden, dx + counted[first + i] * hidden); });
  }
  sum.exact += without_mistake ? 1 : 0;
  return sum;
}

template <class T>
void LinearCrossEntropy<T>::logits(const Context<T>& context, const T* x, int64_t rows, T* y, Memory scratch) const {
  const int64_t hidden = head_.in(), classes = head_.out(), chunk = scale_ == 1 ? rows : chunk_rows(rows);
  T* const input = scale_ == 1 ? nullptr : scratch.take<T>(chunk * hidden);
  for (int64_t first = 0; first < rows; first += chunk) {
    const int64_t n = std::min(chunk, rows - first);
    if (input != nullptr) for_each_row(context.pool, n, hidden, [&](int64_t i) { scaled_row(x + (first + i) * hidden, input + i * hidden); });
    head_.forward(context, {input != nullptr ? input : x, {n, hidden}}, {y + first * classes, {n, classes}}, scratch);
  }
  if (softcap_ > 0)
    for_each_row(context.pool, rows, 8 * head_.out(), [&](int64_t r) { soft_cap_row<T>(softcap_, y + r * head_.out(), head_.out(), y + r * head_.out()); });
}

template class LinearCrossEntropy<float>;
template class LinearCrossEntropy<double>;

}  // namespace regard::nn::training
