// The arithmetic under the modules besides products: norms, activations, dropout, rotations, cross-entropy, over rows. float
// runs the kernels, any other scalar plain loops; nothing above knows which is at work.
//
// No result depends on the number of threads: rows are independent, and a sum over rows is one chain per element, in the order
// of the rows.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/training.h"
#include "nn/activation.h"
#include "nn/norm.h"
#include "nn/training/context.h"
#include "nn/training/memory.h"
#include "regard/position.h"
#include "regard/tensor.h"

namespace regard::nn::training {

using kernels::Accumulate;
using kernels::CrossEntropy;
using kernels::NormStats;
using kernels::RowLoss;

/// The rows of x [rows, n], normalised; y may be x. bias may be null.
template <class T>
void normalise(const Context<T>& context, NormKind kind, double eps, const T* x, int64_t rows, int64_t n, const T* gain, const T* bias, T* y,
               NormStats<T>* stats);
/// dx = or += the gradients of the rows, overwritten it may be x or dy; dgain and dbias (null: none) += theirs.
template <class T>
void normalise_backward(const Context<T>& context, NormKind kind, const T* x, const NormStats<T>* stats, const T* dy, int64_t rows, int64_t n,
                        const T* gain, T* dgain, T* dbias, T* dx, Accumulate accumulate);

/// y = f(x) or f(gate) * up, `rows` rows of n.
template <class T>
void activate_rows(const Context<T>& context, Activation f, const T* x, int64_t rows, int64_t n, T* y);
template <class T>
void activate_rows_backward(const Context<T>& context, Activation f, const T* x, const T* dy, int64_t rows, int64_t n, T* dx);
template <class T>
void activate_gated_rows(const Context<T>& context, Activation f, const T* gate, const T* up, int64_t rows, int64_t n, T* y);
template <class T>
void activate_gated_rows_backward(const Context<T>& context, Activation f, const T* gate, const T* up, const T* dy, int64_t rows, int64_t n,
                                  T* dgate, T* dup);

/// y = x + dropout(branch), or y = dropout(branch) without x; `rate` counts only while the clock is on. y may be x or branch.
template <class T>
void add_dropped(const Context<T>& context, const Sequences& sequences, uint64_t site_seed, double rate, const T* x, const T* branch,
                 int64_t n, T* y);

/// y += x.
template <class T>
void add_rows(const Context<T>& context, const T* x, int64_t rows, int64_t n, T* y);

/// Cosines and sines of every encoding position, [positions, half] each.
template <class T>
struct RopeTable {
  RopeOrder order = RopeOrder::kHalfSplit;
  int64_t half = 0;  ///< 0: no rotation
  std::vector<T> cos, sin, minus_sin;
};
template <class T>
RopeTable<T> rope_table(const RopeConfig& config, int64_t positions);
/// Turns the heads of all rows by their encoding positions, in place; kBack turns gradients back.
enum class Turn { kForward, kBack };
template <class T>
void rotate_rows(const Context<T>& context, const Sequences& sequences, const RopeTable<T>& table, Turn turn, int64_t heads, int64_t dim,
                 T* data, int64_t row_stride);

/// y = cap tanh(x / cap), a row of n; y may be x. And its gradient: dx holds that of y and gets that of x.
template <class T>
void soft_cap_row(double cap, const T* x, int64_t n, T* y);
template <class T>
void soft_cap_row_backward(double cap, const T* y, int64_t n, T* dx);

/// The loss of a row of logits; its gradient times `scale` goes to `gradient`, which may be the row itself; null: not wanted.
template <class T>
RowLoss cross_entropy_row(const CrossEntropy& options, const T* logits, int64_t n, int64_t label, double scale, T* gradient);

}  // namespace regard::nn::training
