// What kernels of attention promise about data that a row sees or does not see. `run(problem, mask)` gives their Result.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "kernels/attention_problems.h"

namespace regard::kernels::testing_kernels {

/// Everything that one row may not see becomes NaN or infinite; its bits must not move.
template <class Run>
void expect_forbidden_data_cannot_matter(Run run) {
  const Problem p = make(64, 40, 530, 14);
  for (const NamedMask& mask : masks(p.rows, p.kv_len)) {
    const Result clean = run(p, mask);
    for (int row = 0; row < p.rows; ++row)
      for (float poison : {NAN, INFINITY, -INFINITY}) {
        Problem dirty = p;
        for (int j = 0; j < p.kv_len; ++j)
          if (!mask.sees(row, j)) {
            std::fill_n(&dirty.k[static_cast<size_t>(j * p.d)], p.d, poison);
            std::fill_n(&dirty.v[static_cast<size_t>(j * p.dv)], p.dv, poison);
          }
        const Result got = run(dirty, mask);
        ASSERT_EQ(0, std::memcmp(&got.out[static_cast<size_t>(row * p.dv)], &clean.out[static_cast<size_t>(row * p.dv)],
                                 sizeof(float) * 40))
            << mask.name << " row " << row << " poison " << poison;
        ASSERT_EQ(std::bit_cast<uint32_t>(got.lse[static_cast<size_t>(row)]),
                  std::bit_cast<uint32_t>(clean.lse[static_cast<size_t>(row)]));
      }
  }
}

/// A NaN in a key makes every output of the rows that see it NaN, one in a value that output; all else keeps its bits.
template <class Run>
void expect_visible_nan_comes_through(Run run) {
  const Problem p = make(64, 40, 530, 14);
  for (const NamedMask& mask : masks(p.rows, p.kv_len)) {
    const Result clean = run(p, mask);
    for (int j : {0, 1, 255, 256, 500, 520, 529})
      for (bool in_key : {true, false}) {
        Problem dirty = p;
        (in_key ? dirty.k[static_cast<size_t>(j * p.d + 3)] : dirty.v[static_cast<size_t>(j * p.dv + 39)]) = NAN;
        const Result got = run(dirty, mask);
        for (int r = 0; r < p.rows; ++r)
          for (int c = 0; c < p.dv; ++c) {
            const auto at = static_cast<size_t>(r * p.dv + c);
            if (mask.sees(r, j) && (in_key || c == 39))
              ASSERT_TRUE(std::isnan(got.out[at])) << mask.name << " row " << r;
            else
              ASSERT_EQ(std::bit_cast<uint32_t>(got.out[at]), std::bit_cast<uint32_t>(clean.out[at])) << mask.name << " row " << r;
          }
      }
  }
}

}  // namespace regard::kernels::testing_kernels
