// The kernels of a training step as mathematics: the functions of kernels/training.h with the same arguments, plain loops for any
// scalar, never optimised. Start there for the formulas.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/training.h"

namespace regard::kernels::reference {

/// f(x) and f'(x) of an activation.
template <class T>
struct ValueAndSlope {
  T value, slope;
};
template <class T>
ValueAndSlope<T> silu(T x) {
  const T s = 1 / (1 + std::exp(-x));
  return {x * s, s * (1 + x * (1 - s))};
}
template <class T>
ValueAndSlope<T> gelu_erf(T x) {
  constexpr T kSqrtHalf = static_cast<T>(0.70710678118654752440), kDensity = static_cast<T>(0.39894228040143267794);  // 1 / sqrt(2 pi)
  const T below = (1 + std::erf(x * kSqrtHalf)) / 2;
  return {x * below, below + x * kDensity * std::exp(-x * x / 2)};
}
template <class T>
ValueAndSlope<T> gelu_tanh(T x) {
  constexpr T kFactor = static_cast<T>(0.79788456080286535588), kCube = static_cast<T>(0.044715);  // sqrt(2 / pi)
  const T t = std::tanh(kFactor * (x + kCube * x * x * x));
  return {x * (1 + t) / 2, (1 + t) / 2 + x / 2 * (1 - t * t) * kFactor * (1 + 3 * kCube * x * x)};
}
template <class T>
ValueAndSlope<T> relu(T x) {
  return {x < 0 ? T{0} : x, x > 0 ? T{1} : T{0}};
}

/// dx = dy f'(x).
template <class T>
void activation_backward(ValueAndSlope<T> (*f)(T), const T* x, const T* dy, int64_t n, T* dx) {
  for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * f(x[i]).slope;
}
/// y = f(gate) up.
template <class T>
void gated_backward(ValueAndSlope<T> (*f)(T), const T* gate, const T* up, const T* dy, int64_t n, T* dgate, T* dup) {
  for (int64_t i = 0; i < n; ++i) {
    const ValueAndSlope<T> a = f(gate[i]);
    const T d = dy[i];
    dgate[i] = d * up[i] * a.slope;
    dup[i] = d * a.value;
  }
}

template <class T>
void layer_norm(const T* x, const T* weight, const T* bias, T eps, int64_t n, T* y, NormStats<T>* stats) {
  T mean = 0, variance = 0;
  for (int64_t i = 0; i < n; ++i) mean += x[i] / static_cast<T>(n);
  for (int64_t i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean) / static_cast<T>(n);
  *stats = {mean, 1 / std::sqrt(variance + eps)};
  for (int64_t i = 0; i < n; ++i)
    y[i] = (x[i] - mean) * stats->rstd * (weight == nullptr ? T{1} : weight[i]) + (bias == nullptr ? T{0} : bias[i]);
}
template <class T>
void rms_norm(const T* x, const T* weight, T eps, int64_t n, T* y, NormStats<T>* stats) {
  T square = 0;
  for (int64_t i = 0; i < n; ++i) square += x[i] * x[i] / static_cast<T>(n);
  *stats = {T{0}, 1 / std::sqrt(square + eps)};
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * stats->rstd * (weight == nullptr ? T{1} : weight[i]);
}

namespace detail {
// `shift` times mean(g) is what LayerNorm takes off besides.
template <class T>
void norm_backward(const T* x, const T* weight, const T* dy, const NormStats<T>* stats, int64_t n, T shift, T* dx, Accumulate accumulate) {
  const auto h = [&](int64_t i) { return (x[i] - stats->mean) * stats->rstd; };
  const auto g = [&](int64_t i) { return dy[i] * (weight == nullptr ? T{1} : weight[i]); };
  T mean = 0, along = 0;
  for (int64_t i = 0; i < n; ++i) {
    mean += g(i) / static_cast<T>(n);
    along += g(i) * h(i) / static_cast<T>(n);
  }
  for (int64_t i = 0; i < n; ++i) dx[i] = (accumulate == Accumulate::kAdd ? dx[i] : T{0}) + stats->rstd * (g(i) - shift * mean - h(i) * along);
}
}  // namespace detail

template <class T>
void layer_norm_backward(const T* x, const T* weight, const T* dy, const NormStats<T>* stats, int64_t n, T* dx, Accumulate accumulate) {
  detail::norm_backward(x, weight, dy, stats, n, T{1}, dx, accumulate);
}
template <class T>
void rms_norm_backward(const T* x, const T* weight, const T* dy, const NormStats<T>* stats, int64_t n, T* dx, Accumulate accumulate) {
  detail::norm_backward(x, weight, dy, stats, n, T{0}, dx, accumulate);
}
template <class T>
void norm_backward_weight(const T* x, const T* dy, int64_t ld, const NormStats<T>* stats, int64_t rows, int64_t columns, T* dweight, T* dbias) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < columns; ++j) {
      const T d = dy[r * ld + j];
      if (dweight != nullptr) dweight[j] += d * ((x[r * ld + j] - stats[r].mean) * stats[r].rstd);
      if (dbias != nullptr) dbias[j] += d;
    }
}

