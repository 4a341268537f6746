// The terms written down a second time, straight from their definitions, and random expressions over them. Nothing here
// calls the library to decide a pair: a Rule carries the expression and, beside it, its own predicate.
#pragma once

#include <rapidcheck.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "regard/mask.h"

namespace regard::mask_testing {

struct Pair {
  int64_t b, h, q, k;
};
using Predicate = std::function<bool(const Pair&)>;

struct Rule {
  Mask mask;
  Predicate sees;
};

inline constexpr int64_t kBatch = 2;
inline constexpr int64_t kHeads = 3;

inline Rule operator&(const Rule& x, const Rule& y) {
  return {x.mask & y.mask, [x, y](const Pair& p) { return x.sees(p) && y.sees(p); }};
}
inline Rule operator|(const Rule& x, const Rule& y) {
  return {x.mask | y.mask, [x, y](const Pair& p) { return x.sees(p) || y.sees(p); }};
}
inline Rule operator~(const Rule& x) {
  return {~x.mask, [x](const Pair& p) { return !x.sees(p); }};
}

// ---- terms by definition ----

inline Rule full() {
  return {Mask::full(), [](const Pair&) { return true; }};
}
inline Rule none() {
  return {Mask::none(), [](const Pair&) { return false; }};
}
inline Rule causal() {
  return {Mask::causal(), [](const Pair& p) { return p.k <= p.q; }};
}
inline Rule window(int64_t l, int64_t r) {
  return {Mask::window(l, r),
          [l, r](const Pair& p) { return (l == kUnlimited || p.q - l <= p.k) && (r == kUnlimited || p.k <= p.q + r); }};
}
inline Rule prefix(std::vector<int64_t> n) {
  return {Mask::prefix(MaskList(n)),
          [n](const Pair& p) { return p.k < n[n.size() == 1 ? 0 : static_cast<size_t>(p.b)]; }};
}
inline Rule lengths(std::vector<int64_t> n) {
  return {Mask::lengths(MaskList(n)),
          [n](const Pair& p) { return p.k < n[n.size() == 1 ? 0 : static_cast<size_t>(p.b)]; }};
}
inline Rule blocks(int64_t n) {
  return {Mask::blocks(n), [n](const Pair& p) { return p.k / n <= p.q / n; }};
}
inline Rule chunk(int64_t n) {
  return {Mask::chunk(n), [n](const Pair& p) { return p.k / n == p.q / n; }};
}
inline Rule dilated(int64_t n) {
  return {Mask::dilated(n), [n](const Pair& p) { return (p.q - p.k) % n == 0; }};
}

using Rows = std::vector<std::vector<int64_t>>;

inline MaskList list_of(const Rows& rows) { return rows.size() == 1 ? MaskList(rows[0]) : MaskList::per_row(rows); }
inline const std::vector<int64_t>& row_of(const Rows& rows, int64_t b) {
  return rows[rows.size() == 1 ? 0 : static_cast<size_t>(b)];
}

inline bool same_id(const std::vector<int64_t>& q_ids, const std::vector<int64_t>& k_ids, const Pair& p) {
  const auto q = static_cast<size_t>(p.q), k = static_cast<size_t>(p.k);
  return q < q_ids.size() && k < k_ids.size() && q_ids[q] == k_ids[k];
}
inline Rule documents(const Rows& ids) {
  return {Mask::documents(list_of(ids)),
          [ids](const Pair& p) { return same_id(row_of(ids, p.b), row_of(ids, p.b), p); }};
}
inline Rule documents(const Rows& q_ids, const Rows& k_ids) {
  return {Mask::documents(list_of(q_ids), list_of(k_ids)),
          [q_ids, k_ids](const Pair& p) { return same_id(row_of(q_ids, p.b), row_of(k_ids, p.b), p); }};
}

inline Rule tree(std::vector<int64_t> base, const Rows& parents) {
  return {Mask::tree(MaskList(base), list_of(parents)), [base, parents](const Pair& p) {
            const int64_t first = base[base.size() == 1 ? 0 : static_cast<size_t>(p.b)];
            const auto& parent = row_of(parents, p.b);
            const auto nodes = static_cast<int64_t>(parent.size());
            if (p.q >= first + nodes) return false;
            if (p.k < first) return true;
            for (int64_t node = p.q - first; node >= 0; node = parent[static_cast<size_t>(node)])
              if (node == p.k - first) return true;
            return false;
          }};
}

/// Bits [batch, heads, q, k] in C order.
struct Bits {
  int64_t batch, heads, q_len, kv_len;
  std::vector<uint8_t> bits;
  TensorView<const uint8_t> view() const {
    return TensorView<const uint8_t>(bits.data(), {batch, heads, q_len, kv_len});
  }
};
inline Rule table(const Bits& t) {
  const BitTable table = BitTable::from_array(Polarity::kKeep, t.view());
  return {Mask::table("t" + std::to_string(table.hash()), table), [t](const Pair& p) {
            if (p.q >= t.q_len || p.k >= t.kv_len) return false;
            const int64_t b = t.batch == 1 ? 0 : p.b, h = t.heads == 1 ? 0 : p.h;
            return t.bits[static_cast<size_t>(((b * t.heads + h) * t.q_len + p.q) * t.kv_len + p.k)] != 0;
          }};
}
inline Rule per_head(const std::vector<Rule>& rules) {
  std::vector<Mask> masks;
  for (const Rule& rule : rules) masks.push_back(rule.mask);
  return {Mask::per_head(masks), [rules](const Pair& p) { return rules[static_cast<size_t>(p.h)].sees(p); }};
}

// ---- random expressions ----

/// A number in [from, to), each as likely as the others (RapidCheck would keep early cases small).
inline int64_t pick(int64_t from, int64_t to) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<int64_t>(from, to));
}

