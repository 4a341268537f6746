// The bits of a row, 64 keys at a time: intervals become shifts, tables are copied, dilated repeats a pattern, and
// terms that compare per key do so over plain arrays of 32-bit numbers. &, | and ~ combine whole words.

#include "mask/program.h"

namespace regard {
namespace mask_program {
namespace {

// Bits 0 to n - 1.
uint64_t low_bits(int64_t n) noexcept { return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; }

// One bit for each key k of the 64 from k_begin on that lies in `range` and for which test(k - range.begin) holds.
template <class Test>
uint64_t compare(Interval range, int64_t k_begin, Test test) noexcept {
  const Interval part = both(range, {k_begin, saturating_add(k_begin, 64)});
  uint64_t word = 0;
  if (part.begin == k_begin && part.end - part.begin == 64) {  // a constant count, so that the loop unrolls
    const int64_t from = k_begin - range.begin;
    for (int64_t i = 0; i < 64; ++i) word |= uint64_t{test(from + i)} << i;
  } else {
    for (int64_t k = part.begin; k < part.end; ++k) word |= uint64_t{test(k - range.begin)} << (k - k_begin);
  }
  return word;
}

void fill_documents(const DocumentRow& row, int64_t q, int64_t k_begin, int count, uint64_t* words) noexcept {
  const bool listed = q < static_cast<int64_t>(row.seen.size());
  const Interval seen = listed ? row.seen[static_cast<size_t>(q)] : Interval{0, 0};
  if (row.runs || !listed) return fill_interval(seen, k_begin, count, words);
  const int32_t id = row.q_ids[static_cast<size_t>(q)];
  const int32_t* ids = row.k_ids.data() + seen.begin;
  for (int w = 0; w < count; ++w) words[w] = compare(seen, k_begin + 64 * w, [&](int64_t i) { return ids[i] == id; });
}

void fill_tree(int64_t base, const TreeRow& row, int64_t q, int64_t k_begin, int count, uint64_t* words) noexcept {
  const auto nodes = static_cast<int64_t>(row.enter.size());
  const bool listed = q < base || q - base < nodes;
  fill_interval({0, listed ? base : 0}, k_begin, count, words);
  if (q < base || !listed) return;
  const int32_t own = row.enter[static_cast<size_t>(q - base)];
  const int32_t *enter = row.enter.data(), *leave = row.leave.data();
  // Ancestors were entered before and are left after; with rising parents nothing behind the query can be one.
  const Interval range{base, saturating_add(base, row.rising ? q - base + 1 : nodes)};
  for (int w = 0; w < count; ++w)
    words[w] |= compare(range, k_begin + 64 * w, [&](int64_t i) { return bool((enter[i] <= own) & (own < leave[i])); });
}

void fill_table(const BitTable& bits, int64_t b, int64_t h, Interval queries, int64_t k_begin, int count,
                uint64_t* words) noexcept {
  const int64_t first = k_begin / 64, listed = std::clamp<int64_t>(bits.words_per_row() - first, 0, count);
  for (int64_t q = queries.begin; q < queries.end; ++q, words += count) {
    const int64_t n = q < bits.q_len() ? listed : 0;
    if (n > 0) {
      const uint64_t* row = bits.row(b, h, q) + first;
      std::copy_n(row, n, words);
      if (first + count < bits.words_per_row()) __builtin_prefetch(row + count);  // of the next tile
    }
    std::fill(words + n, words + count, uint64_t{0});
  }
}

// Bit j belongs to key k + j and is set when (q - k - j) mod n = 0: from the first such j on, every n-th.
void fill_dilated(int64_t n, uint64_t pattern, int64_t q, int64_t k_begin, int count, uint64_t* words) noexcept {
  int64_t first = q % n - k_begin % n;  // n may be as large as a number can be: nothing is added before it is negative
  if (first < 0) first += n;
  for (int w = 0; w < count; ++w) {
    words[w] = first < 64 ? pattern << first : 0;
    first -= 64 % n;
    if (first < 0) first += n;
  }
}

}  // namespace

void fill_interval(Interval seen, int64_t k_begin, int count, uint64_t* words) noexcept {
  for (int w = 0; w < count; ++w) {
    const int64_t k = k_begin + 64 * w;
    const int64_t begin = seen.begin <= k ? 0 : std::min<int64_t>(64, seen.begin - k);
    const int64_t end = seen.end <= k ? 0 : std::min<int64_t>(64, seen.end - k);
    words[w] = low_bits(end) & ~low_bits(begin);
  }
}

void fill_atom(const Atom& atom, int64_t b, int64_t h, int64_t q, int64_t k_begin, int count,
               uint64_t* words) noexcept {
  switch (atom.op) {
    case MaskOp::kDocuments: return fill_documents(Atom::of_row(atom.documents, b), q, k_begin, count, words);
    case MaskOp::kTree:
      return fill_tree(Atom::of_row(atom.numbers, b), Atom::of_row(atom.trees, b), q, k_begin, count, words);
    case MaskOp::kTable: return fill_table(*atom.bits, b, h, {q, q + 1}, k_begin, count, words);
    case MaskOp::kDilated: return fill_dilated(atom.a, atom.pattern, q, k_begin, count, words);
    default: return fill_interval(span(atom, b, {q, q + 1}).hull, k_begin, count, words);
  }
}

}  // namespace mask_program

void MaskPlan::fill_words(int64_t b, int64_t h, int64_t q, int64_t k_begin, int count, uint64_t* words) const noexcept {
  using namespace mask_program;
  mask_pair_evaluations += 64 * static_cast<uint64_t>(count);
  if (q < 0) {
    std::fill(words, words + count, uint64_t{0});
    return;
  }
  const Program& program = compiled_->program(h);
  if (program.shape.interval) return fill_interval(hull(b, h, q), k_begin, count, words);

  if (program.steps.size() == 1) {
    const Atom& atom = compiled_->atoms[static_cast<size_t>(program.steps[0].atom)];
    if (atom.op == MaskOp::kTable) return fill_table(*atom.bits, b, h, {q, q + 1}, k_begin, count, words);
    std::fill(words, words + count, uint64_t{0});
    return fill_atom(atom, b, h, q, k_begin, count, words);
  }

  std::array<std::array<uint64_t, kWordsAtOnce>, kMaxStack> stack;
  for (int done = 0; done < count; done += kWordsAtOnce) {
    const int now = std::min(count - done, kWordsAtOnce);
    const int64_t k = k_begin + 64 * int64_t{done};
    size_t top = 0;
    for (const Step& step : program.steps) {
      auto& x = stack[top > 1 ? top - 2 : 0];
      auto& y = stack[top > 0 ? top - 1 : 0];
      switch (step.kind) {
        case Step::Kind::kAtom:
          stack[top].fill(0);
          fill_atom(compiled_->atoms[static_cast<size_t>(step.atom)], b, h, q, k, now, stack[top].data());
          ++top;
          break;
        case Step::Kind::kNot:
          for (auto& word : y) word = ~word;
          break;
        case Step::Kind::kAnd:
          for (size_t w = 0; w < x.size(); ++w) x[w] &= y[w];
          --top;
          break;
        case Step::Kind::kOr:
          for (size_t w = 0; w < x.size(); ++w) x[w] |= y[w];
          --top;
          break;
      }
    }
    std::copy(stack[0].begin(), stack[0].begin() + now, words + done);
  }
}

void MaskPlan::fill_words(int64_t b, int64_t h, Interval queries, int64_t k_begin, int count, uint64_t* words) const noexcept {
  using namespace mask_program;
  const Program& program = compiled_->program(h);
  const Atom* only = program.steps.size() == 1 ? &compiled_->atoms[static_cast<size_t>(program.steps[0].atom)] : nullptr;
  if (only != nullptr && only->op == MaskOp::kTable && queries.begin >= 0) {
    mask_pair_evaluations += 64 * static_cast<uint64_t>(count * (queries.end - queries.begin));
    return fill_table(*only->bits, b, h, queries, k_begin, count, words);
  }
  for (int64_t q = queries.begin; q < queries.end; ++q, words += count) fill_words(b, h, q, k_begin, count, words);
}

}  // namespace regard
