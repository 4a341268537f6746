// Threads of our own, made for many short phases: a decoded token is some two hundred calls of for_each of about twenty
// microseconds each. Start reading at for_each() below, then at participate() in the .cc file.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>

#include "regard/stop_token.h"

namespace regard {

/// Whether each worker is bound to a CPU of its own. Bound workers cannot be moved out of the way of another process, so
/// floating is the default; binding pays on a machine that runs nothing else.
enum class Pinning { kFloating, kPinned };

/// A fixed set of threads that run the items of one call at a time. The caller is thread 0 and works too, so a pool of
/// size 1 is a plain loop and starts nothing.
///
/// Threads: any thread may call; calls from several threads take turns. A call made from inside a task runs on the thread
/// that makes it, under that thread's number (number 0 when the task belongs to another pool).
/// Determinism: which thread runs an item is not defined; an item's result must not depend on it.
/// Floating point: every item starts under the default control word, whatever the caller's is, and the caller keeps its own.
/// fork(): the child starts its own workers at its first call; forking from inside a task is not supported.
/// Cost: no allocation per call. Idle workers spin for some tens of microseconds, then yield, then sleep after a millisecond.
class ThreadPool {
 public:
  static constexpr int kMaxThreads = 1024;

  /// Errors: kInvalidArgument unless 1 <= threads <= kMaxThreads; kResourceExhausted when the system refuses a thread.
  /// kPinned is ignored when there are fewer CPUs in the affinity mask than threads.
  explicit ThreadPool(int threads, Pinning pinning = Pinning::kFloating);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const noexcept { return size_; }

  /// Ends all workers and starts others, so that size() is `threads`. No call may be running or start meanwhile, and what
  /// was laid out by size() has to be laid out again. Errors: as the constructor.
  void resize(int threads);

  /// Calls f(int thread) once on each thread and returns when all have returned. (Inside a task: once for each number.)
  /// Errors: what f throws; when several throw, the one of the lowest thread.
  template <class F>
  void run(F&& f) {
    auto call = [&f](int64_t thread, int) { f(static_cast<int>(thread)); };
    dispatch(Job{&invoke<decltype(call)>, &call, nullptr}, size_, Sharing::kOnePerThread);
  }

  /// Calls f(int64_t item, int thread) once for every item in [0, items) and returns when all items are done; it does not
  /// wait for a thread that has nothing to do. Thread t of n owns the contiguous stretch [items*t/n, items*(t+1)/n) and takes
  /// it in order; then it takes single items from the end of the longest stretch that is left. `thread` is unique among
  /// the items of this call that run at the same time.
  /// Errors: what f throws; of several, the one of the lowest item, and items behind that one may be left out.
  /// kCancelled when `stop` was requested before the last item began; items that had begun are finished.
  template <class F>
  void for_each(int64_t items, F&& f, const StopToken* stop = nullptr) {
    dispatch(Job{&invoke<std::remove_reference_t<F>>, const_cast<void*>(static_cast<const void*>(&f)), stop}, items,
             Sharing::kStealing);
  }

 private:
  struct Job {
    void (*invoke)(void* context, int64_t item, int thread) = nullptr;
    void* context = nullptr;
    const StopToken* stop = nullptr;
  };
  enum class Sharing { kStealing, kOnePerThread };
  class Team;

  template <class F>
  static void invoke(void* context, int64_t item, int thread) {
    (*static_cast<F*>(context))(item, thread);
  }

  void dispatch(const Job& job, int64_t items, Sharing sharing);
  static void run_here(const Job& job, int64_t items, int thread, const ThreadPool* owner);
  void renew_after_fork();

  int size_;
  Pinning pinning_;
  std::atomic<uint64_t> generation_;  // how many forks lie behind the process that made team_
  std::mutex turn_;                   // held during a call
  std::unique_ptr<Team> team_;
};

/// The pool that everything uses which was not given one. Made at first use with the size that set_default_pool_size() or
/// REGARD_THREADS gave, else with cpu_budget(). Never destroyed.
ThreadPool& default_pool();

/// Sets the size of default_pool(); when the pool exists already it is resized, under the conditions of resize().
void set_default_pool_size(int threads);

}  // namespace regard
