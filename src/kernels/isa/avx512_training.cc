// Rows of a training step for avx512.
#if defined(__x86_64__)
#include "kernels/training.h"
#include "kernels/isa/avx512_begin-inl.h"
#include "kernels/generic/rows-inl.h"
#include "kernels/generic/norm-inl.h"
#include "kernels/generic/norm_backward-inl.h"
#include "kernels/generic/activation_backward-inl.h"
#include "kernels/generic/cross_entropy-inl.h"
#include "kernels/generic/optimizer-inl.h"
#include "kernels/generic/training-inl.h"
#include "kernels/isa/end-inl.h"
#endif
