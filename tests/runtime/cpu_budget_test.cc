// How many threads a process may start: laid-out control group trees, and the environment variable.
#include "runtime/cpu_budget.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/check.h"

namespace regard {
namespace {

namespace fs = std::filesystem;

// A directory that looks like / as far as the quota goes.
class CgroupTree : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) / ("regard_cgroup_" + std::to_string(getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const fs::path file = root_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<double> quota() const { return cgroup_cpu_quota(root_.string()); }

  fs::path root_;
};

TEST_F(CgroupTree, NothingThereIsNoLimit) { EXPECT_EQ(quota(), std::nullopt); }

TEST_F(CgroupTree, Version2TakesTheTightestLevel) {
  write("proc/self/cgroup", "0::/user.slice/job\n");
  write("sys/fs/cgroup/user.slice/job/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota(), 4.0);
  write("sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 1.5);
}

TEST_F(CgroupTree, Version2InAContainerSeesItsRoot) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(CgroupTree, Version1ReadsQuotaAndPeriod) {
  write("proc/self/cgroup", "12:pids:/a\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/docker/abc\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(CgroupTree, NonsenseIsNoLimit) {
  write("proc/self/cgroup", "0::/\nbroken\n:\n5:cpuset:/\n");
  for (const char* text : {"", "max", "0 100000", "-5 100000", "100000 0", "1e5 100000", "99999999999999999999 1"}) {
    write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(quota(), std::nullopt) << text;
  }
}

TEST(CpuBudget, FollowsTheAffinityMask) {
  const std::vector<int> all = affinity_cpus();
  ASSERT_FALSE(all.empty());
  EXPECT_LE(cpu_budget(), static_cast<int>(all.size()));
  EXPECT_GE(cpu_budget(), 1);
  cpu_set_t saved, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof saved, &saved), 0);
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(all.back()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(affinity_cpus(), std::vector<int>{all.back()});
  EXPECT_EQ(cpu_budget(), 1);
  sched_setaffinity(0, sizeof saved, &saved);
}

TEST(CpuBudget, TheEnvironmentOverridesAndIsChecked) {
  const char* saved = std::getenv("REGARD_THREADS");
  const std::string restore = saved != nullptr ? saved : "";
  setenv("REGARD_THREADS", "7", 1);
  EXPECT_EQ(configured_thread_count(), 7);
  for (const char* wrong : {"0", "-1", "two", "3.5", "4 ", "1025", "99999999999999999999"}) {
    setenv("REGARD_THREADS", wrong, 1);
    try {
      configured_thread_count();
      ADD_FAILURE() << wrong << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(wrong), std::string::npos);
    }
  }
  setenv("REGARD_THREADS", "", 1);
  EXPECT_EQ(configured_thread_count(), cpu_budget());
  if (saved != nullptr) {
    setenv("REGARD_THREADS", restore.c_str(), 1);
  } else {
    unsetenv("REGARD_THREADS");
  }
}

}  // namespace
}  // namespace regard
