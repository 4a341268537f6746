// Linear layers for avx2.
#if defined(__x86_64__)
#include "kernels/linear.h"
#include "kernels/isa/avx2_begin-inl.h"
#include "kernels/generic/micro-inl.h"
#include "kernels/generic/panel_decode-inl.h"
#include "kernels/generic/linear-inl.h"
#include "kernels/isa/end-inl.h"
#endif
