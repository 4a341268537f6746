// Linear layers for baseline.
#include "kernels/linear.h"
#include "kernels/isa/baseline_begin-inl.h"
#include "kernels/generic/micro-inl.h"
#include "kernels/generic/panel_decode-inl.h"
#include "kernels/generic/linear-inl.h"
#include "kernels/isa/end-inl.h"
