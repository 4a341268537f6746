// Attention on keys and values that are codes. Included like attention-inl.h, in a unit of its own.

#include "kernels/generic/attention_types-inl.h"

namespace {
#include "kernels/generic/attention_tile-inl.h"
}  // namespace

const StoredKernels kAttentionCodes = kKernelsOf<int8_t>;
const StoredKernels kAttentionBlockCodes = kKernelsOf<BlockCode>;
