#include "runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/cpu_budget.h"
#include "runtime/fp_control.h"

namespace regard {
namespace {

using Clock = std::chrono::steady_clock;

// Waiting goes through three stages. About 2000 pauses are some tens of microseconds, longer than the gap between two phases
// of a token; yielding lets another process have the core; sleeping costs microseconds to wake from and comes last.
constexpr int kSpinPauses = 2000;
constexpr auto kYieldFor = std::chrono::microseconds(1000);
constexpr auto kYieldForWhenCrowded = std::chrono::microseconds(100);  // more threads than CPUs: give the core away early

constexpr int64_t kNoFailure = std::numeric_limits<int64_t>::max();

// A stretch of items [begin, end) in one word, so that its owner (at the front) and thieves (at the end) can each take an
// item by compare-and-swap. The top bit forbids stealing. A taken item is taken from the job that is current: whoever still
// looks at an older job's word fails the swap or, when the words are equal, takes a valid item of the new job.
constexpr uint64_t kForOwnerOnly = uint64_t{1} << 63;
constexpr int64_t kMaxItems = (int64_t{1} << 31) - 1;

constexpr uint64_t pack(int64_t begin, int64_t end) { return static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(end); }
constexpr int64_t begin_of(uint64_t word) { return static_cast<int64_t>((word & ~kForOwnerOnly) >> 32); }
constexpr int64_t end_of(uint64_t word) { return static_cast<int64_t>(word & 0xFFFFFFFFu); }

struct alignas(64) Stretch {
  std::atomic<uint64_t> word{0};
};

inline void cpu_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Which task this thread is inside of, if any.
struct Inside {
  const ThreadPool* pool = nullptr;
  int thread = 0;
};
thread_local Inside inside_task;

class InsideScope {
 public:
  InsideScope(const ThreadPool* pool, int thread) noexcept : saved_(inside_task) { inside_task = {pool, thread}; }
  ~InsideScope() { inside_task = saved_; }
  InsideScope(const InsideScope&) = delete;
  InsideScope& operator=(const InsideScope&) = delete;

 private:
  Inside saved_;
};

// How many forks lie between the first process and this one. The mutex is held across fork() so that no child inherits
// it in the middle of renew_after_fork().
std::atomic<uint64_t> fork_generation{0};
std::mutex& fork_mutex() {
  static auto* mutex = new std::mutex;  // never destroyed: a thread may still be inside when statics go
  return *mutex;
}
uint64_t watch_forks() {
  static const int registered = pthread_atfork([] { fork_mutex().lock(); }, [] { fork_mutex().unlock(); },
                                               [] {
                                                 fork_generation.fetch_add(1, std::memory_order_relaxed);
                                                 fork_mutex().unlock();
                                               });
  if (registered != 0) fail(Code::kResourceExhausted, "[ThreadPool] pthread_atfork has no memory");
  return fork_generation.load(std::memory_order_relaxed);
}

// Signals are for the threads of the program. Only those that a thread raises by its own fault, and the profiler's, stay open.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t set;
    sigfillset(&set);
    for (int kept : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF}) sigdelset(&set, kept);
    pthread_sigmask(SIG_SETMASK, &set, &saved_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t saved_;
};

void check_size(int threads) {
  require(threads >= 1 && threads <= ThreadPool::kMaxThreads, "[ThreadPool] {} threads; give a number from 1 to {}", threads,
          ThreadPool::kMaxThreads);
}

[[noreturn]] void fail_cancelled() { fail(Code::kCancelled, "[ThreadPool] stopped on request"); }

}  // namespace

// The workers and what they share. A job is published by writing its fields, then the stretches, then a new epoch; a
// worker reads the fields only after it took an item, and the job cannot end before that item is reported, so the fields
// it reads are those of the item's job.
class ThreadPool::Team {
 public:
  Team(const ThreadPool* pool, int size, Pinning pinning) : pool_(pool), size_(size), stretches_(new Stretch[static_cast<size_t>(size)]) {
    const std::vector<int> cpus = affinity_cpus();
    crowded_ = static_cast<size_t>(size) > cpus.size();
    const SignalsBlocked blocked;
    workers_.reserve(static_cast<size_t>(size - 1));
    try {
      for (int thread = 1; thread < size; ++thread) {
        workers_.emplace_back([this, thread] { work(thread); });
        const std::string name = "regard-" + std::to_string(thread);
        pthread_setname_np(workers_.back().native_handle(), name.c_str());
        if (pinning == Pinning::kPinned && !crowded_) pin(workers_.back(), cpus[static_cast<size_t>(thread)]);
      }
    } catch (const std::system_error& error) {
      const size_t started = workers_.size();
      end_workers();
      fail(Code::kResourceExhausted, "[ThreadPool] {} of {} workers started, then: {}", started, size - 1, error.what());
    }
  }

  ~Team() { end_workers(); }

