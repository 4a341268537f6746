#include "nn/training/linear.h"

namespace regard::nn::training {

template <class T>
Linear<T>::Linear(ParameterStore<T>& store, const std::string& name, int64_t in, int64_t out, bool bias, WeightLayout layout)
    : in_(in), out_(out), layout_(layout) {
  const bool plain = layout == WeightLayout::kOutIn;
  weight_ = store.add(name + ".weight", {plain ? out : in, plain ? in : out}, WeightDecay::kApplied);
  if (bias) bias_ = store.add(name + ".bias", {out}, WeightDecay::kNone);
}

template <class T>
void Linear<T>::forward(const Context<T>& context, TensorView<const T> x, TensorView<T> y, Memory scratch) const {
  const T* weight = context.parameters.value(weight_);
  product<T>(context, x, WeightView<const T>{weight, in_, out_, layout_}, bias_ < 0 ? nullptr : context.parameters.value(bias_), y, scratch);
}

template <class T>
void Linear<T>::backward(const Context<T>& context, TensorView<const T> x, TensorView<const T> dy, TensorView<T> dx, Memory scratch,
                         Accumulate accumulate) const {
  const T* weight = context.parameters.value(weight_);
  product_backward_weight<T>(context, x, dy, view(context.parameters.gradient(weight_)),
                             bias_ < 0 ? nullptr : context.parameters.gradient(bias_), scratch);
  if (dx.data != nullptr) product_backward_input<T>(context, dy, WeightView<const T>{weight, in_, out_, layout_}, dx, accumulate, scratch);
}

template class Linear<float>;
template class Linear<double>;

}  // namespace regard::nn::training
