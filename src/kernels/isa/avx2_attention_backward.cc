// The backward pass of attention for avx2.
#if defined(__x86_64__)
#include "kernels/attention_backward.h"
#include "kernels/isa/avx2_begin-inl.h"
namespace {
#include "kernels/generic/micro-inl.h"
}  // namespace
#include "kernels/generic/attention_backward-inl.h"
#include "kernels/isa/end-inl.h"
#endif
