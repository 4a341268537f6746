// Attention on keys and values of 16 bits. Included like attention-inl.h, in a unit of its own.

#include "kernels/generic/attention_types-inl.h"

namespace {
#include "kernels/generic/attention_tile-inl.h"
}  // namespace

const StoredKernels kAttentionF16 = kKernelsOf<Half>;
const StoredKernels kAttentionBf16 = kKernelsOf<Brain>;