template <class T>
RowLoss cross_entropy(const T* logits, int64_t n, int64_t label, const CrossEntropy& how, T scale, T* gradient) {
  T top = logits[0], sum = 0, total = 0;
  bool correct = true;
  for (int64_t i = 0; i < n; ++i) {
    if (logits[i] > top) top = logits[i];
    if (logits[i] > logits[label] || (i < label && logits[i] == logits[label])) correct = false;
    total += logits[i];
  }
  for (int64_t i = 0; i < n; ++i) sum += std::exp(logits[i] - top);
  const T target = logits[label], lse = top + std::log(sum);
  const auto smoothing = static_cast<T>(how.smoothing), z_loss = static_cast<T>(how.z_loss);
  const T objective = lse - (1 - smoothing) * target + z_loss * lse * lse - (smoothing == 0 ? T{0} : smoothing / static_cast<T>(n) * total);
  const RowLoss loss{static_cast<double>(lse - target), static_cast<double>(objective), correct};
  for (int64_t i = 0; i < n && gradient != nullptr; ++i) {
    const T softmax = std::exp(logits[i] - lse), wanted = smoothing / static_cast<T>(n) + (i == label ? 1 - smoothing : T{0});
    gradient[i] = scale * (softmax * (1 + 2 * z_loss * lse) - wanted);
  }
  return loss;
}

template <class T>
void add_dropped(const uint64_t* keep, T factor, const T* x, const T* branch, int64_t n, T* y) {
  for (int64_t i = 0; i < n; ++i) {
    const T value = (keep[i / 64] >> (i % 64) & 1) != 0 ? branch[i] * factor : T{0};
    y[i] = x == nullptr ? value : x[i] + value;
  }
}

template <class T>
void adamw(const AdamWStep& step, const T* gradient, int64_t n, T* value, T* m, T* v) {
  const T beta1 = static_cast<T>(step.beta1), rest1 = static_cast<T>(1 - step.beta1);
  const T beta2 = static_cast<T>(step.beta2), rest2 = static_cast<T>(1 - step.beta2);
  const T root_factor = static_cast<T>(1 / std::sqrt(step.correction2)), length = static_cast<T>(step.rate / step.correction1);
  const T keep = static_cast<T>(1 - step.rate * step.decay);
  for (int64_t i = 0; i < n; ++i) {
    const T g = gradient[i] * static_cast<T>(step.gradient_factor);
    m[i] = beta1 * m[i] + rest1 * g;
    v[i] = beta2 * v[i] + rest2 * g * g;
    value[i] = value[i] * keep - length * (m[i] / (std::sqrt(v[i]) * root_factor + static_cast<T>(step.eps)));
  }
}
template <class T>
void sgd(const SgdStep& step, const T* gradient, int64_t n, T* value, T* m) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] = static_cast<T>(step.momentum) * m[i] + gradient[i] * static_cast<T>(step.gradient_factor);
    value[i] = value[i] * static_cast<T>(1 - step.rate * step.decay) - static_cast<T>(step.rate) * m[i];
  }
}
template <class T>
double sum_of_squares(const T* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace regard::kernels::reference
