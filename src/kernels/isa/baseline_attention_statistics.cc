// Sums of weights for statistics, for baseline.
#include "kernels/attention_statistics.h"
#include "kernels/isa/baseline_begin-inl.h"
#include "kernels/generic/attention_statistics-inl.h"
#include "kernels/isa/end-inl.h"
