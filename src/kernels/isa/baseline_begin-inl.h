// Opens the region for any machine: no target, only the namespace; see avx512_begin-inl.h.
#include "kernels/isa/before-inl.h"

#define REGARD_ISA_NAMESPACE baseline
#define REGARD_ISA_UNTARGETED
namespace regard::kernels::baseline {
namespace {
#include "kernels/generic/vec_baseline-inl.h"
#include "kernels/generic/math-inl.h"
}  // namespace
