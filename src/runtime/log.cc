#include "runtime/log.h"

#include <atomic>
#include <mutex>

namespace regard {
namespace {

struct Sink {
  LogCallback callback = nullptr;
  void* context = nullptr;
};
std::mutex sink_mutex;
Sink sink;
std::atomic<bool> listening{false};

}  // namespace

bool log_enabled() noexcept { return listening.load(std::memory_order_relaxed); }

void log_message(LogLevel level, std::string_view message) {
  Sink to;
  {
    const std::lock_guard lock(sink_mutex);
    to = sink;
  }
  // Called without the lock, so that a callback may log, or replace itself.
  if (to.callback != nullptr) to.callback(level, message, to.context);
}

void set_log_callback(LogCallback callback, void* context) {
  const std::lock_guard lock(sink_mutex);
  sink = {callback, context};
  listening.store(callback != nullptr, std::memory_order_relaxed);
}

}  // namespace regard
