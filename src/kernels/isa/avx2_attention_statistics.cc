// Sums of weights for statistics, for avx2.
#if defined(__x86_64__)
#include "kernels/attention_statistics.h"
#include "kernels/isa/avx2_begin-inl.h"
#include "kernels/generic/attention_statistics-inl.h"
#include "kernels/isa/end-inl.h"
#endif