  void execute(const Job& job, int64_t items, Sharing sharing) {
    job_ = job;
    first_failure_.store(kNoFailure, std::memory_order_relaxed);
    stopped_.store(false, std::memory_order_relaxed);
    pending_.store(static_cast<int32_t>(items), std::memory_order_relaxed);
    for (int t = 0; t < size_; ++t) {
      const uint64_t word = sharing == Sharing::kOnePerThread ? pack(t, t + 1) | kForOwnerOnly
                                                              : pack(items * t / size_, items * (t + 1) / size_);
      stretches_[static_cast<size_t>(t)].word.store(word, std::memory_order_release);
    }
    epoch_.fetch_add(1);  // sequentially consistent, as is the count of sleepers: one of the two sides sees the other
    if (sleepers_.load() > 0) epoch_.notify_all();

    participate(0);
    wait_until_done();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (stopped_.load(std::memory_order_relaxed)) fail_cancelled();
  }

  // In a child of fork() the workers do not exist, and joining them would wait for ever: everything is left behind.
  static void abandon(std::unique_ptr<Team> team) { static_cast<void>(team.release()); }

 private:
  static void pin(std::jthread& worker, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu >= CPU_SETSIZE) return;
    CPU_SET(static_cast<size_t>(cpu), &set);
    pthread_setaffinity_np(worker.native_handle(), sizeof set, &set);  // on failure the worker floats, which is only slower
  }

  void end_workers() {
    ending_.store(true, std::memory_order_relaxed);
    epoch_.fetch_add(1);
    epoch_.notify_all();
    workers_.clear();
  }

  void work(int thread) {
    uint32_t seen = 0;
    for (;;) {
      seen = wait_for_news(seen);
      if (ending_.load(std::memory_order_relaxed)) return;
      participate(thread);
    }
  }

  uint32_t wait_for_news(uint32_t seen) {
    uint32_t now = epoch_.load(std::memory_order_acquire);
    for (int i = 0; now == seen && !crowded_ && i < kSpinPauses; ++i) {
      cpu_pause();
      now = epoch_.load(std::memory_order_acquire);
    }
    if (now != seen) return now;
    const auto until = Clock::now() + yield_for();
    while (now == seen && Clock::now() < until) {
      std::this_thread::yield();
      now = epoch_.load(std::memory_order_acquire);
    }
    if (now != seen) return now;
    sleepers_.fetch_add(1);
    epoch_.wait(seen);
    sleepers_.fetch_sub(1);
    return epoch_.load(std::memory_order_acquire);
  }

  void wait_until_done() {
    int32_t left = pending_.load(std::memory_order_acquire);
    for (int i = 0; left != 0 && !crowded_ && i < kSpinPauses; ++i) {
      cpu_pause();
      left = pending_.load(std::memory_order_acquire);
    }
    if (left == 0) return;
    const auto until = Clock::now() + yield_for();
    while (left != 0 && Clock::now() < until) {
      std::this_thread::yield();
      left = pending_.load(std::memory_order_acquire);
    }
    while (left != 0) {
      caller_sleeps_.store(true);
      left = pending_.load();
      if (left != 0) pending_.wait(left);
      left = pending_.load(std::memory_order_acquire);
    }
    caller_sleeps_.store(false, std::memory_order_relaxed);
  }

  std::chrono::microseconds yield_for() const { return crowded_ ? kYieldForWhenCrowded : kYieldFor; }

  // Runs items of the current job, if there is one, until none is left to take. Finished items are reported at once for all:
  // until then the job cannot end, so all items of one visit belong to one job.
  void participate(int thread) {
    const FpControlScope fp;
    const InsideScope inside(pool_, thread);
    int32_t finished = 0;
    Stretch& own = stretches_[static_cast<size_t>(thread)];
    for (;;) {
      uint64_t word = own.word.load(std::memory_order_acquire);
      if (begin_of(word) >= end_of(word)) break;
      const uint64_t rest = pack(begin_of(word) + 1, end_of(word)) | (word & kForOwnerOnly);
      if (!own.word.compare_exchange_weak(word, rest, std::memory_order_acquire, std::memory_order_acquire)) continue;
      run_item(begin_of(word), thread);
      ++finished;
    }
    for (int64_t item = steal(); item >= 0; item = steal()) {
      run_item(item, thread);
      ++finished;
    }
    if (finished == 0) return;
    if (pending_.fetch_sub(finished) == finished && caller_sleeps_.load()) pending_.notify_all();
  }

  // Takes the last item of the longest stretch, or returns -1 when there is nothing to take.
  int64_t steal() {
    for (;;) {
      Stretch* longest = nullptr;
      uint64_t longest_word = 0;
      int64_t most = 0;
      for (int t = 0; t < size_; ++t) {
        Stretch& stretch = stretches_[static_cast<size_t>(t)];
        const uint64_t word = stretch.word.load(std::memory_order_acquire);
        if ((word & kForOwnerOnly) != 0 || end_of(word) - begin_of(word) <= most) continue;
        longest = &stretch;
        longest_word = word;
        most = end_of(word) - begin_of(word);
      }
      if (longest == nullptr) return -1;
      const int64_t last = end_of(longest_word) - 1;
      if (longest->word.compare_exchange_strong(longest_word, pack(begin_of(longest_word), last), std::memory_order_acquire,
                                                std::memory_order_relaxed)) {
        return last;
      }
    }
  }

  void run_item(int64_t item, int thread) {
    if (item > first_failure_.load(std::memory_order_relaxed)) return;
    if (job_.stop != nullptr && job_.stop->stop_requested()) {
      stopped_.store(true, std::memory_order_relaxed);
      return;
    }
    FpControlScope::set_default();
    try {
      job_.invoke(job_.context, item, thread);
    } catch (...) {
      const std::lock_guard lock(failure_mutex_);
      if (item < first_failure_.load(std::memory_order_relaxed)) {
        first_failure_.store(item, std::memory_order_relaxed);
        failure_ = std::current_exception();
      }
    }
  }

  const ThreadPool* pool_;
  int size_;
  bool crowded_ = false;
  std::unique_ptr<Stretch[]> stretches_;

  Job job_;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  alignas(64) std::atomic<int64_t> first_failure_{kNoFailure};
  std::atomic<bool> stopped_{false};
  alignas(64) std::atomic<int32_t> pending_{0};
  std::atomic<bool> caller_sleeps_{false};
  alignas(64) std::atomic<uint32_t> epoch_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> ending_{false};

  std::vector<std::jthread> workers_;
};