enum class Kinds { kIntervals, kAll };

/// Ids in rising runs, as packed documents have them.
inline std::vector<int64_t> packed_ids(int64_t size) {
  std::vector<int64_t> ids;
  for (int64_t id = pick(-2, 2); static_cast<int64_t>(ids.size()) < size; id += pick(1, 3))
    ids.insert(ids.end(), static_cast<size_t>(std::min(pick(1, 12), size - static_cast<int64_t>(ids.size()))), id);
  return ids;
}

template <class Make>
Rows some_rows(Make make) {
  Rows rows;
  for (int64_t r = 0, count = pick(0, 2) == 0 ? 1 : kBatch; r < count; ++r) rows.push_back(make());
  return rows;
}

/// Bits at random, for about `size` queries and keys.
inline Rule random_table(int64_t size) {
  Bits bits{pick(0, 2) == 0 ? 1 : kBatch, pick(0, 2) == 0 ? 1 : kHeads, pick(1, size + 4), pick(1, size + 4), {}};
  uint64_t state = static_cast<uint64_t>(pick(0, int64_t{1} << 60));
  for (int64_t i = 0, n = bits.batch * bits.heads * bits.q_len * bits.kv_len; i < n; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    bits.bits.push_back(static_cast<uint8_t>(state >> 63));
  }
  return table(bits);
}

/// A term whose lists and tables reach about as far as `size` positions, ends before and behind it included.
inline Rule random_term(int64_t size, Kinds kinds) {
  const auto numbers = [&] {
    std::vector<int64_t> n;
    for (int64_t r = 0, count = pick(0, 2) == 0 ? 1 : kBatch; r < count; ++r) n.push_back(pick(0, size + 3));
    return n;
  };
  const auto side = [&] { return pick(0, 4) == 0 ? kUnlimited : pick(0, size); };
  switch (pick(0, kinds == Kinds::kIntervals ? 10 : 15)) {
    case 0: return full();
    case 1: return none();
    case 2: return causal();
    case 3: return window(side(), side());
    case 4: return prefix(numbers());
    case 5: return lengths(numbers());
    case 6: return blocks(pick(1, size + 2));
    case 7: return chunk(pick(1, size + 2));
    case 8: return documents(some_rows([&] { return packed_ids(pick(size / 2, size + 4)); }));
    case 9: {
      const Rows q_ids = some_rows([&] { return packed_ids(pick(size / 2, size + 4)); });
      return documents(q_ids, some_rows([&] { return packed_ids(pick(size / 2, size + 4)); }));
    }
    case 10: return dilated(pick(1, size + 2));
    case 11:
      return documents(some_rows([&] {
        std::vector<int64_t> ids;
        for (int64_t i = 0, n = pick(size / 2, size + 4); i < n; ++i) ids.push_back(pick(0, 4));
        return ids;
      }));
    case 12: {
      std::vector<int64_t> base = numbers();
      const bool rising = pick(0, 2) == 0;
      return tree(
          base, some_rows([&] {
            std::vector<int64_t> parents;
            const int64_t n = pick(0, size + 4);
            for (int64_t i = 0; i < n; ++i)
              parents.push_back(pick(0, 4) == 0 ? -1 : rising ? pick(-1, i) : (i + 1 < n ? pick(i + 1, n) : -1));
            return parents;
          }));
    }
    case 13: return random_table(size);
    default: {
      std::vector<Rule> rules;
      for (int64_t h = 0; h < kHeads; ++h) rules.push_back(random_term(size, kinds));
      return per_head(rules);
    }
  }
}

inline Rule random_rule(int64_t size, Kinds kinds, int levels = 3) {
  const int64_t choice = levels == 0 ? 0 : pick(0, 4);
  if (choice == 0) return random_term(size, kinds);
  const Rule x = random_rule(size, kinds, levels - 1);
  if (choice == 1) return ~x;
  const Rule y = random_rule(size, kinds, levels - 1);
  return choice == 2 ? (x & y) : (x | y);
}

/// Whether two rules agree on every pair of a square of positions.
inline bool same_everywhere(const Mask& x, const Mask& y, int64_t size) {
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t q = 0; q < size; ++q)
        for (int64_t k = 0; k < size; ++k)
          if (x.allowed(b, h, q, k) != y.allowed(b, h, q, k)) return false;
  return true;
}

}  // namespace regard::mask_testing
