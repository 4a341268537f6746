// From a table of bits to an expression.
//
// If A = a & b, then a and b are around A, and so are the tightest terms of their kinds, a' within a and b' within b:
// A = a' & b'. If A = a | b, the same holds for the largest terms inside A. Most kinds have one tightest or largest
// term; blocks and chunk have a few candidates. So each kind gives its candidates, and every pair is compared with the
// table.
#include <algorithm>
#include <set>

#include "mask/plan.h"
#include "mask/table_facts.h"
#include "regard/mask_check.h"

namespace regard {
namespace {

constexpr size_t kSizesEach = 16;                   // candidates of blocks and chunk
constexpr size_t kStepsEach = 4;                    // of dilated
constexpr int64_t kMaxSizeWork = int64_t{1} << 26;  // rows times sizes that are tried for blocks and chunk

int64_t floor_div(int64_t a, int64_t n) { return a / n - (a % n < 0 ? 1 : 0); }

class Recogniser {
 public:
  Recogniser(const BitTable& table, int64_t q_begin, const StopToken* stop)
      : table_(table), q_begin_(q_begin), stop_(stop) {}

  std::optional<Mask> find() {
    if (is(Mask::full())) return Mask::full();
    if (is(Mask::none())) return Mask::none();
    const TableFacts seen = facts_of(table_, q_begin_, Bits::kVisible, Components::kYes, stop_);
    const TableFacts hidden = facts_of(table_, q_begin_, Bits::kHidden, Components::kYes, stop_);
    const std::vector<Mask> around = terms_around(seen), inside = terms_inside(hidden);
    for (const std::vector<Mask>* terms : {&around, &inside})
      for (const Mask& term : *terms)
        if (is(term)) return term;
    const std::vector<Mask> turned = terms_around(hidden);
    for (const Mask& term : turned)
      if (is(~term)) return ~term;
    for (size_t i = 0; i < around.size(); ++i)
      for (size_t j = i + 1; j < around.size(); ++j)
        if (is(around[i] & around[j])) return around[i] & around[j];
    for (size_t i = 0; i < inside.size(); ++i)
      for (size_t j = i + 1; j < inside.size(); ++j)
        if (is(inside[i] | inside[j])) return inside[i] | inside[j];
    return with_documents(inside);
  }

 private:
  bool is(const Mask& mask) const { return equals_table(mask, table_, q_begin_); }

  // One number where all batch rows agree.
  static Mask counted(const std::vector<int64_t>& n) {
    const bool same = std::all_of(n.begin(), n.end(), [&](int64_t x) { return x == n.front(); });
    return same ? Mask::prefix(n.front()) : Mask::lengths(MaskList(n));
  }

  static MaskList list_of(const std::vector<std::vector<int64_t>>& rows) {
    const bool same = std::all_of(rows.begin(), rows.end(), [&](const auto& row) { return row == rows.front(); });
    return same ? MaskList(rows.front()) : MaskList::per_row(rows);
  }

  // Names 0, 1, 2 ... in the order in which they come up.
  static std::vector<std::vector<int64_t>> numbered(std::vector<std::vector<int64_t>> rows) {
    for (auto& row : rows) {
      std::vector<int64_t> number(row.size(), -1);
      int64_t next = 0;
      for (int64_t& name : row) {
        int64_t& n = number[static_cast<size_t>(name)];
        if (n < 0) n = next++;
        name = n;
      }
    }
    return rows;
  }

