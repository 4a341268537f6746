#include "nn/training/norm.h"

namespace regard::nn::training {

template <class T>
Norm<T>::Norm(ParameterStore<T>& store, const std::string& name, NormKind kind, double eps, int64_t size)
    : kind_(kind), eps_(eps), size_(size), gain_(store.add(name + ".weight", {size}, WeightDecay::kNone)) {
  if (kind == NormKind::kLayer) bias_ = store.add(name + ".bias", {size}, WeightDecay::kNone);
}

template <class T>
void Norm<T>::forward(const Context<T>& context, const T* x, int64_t rows, const Saved& saved, T* y) const {
  normalise<T>(context, kind_, eps_, x, rows, size_, context.parameters.value(gain_), bias_ < 0 ? nullptr : context.parameters.value(bias_), y,
               saved.stats);
}

template <class T>
void Norm<T>::backward(const Context<T>& context, const T* x, const Saved& saved, const T* dy, int64_t rows, T* dx,
                       Accumulate accumulate) const {
  normalise_backward<T>(context, kind_, x, saved.stats, dy, rows, size_, context.parameters.value(gain_), context.parameters.gradient(gain_),
                        bias_ < 0 ? nullptr : context.parameters.gradient(bias_), dx, accumulate);
}

template class Norm<float>;
template class Norm<double>;

}  // namespace regard::nn::training
