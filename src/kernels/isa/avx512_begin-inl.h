// Opens the AVX-512 region: after this line every function may use AVX-512F/BW/DQ/VL, and lies in its own namespace. All
// headers of the standard library come before the region, so that no inline function of theirs is compiled with wide
// instructions and kept by the linker for the whole program. isa/end-inl.h closes the region.
#include "kernels/isa/before-inl.h"
#include <immintrin.h>

#define REGARD_ISA_NAMESPACE avx512
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2,lzcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2,lzcnt")
// GCC 12's own intrinsics start from deliberately undefined registers and trip over these warnings.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
namespace regard::kernels::avx512 {
namespace {
#include "kernels/generic/vec_avx512-inl.h"
#include "kernels/generic/math-inl.h"
}  // namespace
