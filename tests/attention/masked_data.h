// The promise about data that a row may not see, for calls in whatever arithmetic: `run(problem, mask)` gives their Result.
#pragma once

#include "attention/calls.h"

namespace regard::testing_attention {

/// Keys and values that a row may not see become NaN or infinite; the bits of the row must not move.
template <class Run>
void expect_masked_data_cannot_matter(Run run) {
  Problem p = with_lengths(12, 520, 33, 17);
  p.fill(18);
  for (const Mask& mask : masks()) {
    const Result clean = run(p, mask);
    for (int64_t h = 0; h < p.num_q_heads; ++h)
      for (int64_t i = 0; i < p.q_len; i += 5)
        for (float poison : {NAN, INFINITY, -INFINITY}) {
          Problem dirty = p;
          for (int64_t j = 0; j < p.kv_len; ++j)
            if (!mask.allowed(0, h, p.q_begin + i, j)) {
              std::fill_n(dirty.key(0, h / 2, j), p.d, poison);
              std::fill_n(dirty.value(0, h / 2, j), p.dv, poison);
            }
          const Result got = run(dirty, mask);
          const int64_t row = h * p.q_len + i;
          ASSERT_TRUE(same_bits(got.out.data() + row * p.dv, clean.out.data() + row * p.dv, p.dv))
              << mask.text() << " row " << row;
          ASSERT_EQ(bits(got.lse[static_cast<size_t>(row)]), bits(clean.lse[static_cast<size_t>(row)]));
        }
  }
}

}  // namespace regard::testing_attention
