// Matrix products of training for avx512.
#if defined(__x86_64__)
#include "kernels/gemm.h"
#include "kernels/isa/avx512_begin-inl.h"
namespace {
#include "kernels/generic/micro-inl.h"
}  // namespace
#include "kernels/generic/gemm-inl.h"
#include "kernels/isa/end-inl.h"
#endif
