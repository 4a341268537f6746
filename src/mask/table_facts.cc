#include "mask/table_facts.h"

#include <algorithm>
#include <numeric>

#include "mask/plan.h"

namespace regard {
namespace {

void poll(const StopToken* stop) {
  if (stop != nullptr && stop->stop_requested()) fail(Code::kCancelled, "[recognise_mask] stopped on request");
}

/// Which positions are connected. Roots are the least of their set, so that a set is named by its first position.
class Sets {
 public:
  explicit Sets(int64_t size) : parent_(static_cast<size_t>(size)) { std::iota(parent_.begin(), parent_.end(), 0); }
  int64_t root(int64_t x) {
    while (at(x) != x) x = at(x) = at(at(x));
    return x;
  }
  void join(int64_t a, int64_t b) {
    a = root(a), b = root(b);
    at(std::max(a, b)) = std::min(a, b);
  }

 private:
  int64_t& at(int64_t x) { return parent_[static_cast<size_t>(x)]; }
  std::vector<int64_t> parent_;
};

}  // namespace

bool equals_table(const Mask& mask, const BitTable& table, int64_t q_begin) {
  const MaskPlan plan(mask, {}, table.batch(), table.heads());
  const int64_t count = table.words_per_row();
  std::vector<uint64_t> words(static_cast<size_t>(count));
  const int64_t rest = table.kv_len() % 64;
  for (int64_t b = 0; b < table.batch(); ++b)
    for (int64_t h = 0; h < table.heads(); ++h)
      for (int64_t q = 0; q < table.q_len(); ++q) {
        plan.fill_words(b, h, q_begin + q, 0, static_cast<int>(count), words.data());
        if (rest != 0) words.back() &= (uint64_t{1} << rest) - 1;
        if (!std::equal(words.begin(), words.end(), table.row(b, h, q))) return false;
      }
  return true;
}

TableFacts facts_of(const BitTable& table, int64_t q_begin, Bits bits, Components components, const StopToken* stop) {
  const int64_t q_len = table.q_len(), kv_len = table.kv_len(), far = q_begin + q_len + kv_len;
  const auto rows = static_cast<size_t>(q_len);
  TableFacts f;
  f.least = f.least_ahead = far;
  f.most = f.most_behind = -far;
  f.first_key.assign(static_cast<size_t>(table.batch()), kv_len);
  f.last_key.assign(static_cast<size_t>(table.batch()), -1);
  f.row_first.assign(rows, kv_len);
  f.row_ahead.assign(rows, kv_len);
  f.row_last.assign(rows, -1);
  f.row_behind.assign(rows, -1);
  const int64_t shift = q_begin + q_len;  // of diagonals
  std::vector<int64_t> change(static_cast<size_t>(shift + kv_len) + 1);
  const int64_t positions = std::max(q_begin + q_len, kv_len);
  for (int64_t b = 0; b < table.batch(); ++b) {
    const auto batch = static_cast<size_t>(b);
    Sets sets(components == Components::kYes ? positions : 0);
    std::vector<int64_t> joined(components == Components::kYes ? static_cast<size_t>(kv_len) + 1
                                                               : 0);  // key k with k + 1
    for (int64_t h = 0; h < table.heads(); ++h)
      for (int64_t i = 0; i < q_len; ++i) {
        if (i % 64 == 0) poll(stop);
        const auto row = static_cast<size_t>(i);
        const int64_t q = q_begin + i;
        runs_of_words(table.row(b, h, i), kv_len, bits == Bits::kHidden, [&](int64_t begin, int64_t end) {
          const int64_t last = end - 1;
          f.any = true;
          f.least = std::min(f.least, begin - q);
          f.most = std::max(f.most, last - q);
          if (begin <= q) f.most_behind = std::max(f.most_behind, std::min(last, q) - q);
          if (last >= q) f.least_ahead = std::min(f.least_ahead, std::max(begin, q) - q);
          f.common = std::gcd(f.common, begin - q);
          if (last > begin) f.common = 1;
          f.first_key[batch] = std::min(f.first_key[batch], begin);
          f.last_key[batch] = std::max(f.last_key[batch], last);
          f.row_first[row] = std::min(f.row_first[row], begin);
          f.row_last[row] = std::max(f.row_last[row], last);
          if (last >= q) f.row_ahead[row] = std::min(f.row_ahead[row], std::max(begin, q));
          if (begin <= q) f.row_behind[row] = std::max(f.row_behind[row], std::min(last, q));
          ++change[static_cast<size_t>(begin - q + shift)];
          --change[static_cast<size_t>(end - q + shift)];
          if (components == Components::kNo) return;
          sets.join(q, begin);
          ++joined[static_cast<size_t>(begin)];
          --joined[static_cast<size_t>(last)];
        });
      }
    if (components == Components::kNo) continue;
    int64_t open = 0;
    for (int64_t k = 0; k + 1 < kv_len; ++k)
      if ((open += joined[static_cast<size_t>(k)]) > 0) sets.join(k, k + 1);
    std::vector<int64_t> names(static_cast<size_t>(positions));
    for (int64_t p = 0; p < positions; ++p) names[static_cast<size_t>(p)] = sets.root(p);
    f.component.push_back(std::move(names));
  }
  f.diagonals.resize(change.size());
  int64_t open = 0;
  for (size_t d = 0; d < change.size(); ++d) f.diagonals[d] = (open += change[d]) > 0;
  return f;
}

}  // namespace regard
