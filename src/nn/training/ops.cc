// The plain loops. double is what gradients are checked with.
#include "nn/training/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/math.h"
#include "kernels/dropout.h"
#include "kernels/registry.h"
#include "nn/rows.h"

namespace regard::nn::training {
namespace {

// Columns whose sums over rows one task takes.
constexpr int64_t kColumns = 64;

template <class F>
void for_each_columns(ThreadPool& pool, int64_t n, F&& f) {
  pool.for_each((n + kColumns - 1) / kColumns, [&](int64_t i, int) { f(i * kColumns, std::min(n, (i + 1) * kColumns)); });
}

// f(x) and f'(x).
template <class T>
struct Slope {
  T value, slope;
};

template <class T>
Slope<T> activation(Activation f, T x) {
  constexpr double kSqrtHalf = 0.70710678118654752440, kInverseSqrtTwoPi = 0.39894228040143267794;
  switch (f) {
    case Activation::kSilu: {
      const T s = 1 / (1 + std::exp(-x));
      return {x * s, s * (1 + x * (1 - s))};
    }
    case Activation::kGeluErf: {
      const T phi = static_cast<T>(0.5) * (1 + std::erf(x * static_cast<T>(kSqrtHalf)));
      return {x * phi, phi + x * static_cast<T>(kInverseSqrtTwoPi) * std::exp(-x * x / 2)};
    }
    case Activation::kGeluTanh: {
      constexpr double kFactor = 0.79788456080286535588, kCube = 0.044715;
      const T t = std::tanh(static_cast<T>(kFactor) * (x + static_cast<T>(kCube) * x * x * x));
      const T inner = static_cast<T>(kFactor) * (1 + 3 * static_cast<T>(kCube) * x * x);
      return {x * (1 + t) / 2, (1 + t) / 2 + x * (1 - t * t) * inner / 2};
    }
    case Activation::kRelu: return {x < 0 ? T{0} : x, x > 0 ? T{1} : T{0}};
  }
  return {};
}

template <class T>
NormStats<T> statistics(NormKind kind, double eps, const T* x, int64_t n) {
  T mean = 0, squares = 0;
  if (kind == NormKind::kLayer) {
    for (int64_t i = 0; i < n; ++i) mean += x[i];
    mean /= static_cast<T>(n);
  }
  for (int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  return {mean, 1 / std::sqrt(squares / static_cast<T>(n) + static_cast<T>(eps))};
}

}  // namespace

template <class T>
void normalise(const Context<T>& context, NormKind kind, double eps, const T* x, int64_t rows, int64_t n, const T* gain, const T* bias, T* y,
               NormStats<T>* stats) {
  for_each_row(context.pool, rows, 4 * n, [&](int64_t r) {
    const NormStats<T> s = stats[r] = statistics(kind, eps, x + r * n, n);
    if constexpr (std::is_same_v<T, float>) {
      const kernels::ElementwiseKernels& k = *kernels::kernels().elementwise;
      if (kind == NormKind::kRms)
        k.rms_norm(x + r * n, gain, static_cast<float>(eps), n, y + r * n);
      else
        k.layer_norm(x + r * n, gain, bias, static_cast<float>(eps), n, y + r * n);
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      const T scaled = (x[r * n + i] - s.mean) * s.rstd * gain[i];
      y[r * n + i] = bias == nullptr ? scaled : scaled + bias[i];
    }
  });
}

// With the normalised row h and g = dy * gain: dx = rstd (g - mean(g) - h mean(g h)), where RMSNorm has no mean(g).
// Ba, Kiros and Hinton, 2016; Zhang and Sennrich, 2019.
template <class T>
void normalise_backward(const Context<T>& context, NormKind kind, const T* x, const NormStats<T>* stats, const T* dy, int64_t rows, int64_t n,
                        const T* gain, T* dgain, T* dbias, T* dx) {
  for_each_row(context.pool, rows, 8 * n, [&](int64_t r) {
    const T *xr = x + r * n, *dyr = dy + r * n;
    const NormStats<T> s = stats[r];
    T mean = 0, along = 0;
    for (int64_t i = 0; i < n; ++i) {
      const T g = dyr[i] * gain[i];
      mean += g;
      along += g * (xr[i] - s.mean) * s.rstd;
    }
    mean = kind == NormKind::kLayer ? mean / static_cast<T>(n) : T{0};
    along /= static_cast<T>(n);
    for (int64_t i = 0; i < n; ++i) dx[r * n + i] += s.rstd * (dyr[i] * gain[i] - mean - (xr[i] - s.mean) * s.rstd * along);
  });
  for_each_columns(context.pool, n, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = begin; i < end; ++i) {
        dgain[i] += dy[r * n + i] * ((x[r * n + i] - stats[r].mean) * stats[r].rstd);
        if (dbias != nullptr) dbias[i] += dy[r * n + i];
      }
  });
}

