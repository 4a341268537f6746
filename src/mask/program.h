// A mask compiled for one batch and one number of heads: terms become atoms with all their data resolved, the
// expression becomes a postfix program over them, and per_head becomes one program per head.
//
// Three evaluations run over the same program: tile classes (empty, partial, full combine like false, unknown, true),
// spans (an interval that is surely seen and one outside of which nothing is), and 64-bit words.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "mask/node.h"
#include "mask/plan.h"

namespace regard::mask_program {

inline constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

inline Interval both(Interval a, Interval b) noexcept { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }
// The smallest interval around two.
inline Interval around(Interval a, Interval b) noexcept {
  if (a.empty()) return b;
  if (b.empty()) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

/// What is known about the keys that a row, or every row of a range, sees: all of `sure`, nothing outside `hull`.
struct Span {
  Interval sure;
  Interval hull;
};
Span span_and(const Span& a, const Span& b) noexcept;
Span span_or(const Span& a, const Span& b) noexcept;
Span span_not(const Span& a) noexcept;

/// One batch row of a documents term.
struct DocumentRow {
  std::vector<Interval> seen;  // by query position: from the first to behind the last key with its id
  int64_t k_len = 0;
  bool runs = true;            // every id is one run of keys: a row sees all of its interval
  bool rising = true;          // both ends of `seen` never fall from one query to the next
  std::vector<int32_t> q_ids;  // without runs: ids numbered from 0
  std::vector<int32_t> k_ids;
};

/// One batch row of a tree term. Node a is an ancestor of node n (or n itself) when enter[a] <= enter[n] < leave[a]:
/// a depth-first walk enters it before and leaves it after.
struct TreeRow {
  std::vector<int32_t> enter;
  std::vector<int32_t> leave;
  bool rising = true;  // parents come before their children, so no query sees a later node
};

/// A term with its data. Per-row data has one entry for all batch rows, or one per batch row.
struct Atom {
  MaskOp op = MaskOp::kFull;
  int64_t a = 0, b = 0;
  uint64_t pattern = 0;  // dilated: bits 0, n, 2n, ...
  std::vector<int64_t> numbers;
  std::vector<DocumentRow> documents;
  std::vector<TreeRow> trees;
  std::optional<BitTable> bits;
  std::string label;  // how errors call it

  template <class T>
  static const T& of_row(const std::vector<T>& rows, int64_t b_row) noexcept {
    return rows[rows.size() == 1 ? 0 : static_cast<size_t>(b_row)];
  }
};

/// What the rows of an expression look like, by construction. Each says "or the row is empty" as well.
struct RowShape {
  bool interval = false;    // one interval
  bool from_zero = false;   // ... that begins at key 0
  bool to_end = false;      // ... that never ends
  bool around_own = false;  // ... that contains the query's own position
};

struct Step {
  enum class Kind : uint8_t { kAtom, kNot, kAnd, kOr } kind = Kind::kAtom;
  int32_t atom = 0;
};

/// The limit of atoms up to which a row is cut into pieces, see pieces() in plan.cc; more would cost more than a tile.
inline constexpr size_t kMaxPieceAtoms = 32;
/// Stack entries that a program needs at most: one per level and one for the operand at hand, the limits' included.
inline constexpr size_t kMaxStack = kMaxMaskDepth + 4;
/// The operands of one evaluation. Slots are not cleared beforehand: that would cost more than most programs do.
template <class T>
class Stack {
 public:
  void push(const T& value) noexcept { slots_[size_++].value = value; }
  T pop() noexcept { return slots_[--size_].value; }
  T& top() noexcept { return slots_[size_ - 1].value; }

 private:
  union Slot {
    Slot() noexcept {}
    T value;
  };
  Slot slots_[kMaxStack];
  size_t size_ = 0;
};

/// Words evaluated at once: a key tile of the attention kernels.
inline constexpr int kWordsAtOnce = 4;

/// Rows [q - left, q + right] below `ends`: what conjunctions of windows, causal, prefixes and lengths come to. Most
/// masks of real models are one, and the kernels ask for every row.
struct Band {
  int64_t left = kEnd, right = kEnd;
  std::vector<int64_t> ends;  // one for all batch rows, or one for each

  Interval row(int64_t b, int64_t q) const noexcept;
};

struct Program {
  std::vector<Step> steps;
  bool interval_terms = true;  // only terms whose rows are intervals: pieces decide everything
  RowShape shape;
  size_t atoms = 0;
  std::optional<Band> band;  // where the rows are one

  bool cut_into_pieces() const noexcept { return atoms <= kMaxPieceAtoms; }
};

struct Compiled {
  std::vector<Atom> atoms;
  std::vector<Program> programs;  // one, or one per head
  int64_t batch = 0;
  int64_t heads = 0;
  bool depends_on_batch = false;
  bool depends_on_head = false;

  const Program& program(int64_t h) const noexcept {
    return programs[programs.size() == 1 ? 0 : static_cast<size_t>(h)];
  }
};

Compiled compile(const Mask& mask, const MaskLimits& limits, int64_t batch, int64_t heads);

/// What the term says about every row of `queries` (not empty, from 0 on). Exact for one row of an interval term.
Span span(const Atom& atom, int64_t b, Interval queries) noexcept;
RowShape row_shape(const Atom& atom) noexcept;
/// Whether every row of the term is one interval, known exactly.
bool is_interval_term(const Atom& atom) noexcept;

/// The words of row q of the term; count <= kWordsAtOnce.
void fill_atom(const Atom& atom, int64_t b, int64_t h, int64_t q, int64_t k_begin, int count, uint64_t* words) noexcept;
void fill_interval(Interval seen, int64_t k_begin, int count, uint64_t* words) noexcept;

}  // namespace regard::mask_program
