#include "base/isa.h"

#include <cstdlib>

#include "base/check.h"

namespace regard {

std::string_view isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::kBaseline: return "baseline";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Bf16: return "avx512_bf16";
  }
  return "baseline";
}

std::optional<Isa> isa_from_name(std::string_view name) noexcept {
  for (Isa isa : kAllIsas)
    if (isa_name(isa) == name) return isa;
  return std::nullopt;
}

namespace {

// All of them, unless the CMake option REGARD_ISAS named some.
bool is_built(Isa isa) noexcept {
  switch (isa) {
#if defined(REGARD_WITHOUT_AVX2)
    case Isa::kAvx2: return false;
#endif
#if defined(REGARD_WITHOUT_AVX512)
    case Isa::kAvx512: return false;
#endif
#if defined(REGARD_WITHOUT_AVX512_BF16)
    case Isa::kAvx512Bf16: return false;
#endif
    default: return true;
  }
}

bool machine_has(Isa isa) noexcept {
#if defined(__x86_64__)
  // The compiler's run-time support asks CPUID and XGETBV, so a register file that the system does not save counts as absent.
  __builtin_cpu_init();
  switch (isa) {
    case Isa::kBaseline: return true;
    case Isa::kAvx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case Isa::kAvx512:
      return machine_has(Isa::kAvx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case Isa::kAvx512Bf16: return machine_has(Isa::kAvx512) && __builtin_cpu_supports("avx512bf16");
  }
  return false;
#else
  return isa == Isa::kBaseline;
#endif
}

}  // namespace

bool cpu_supports(Isa isa) noexcept { return is_built(isa) && machine_has(isa); }

Isa best_isa() noexcept {
  Isa best = Isa::kBaseline;
  for (Isa isa : kAllIsas)
    if (cpu_supports(isa)) best = isa;
  return best;
}

Isa chosen_isa() {
  const char* forced = std::getenv("REGARD_ISA");
  if (forced == nullptr || *forced == '\0') return best_isa();
  const std::optional<Isa> isa = isa_from_name(forced);
  require(isa.has_value(), "[REGARD_ISA] '{}' is no instruction set of this library; expected baseline, avx2, avx512 or avx512_bf16", forced);
  if (!is_built(*isa))
    fail(Code::kUnsupported,
         "[REGARD_ISA] this library was built without {} (its CMake option REGARD_ISAS); the best it has here is {}; unset "
         "REGARD_ISA to use that",
         forced, isa_name(best_isa()));
  if (!cpu_supports(*isa))
    fail(Code::kUnsupported, "[REGARD_ISA] this machine has no {}; the best it has is {}; unset REGARD_ISA to use that", forced,
         isa_name(best_isa()));
  return *isa;
}

}  // namespace regard
