#include "nn/training/embedding.h"

#include <algorithm>

#include "nn/rows.h"

namespace regard::nn::training {

template <class T>
void Embedding<T>::forward(const Context<T>& context, const Sequences& sequences, std::span<const int32_t> ids, uint64_t seed, double rate,
                           T* y) const {
  const T* tokens = context.parameters.value(tokens_);
  const T* learned = positions_ < 0 ? nullptr : context.parameters.value(positions_);
  for_each_row(context.pool, sequences.rows(), hidden_, [&](int64_t r) {
    T* yr = y + r * hidden_;
    if (!sequences.is_token(r)) {
      std::fill_n(yr, hidden_, T{0});
      return;
    }
    const T* token = tokens + ids[static_cast<size_t>(r)] * hidden_;
    for (int64_t i = 0; i < hidden_; ++i) yr[i] = scale_ * token[i];
    const int64_t position = sequences.encoding_position(r);
    for (const T* table : {learned, fixed_.empty() ? nullptr : fixed_.data()})
      for (int64_t i = 0; i < hidden_ && table != nullptr; ++i) yr[i] += table[position * hidden_ + i];
  });
  if (context.dropout.on && rate > 0) add_dropped<T>(context, sequences, seed, rate, nullptr, y, hidden_, y);
}

template <class T>
void Embedding<T>::backward(const Context<T>& context, const Sequences& sequences, std::span<const int32_t> ids, uint64_t seed, double rate,
                            T* dy) const {
  if (context.dropout.on && rate > 0) add_dropped<T>(context, sequences, seed, rate, nullptr, dy, hidden_, dy);
  T* tokens = context.parameters.gradient(tokens_);
  T* learned = positions_ < 0 ? nullptr : context.parameters.gradient(positions_);
  // Rows meet in the tables: a thread has columns of its own and adds all rows in order.
  constexpr int64_t kColumns = 64;
  context.pool.for_each((hidden_ + kColumns - 1) / kColumns, [&](int64_t item, int) {
    const int64_t begin = item * kColumns, end = std::min(hidden_, begin + kColumns);
    for (int64_t r = 0; r < sequences.rows(); ++r) {
      if (!sequences.is_token(r)) continue;
      const T* dyr = dy + r * hidden_;
      T* token = tokens + ids[static_cast<size_t>(r)] * hidden_;
      for (int64_t i = begin; i < end; ++i) token[i] += scale_ * dyr[i];
      T* position = learned == nullptr ? nullptr : learned + sequences.encoding_position(r) * hidden_;
      for (int64_t i = begin; i < end && position != nullptr; ++i) position[i] += dyr[i];
    }
  });
}

template class Embedding<float>;
template class Embedding<double>;

}  // namespace regard::nn::training
