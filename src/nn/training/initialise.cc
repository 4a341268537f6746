#include "nn/training/initialise.h"

#include <cmath>

#include "base/math.h"
#include "base/rng.h"

namespace regard::nn::training {

double standard_normal(uint64_t seed, uint64_t stream, uint64_t index) {
  const double radius = 1 - random_uniform(seed, stream, 2 * index);  // in (0, 1]
  const double turn = random_uniform(seed, stream, 2 * index + 1);
  constexpr double kTwoPi = 6.28318530717958647692;
  return std::sqrt(-2 * math::log(radius)) * math::sincos(kTwoPi * turn).cos;
}

template <class T>
void fill_normal(ParameterStore<T>& store, int index, uint64_t seed, double deviation) {
  T* values = store.value(index);
  const int64_t size = store.parameters()[static_cast<size_t>(index)].size;
  for (int64_t i = 0; i < size; ++i)
    values[i] = static_cast<T>(deviation * standard_normal(seed, static_cast<uint64_t>(index), static_cast<uint64_t>(i)));
}

template void fill_normal<float>(ParameterStore<float>&, int, uint64_t, double);
template void fill_normal<double>(ParameterStore<double>&, int, uint64_t, double);

}  // namespace regard::nn::training
