// The products of a training step on bf16 dot products.
#if defined(__x86_64__)
#include "kernels/gemm_bf16.h"
#include "kernels/isa/avx512_bf16_begin-inl.h"
namespace {
#include "kernels/generic/micro-inl.h"
#include "kernels/generic/micro_bf16-inl.h"
}  // namespace
#include "kernels/generic/gemm_bf16-inl.h"
#include "kernels/isa/end-inl.h"
#endif
