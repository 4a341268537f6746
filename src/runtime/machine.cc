// What `regard doctor` prints and a reporter copies: read from /proc, /sys and sysconf, and never guessed.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <vector>

#include "base/isa.h"
#include "regard/runtime.h"
#include "runtime/cpu_budget.h"
#include "runtime/thread_pool.h"

namespace regard {
namespace {

// The text behind the first ':' of the first line that begins with `key`.
std::string value_in(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

int64_t leading_number(std::string_view text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

int64_t meminfo_bytes(std::string_view key) { return leading_number(value_in("/proc/meminfo", key)) * 1024; }

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The data or unified cache of `level` of CPU 0. sysconf() answers 0 on some virtual machines, /sys does not.
int64_t cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string directory = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    if (leading_number(line_of(directory + "level")) != level || line_of(directory + "type") == "Instruction") continue;
    const std::string size = line_of(directory + "size");
    const int64_t unit = size.ends_with('K') ? 1024 : size.ends_with('M') ? 1024 * 1024 : 1;
    return leading_number(size) * unit;
  }
  const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
  return std::max<int64_t>(0, sysconf(names[level - 1]));
}

// Version 2 writes "max" and version 1 a number near 2^63 for no limit.
int64_t memory_limit(int64_t memory) {
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const int64_t limit = leading_number(line_of(path));
    if (limit > 0 && (memory == 0 || limit < memory)) return limit;
  }
  return 0;
}

}  // namespace

int num_threads() { return default_pool().size(); }

void set_num_threads(int threads) { set_default_pool_size(threads); }

MachineInfo machine_info() {
  MachineInfo info;
  info.cpu_name = value_in("/proc/cpuinfo", "model name");
  info.isa = isa_name(chosen_isa());
  for (Isa isa : kAllIsas) {
    if (cpu_supports(isa)) info.isas.emplace_back(isa_name(isa));
  }
  info.cpus_online = static_cast<int>(std::max<int64_t>(0, sysconf(_SC_NPROCESSORS_ONLN)));
  info.cpus_allowed = static_cast<int>(affinity_cpus().size());
  info.cpu_quota = cgroup_cpu_quota().value_or(0);
  info.threads = num_threads();
  info.l1_data_bytes = cache_bytes(1);
  info.l2_bytes = cache_bytes(2);
  info.l3_bytes = cache_bytes(3);
  info.memory_bytes = meminfo_bytes("MemTotal");
  info.memory_available_bytes = meminfo_bytes("MemAvailable");
  info.memory_limit_bytes = memory_limit(info.memory_bytes);
  return info;
}

std::vector<std::string> loaded_libraries() {
  // The kernel's list of mapped files names what really runs, with full versions, whatever the build was told.
  std::ifstream maps("/proc/self/maps");
  std::vector<std::string> libraries;
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.find_last_of('/');
    if (slash == std::string::npos || line.find(".so", slash) == std::string::npos) continue;
    const std::string name = line.substr(slash + 1);
    if (std::find(libraries.begin(), libraries.end(), name) == libraries.end()) libraries.push_back(name);
  }
  std::sort(libraries.begin(), libraries.end());
  return libraries;
}

std::string compiler_name() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace regard
