// The pool: every item once, owners and thieves, what is thrown, stopping, forking, the floating-point control word.
#include "runtime/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "runtime/fp_control.h"
#include "support/count_allocations.h"

namespace regard {
namespace {

using std::chrono::milliseconds;

class PoolOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, PoolOfSize, ::testing::Values(1, 2, 3, 8));

TEST_P(PoolOfSize, RunsEveryItemOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  for (int64_t items : {0, 1, 2, 3, 7, 8, 9, 100, 1000}) {
    std::vector<std::atomic<int>> counts(static_cast<size_t>(items));
    pool.for_each(items, [&](int64_t item, int thread) {
      EXPECT_GE(thread, 0);
      EXPECT_LT(thread, pool.size());
      counts[static_cast<size_t>(item)].fetch_add(1);
    });
    for (const auto& count : counts) ASSERT_EQ(count.load(), 1) << items;
  }
}

TEST_P(PoolOfSize, RunsOnceOnEachThread) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 100; ++round) {
    std::vector<std::thread::id> ids(static_cast<size_t>(pool.size()));
    pool.run([&](int thread) { ids[static_cast<size_t>(thread)] = std::this_thread::get_id(); });
    EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), ids.size());
    EXPECT_EQ(ids[0], std::this_thread::get_id());
  }
}

// Thousands of short calls with different closures: a worker that comes late from one call must never touch the next one's
// data through the old closure.
TEST_P(PoolOfSize, ShortCallsDoNotMix) {
  ThreadPool pool(GetParam());
  for (int64_t round = 1; round <= 3000; ++round) {
    const int64_t items = round % 11;
    std::vector<int64_t> out(static_cast<size_t>(items), -1);
    pool.for_each(items, [&out, round](int64_t item, int) { out[static_cast<size_t>(item)] = item * round; });
    for (int64_t i = 0; i < items; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], i * round);
    if (round % 25 == 0) {  // waits for every thread, which a busy machine makes slow
      std::atomic<int> visits{0};
      pool.run([&](int) { visits.fetch_add(1); });
      ASSERT_EQ(visits.load(), pool.size());
    }
  }
}

TEST(ThreadPool, AnIdleThreadTakesFromTheEndOfAStuckOne) {
  ThreadPool pool(2);
  std::atomic<int> done{0};
  std::vector<int> by(10, -1);
  std::vector<int64_t> order_of_thief;
  // Thread 0 owns items 0 to 4 and stays in item 0 until all others are done: only a thief can do 1 to 4.
  pool.for_each(10, [&](int64_t item, int thread) {
    by[static_cast<size_t>(item)] = thread;
    if (item == 0) {
      while (done.load() < 9) std::this_thread::yield();
    } else {
      if (item < 5) order_of_thief.push_back(item);
      done.fetch_add(1);
    }
  });
  EXPECT_NE(by[0], -1);
  for (size_t i = 1; i < 10; ++i) EXPECT_EQ(by[i], 1 - by[0]);
  if (by[0] == 0) {
    EXPECT_EQ(order_of_thief, (std::vector<int64_t>{4, 3, 2, 1}));
  }
}

TEST(ThreadPool, OwnersGoThroughContiguousStretchesInOrder) {
  ThreadPool pool(2);
  std::vector<std::vector<int64_t>> taken(2);
  std::atomic<int> started{0};
  pool.for_each(8, [&](int64_t item, int thread) {
    taken[static_cast<size_t>(thread)].push_back(item);
    if (started.fetch_add(1) < 2) {  // both threads are here before either goes on, so nothing is stolen early
      while (started.load() < 2) std::this_thread::yield();
    }
    std::this_thread::sleep_for(milliseconds(2));
  });
  ASSERT_GE(taken[0].size(), 2u);
  ASSERT_GE(taken[1].size(), 2u);
  EXPECT_EQ(taken[0][0], 0);
  EXPECT_EQ(taken[0][1], 1);
  EXPECT_EQ(taken[1][0], 4);
  EXPECT_EQ(taken[1][1], 5);
}

