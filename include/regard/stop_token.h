// Asking a long computation to stop. One flag, set from anywhere (a signal handler included), polled between tiles.
#pragma once

#include <atomic>

namespace regard {

/// A stop request. Setting it is async-signal-safe; the computation that polls it ends with Error(kCancelled) and leaves
/// every object it was given as it was before the unfinished step.
class StopToken {
 public:
  void request_stop() noexcept { stop_.store(true, std::memory_order_relaxed); }
  void reset() noexcept { stop_.store(false, std::memory_order_relaxed); }
  bool stop_requested() const noexcept { return stop_.load(std::memory_order_relaxed); }

 private:
  static_assert(std::atomic<bool>::is_always_lock_free);
  std::atomic<bool> stop_{false};
};

}  // namespace regard
