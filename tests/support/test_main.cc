// main() of every unit test program. A program that was asked for an instruction set that this machine lacks says so and
// ends with 77, which the test runner counts as skipped.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool machine_has(const char* isa) {
#if defined(__x86_64__)
  if (std::strcmp(isa, "avx2") == 0) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (std::strcmp(isa, "avx512_bf16") == 0) return machine_has("avx512") && __builtin_cpu_supports("avx512bf16");
  if (std::strcmp(isa, "avx512") == 0)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
#endif
  return std::strcmp(isa, "baseline") == 0;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const char* isa = std::getenv("REGARD_ISA"); isa != nullptr && !machine_has(isa)) {
    std::printf("skipped: this machine has no %s\n", isa);
    return 77;
  }
  return RUN_ALL_TESTS();
}
