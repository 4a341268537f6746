// Norms, activations and softmax for avx512.
#if defined(__x86_64__)
#include "kernels/elementwise.h"
#include "kernels/training.h"
#include "kernels/isa/avx512_begin-inl.h"
#include "kernels/generic/rows-inl.h"
#include "kernels/generic/norm-inl.h"
#include "kernels/generic/elementwise-inl.h"
#include "kernels/isa/end-inl.h"
#endif
