// Work on independent rows: in parallel when there is enough of it, else where the caller stands.
#pragma once

#include <cstdint>

#include "runtime/thread_pool.h"

namespace regard::nn {

/// Calls f(row) for every row. Below some 16,000 elements waking a thread costs more than the work, so the caller does it all
/// (inside the pool, under its floating-point control word). Which thread runs a row changes nothing, because rows do not know
/// each other.
template <class F>
void for_each_row(ThreadPool& pool, int64_t rows, int64_t elements_per_row, F&& f) {
  constexpr int64_t kWorthAThread = 16384;
  if (rows * elements_per_row < kWorthAThread) {
    pool.for_each(1, [&](int64_t, int) {
      for (int64_t r = 0; r < rows; ++r) f(r);
    });
  } else {
    pool.for_each(rows, [&](int64_t r, int) { f(r); });
  }
}

}  // namespace regard::nn
