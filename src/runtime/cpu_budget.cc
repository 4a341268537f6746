#include "runtime/cpu_budget.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/check.h"
#include "runtime/thread_pool.h"

namespace regard {
namespace {

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "200000 100000" is two CPUs, "max 100000" no limit.
std::optional<double> quota_v2(const std::string& directory) {
  std::istringstream words(first_line(directory + "/cpu.max"));
  std::string quota_text, period_text;
  if (!(words >> quota_text >> period_text)) return std::nullopt;
  const auto quota = parse_integer(quota_text), period = parse_integer(period_text);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> quota_v1(const std::string& directory) {
  const auto quota = parse_integer(first_line(directory + "/cpu.cfs_quota_us"));
  const auto period = parse_integer(first_line(directory + "/cpu.cfs_period_us"));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;  // a quota of -1 is no limit
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// The tightest limit from `group` up to the root of the hierarchy mounted at `mount`. Inside a container the group's path may
// name directories that are not mounted; those levels simply have no file.
template <class Read>
std::optional<double> tightest(const std::string& mount, std::string group, Read read) {
  std::optional<double> least;
  for (;;) {
    const auto quota = read(mount + group);
    if (quota && (!least || *quota < *least)) least = quota;
    const size_t slash = group.find_last_of('/');
    if (group.empty() || slash == std::string::npos) return least;
    group.resize(slash);
  }
}

bool lists_cpu(std::string_view controllers) {
  for (size_t begin = 0; begin <= controllers.size();) {
    const size_t end = std::min(controllers.find(',', begin), controllers.size());
    if (controllers.substr(begin, end - begin) == "cpu") return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::vector<int> affinity_cpus() {
  std::vector<int> cpus;
  // The kernel refuses a mask shorter than its own, so grow until it fits.
  for (int bits = 1024; bits <= 1 << 20 && cpus.empty(); bits *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(bits));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(bits));
    if (sched_getaffinity(0, bytes, set) == 0) {
      for (int cpu = 0; cpu < bits; ++cpu) {
        if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set)) cpus.push_back(cpu);
      }
    }
    CPU_FREE(set);
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

std::optional<double> cgroup_cpu_quota(const std::string& root) {
  std::optional<double> least;
  const auto take = [&least](std::optional<double> quota) {
    if (quota && (!least || *quota < *least)) least = quota;
  };
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // hierarchy:controllers:path
    const size_t first = line.find(':'), second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    const std::string mount = root + "/sys/fs/cgroup";
    if (controllers.empty()) {
      take(tightest(mount, path, quota_v2));
      take(tightest(mount + "/unified", path, quota_v2));
    } else if (lists_cpu(controllers)) {
      take(tightest(mount + "/" + controllers, path, quota_v1));
      take(tightest(mount + "/cpu", path, quota_v1));
    }
  }
  return least;
}

int cpu_budget() {
  const double cpus = static_cast<double>(affinity_cpus().size());
  const double budget = std::min(cpus, cgroup_cpu_quota().value_or(cpus));
  return std::clamp(static_cast<int>(budget), 1, ThreadPool::kMaxThreads);
}

int configured_thread_count() {
  const char* text = std::getenv("REGARD_THREADS");
  if (text == nullptr || *text == '\0') return cpu_budget();
  const auto count = parse_integer(text);
  require(count && *count >= 1 && *count <= ThreadPool::kMaxThreads,
          "[configured_thread_count] REGARD_THREADS is '{}'; give a whole number from 1 to {}", text, ThreadPool::kMaxThreads);
  return static_cast<int>(*count);
}

}  // namespace regard
