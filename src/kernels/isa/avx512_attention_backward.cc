// The backward pass of attention for avx512.
#if defined(__x86_64__)
#include "kernels/attention_backward.h"
#include "kernels/isa/avx512_begin-inl.h"
namespace {
#include "kernels/generic/micro-inl.h"
}  // namespace
#include "kernels/generic/attention_backward-inl.h"
#include "kernels/isa/end-inl.h"
#endif
