// What every benchmark does the same way: print the machine's ceilings first, check an answer before timing it, run rivals
// alternately in one run, and report medians with their spread. Start with measure() and race().
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace regard::bench {

enum class Clock {
  kThreadCpu,  ///< time of the calling thread: other processes disturb it little. For work on one thread
  kWall,       ///< for work on several threads
};

/// Seconds per call.
struct Timing {
  double best = 0;
  double median = 0;
  double spread = 0;  ///< (third quartile - first quartile) / median
};

/// Repeats `work` in samples of at least 2 ms (shorter ones are unsteady on virtual machines) for about `seconds`.
Timing measure(const std::function<void()>& work, double seconds = 0.3, Clock clock = Clock::kThreadCpu);

/// Several ways of doing the same work, timed in turn, sample by sample, so that a slow moment of the machine hits all of them.
std::vector<Timing> race(const std::vector<std::function<void()>>& works, double seconds = 0.3, Clock clock = Clock::kThreadCpu);

/// Multiply-adds in registers on the widest vectors of the instruction set in use; returns the operations done. Raced
/// beside a kernel it gives the peak of the same moments.
double multiply_adds();

/// The same with bf16 dot products; 0 where the instruction set in use has none.
double bf16_products();

/// Reads the first `bytes` (at most 256 MB) of memory that nothing else uses, as fast as one core can; returns `bytes`. Raced beside a
/// kernel that is bound by reading it gives the rate of the same moments.
double read_bytes(size_t bytes);

/// What the machine can do, measured now.
struct Ceilings {
  double ghz = 0;              ///< core cycles per nanosecond, from a chain of dependent additions
  double fma_gflops = 0;       ///< f32 multiply-adds in registers on the widest vectors of the instruction set in use, one thread
  double bf16_gflops = 0;      ///< the same with bf16 dot products; 0: there are none
  double read_gbytes = 0;      ///< reading 256 MB in four streams, one thread, median
  double read_gbytes_two = 0;  ///< the same, shared by two threads
  double cached_gbytes = 0;    ///< reading 4 MiB again and again, one thread
};
Ceilings measure_ceilings();
void print(const Ceilings& ceilings);

/// For programs that answer requests: a line at once.
void say(const std::string& json);
/// Their first one: {"name": "regard", the instruction set, the ceilings of one thread}.
void say_who(const Ceilings& ceilings);

/// Ends the program with status 1 and a message: a wrong answer is not timed.
void require_answer(bool right, const std::string& what);

/// Peers size their thread pools when they are loaded: starts the program again with OMP_NUM_THREADS and OPENBLAS_NUM_THREADS set
/// to `threads` unless they are set already. Call it first in main().
void fix_peer_threads(char** argv, int threads);

}  // namespace regard::bench
