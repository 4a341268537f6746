#include "nn/training/linear.h"

#include "nn/rows.h"

namespace regard::nn::training {
namespace {

// The products of gemm.h as plain loops.
struct Weights {
  const TrainableLinearConfig& config;
  int64_t at(int64_t out, int64_t in) const { return config.layout == WeightLayout::kOutIn ? out * config.in + in : in * config.out + out; }
};

template <class T>
void multiply(ThreadPool& pool, const TrainableLinearConfig& c, TensorView<const T> x, const T* w, const T* bias, TensorView<T> y) {
  const Weights place{c};
  for_each_row(pool, x.shape[0], c.in * c.out, [&](int64_t r) {
    for (int64_t o = 0; o < c.out; ++o) {
      T sum = 0;
      for (int64_t i = 0; i < c.in; ++i) sum += *x.at(r, i) * w[place.at(o, i)];
      *y.at(r, o) = bias == nullptr ? sum : sum + bias[o];
    }
  });
}

template <class T>
void multiply_back(ThreadPool& pool, const TrainableLinearConfig& c, TensorView<const T> dy, const T* w, TensorView<T> dx, Accumulate accumulate) {
  const Weights place{c};
  for_each_row(pool, dy.shape[0], c.in * c.out, [&](int64_t r) {
    for (int64_t i = 0; i < c.in; ++i) {
      T sum = accumulate == Accumulate::kAdd ? *dx.at(r, i) : T{0};
      for (int64_t o = 0; o < c.out; ++o) sum += *dy.at(r, o) * w[place.at(o, i)];
      *dx.at(r, i) = sum;
    }
  });
}

template <class T>
void add_gradient(ThreadPool& pool, const TrainableLinearConfig& c, TensorView<const T> x, TensorView<const T> dy, T* dw, T* dbias) {
  const Weights place{c};
  for_each_row(pool, c.out, x.shape[0] * c.in, [&](int64_t o) {
    for (int64_t r = 0; r < x.shape[0]; ++r) {
      for (int64_t i = 0; i < c.in; ++i) dw[place.at(o, i)] += *dy.at(r, o) * *x.at(r, i);
      if (dbias != nullptr) dbias[o] += *dy.at(r, o);
    }
  });
}

}  // namespace

template <class T>
Linear<T>::Linear(ParameterStore<T>& store, const std::string& name, int64_t in, int64_t out, const LinearStyle& style)
    : config_{.out = out, .in = in, .layout = style.layout, .precision = style.precision}, products_(config_) {
  const bool plain = style.layout == WeightLayout::kOutIn;
  weight_ = store.add(name + ".weight", {plain ? out : in, plain ? in : out}, WeightDecay::kApplied);
  if (style.bias) bias_ = store.add(name + ".bias", {out}, WeightDecay::kNone);
}

template <class T>
Linear<T>::Linear(int weight, int64_t in, int64_t out, GemmPrecision precision)
    : config_{.out = out, .in = in, .precision = precision}, weight_(weight), products_(config_) {}

template <class T>
MemoryPlan Linear<T>::plan(const ThreadPool& pool, int64_t rows) const {
  if constexpr (std::is_same_v<T, float>) {
    Memory scratch;
    if (out() > 0) scratch.take<float>(gemm_scratch(pool, config_, rows));
    return {0, scratch.used()};
  } else {
    return {};
  }
}

template <class T>
typename Linear<T>::Products& Linear<T>::products(const Context<T>& context) const {
  if constexpr (std::is_same_v<T, float>)
    if (packed_in_ != context.pass) products_.weights_changed();
  packed_in_ = context.pass;
  return products_;
}

template <class T>
void Linear<T>::forward(const Context<T>& context, TensorView<const T> x, TensorView<T> y, Memory scratch) const {
  const T *w = context.parameters.value(weight_), *bias = bias_ < 0 ? nullptr : context.parameters.value(bias_);
  if constexpr (std::is_same_v<T, float>) {
    const auto size = static_cast<size_t>(gemm_scratch(context.pool, config_, x.shape[0]));
    products(context).forward({context.pool, {scratch.take<float>(static_cast<int64_t>(size)), size}, context.stop}, w, bias, x, y);
  } else {
    multiply(context.pool, config_, x, w, bias, y);
  }
}

template <class T>
void Linear<T>::backward(const Context<T>& context, TensorView<const T> x, TensorView<const T> dy, TensorView<T> dx, Memory scratch,
                         Accumulate accumulate) const {
  const T* w = context.parameters.value(weight_);
  T *dw = context.parameters.gradient(weight_), *dbias = bias_ < 0 ? nullptr : context.parameters.gradient(bias_);
  if constexpr (std::is_same_v<T, float>) {
    const auto size = static_cast<size_t>(gemm_scratch(context.pool, config_, x.shape[0]));
    const GemmContext gemm{context.pool, {scratch.take<float>(static_cast<int64_t>(size)), size}, context.stop};
    products(context).backward_weight(gemm, x, dy, dw, dbias);
    if (dx.data != nullptr) products(context).backward_input(gemm, w, dy, dx, accumulate);
  } else {
    add_gradient(context.pool, config_, x, dy, dw, dbias);
    if (dx.data != nullptr) multiply_back(context.pool, config_, dy, w, dx, accumulate);
  }
}

template class Linear<float>;
template class Linear<double>;

}  // namespace regard::nn::training
