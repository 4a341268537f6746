// What a table of bits says about itself: the extremes from which a term around it, or inside it, can be read off.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "regard/mask.h"
#include "regard/stop_token.h"

namespace regard {

/// Whether a mask sees exactly the pairs of the table, queries from q_begin on.
bool equals_table(const Mask& mask, const BitTable& table, int64_t q_begin);

/// Facts about the pairs that are visible, or about those that are hidden. d is key minus query, by position.
struct TableFacts {
  bool any = false;
  int64_t least = 0, most = 0;  // d of all pairs
  int64_t most_behind = 0,
          least_ahead = 0;  // the largest d <= 0 and the smallest d >= 0; out of reach if there is none
  int64_t common = 0;       // the greatest common divisor of all d; 0 when all are 0
  std::vector<int64_t> first_key, last_key;  // by batch row; first_key: kv_len when there is none, last_key: -1
  // By query, over all batch rows and heads, keys by position; kv_len and -1 where there is none.
  std::vector<int64_t> row_first, row_last;    // the first and the last pair of the row
  std::vector<int64_t> row_ahead, row_behind;  // the first pair from the query's own key on, the last one up to it
  std::vector<uint8_t> diagonals;              // by d + q_begin + q_len: whether the diagonal has a pair
  // By batch row and position: the least position that is connected with it, if pairs connect; only if asked for.
  std::vector<std::vector<int64_t>> component;
};

enum class Bits : uint8_t { kVisible, kHidden };
enum class Components : uint8_t { kNo, kYes };

TableFacts facts_of(const BitTable& table, int64_t q_begin, Bits bits, Components components, const StopToken* stop);

/// Calls visit(begin, end) for the runs of ones among `count` words of `row`, of `bits` bits in all; `flip` turns them
/// over first.
template <class Visit>
void runs_of_words(const uint64_t* row, int64_t bits, bool flip, const Visit& visit) {
  int64_t begin = -1;
  for (int64_t w = 0; 64 * w < bits; ++w) {
    uint64_t word = flip ? ~row[w] : row[w];
    if (bits - 64 * w < 64) word &= (uint64_t{1} << (bits - 64 * w)) - 1;
    if (word == (begin >= 0 ? ~uint64_t{0} : uint64_t{0})) continue;
    for (int64_t at = 0; at < 64;) {
      const uint64_t rest = (begin >= 0 ? ~word : word) >> at;
      if (rest == 0) break;
      at += __builtin_ctzll(rest);
      if (begin < 0) {
        begin = 64 * w + at;
      } else {
        visit(begin, 64 * w + at);
        begin = -1;
      }
    }
  }
  if (begin >= 0) visit(begin, bits);
}

}  // namespace regard
