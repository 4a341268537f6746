// Kernels on single rows: norms, activations, softmax, rotations. One table per instruction set; registry.h picks one.
//
// All of them are noexcept, allocate nothing, and read and write exactly the elements they are given. A row's result
// depends on that row alone, with sums in a fixed order, so it is the same for one row or a thousand.
#pragma once

#include <cstdint>

namespace regard::kernels {

struct ElementwiseKernels {
  /// y = x / sqrt(mean(x^2) + eps) * weight, n elements. The sum of squares runs in 16 lanes (lane = index mod 16, rising),
  /// then over the lanes in the fixed tree of vec-inl. y may be x. weight may be null (all ones).
  /// Zhang and Sennrich, 2019, "Root mean square layer normalization", equation 4.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* y) noexcept;

  /// y = (x - mean) / sqrt(variance + eps) * weight + bias; the variance is the mean of the squared differences from the
  /// rounded mean. y may be x; weight and bias may be null.
  /// Ba, Kiros and Hinton, 2016, "Layer normalization", equation 4.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int64_t n, float* y) noexcept;

  /// Weights of a row of scores: y = exp(x - max x) / sum. All -inf (or n = 0) gives zeros; +inf or NaN gives NaN. y may be x.
  void (*softmax)(const float* x, int64_t n, float* y) noexcept;

  /// y = f(x), in place allowed.
  void (*silu)(const float* x, int64_t n, float* y) noexcept;
  void (*gelu_erf)(const float* x, int64_t n, float* y) noexcept;
  void (*gelu_tanh)(const float* x, int64_t n, float* y) noexcept;
  void (*relu)(const float* x, int64_t n, float* y) noexcept;
  void (*exp)(const float* x, int64_t n, float* y) noexcept;
  void (*exp2)(const float* x, int64_t n, float* y) noexcept;
  void (*erf)(const float* x, int64_t n, float* y) noexcept;
  void (*tanh)(const float* x, int64_t n, float* y) noexcept;

  /// y = f(gate) * up: the gated feed-forward. Shazeer, 2020, "GLU variants improve transformer", section 2.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* y) noexcept;
  void (*gelu_tanh_mul)(const float* gate, const float* up, int64_t n, float* y) noexcept;
  void (*relu_mul)(const float* gate, const float* up, int64_t n, float* y) noexcept;
  void (*gelu_erf_mul)(const float* gate, const float* up, int64_t n, float* y) noexcept;

  /// y += x, y *= factor.
  void (*add)(const float* x, int64_t n, float* y) noexcept;
  void (*scale)(float factor, int64_t n, float* y) noexcept;

  /// Rotates the pairs (x[i], x[i + half]) by the angles whose cosines and sines are given, i < half, in place.
  /// Su et al., 2021, "RoFormer", equation 34, in the half-split order of GPT-NeoX.
  void (*rotate_half)(float* x, const float* cos, const float* sin, int64_t half) noexcept;
  /// The same for the pairs (x[2i], x[2i + 1]), the order of the paper.
  void (*rotate_interleaved)(float* x, const float* cos, const float* sin, int64_t half) noexcept;
};

}  // namespace regard::kernels
