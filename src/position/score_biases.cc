// The published rules behind biases by distance.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/math.h"
#include "regard/score_terms.h"

namespace regard {

std::vector<float> alibi_slopes(int64_t num_heads) {
  require(num_heads >= 1 && num_heads <= 65536, "[alibi_slopes] {} heads, expected 1 to 65536", num_heads);
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(num_heads)));
  std::vector<float> slopes;
  const auto slope = [](int64_t i, int64_t n) {
    return static_cast<float>(math::exp(-8.0 * static_cast<double>(i) / static_cast<double>(n) * math::kLn2));
  };
  for (int64_t i = 1; i <= power; ++i) slopes.push_back(slope(i, power));
  for (int64_t i = 1; i <= num_heads - power; ++i) slopes.push_back(slope(2 * i - 1, 2 * power));
  return slopes;
}

int64_t t5_bucket(int64_t key_minus_query, int64_t buckets, int64_t max_distance, T5Direction direction) {
  const bool both = direction == T5Direction::kBidirectional;
  require(buckets >= (both ? 4 : 2) && (!both || buckets % 2 == 0), "[t5_bucket] {} buckets, expected {}", buckets,
          both ? "an even number from 4 on" : "2 or more");
  const int64_t n = both ? buckets / 2 : buckets, exact = n / 2;
  require(max_distance > exact, "[t5_bucket] max_distance is {}, expected more than the {} exact buckets", max_distance,
          exact);
  const int64_t first = both && key_minus_query > 0 ? n : 0;
  // Unsigned, so that the distance of the smallest number is one, too.
  const uint64_t back = uint64_t{0} - static_cast<uint64_t>(key_minus_query);
  const uint64_t distance = key_minus_query <= 0 ? back : both ? static_cast<uint64_t>(key_minus_query) : 0;
  if (distance < static_cast<uint64_t>(exact)) return first + static_cast<int64_t>(distance);
  if (distance >= static_cast<uint64_t>(max_distance)) return first + n - 1;
  const double reach = math::log(static_cast<double>(distance) / static_cast<double>(exact)) /
                       math::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  const auto step = static_cast<int64_t>(reach * static_cast<double>(n - exact));
  return first + std::min(exact + step, n - 1);
}

}  // namespace regard
