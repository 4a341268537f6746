#include "nn/training/ops.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/math.h"
#include "kernels/dropout.h"
#include "kernels/reference/training.h"
#include "kernels/registry.h"
#include "nn/rows.h"

namespace regard::nn::training {
namespace {

namespace reference = kernels::reference;

// Columns whose sums over rows one task takes.
constexpr int64_t kColumns = 64;

template <class T>
inline constexpr bool kHasKernels = std::is_same_v<T, float>;

const kernels::TrainingKernels& training_kernels() { return *kernels::kernels().training; }

template <class T>
auto plain_activation(Activation f) {
  switch (f) {
    case Activation::kSilu: return &reference::silu<T>;
    case Activation::kGeluErf: return &reference::gelu_erf<T>;
    case Activation::kGeluTanh: return &reference::gelu_tanh<T>;
    case Activation::kRelu: break;
  }
  return &reference::relu<T>;
}

auto activation_backward(Activation f) {
  const kernels::TrainingKernels& k = training_kernels();
  switch (f) {
    case Activation::kSilu: return k.silu_backward;
    case Activation::kGeluErf: return k.gelu_erf_backward;
    case Activation::kGeluTanh: return k.gelu_tanh_backward;
    case Activation::kRelu: break;
  }
  return k.relu_backward;
}

auto gated_backward(Activation f) {
  const kernels::TrainingKernels& k = training_kernels();
  switch (f) {
    case Activation::kSilu: return k.silu_mul_backward;
    case Activation::kGeluErf: return k.gelu_erf_mul_backward;
    case Activation::kGeluTanh: return k.gelu_tanh_mul_backward;
    case Activation::kRelu: break;
  }
  return k.relu_mul_backward;
}

}  // namespace

template <class T>
void normalise(const Context<T>& context, NormKind kind, double eps, const T* x, int64_t rows, int64_t n, const T* gain, const T* bias, T* y,
               NormStats<T>* stats) {
  const auto e = static_cast<T>(eps);
  for_each_row(context.pool, rows, 4 * n, [&](int64_t r) {
    const T* xr = x + r * n;
    T* yr = y + r * n;
    if constexpr (kHasKernels<T>) {
      if (kind == NormKind::kLayer)
        training_kernels().layer_norm(xr, gain, bias, e, n, yr, stats + r);
      else
        training_kernels().rms_norm(xr, gain, e, n, yr, stats + r);
    } else {
      if (kind == NormKind::kLayer)
        reference::layer_norm(xr, gain, bias, e, n, yr, stats + r);
      else
        reference::rms_norm(xr, gain, e, n, yr, stats + r);
    }
  });
}

template <class T>
void normalise_backward(const Context<T>& context, NormKind kind, const T* x, const NormStats<T>* stats, const T* dy, int64_t rows, int64_t n,
                        const T* gain, T* dgain, T* dbias, T* dx, Accumulate accumulate) {
  // First the sums over rows: dx may lie over what they read.
  context.pool.for_each((n + kColumns - 1) / kColumns, [&](int64_t item, int) {
    const int64_t i = item * kColumns, columns = std::min(kColumns, n - i);
    T* db = dbias == nullptr ? nullptr : dbias + i;
    if constexpr (kHasKernels<T>)
      training_kernels().norm_backward_weight(x + i, dy + i, n, stats, rows, columns, dgain + i, db);
    else
      reference::norm_backward_weight(x + i, dy + i, n, stats, rows, columns, dgain + i, db);
  });
  for_each_row(context.pool, rows, 8 * n, [&](int64_t r) {
    const T *xr = x + r * n, *dyr = dy + r * n;
    if constexpr (kHasKernels<T>) {
      const auto backward = kind == NormKind::kLayer ? training_kernels().layer_norm_backward : training_kernels().rms_norm_backward;
      backward(xr, gain, dyr, stats + r, n, dx + r * n, accumulate);
    } else {
      const auto backward = kind == NormKind::kLayer ? &reference::layer_norm_backward<T> : &reference::rms_norm_backward<T>;
      backward(xr, gain, dyr, stats + r, n, dx + r * n, accumulate);
    }
  });
}

template <class T>
void activate_rows(const Context<T>& context, Activation f, const T* x, int64_t rows, int64_t n, T* y) {
  for_each_row(context.pool, rows, 4 * n, [&](int64_t r) {
    if constexpr (kHasKernels<T>)
      activate(f, x + r * n, n, y + r * n);
    else
      for (int64_t i = r * n; i < (r + 1) * n; ++i) y[i] = plain_activation<T>(f)(x[i]).value;
  });
}

template <class T>
void activate_rows_backward(const Context<T>& context, Activation f, const T* x, const T* dy, int64_t rows, int64_t n, T* dx) {
  for_each_row(context.pool, rows, 4 * n, [&](int64_t r) {
    if constexpr (kHasKernels<T>)
      activation_backward(f)(x + r * n, dy + r * n, n, dx + r * n);
    else
      reference::activation_backward(plain_activation<T>(f), x + r * n, dy + r * n, n, dx + r * n);
  });
}

template <class T>
void activate_gated_rows(const Context<T>& context, Activation f, const T* gate, const T* up, int64_t rows, int64_t n, T* y) {
  for_each_row(context.pool, rows, 4 * n, [&](int64_t r) {
    if constexpr (kHasKernels<T>)
      activate_gated(f, gate + r * n, up + r * n, n, y + r * n);
    else
      for (int64_t i = r * n; i < (r + 1) * n; ++i) y[i] = plain_activation<T>(f)(gate[i]).value * up[i];
  });
}

template <class T>
void activate_gated_rows_backward(const Context<T>& context, Activation f, const T* gate, const T* up, const T* dy, int64_t rows, int64_t n,
                                  T* dgate, T* dup) {
  for_each_row(context.pool, rows, 4 * n, [&](int64_t r) {
    const int64_t at = r * n;
    if constexpr (kHasKernels<T>)
      gated_backward(f)(gate + at, up + at, dy + at, n, dgate + at, dup + at);
    else
      reference::gated_backward(plain_activation<T>(f), gate + at, up + at, dy + at, n, dgate + at, dup + at);
  });
}

template <class T>
void add_dropped(const Context<T>& context, const Sequences& sequences, uint64_t site_seed, double rate, const T* x, const T* branch,
                 int64_t n, T* y) {
  const bool drops = context.dropout.on && rate > 0;
  const T factor = drops ? static_cast<T>(1 / (1 - rate)) : T{1};
  const uint32_t threshold = kernels::dropout_threshold(rate);
  for_each_row(context.pool, sequences.rows(), n, [&](int64_t r) {
    // As for attention weights (kernels/dropout.h), with channels in the place of keys.
    kernels::DropoutKey key{};
    if (drops) key = kernels::dropout_row_key(site_seed, context.dropout.first_sequence + r / sequences.seq, 0, r % sequences.seq);
    for (int64_t at = 0; at < n; at += kernels::kTileKeys) {
      const int64_t count = std::min<int64_t>(kernels::kTileKeys, n - at), i = r * n + at;
      uint64_t keep[kernels::kPanelsPerTile];
      std::fill_n(keep, kernels::kPanelsPerTile, ~uint64_t{0});
      if (drops) kernels::dropout_keep_words(key, at / kernels::kTileKeys, threshold, keep);
      const T* xr = x == nullptr ? nullptr : x + i;
      if constexpr (kHasKernels<T>)
        training_kernels().add_dropped(keep, factor, xr, branch + i, count, y + i);
      else
        reference::add_dropped(keep, factor, xr, branch + i, count, y + i);
    }
  });
}

template <class T>
void add_rows(const Context<T>& context, const T* x, int64_t rows, int64_t n, T* y) {
  for_each_row(context.pool, rows, n, [&](int64_t r) {
    if constexpr (kHasKernels<T>)
      kernels::kernels().elementwise->add(x + r * n, n, y + r * n);
    else
      for (int64_t i = r * n; i < (r + 1) * n; ++i) y[i] += x[i];
  });
}

template <class T>
RopeTable<T> rope_table(const RopeConfig& config, int64_t positions) {
  const Rope rope(config);
  const int64_t half = rope.half();
  RopeTable<T> table{config.order, half, {}, {}, {}};
  const auto size = static_cast<size_t>(positions * half);
  table.cos.resize(size);
  table.sin.resize(size);
  for (int64_t p = 0; p < positions; ++p) {
    T *cos = table.cos.data() + p * half, *sin = table.sin.data() + p * half;
    if constexpr (kHasKernels<T>) {
      rope.angles(p, cos, sin);
    } else {
      for (int64_t i = 0; i < half; ++i) {
        const math::SinCos angle = math::sincos(static_cast<double>(p) * rope.frequencies()[static_cast<size_t>(i)]);
        cos[i] = angle.cos * rope.magnitude();
        sin[i] = angle.sin * rope.magnitude();
      }
    }
  }
  for (const T s : table.sin) table.minus_sin.push_back(-s);
  return table;
}

template <class T>
void rotate_rows(const Context<T>& context, const Sequences& sequences, const RopeTable<T>& table, Turn turn, int64_t heads, int64_t dim,
                 T* data, int64_t row_stride) {
  const int64_t half = table.half;
  const std::vector<T>& sines = turn == Turn::kForward ? table.sin : table.minus_sin;
  const bool split = table.order == RopeOrder::kHalfSplit;
  for_each_row(context.pool, sequences.rows(), 2 * heads * dim, [&](int64_t r) {
    const int64_t position = sequences.encoding_position(r);
    const T *cos = table.cos.data() + position * half, *sin = sines.data() + position * half;
    for (int64_t h = 0; h < heads; ++h) {
      T* x = data + r * row_stride + h * dim;
      if constexpr (kHasKernels<T>) {
        const kernels::ElementwiseKernels& kernel = *kernels::kernels().elementwise;
        (split ? kernel.rotate_half : kernel.rotate_interleaved)(x, cos, sin, half);
      } else {
        for (int64_t i = 0; i < half; ++i) {
          T &a = x[split ? i : 2 * i], &b = x[split ? i + half : 2 * i + 1];
          const T first = a * cos[i] - b * sin[i];
          b = b * cos[i] + a * sin[i];
          a = first;
        }
      }
    }
  });
}

// In the steps of model/decoder.cc, so that a trained model has the bits of a loaded one.
template <class T>
void soft_cap_row(double cap, const T* x, int64_t n, T* y) {
  const auto c = static_cast<T>(cap);
  if constexpr (kHasKernels<T>) {
    const kernels::ElementwiseKernels& k = *kernels::kernels().elementwise;
    if (y != x) std::copy_n(x, n, y);
    k.scale(1 / c, n, y);
    k.tanh(y, n, y);
    k.scale(c, n, y);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = c * std::tanh(x[i] / c);
  }
}

template <class T>
void soft_cap_row_backward(double cap, const T* y, int64_t n, T* dx) {
  const auto inverse = static_cast<T>(1 / cap);
  for (int64_t i = 0; i < n; ++i) {
    const T tanh = y[i] * inverse;
    dx[i] *= 1 - tanh * tanh;
  }
}

template <class T>
RowLoss cross_entropy_row(const CrossEntropy& options, const T* logits, int64_t n, int64_t label, double scale, T* gradient) {
  if constexpr (kHasKernels<T>)
    return training_kernels().cross_entropy(logits, n, label, options, static_cast<float>(scale), gradient);
  else
    return reference::cross_entropy(logits, n, label, options, static_cast<T>(scale), gradient);
}

#define REGARD_INSTANTIATE(T)                                                                                                             \
  template void normalise<T>(const Context<T>&, NormKind, double, const T*, int64_t, int64_t, const T*, const T*, T*, NormStats<T>*);     \
  template void normalise_backward<T>(const Context<T>&, NormKind, const T*, const NormStats<T>*, const T*, int64_t, int64_t, const T*,   \
                                      T*, T*, T*, Accumulate);                                                                                        \
  template void activate_rows<T>(const Context<T>&, Activation, const T*, int64_t, int64_t, T*);                                          \
  template void activate_rows_backward<T>(const Context<T>&, Activation, const T*, const T*, int64_t, int64_t, T*);                       \
  template void activate_gated_rows<T>(const Context<T>&, Activation, const T*, const T*, int64_t, int64_t, T*);                          \
  template void activate_gated_rows_backward<T>(const Context<T>&, Activation, const T*, const T*, const T*, int64_t, int64_t, T*, T*);   \
  template void add_dropped<T>(const Context<T>&, const Sequences&, uint64_t, double, const T*, const T*, int64_t, T*);                   \
  template void add_rows<T>(const Context<T>&, const T*, int64_t, int64_t, T*);                                                           \
  template RopeTable<T> rope_table<T>(const RopeConfig&, int64_t);                                                                        \
  template void rotate_rows<T>(const Context<T>&, const Sequences&, const RopeTable<T>&, Turn, int64_t, int64_t, T*, int64_t);            \
  template void soft_cap_row<T>(double, const T*, int64_t, T*);                                                                           \
  template void soft_cap_row_backward<T>(double, const T*, int64_t, T*);                                                                  \
  template RowLoss cross_entropy_row<T>(const CrossEntropy&, const T*, int64_t, int64_t, double, T*);
REGARD_INSTANTIATE(double)
REGARD_INSTANTIATE(float)
#undef REGARD_INSTANTIATE

}  // namespace regard::nn::training
