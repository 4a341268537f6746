// What the products of gemm.cc and gemm_bf16.cc share.
#pragma once

#include <cstdint>

#include "base/checked.h"
#include "nn/training/gemm.h"

namespace regard::nn::training {

// Below this many products waking a thread costs more than the work: about 3 microseconds on one core.
inline constexpr int64_t kWorthAThread = 65536;
inline int64_t round_up(int64_t n, int64_t step) { return ceil_div(n, step) * step; }

// The matrix [rows, columns] that B is in memory, or its transpose.
enum class Stored { kAsIs, kTransposed };
struct Matrix {
  const float* data;
  int64_t ld;
  int64_t inner;
  int64_t columns;
  Stored stored = Stored::kAsIs;
};

// Calls f(item, thread) for every item, on the threads when the products are worth it.
template <class F>
void share(const GemmContext& context, int64_t items, int64_t products, F f) {
  if (products < kWorthAThread) {
    context.pool.for_each(
        1,
        [&](int64_t, int thread) {
          for (int64_t i = 0; i < items; ++i) f(i, thread);
        },
        context.stop);
  } else {
    context.pool.for_each(items, f, context.stop);
  }
}

// Sums of columns that join a weight gradient: those of its rows' operand, of its columns' operand, or none.
struct ColumnSums {
  float* of_a = nullptr;
  float* of_b = nullptr;
};

}  // namespace regard::nn::training
