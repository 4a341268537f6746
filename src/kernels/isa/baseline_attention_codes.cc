// Attention on keys and values that are codes for baseline.
#include "kernels/attention.h"
#include "kernels/kv_layout.h"
#include "kernels/isa/baseline_begin-inl.h"
namespace {
#include "kernels/generic/micro-inl.h"
}  // namespace
#include "kernels/generic/attention_codes-inl.h"
#include "kernels/isa/end-inl.h"
