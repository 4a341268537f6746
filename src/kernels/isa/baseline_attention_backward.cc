// The backward pass of attention for baseline.
#include "kernels/attention_backward.h"
#include "kernels/isa/baseline_begin-inl.h"
namespace {
#include "kernels/generic/micro-inl.h"
}  // namespace
#include "kernels/generic/attention_backward-inl.h"
#include "kernels/isa/end-inl.h"
