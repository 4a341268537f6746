// The description of the machine, and the message callback.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/isa.h"
#include "regard/error.h"
#include "regard/runtime.h"
#include "runtime/log.h"

namespace regard {
namespace {

TEST(Machine, SaysWhatTheSystemSays) {
  const MachineInfo info = machine_info();
  EXPECT_EQ(info.isa, isa_name(chosen_isa()));
  ASSERT_FALSE(info.isas.empty());
  EXPECT_EQ(info.isas.front(), "baseline");
  EXPECT_EQ(info.isas.back(), isa_name(best_isa()));
  EXPECT_EQ(info.cpus_online, sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_GE(info.cpus_allowed, 1);
  EXPECT_LE(info.cpus_allowed, sysconf(_SC_NPROCESSORS_CONF));
  EXPECT_EQ(info.threads, num_threads());
  // /proc/meminfo and sysconf() count the same memory, in KiB and in pages.
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  EXPECT_EQ(info.memory_bytes, pages * page);
  EXPECT_GT(info.memory_available_bytes, 0);
  EXPECT_LT(info.memory_available_bytes, info.memory_bytes);
  EXPECT_FALSE(compiler_name().empty());
  int c_libraries = 0;
  for (const std::string& name : loaded_libraries()) c_libraries += name.starts_with("libc.so") ? 1 : 0;
  EXPECT_EQ(c_libraries, 1);
}

TEST(Machine, ThreadsCanBeSet) {
  const int before = num_threads();
  set_num_threads(3);
  EXPECT_EQ(num_threads(), 3);
  EXPECT_THROW(set_num_threads(0), Error);
  EXPECT_EQ(num_threads(), 3);
  set_num_threads(before);
}

TEST(Log, GoesToTheCallbackOrNowhere) {
  std::vector<std::pair<LogLevel, std::string>> seen;
  EXPECT_FALSE(log_enabled());
  log(LogLevel::kInfo, "nobody hears {}", 1);
  set_log_callback([](LogLevel level, std::string_view message,
                      void* context) { static_cast<decltype(seen)*>(context)->emplace_back(level, message); },
                   &seen);
  EXPECT_TRUE(log_enabled());
  log(LogLevel::kWarning, "tensor '{}' has {} bytes", "a", 12);
  set_log_callback(nullptr, nullptr);
  log(LogLevel::kError, "dropped");
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].first, LogLevel::kWarning);
  EXPECT_EQ(seen[0].second, "tensor 'a' has 12 bytes");
}

}  // namespace
}  // namespace regard
