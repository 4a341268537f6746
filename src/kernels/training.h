// Kernels of a training step on rows and flat spans: norms with what backward needs, gradients of activations, the loss of a
// row of logits, dropout, optimisers. kernels/reference/training.h has the same functions as plain templates, with the same
// arguments, for double. One table per instruction set; registry.h picks one.
//
// All of them are noexcept, allocate nothing, and read and write exactly the elements they are given. Sums over a row run in
// a fixed order; sums over rows are one chain in rising row from what is there, so neither depends on who computes what.
#pragma once

#include <cstdint>

#include "kernels/accumulate.h"

namespace regard::kernels {

/// What backward needs of a normalised row; the mean of RMSNorm is 0.
template <class T>
struct NormStats {
  T mean;
  T rstd;  ///< 1 / sqrt(variance + eps), or 1 / sqrt(mean square + eps)
};

/// How the loss of a row is made of its logits z and label t, with p = softmax(z):
///   nats      = log sum exp z - z[t]
///   objective = log sum exp z - (1 - smoothing) z[t] - smoothing / n sum of z + z_loss (log sum exp z)^2
/// Szegedy et al., 2016, "Rethinking the Inception architecture", section 7; Chowdhery et al., 2022, "PaLM", section 5.
struct CrossEntropy {
  double smoothing = 0;
  double z_loss = 0;
};
struct RowLoss {
  double nats = 0;
  double objective = 0;
  bool correct = false;  ///< no logit is above the label's, and none before it is equal
};

/// One step of AdamW; doubles, so that 1 - beta is exact before it is rounded to f32. With g = gradient * gradient_factor:
///   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
///   value = value (1 - rate decay) - (rate / correction1) (m / (sqrt(v) (1 / sqrt(correction2)) + eps))
/// Every operation rounds, none is fused: all instruction sets have the bits of kernels/reference/training.h in f32.
/// Loshchilov and Hutter, 2019, "Decoupled weight decay regularization", algorithm 2.
struct AdamWStep {
  double rate = 0;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double decay = 0;             ///< 0 for parameters that do not decay
  double correction1 = 1;       ///< 1 - beta1^t for step t = 1, 2, ...
  double correction2 = 1;       ///< 1 - beta2^t
  double gradient_factor = 1;   ///< of clipping and of what the loss was scaled by
};

/// One step of gradient descent with momentum: m = momentum m + g, value = value (1 - rate decay) - rate m. Nothing is fused here either.
struct SgdStep {
  double rate = 0;
  double momentum = 0;
  double decay = 0;
  double gradient_factor = 1;
};

struct TrainingKernels {
  /// The bits of ElementwiseKernels::layer_norm and rms_norm, and the statistics. weight and bias may be null; y may be x.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int64_t n, float* y, NormStats<float>* stats) noexcept;
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* y, NormStats<float>* stats) noexcept;

  /// dx = or += the gradient of the input of a norm; overwritten, it may be x or dy. With g = dy * weight (null: ones) and
  /// h = (x - mean) rstd:
  ///   LayerNorm  rstd (g - mean(g) - h mean(g h))      RMSNorm  rstd (g - h mean(g h))
  void (*layer_norm_backward)(const float* x, const float* weight, const float* dy, const NormStats<float>* stats, int64_t n, float* dx,
                              Accumulate accumulate) noexcept;
  void (*rms_norm_backward)(const float* x, const float* weight, const float* dy, const NormStats<float>* stats, int64_t n, float* dx,
                            Accumulate accumulate) noexcept;

  /// The gradients of gain and bias in some columns, of either norm: dweight[j] += sum over rows of dy h, dbias[j] += sum of dy,
  /// rising from row 0. Row r of x and dy is at r * ld; either result may be null.
  void (*norm_backward_weight)(const float* x, const float* dy, int64_t ld, const NormStats<float>* stats, int64_t rows, int64_t columns,
                               float* dweight, float* dbias) noexcept;

  /// dx = dy f'(x), n elements; dx may be dy or x. relu'(0) = 0.
  void (*silu_backward)(const float* x, const float* dy, int64_t n, float* dx) noexcept;
  void (*gelu_erf_backward)(const float* x, const float* dy, int64_t n, float* dx) noexcept;
  void (*gelu_tanh_backward)(const float* x, const float* dy, int64_t n, float* dx) noexcept;
  void (*relu_backward)(const float* x, const float* dy, int64_t n, float* dx) noexcept;

  /// y = f(gate) up: dgate = dy up f'(gate), dup = dy f(gate). dgate may be gate and dup may be up or dy.
  void (*silu_mul_backward)(const float* gate, const float* up, const float* dy, int64_t n, float* dgate, float* dup) noexcept;
  void (*gelu_erf_mul_backward)(const float* gate, const float* up, const float* dy, int64_t n, float* dgate, float* dup) noexcept;
  void (*gelu_tanh_mul_backward)(const float* gate, const float* up, const float* dy, int64_t n, float* dgate, float* dup) noexcept;
  void (*relu_mul_backward)(const float* gate, const float* up, const float* dy, int64_t n, float* dgate, float* dup) noexcept;

  /// The loss of a row of n logits with label 0 <= label < n. Unless `gradient` is null it becomes the gradient of the
  /// objective times `scale`; it may be `logits`. +inf or NaN among the logits gives NaN; -inf has probability 0.
  RowLoss (*cross_entropy)(const float* logits, int64_t n, int64_t label, const CrossEntropy& how, float scale, float* gradient) noexcept;

  /// y = x + (branch * factor where dropout keeps the element, else 0, whatever branch is); x may be null: 0. y may be x or
  /// branch. Bit i % 64 of keep[i / 64] says whether element i is kept (kernels/dropout.h has a row's words, 256 elements each).
  void (*add_dropped)(const uint64_t* keep, float factor, const float* x, const float* branch, int64_t n, float* y) noexcept;

  void (*adamw)(const AdamWStep& step, const float* gradient, int64_t n, float* value, float* m, float* v) noexcept;
  void (*sgd)(const SgdStep& step, const float* gradient, int64_t n, float* value, float* m) noexcept;

  /// The sum of squares: f32 in 16 lanes within stretches of kSquaresStretch elements, f64 over the stretches. Cut a span at
  /// multiples of that and add in order, and the bits are those of the whole.
  double (*sum_of_squares)(const float* x, int64_t n) noexcept;

  /// Multiply-adds in registers, `rounds` of as many chains as keep the units busy; gives the operations done. Over their time it is the peak
  /// of a thread, which the speed of a training run is told in.
  double (*multiply_adds)(int64_t rounds) noexcept;
};

inline constexpr int64_t kSquaresStretch = 4096;

}  // namespace regard::kernels
