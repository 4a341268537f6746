// Norms, activations and softmax for baseline.
#include "kernels/elementwise.h"
#include "kernels/training.h"
#include "kernels/isa/baseline_begin-inl.h"
#include "kernels/generic/rows-inl.h"
#include "kernels/generic/norm-inl.h"
#include "kernels/generic/elementwise-inl.h"
#include "kernels/isa/end-inl.h"
