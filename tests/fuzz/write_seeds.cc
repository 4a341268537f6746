// In libFuzzer programs: "program --write-seeds DIRECTORY" writes the seeds there as files and ends.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc != 3 || std::string_view((*argv)[1]) != "--write-seeds") return 0;
  size_t number = 0;
  if (regard::fuzz::seeds != nullptr) {
    for (const std::string& seed : regard::fuzz::seeds()) {
      std::ofstream out(std::string((*argv)[2]) + "/seed-" + std::to_string(number++), std::ios::binary);
      out << seed;
      if (!out.flush()) std::exit(9);
    }
  }
  std::printf("%zu seeds\n", number);
  std::exit(0);
}
