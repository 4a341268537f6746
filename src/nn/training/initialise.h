// The values that parameters begin with, as a function of a seed: the same on every machine.
#pragma once

#include <cstdint>
#include <span>

#include "nn/parameters.h"

namespace regard::nn::training {

/// Number `index` of the stream of standard normal numbers (seed, stream). Box and Muller, 1958.
double standard_normal(uint64_t seed, uint64_t stream, uint64_t index);

/// Fills parameter number `index` with normal numbers of this deviation; its number is its stream.
template <class T>
void fill_normal(ParameterStore<T>& store, int index, uint64_t seed, double deviation);

}  // namespace regard::nn::training
