// What the kernel says about the memory of this process.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace regard::test {

/// A field of /proc/self/status in bytes (VmRSS: resident now, VmHWM: the most so far); 0 where there is none.
inline uint64_t status_bytes(const std::string& field) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1)) * 1024;
  return 0;
}

inline int64_t peak_kib() { return static_cast<int64_t>(status_bytes("VmHWM") / 1024); }

}  // namespace regard::test
