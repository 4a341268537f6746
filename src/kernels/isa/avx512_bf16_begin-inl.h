// Opens the region of AVX-512 with bf16 dot products; see avx512_begin-inl.h. Only kernels that use them live here: all
// others of this instruction set are those of avx512.
#include "kernels/isa/before-inl.h"
#include <immintrin.h>

#define REGARD_ISA_NAMESPACE avx512_bf16
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,bmi,bmi2,lzcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,bmi,bmi2,lzcnt")
// GCC 12's own intrinsics start from deliberately undefined registers and trip over these warnings.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
namespace regard::kernels::avx512_bf16 {
namespace {
#include "kernels/generic/vec_avx512-inl.h"
#include "kernels/generic/vec_avx512_bf16-inl.h"
#include "kernels/generic/math-inl.h"
}  // namespace
