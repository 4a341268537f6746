// Sums of weights for statistics, for avx512.
#if defined(__x86_64__)
#include "kernels/attention_statistics.h"
#include "kernels/isa/avx512_begin-inl.h"
#include "kernels/generic/attention_statistics-inl.h"
#include "kernels/isa/end-inl.h"
#endif
