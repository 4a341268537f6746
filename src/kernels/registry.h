// Which kernels run: one set per instruction set, chosen once from REGARD_ISA or the machine. Tests force another one.
#pragma once

#include "base/isa.h"
#include "kernels/attention.h"
#include "kernels/attention_backward.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/linear.h"
#include "kernels/training.h"

namespace regard::kernels {

struct AttentionStatisticsKernels;
struct AttentionBf16Kernels;
struct GemmBf16Kernels;

struct KernelSet {
  Isa isa;
  const ElementwiseKernels* elementwise;
  const LinearKernels* linear;
  const AttentionKernels* attention;
  const AttentionBackwardKernels* attention_backward;
  const GemmKernels* gemm;
  const TrainingKernels* training;
  const AttentionStatisticsKernels* attention_statistics;
  // On bf16 dot products; null: this set has none.
  const AttentionBf16Kernels* attention_bf16 = nullptr;
  const GemmBf16Kernels* gemm_bf16 = nullptr;
};

/// The set of an instruction set that the machine and this build have. Errors: kUnsupported when one of them has not.
const KernelSet& kernel_set(Isa isa);

/// The set in use. Errors as chosen_isa(), on the first call only.
const KernelSet& kernels();

/// Puts another set in use for as long as the object lives; for tests, while nothing else computes.
class ForcedIsa {
 public:
  explicit ForcedIsa(Isa isa);
  ~ForcedIsa();
  ForcedIsa(const ForcedIsa&) = delete;
  ForcedIsa& operator=(const ForcedIsa&) = delete;

 private:
  const KernelSet* before_;
};

}  // namespace regard::kernels