  // Sizes n for which `wrong(query, n)` holds for no query, the smallest or the largest few. Blocks and chunks of n lie
  // within those of its multiples, so that of two such sizes only the tighter, or the larger, one counts.
  template <class Wrong>
  std::vector<int64_t> sizes(bool smallest, const Wrong& wrong) const {
    const int64_t longest = std::max(q_begin_ + table_.q_len(), table_.kv_len());
    const int64_t most = std::min(longest, kMaxSizeWork / std::max<int64_t>(1, table_.q_len()));
    std::vector<int64_t> found;
    for (int64_t i = 0; i < most && found.size() < kSizesEach; ++i) {
      const int64_t n = smallest ? i + 1 : most - i;
      bool good =
          std::none_of(found.begin(), found.end(), [&](int64_t m) { return smallest ? n % m == 0 : m % n == 0; });
      for (int64_t row = 0; row < table_.q_len() && good; ++row)
        good = !wrong(static_cast<size_t>(row), q_begin_ + row, n);
      if (good) found.push_back(n);
    }
    return found;
  }

  std::vector<Mask> terms_around(const TableFacts& f) const {
    std::vector<Mask> terms;
    if (!f.any) return terms;
    const int64_t left = -f.least, right = f.most;
    if (right <= 0) terms.push_back(Mask::causal());
    if (right > 0) terms.push_back(Mask::window(kUnlimited, right));
    if (left >= 0) terms.push_back(Mask::window(left, std::max<int64_t>(0, right)));
    if (left >= 0) terms.push_back(Mask::window(left, kUnlimited));
    if (right < 0) terms.push_back(~Mask::window(-right - 1, kUnlimited));  // k <= q - 2 and the like
    if (left < 0) terms.push_back(left == -1 ? ~Mask::causal() : ~Mask::window(kUnlimited, -left - 1));
    std::vector<int64_t> lengths;
    for (int64_t last : f.last_key) lengths.push_back(last + 1);
    terms.push_back(counted(lengths));
    std::vector<int64_t> before;  // the complement of a prefix
    for (int64_t first : f.first_key) before.push_back(first);
    if (*std::max_element(before.begin(), before.end()) > 0) terms.push_back(~counted(before));
    const auto ahead = [&](size_t row, int64_t q, int64_t n) {
      return f.row_last[row] >= 0 && f.row_last[row] / n > q / n;
    };
    const auto behind = [&](size_t row, int64_t q, int64_t n) {
      return f.row_last[row] >= 0 && f.row_first[row] / n < q / n;
    };
    for (int64_t n : sizes(true, ahead)) terms.push_back(Mask::blocks(n));
    for (int64_t n :
         sizes(true, [&](size_t row, int64_t q, int64_t n) { return ahead(row, q, n) || behind(row, q, n); }))
      terms.push_back(Mask::chunk(n));
    if (f.common > 1) terms.push_back(Mask::dilated(f.common));
    terms.push_back(Mask::documents(list_of(numbered(f.component))));
    return terms;
  }

  // From the hidden pairs: what holds none of them.
  std::vector<Mask> terms_inside(const TableFacts& f) const {
    std::vector<Mask> terms;
    const int64_t right = f.least_ahead - 1, left = -f.most_behind - 1;  // -1: the own key is hidden somewhere
    if (right >= 0 && left >= 0) {
      const bool all_left = left >= q_begin_ + table_.q_len();
      if (all_left && right == 0) terms.push_back(Mask::causal());
      terms.push_back(Mask::window(all_left ? kUnlimited : left, right >= table_.kv_len() ? kUnlimited : right));
      terms.push_back(Mask::window(left, 0));
    }
    if (*std::max_element(f.first_key.begin(), f.first_key.end()) > 0) terms.push_back(counted(f.first_key));
    const auto block_has = [&](int64_t k, int64_t q, int64_t n) {
      return k >= 0 && k < table_.kv_len() && k / n == q / n;
    };
    const auto in_blocks = [&](size_t row, int64_t q, int64_t n) {
      return f.row_behind[row] >= 0 || block_has(f.row_ahead[row], q, n);
    };
    const auto in_chunk = [&](size_t row, int64_t q, int64_t n) {
      return block_has(f.row_behind[row], q, n) || block_has(f.row_ahead[row], q, n);
    };
    for (int64_t n : sizes(false, in_blocks)) terms.push_back(Mask::blocks(n));
    for (int64_t n : sizes(false, in_chunk)) terms.push_back(Mask::chunk(n));
    const int64_t shift = q_begin_ + table_.q_len(), diagonals = static_cast<int64_t>(f.diagonals.size());
    size_t found = 0;
    for (int64_t n = 2; n < diagonals && found < kStepsEach; ++n) {
      bool good = true;
      for (int64_t d = floor_div(-shift, n) * n + n; d + shift < diagonals && good; d += n)
        good = !f.diagonals[static_cast<size_t>(d + shift)];
      if (!good) continue;
      terms.push_back(Mask::dilated(n));
      ++found;
    }
    return terms;
  }