TEST_P(PoolOfSize, ThrowsTheFailureOfTheLowestItem) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 200; ++round) {
    std::atomic<bool> low_ran{false};
    try {
      pool.for_each(64, [&](int64_t item, int) {
        if (item == 5) low_ran = true;
        if (item == 9 || item == 40 || item == 63) throw std::runtime_error(std::to_string(item));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "9");
    }
    EXPECT_TRUE(low_ran.load());
  }
  int after = 0;
  pool.for_each(1, [&](int64_t, int) { ++after; });
  EXPECT_EQ(after, 1);
}

TEST_P(PoolOfSize, StopsBetweenItems) {
  ThreadPool pool(GetParam());
  StopToken stop;
  std::atomic<int64_t> ran{0};
  try {
    pool.for_each(100000, [&](int64_t, int) {
      if (ran.fetch_add(1) == 10) stop.request_stop();
    }, &stop);
    FAIL() << "the stop was not noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kCancelled);
  }
  EXPECT_GE(ran.load(), 11);
  EXPECT_LT(ran.load(), 100000);

  ran = 0;
  EXPECT_THROW(pool.for_each(10, [&](int64_t, int) { ran.fetch_add(1); }, &stop), Error);
  EXPECT_EQ(ran.load(), 0);
  stop.reset();
  pool.for_each(10, [&](int64_t, int) { ran.fetch_add(1); }, &stop);
  EXPECT_EQ(ran.load(), 10);
}

TEST_P(PoolOfSize, NestedCallsRunInline) {
  ThreadPool pool(GetParam());
  ThreadPool other(3);
  std::atomic<int> inner{0};
  pool.for_each(16, [&](int64_t, int thread) {
    const auto self = std::this_thread::get_id();
    pool.for_each(5, [&](int64_t, int nested) {
      EXPECT_EQ(nested, thread);
      EXPECT_EQ(std::this_thread::get_id(), self);
      inner.fetch_add(1);
    });
    other.for_each(5, [&](int64_t, int nested) {
      EXPECT_EQ(nested, 0);
      EXPECT_EQ(std::this_thread::get_id(), self);
      inner.fetch_add(1);
    });
    std::vector<int> numbers;
    pool.run([&](int number) { numbers.push_back(number); });
    std::vector<int> all(static_cast<size_t>(pool.size()));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(numbers, all);
  });
  EXPECT_EQ(inner.load(), 160);
}

TEST(ThreadPool, CallersTakeTurns) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  std::vector<std::jthread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 300; ++round) pool.for_each(20, [&](int64_t item, int) { sum.fetch_add(item); });
    });
  }
  callers.clear();
  EXPECT_EQ(sum.load(), 4 * 300 * 190);
}

TEST(ThreadPool, SleepingWorkersWakeUp) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(milliseconds(3));  // beyond the yielding stage
    std::atomic<int> visits{0};
    pool.run([&](int) { visits.fetch_add(1); });
    EXPECT_EQ(visits.load(), 3);
  }
}

TEST(ThreadPool, ASleepingCallerWakesUp) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> visits{0};
    pool.run([&](int thread) {
      if (thread == 1) std::this_thread::sleep_for(milliseconds(5));
      visits.fetch_add(1);
    });
    EXPECT_EQ(visits.load(), 2);
  }
}

#if defined(__x86_64__)
TEST_P(PoolOfSize, ItemsRunUnderTheDefaultControlWord) {
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040, kRoundUp = 0x4000;
  ThreadPool pool(GetParam());
  const unsigned before = _mm_getcsr();
  const unsigned odd = FpControlScope::kDefault | kFlushToZero | kDenormalsAreZero | kRoundUp;
  _mm_setcsr(odd);
  volatile float tiny = 0x1p-140f;
  std::vector<float> sums(40);
  pool.for_each(40, [&](int64_t item, int) {
    sums[static_cast<size_t>(item)] = tiny + tiny;
    _mm_setcsr(odd);  // what one item leaves behind must not reach the next
  });
  EXPECT_EQ(_mm_getcsr() & ~FpControlScope::kStickyFlags, odd);
  _mm_setcsr(before);
  EXPECT_THAT(sums, ::testing::Each(0x1p-139f));
}
#endif