ThreadPool::ThreadPool(int threads, Pinning pinning) : size_(threads), pinning_(pinning), generation_(watch_forks()) {
  check_size(threads);
  if (size_ > 1) team_ = std::make_unique<Team>(this, size_, pinning_);
}

ThreadPool::~ThreadPool() {
  if (generation_.load() != fork_generation.load()) Team::abandon(std::move(team_));
}

void ThreadPool::resize(int threads) {
  check_size(threads);
  renew_after_fork();
  const std::lock_guard turn(turn_);
  team_.reset();
  size_ = 1;  // what holds if the next line throws
  if (threads > 1) team_ = std::make_unique<Team>(this, threads, pinning_);
  size_ = threads;
}

void ThreadPool::renew_after_fork() {
  const std::lock_guard lock(fork_mutex());
  if (generation_.load() == fork_generation.load()) return;
  Team::abandon(std::move(team_));
  new (&turn_) std::mutex;  // the parent may have held it at the fork; nobody in this process can
  if (size_ > 1) team_ = std::make_unique<Team>(this, size_, pinning_);
  generation_.store(fork_generation.load(), std::memory_order_release);
}

// The same contract on the calling thread alone.
void ThreadPool::run_here(const Job& job, int64_t items, int thread, const ThreadPool* owner) {
  const FpControlScope fp;
  const InsideScope inside(owner, thread);
  for (int64_t item = 0; item < items; ++item) {
    if (job.stop != nullptr && job.stop->stop_requested()) fail_cancelled();
    FpControlScope::set_default();
    job.invoke(job.context, item, thread);
  }
}

void ThreadPool::dispatch(const Job& job, int64_t items, Sharing sharing) {
  require(items >= 0 && items <= kMaxItems, "[ThreadPool::for_each] {} items; give 0 to {}", items, kMaxItems);
  const Inside outer = inside_task;
  if (outer.pool != nullptr) return run_here(job, items, outer.pool == this ? outer.thread : 0, outer.pool);
  if (size_ == 1 || (items <= 1 && sharing == Sharing::kStealing)) return run_here(job, items, 0, this);
  if (generation_.load(std::memory_order_acquire) != fork_generation.load(std::memory_order_relaxed)) renew_after_fork();
  const std::lock_guard turn(turn_);
  team_->execute(job, items, sharing);
}

namespace {
std::mutex default_pool_mutex;
std::atomic<ThreadPool*> default_pool_made{nullptr};
}  // namespace

ThreadPool& default_pool() {
  if (ThreadPool* pool = default_pool_made.load(std::memory_order_acquire)) return *pool;
  const std::lock_guard lock(default_pool_mutex);
  if (default_pool_made.load(std::memory_order_relaxed) == nullptr) {
    default_pool_made.store(new ThreadPool(configured_thread_count()), std::memory_order_release);
  }
  return *default_pool_made.load(std::memory_order_relaxed);
}

void set_default_pool_size(int threads) {
  const std::lock_guard lock(default_pool_mutex);
  if (ThreadPool* pool = default_pool_made.load(std::memory_order_relaxed)) return pool->resize(threads);
  default_pool_made.store(new ThreadPool(threads), std::memory_order_release);
}

}  // namespace regard
