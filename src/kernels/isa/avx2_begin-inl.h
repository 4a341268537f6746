// Opens the AVX2 region (with FMA and F16C); see avx512_begin-inl.h.
#include "kernels/isa/before-inl.h"
#include <immintrin.h>

#define REGARD_ISA_NAMESPACE avx2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi,bmi2,lzcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,lzcnt")
#endif
namespace regard::kernels::avx2 {
namespace {
#include "kernels/generic/vec_avx2-inl.h"
#include "kernels/generic/math-inl.h"
}  // namespace
