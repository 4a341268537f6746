#include "kernels/attention_statistics.h"

namespace regard::kernels {

namespace baseline {
extern const AttentionStatisticsKernels kAttentionStatistics;
}
#if defined(__x86_64__)
namespace avx2 {
extern const AttentionStatisticsKernels kAttentionStatistics;
}
namespace avx512 {
extern const AttentionStatisticsKernels kAttentionStatistics;
}
#endif

const AttentionStatisticsKernels& attention_statistics_kernels(Isa isa) noexcept {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return avx2::kAttentionStatistics;
  if (isa == Isa::kAvx512 || isa == Isa::kAvx512Bf16) return avx512::kAttentionStatistics;
#endif
  static_cast<void>(isa);
  return baseline::kAttentionStatistics;
}

}  // namespace regard::kernels
