// Matrix products of training for baseline.
#include "kernels/gemm.h"
#include "kernels/isa/baseline_begin-inl.h"
namespace {
#include "kernels/generic/micro-inl.h"
}  // namespace
#include "kernels/generic/gemm-inl.h"
#include "kernels/isa/end-inl.h"