  // term | documents: documents connect what the term does not see.
  std::optional<Mask> with_documents(const std::vector<Mask>& inside) const {
    for (size_t i = 0; i < std::min<size_t>(inside.size(), 4); ++i) {
      const BitTable rest = without(inside[i]);
      const TableFacts f = facts_of(rest, q_begin_, Bits::kVisible, Components::kYes, stop_);
      const Mask mask = inside[i] | Mask::documents(list_of(numbered(f.component)));
      if (f.any && is(mask)) return mask;
    }
    return std::nullopt;
  }

  BitTable without(const Mask& mask) const {
    const int64_t q_len = table_.q_len(), kv_len = table_.kv_len();
    const MaskPlan plan(mask, {}, table_.batch(), table_.heads());
    std::vector<uint8_t> bits(static_cast<size_t>(table_.batch() * table_.heads() * q_len * kv_len));
    std::vector<uint64_t> words(static_cast<size_t>(table_.words_per_row()));
    uint8_t* out = bits.data();
    for (int64_t b = 0; b < table_.batch(); ++b)
      for (int64_t h = 0; h < table_.heads(); ++h)
        for (int64_t q = 0; q < q_len; ++q) {
          plan.fill_words(b, h, q_begin_ + q, 0, static_cast<int>(words.size()), words.data());
          const uint64_t* row = table_.row(b, h, q);
          for (int64_t k = 0; k < kv_len; ++k) {
            const auto w = static_cast<size_t>(k / 64);
            *out++ = static_cast<uint8_t>((row[w] & ~words[w]) >> (k % 64) & 1);
          }
        }
    return BitTable::from_array(
        Polarity::kKeep, TensorView<const uint8_t>(bits.data(), {table_.batch(), table_.heads(), q_len, kv_len}));
  }

  const BitTable& table_;
  int64_t q_begin_;
  const StopToken* stop_;
};

}  // namespace

std::optional<RecognisedMask> recognise_mask(const BitTable& table, std::optional<int64_t> q_begin,
                                             const StopToken* stop) {
  if (table.batch() == 0 || table.heads() == 0 || table.q_len() == 0 || table.kv_len() == 0) return std::nullopt;
  std::vector<int64_t> begins;
  if (q_begin) {
    require(*q_begin >= 0, "[recognise_mask] q_begin {} given; expected 0 or more", *q_begin);
    begins = {*q_begin};
  } else {
    begins = {0};
    if (table.kv_len() > table.q_len()) begins.push_back(table.kv_len() - table.q_len());
    if (table.kv_len() != table.q_len()) {
      const TableFacts f = facts_of(table, 0, Bits::kVisible, Components::kNo, stop);
      if (f.any && f.most > 0) begins.push_back(f.most);  // as if the last visible key were the query's own
    }
  }
  std::optional<RecognisedMask> best;
  std::set<int64_t> tried;
  for (int64_t begin : begins) {
    if (!tried.insert(begin).second) continue;
    const auto mask = Recogniser(table, begin, stop).find();
    if (mask && (!best || mask->text().size() < best->mask.text().size())) best = RecognisedMask{*mask, begin};
  }
  return best;
}

}  // namespace regard