template <class T>
void activate_rows(const Context<T>& context, Activation f, const T* x, int64_t rows, int64_t n, T* y) {
  for_each_row(context.pool, rows, 4 * n, [&](int64_t r) {
    if constexpr (std::is_same_v<T, float>)
      activate(f, x + r * n, n, y + r * n);
    else
      for (int64_t i = r * n; i < (r + 1) * n; ++i) y[i] = activation(f, x[i]).value;
  });
}

template <class T>
void activate_rows_backward(const Context<T>& context, Activation f, const T* x, const T* dy, int64_t rows, int64_t n, T* dx) {
  for_each_row(context.pool, rows, 4 * n, [&](int64_t r) {
    for (int64_t i = r * n; i < (r + 1) * n; ++i) dx[i] = dy[i] * activation(f, x[i]).slope;
  });
}

template <class T>
void activate_gated_rows(const Context<T>& context, Activation f, const T* gate, const T* up, int64_t rows, int64_t n, T* y) {
  for_each_row(context.pool, rows, 4 * n, [&](int64_t r) {
    if constexpr (std::is_same_v<T, float>)
      activate_gated(f, gate + r * n, up + r * n, n, y + r * n);
    else
      for (int64_t i = r * n; i < (r + 1) * n; ++i) y[i] = activation(f, gate[i]).value * up[i];
  });
}

template <class T>
void activate_gated_rows_backward(const Context<T>& context, Activation f, const T* gate, const T* up, const T* dy, int64_t rows, int64_t n,
                                  T* dgate, T* dup) {
  for_each_row(context.pool, rows, 4 * n, [&](int64_t r) {
    for (int64_t i = r * n; i < (r + 1) * n; ++i) {
      const Slope<T> a = activation(f, gate[i]);
      const T d = dy[i];
      dgate[i] = d * up[i] * a.slope;
      dup[i] = d * a.value;
    }
  });
}

template <class T>
void add_dropped(const Context<T>& context, const Sequences& sequences, uint64_t site_seed, double rate, const T* x, const T* branch,
                 int64_t n, T* y) {
  const bool drops = context.dropout.on && rate > 0;
  const auto scale = static_cast<T>(1 / (1 - rate));
  const uint32_t threshold = kernels::dropout_threshold(rate);
  for_each_row(context.pool, sequences.rows(), n, [&](int64_t r) {
    const T *xr = x == nullptr ? nullptr : x + r * n, *br = branch + r * n;
    T* yr = y + r * n;
    if (!drops) {
      for (int64_t i = 0; i < n; ++i) yr[i] = xr == nullptr ? br[i] : xr[i] + br[i];
      return;
    }
    // As for attention weights (kernels/dropout.h), with channels in the place of keys.
    const kernels::DropoutKey key =
        kernels::dropout_row_key(site_seed, context.dropout.first_sequence + r / sequences.seq, 0, r % sequences.seq);
    for (int64_t base = 0; base < n; base += kernels::kTileKeys) {
      uint64_t words[kernels::kPanelsPerTile];
      kernels::dropout_keep_words(key, base / kernels::kTileKeys, threshold, words);
      for (int64_t i = base; i < std::min<int64_t>(n, base + kernels::kTileKeys); ++i) {
        const bool kept = words[(i - base) / 64] >> ((i - base) % 64) & 1;
        const T value = kept ? br[i] * scale : T{0};
        yr[i] = xr == nullptr ? value : xr[i] + value;
      }
    }
  });
}

