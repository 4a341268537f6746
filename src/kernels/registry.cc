#include "kernels/registry.h"

#include <atomic>

#include "base/check.h"

namespace regard::kernels {

#define REGARD_DECLARE_SET(isa_namespace)                       \
  namespace isa_namespace {                                     \
  extern const ElementwiseKernels kElementwise;                 \
  extern const LinearKernels kLinear;                           \
  extern const AttentionKernels kAttention;                     \
  extern const AttentionBackwardKernels kAttentionBackward;     \
  extern const GemmKernels kGemm;                               \
  extern const TrainingKernels kTraining;                       \
  extern const AttentionStatisticsKernels kAttentionStatistics; \
  }
#define REGARD_SET(isa, isa_namespace)                                                                   \
  KernelSet {                                                                                            \
    isa, &isa_namespace::kElementwise, &isa_namespace::kLinear, &isa_namespace::kAttention,              \
        &isa_namespace::kAttentionBackward, &isa_namespace::kGemm, &isa_namespace::kTraining,            \
        &isa_namespace::kAttentionStatistics                                                             \
  }

// Which sets there are: all that the processor's family has, without those that the CMake option REGARD_ISAS leaves out.
#if defined(__x86_64__) && !defined(REGARD_WITHOUT_AVX2)
#define REGARD_HAS_AVX2 1
#endif
#if defined(__x86_64__) && !defined(REGARD_WITHOUT_AVX512)
#define REGARD_HAS_AVX512 1
#endif
#if defined(__x86_64__) && !defined(REGARD_WITHOUT_AVX512_BF16)
#define REGARD_HAS_AVX512_BF16 1
#endif

REGARD_DECLARE_SET(baseline)
#if defined(REGARD_HAS_AVX2)
REGARD_DECLARE_SET(avx2)
#endif
#if defined(REGARD_HAS_AVX512)
REGARD_DECLARE_SET(avx512)
#endif
#if defined(REGARD_HAS_AVX512_BF16)
namespace avx512_bf16 {
extern const AttentionBf16Kernels kAttentionBf16;
extern const GemmBf16Kernels kGemmBf16;
}
#endif

namespace {

const KernelSet kSets[] = {
    REGARD_SET(Isa::kBaseline, baseline),
#if defined(REGARD_HAS_AVX2)
    REGARD_SET(Isa::kAvx2, avx2),
#endif
#if defined(REGARD_HAS_AVX512)
    REGARD_SET(Isa::kAvx512, avx512),
#endif
#if defined(REGARD_HAS_AVX512_BF16)
    // In f32 it is avx512, not one bit apart.
    {Isa::kAvx512Bf16, &avx512::kElementwise, &avx512::kLinear, &avx512::kAttention, &avx512::kAttentionBackward,
     &avx512::kGemm, &avx512::kTraining, &avx512::kAttentionStatistics, &avx512_bf16::kAttentionBf16, &avx512_bf16::kGemmBf16},
#endif
};

std::atomic<const KernelSet*> g_forced{nullptr};

}  // namespace

const KernelSet& kernel_set(Isa isa) {
  if (cpu_supports(isa))
    for (const KernelSet& set : kSets)
      if (set.isa == isa) return set;
  fail(Code::kUnsupported, "[kernel_set] this machine or this build has no {}", isa_name(isa));
}

const KernelSet& kernels() {
  if (const KernelSet* forced = g_forced.load(std::memory_order_acquire)) return *forced;
  static const KernelSet& chosen = kernel_set(chosen_isa());
  return chosen;
}

ForcedIsa::ForcedIsa(Isa isa) : before_(g_forced.exchange(&kernel_set(isa))) {}
ForcedIsa::~ForcedIsa() { g_forced.store(before_); }

}  // namespace regard::kernels
