// How many CPUs this process may really use: its affinity mask and the quota of its control groups. A container that was
// given two CPUs of a large machine must not start sixty-four threads.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace regard {

/// Numbers of the CPUs in the affinity mask of this process, rising. At least one.
std::vector<int> affinity_cpus();

/// CPUs' worth of time that the control groups of this process allow (version 1 or 2, the tightest of all levels), or
/// nothing when there is no limit. `root` stands before /proc and /sys, so that a test can lay out a tree of its own.
std::optional<double> cgroup_cpu_quota(const std::string& root = "");

/// Threads a pool starts when nobody says otherwise: the affinity mask and the quota (rounded down), whichever is less; at
/// least 1.
int cpu_budget();

/// REGARD_THREADS when it is set, else cpu_budget(). Errors: kInvalidArgument when the variable is not a number in [1, 1024].
int configured_thread_count();

}  // namespace regard