TEST(ThreadPool, ResizesAndPins) {
  ThreadPool pool(2, Pinning::kPinned);
  for (int size : {3, 1, 2, 8}) {
    pool.resize(size);
    EXPECT_EQ(pool.size(), size);
    std::atomic<int> visits{0};
    pool.run([&](int) { visits.fetch_add(1); });
    EXPECT_EQ(visits.load(), size);
  }
  EXPECT_THROW(pool.resize(0), Error);
  EXPECT_EQ(pool.size(), 8);
}

TEST(ThreadPool, RefusesImpossibleSizes) {
  EXPECT_THROW(ThreadPool(0), Error);
  EXPECT_THROW(ThreadPool(-1), Error);
  EXPECT_THROW(ThreadPool(ThreadPool::kMaxThreads + 1), Error);
  ThreadPool pool(2);
  EXPECT_THROW(pool.for_each(-1, [](int64_t, int) {}), Error);
  EXPECT_THROW(pool.for_each(int64_t{1} << 40, [](int64_t, int) {}), Error);
}

TEST(ThreadPool, WorkersDoNotTakeSignals) {
  ThreadPool pool(2);
  pool.run([](int thread) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    EXPECT_EQ(sigismember(&blocked, SIGINT) == 1, thread != 0);
    EXPECT_EQ(sigismember(&blocked, SIGTERM) == 1, thread != 0);
    EXPECT_EQ(sigismember(&blocked, SIGSEGV), 0);
  });
}

#ifndef REGARD_TEST_SANITIZED
TEST(ThreadPool, CallsDoNotAllocate) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  pool.for_each(10, [&](int64_t item, int) { sum.fetch_add(item); });
  const int64_t before = allocations.load();
  for (int round = 0; round < 100; ++round) pool.for_each(10, [&](int64_t item, int) { sum.fetch_add(item); });
  EXPECT_EQ(allocations.load(), before);
}

// The thread sanitizer cannot follow a threaded program through fork().
TEST(ThreadPool, AChildOfForkStartsItsOwnWorkers) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum{0};
  pool.for_each(100, [&](int64_t item, int) { sum.fetch_add(item); });
  ASSERT_EQ(sum.load(), 4950);
  std::atomic<bool> busy_ends{false};
  std::jthread busy([&] {  // the pool's turn may be taken by another thread at the moment of the fork
    while (!busy_ends) pool.for_each(50, [](int64_t, int) {});
  });
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);  // a child that hangs fails the test instead of the run
      std::atomic<int64_t> mine{0};
      pool.for_each(100, [&](int64_t item, int) { mine.fetch_add(item); });
      std::atomic<int> visits{0};
      pool.run([&](int) { visits.fetch_add(1); });
      {
        ThreadPool fresh(2);
        fresh.for_each(10, [&](int64_t, int) { visits.fetch_add(1); });
      }
      const pid_t grandchild = fork();
      if (grandchild == 0) {
        alarm(20);
        pool.for_each(100, [&](int64_t item, int) { mine.fetch_add(item); });
        _exit(mine.load() == 9900 ? 0 : 1);
      }
      int status = 1;
      waitpid(grandchild, &status, 0);
      _exit(mine.load() == 4950 && visits.load() == 13 && status == 0 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  busy_ends = true;
}

TEST(ThreadPool, APoolDiesQuietlyInAChildThatNeverUsedIt) {
  auto pool = std::make_unique<ThreadPool>(3);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    pool.reset();  // must not wait for workers that do not exist here
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

TEST(DefaultPool, IsOnePoolWhoseSizeCanBeSet) {
  set_default_pool_size(2);
  ThreadPool& pool = default_pool();
  EXPECT_EQ(&pool, &default_pool());
  EXPECT_EQ(pool.size(), 2);
  set_default_pool_size(3);
  EXPECT_EQ(default_pool().size(), 3);
}

}  // namespace
}  // namespace regard
