// Attention on keys and values of 16 bits for avx512.
#if defined(__x86_64__)
#include "kernels/attention.h"
#include "kernels/kv_layout.h"
#include "kernels/isa/avx512_begin-inl.h"
namespace {
#include "kernels/generic/micro-inl.h"
}  // namespace
#include "kernels/generic/attention_halves-inl.h"
#include "kernels/isa/end-inl.h"
#endif
