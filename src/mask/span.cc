// Intervals: what each term says about a row or a range of rows, and how &, | and ~ combine it.
#include "mask/program.h"

namespace regard::mask_program {
namespace {

constexpr Interval kAll{0, kEnd};
constexpr Interval kNothing{0, 0};
constexpr int64_t kMaxRowsLookedAt = 1024;  // of documents whose intervals do not rise

int64_t block_begin(int64_t q, int64_t n) noexcept { return q / n * n; }
int64_t block_end(int64_t q, int64_t n) noexcept { return saturating_add(q / n * n, n); }

// The row intervals [begin, end) of most terms rise with q. Then all rows share [begin of the last, end of the first),
// and none looks outside [begin of the first, end of the last).
Span rising(Interval first, Interval last) noexcept { return {{last.begin, first.end}, {first.begin, last.end}}; }

Span documents_span(const DocumentRow& row, Interval queries) noexcept {
  const auto q_len = static_cast<int64_t>(row.seen.size());
  if (queries.begin >= q_len) return {kNothing, kNothing};
  const Interval within{queries.begin, std::min(queries.end, q_len)};
  const auto at = [&](int64_t q) { return row.seen[static_cast<size_t>(q)]; };
  Span result{kNothing, {0, row.k_len}};
  if (row.rising) {
    result = rising(at(within.begin), at(within.end - 1));
  } else if (within.end - within.begin <= kMaxRowsLookedAt) {
    result = {kAll, kNothing};
    for (int64_t q = within.begin; q < within.end; ++q) {
      result.sure = both(result.sure, at(q));
      result.hull = around(result.hull, at(q));
    }
  }
  if (!row.runs || within.end < queries.end) result.sure = kNothing;  // a row beyond the list sees nothing
  return result;
}

Span tree_span(int64_t base, const TreeRow& row, Interval queries) noexcept {
  const int64_t end = saturating_add(base, static_cast<int64_t>(row.enter.size()));
  if (queries.begin >= std::max(end, base)) return {kNothing, kNothing};
  const Interval sure = queries.end <= end ? Interval{0, base} : kNothing;
  if (queries.end <= base) return {sure, {0, base}};
  return {sure, {0, row.rising ? std::min(queries.end, end) : end}};
}

}  // namespace

Span span_and(const Span& a, const Span& b) noexcept { return {both(a.sure, b.sure), both(a.hull, b.hull)}; }

Span span_or(const Span& a, const Span& b) noexcept {
  // Two sure intervals that do not touch leave a gap; the longer one is still sure.
  const bool touch = !a.sure.empty() && !b.sure.empty() && a.sure.begin <= b.sure.end && b.sure.begin <= a.sure.end;
  const auto length = [](Interval i) { return i.empty() ? 0 : i.end - i.begin; };
  const Interval sure = touch ? around(a.sure, b.sure) : (length(a.sure) >= length(b.sure) ? a.sure : b.sure);
  return {sure, around(a.hull, b.hull)};
}

Span span_not(const Span& a) noexcept {
  // What is surely seen is hidden now; if it lies in the middle, both sides of it remain and only the whole axis is
  // around them. What was surely hidden is seen now: the part before the hull or the part behind it.
  Span result{kAll, kAll};
  if (!a.sure.empty()) {
    if (a.sure.begin <= 0) {
      result.hull = {a.sure.end, kEnd};
    } else if (a.sure.end == kEnd) {
      result.hull = {0, a.sure.begin};
    }
  }
  if (!a.hull.empty()) result.sure = a.hull.end < kEnd ? Interval{a.hull.end, kEnd} : Interval{0, a.hull.begin};
  return result;
}

Interval Band::row(int64_t b, int64_t q) const noexcept {
  return {std::max<int64_t>(0, q - left),
          std::min(Atom::of_row(ends, b), saturating_add(saturating_add(q, right), 1))};
}

Span span(const Atom& atom, int64_t b, Interval queries) noexcept {
  const int64_t first = queries.begin, last = queries.end - 1;
  switch (atom.op) {
    case MaskOp::kFull: return {kAll, kAll};
    case MaskOp::kCausal: return rising({0, saturating_add(first, 1)}, {0, saturating_add(last, 1)});
    case MaskOp::kWindow: {
      const auto row = [&](int64_t q) {
        return Interval{std::max<int64_t>(0, q - atom.a), saturating_add(saturating_add(q, atom.b), 1)};
      };
      return rising(row(first), row(last));
    }
    case MaskOp::kPrefix:
    case MaskOp::kLengths: {
      const Interval seen{0, Atom::of_row(atom.numbers, b)};
      return {seen, seen};
    }
    case MaskOp::kBlocks: return rising({0, block_end(first, atom.a)}, {0, block_end(last, atom.a)});
    case MaskOp::kChunk:
      return rising({block_begin(first, atom.a), block_end(first, atom.a)},
                    {block_begin(last, atom.a), block_end(last, atom.a)});
    case MaskOp::kDocuments: return documents_span(Atom::of_row(atom.documents, b), queries);
    case MaskOp::kDilated:
      if (atom.a == 1) return {kAll, kAll};
      return {first == last ? Interval{first, saturating_add(first, 1)} : kNothing, kAll};
    case MaskOp::kTree: return tree_span(Atom::of_row(atom.numbers, b), Atom::of_row(atom.trees, b), queries);
    case MaskOp::kTable: return {kNothing, first < atom.bits->q_len() ? Interval{0, atom.bits->kv_len()} : kNothing};
    default: return {kNothing, kNothing};
  }
}

RowShape row_shape(const Atom& atom) noexcept {
  switch (atom.op) {
    case MaskOp::kFull:
    case MaskOp::kNone: return {true, true, true, true};
    case MaskOp::kCausal:
    case MaskOp::kBlocks: return {true, true, false, true};
    case MaskOp::kWindow: return {true, atom.a == kUnlimited, atom.b == kUnlimited, true};
    case MaskOp::kPrefix:
    case MaskOp::kLengths: return {true, true, false, false};
    case MaskOp::kChunk: return {true, false, false, true};
    case MaskOp::kDilated: return atom.a == 1 ? RowShape{true, true, true, true} : RowShape{};
    case MaskOp::kDocuments: {
      if (!is_interval_term(atom)) return {};
      return {true, false, false, atom.a != 0};
    }
    default: return {};
  }
}

bool is_interval_term(const Atom& atom) noexcept {
  switch (atom.op) {
    case MaskOp::kTree:
    case MaskOp::kTable: return false;
    case MaskOp::kDilated: return atom.a == 1;
    case MaskOp::kDocuments:
      return std::all_of(atom.documents.begin(), atom.documents.end(), [](const DocumentRow& row) { return row.runs; });
    default: return true;
  }
}

}  // namespace regard::mask_program
