// Linear layers for avx512.
#if defined(__x86_64__)
#include "kernels/linear.h"
#include "kernels/isa/avx512_begin-inl.h"
#include "kernels/generic/micro-inl.h"
#include "kernels/generic/panel_decode-inl.h"
#include "kernels/generic/linear-inl.h"
#include "kernels/isa/end-inl.h"
#endif
