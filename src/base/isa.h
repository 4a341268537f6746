// Instruction sets that kernels exist for, and which of them this machine can run.
#pragma once

#include <optional>
#include <string_view>

namespace regard {

/// From the one that every machine has to the widest. The order is the order of preference, last first.
/// kAvx512Bf16 is kAvx512 with bf16 dot products: the same kernels, and a few more.
enum class Isa { kBaseline, kAvx2, kAvx512, kAvx512Bf16 };
inline constexpr Isa kAllIsas[] = {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16};

/// "baseline", "avx2", "avx512" or "avx512_bf16": the names that REGARD_ISA takes.
std::string_view isa_name(Isa isa) noexcept;
std::optional<Isa> isa_from_name(std::string_view name) noexcept;

/// True when the processor and the operating system provide the instructions of `isa`, and this build has its kernels.
bool cpu_supports(Isa isa) noexcept;
Isa best_isa() noexcept;

/// The instruction set to use: REGARD_ISA where it is set, else the best one.
/// Errors: kInvalidArgument for a name that does not exist, kUnsupported for one that this machine or this build lacks.
Isa chosen_isa();

}  // namespace regard
