#include "nn/training/norm.h"

namespace regard::nn::training {

template <class T>
Norm<T>::Norm(ParameterStore<T>& store, const std::string& name, const NormStyle& style, int64_t size)
    : style_(style), size_(size), gain_(store.add(name + ".weight", {size}, WeightDecay::kNone)) {
  if (style.kind == NormKind::kLayer) bias_ = store.add(name + ".bias", {size}, WeightDecay::kNone);
  if (style.gain == NormGain::kOnePlusStored) gains_.resize(static_cast<size_t>(size));
}

template <class T>
const T* Norm<T>::gains(const Context<T>& context) const {
  const T* stored = context.parameters.value(gain_);
  if (style_.gain == NormGain::kStored) return stored;
  if (gains_of_ != context.pass) {
    for (size_t i = 0; i < gains_.size(); ++i) gains_[i] = stored[i] + T{1};
    gains_of_ = context.pass;
  }
  return gains_.data();
}

template <class T>
void Norm<T>::forward(const Context<T>& context, const T* x, int64_t rows, const Saved& saved, T* y) const {
  normalise<T>(context, style_.kind, style_.eps, x, rows, size_, gains(context), biases(context), y, saved.stats);
}

template <class T>
void Norm<T>::backward(const Context<T>& context, const T* x, const Saved& saved, const T* dy, int64_t rows, T* dx,
                       Accumulate accumulate) const {
  normalise_backward<T>(context, style_.kind, x, saved.stats, dy, rows, size_, gains(context), context.parameters.gradient(gain_),
                        bias_ < 0 ? nullptr : context.parameters.gradient(bias_), dx, accumulate);
}

template class Norm<float>;
template class Norm<double>;

}  // namespace regard::nn::training