template <class T>
void add_rows(const Context<T>& context, const T* x, int64_t rows, int64_t n, T* y) {
  for_each_row(context.pool, rows, n, [&](int64_t r) {
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
    if constexpr (std::is_same_v<T, float>) {
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
      if constexpr (std::is_same_v<T, float>) {
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

// The target is t = (1 - e) at the label + e / n everywhere, so the objective is lse - sum t x + z lse^2 and its gradient
// softmax (1 + 2 z lse) - t. Szegedy et al., 2016, "Rethinking the inception architecture", section 7.
template <class T>
RowLoss cross_entropy_row(const CrossEntropy& options, T* logits, int64_t n, int64_t label, double scale, Gradient gradient) {
  T top = logits[0], total = 0;
  int64_t best = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (logits[i] > top) {
      top = logits[i];
      best = i;
    }
    total += logits[i];
  }
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(logits[i] - top);
  const T lse = top + std::log(sum), e = static_cast<T>(options.label_smoothing), z = static_cast<T>(options.z_loss);
  const T nats = lse - logits[label], even = lse - total / static_cast<T>(n);
  const RowLoss loss{static_cast<double>(nats), static_cast<double>((1 - e) * nats + e * even + z * lse * lse), best == label};
  if (gradient == Gradient::kEvaluate) return loss;
  const T factor = static_cast<T>(scale), shared = e / static_cast<T>(n);
  for (int64_t i = 0; i < n; ++i)
    logits[i] = factor * (std::exp(logits[i] - lse) * (1 + 2 * z * lse) - shared - (i == label ? 1 - e : T{0}));
  return loss;
}

#define REGARD_INSTANTIATE(T)                                                                                                             \
  template void normalise<T>(const Context<T>&, NormKind, double, const T*, int64_t, int64_t, const T*, const T*, T*, NormStats<T>*);       \
  template void normalise_backward<T>(const Context<T>&, NormKind, const T*, const NormStats<T>*, const T*, int64_t, int64_t, const T*,   \
                                      T*, T*, T*);                                                                                        \
  template void activate_rows<T>(const Context<T>&, Activation, const T*, int64_t, int64_t, T*);                                          \
  template void activate_rows_backward<T>(const Context<T>&, Activation, const T*, const T*, int64_t, int64_t, T*);                       \
  template void activate_gated_rows<T>(const Context<T>&, Activation, const T*, const T*, int64_t, int64_t, T*);                          \
  template void activate_gated_rows_backward<T>(const Context<T>&, Activation, const T*, const T*, const T*, int64_t, int64_t, T*, T*);   \
  template void add_dropped<T>(const Context<T>&, const Sequences&, uint64_t, double, const T*, const T*, int64_t, T*);                   \
  template void add_rows<T>(const Context<T>&, const T*, int64_t, int64_t, T*);                                                           \
  template RopeTable<T> rope_table<T>(const RopeConfig&, int64_t);                                                                        \
  template void rotate_rows<T>(const Context<T>&, const Sequences&, const RopeTable<T>&, Turn, int64_t, int64_t, T*, int64_t);            \
  template RowLoss cross_entropy_row<T>(const CrossEntropy&, T*, int64_t, int64_t, double, Gradient);
REGARD_INSTANTIATE(double)
REGARD_INSTANTIATE(float)
#undef REGARD_INSTANTIATE

}  // namespace regard::nn::training
