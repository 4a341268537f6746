// Answers of a plan that come from intervals: tile classes, hulls, counts of rows.
#include "mask/plan.h"

#include <bit>
#include <utility>

#include "base/check.h"
#include "mask/program.h"

namespace regard {

using namespace mask_program;

namespace {

constexpr int64_t kMaxRowsCut = 1024;  // rows of a tile that are cut into pieces before the answer is "partial"

// Seen by none, by some or unknown, by all. Ordered, so that & is the minimum, | the maximum and ~ the mirror image.
enum Answer : uint8_t { kNo = 0, kUndecided = 1, kYes = 2 };

Answer answer_within(const Span& s, Interval keys) noexcept {
  if (both(s.hull, keys).empty()) return kNo;
  return s.sure.begin <= keys.begin && keys.end <= s.sure.end ? kYes : kUndecided;
}

int64_t floor_div(int64_t a, int64_t n) noexcept { return a / n - (a % n < 0 ? 1 : 0); }

Answer answer_of_tile(const Atom& atom, int64_t b, Interval queries, Interval keys) noexcept {
  if (atom.op != MaskOp::kDilated || atom.a == 1) return answer_within(span(atom, b, queries), keys);
  // The differences p - k of the tile are a run of whole numbers; does it hold a multiple of n?
  const int64_t least = queries.begin - (keys.end - 1), most = queries.end - 1 - keys.begin;
  if (floor_div(most, atom.a) == floor_div(least - 1, atom.a)) return kNo;
  return least == most ? kYes : kUndecided;
}

// Runs the program over answers; `leaf(i, atom)` gives the answer of the i-th atom in order of use.
template <class Leaf>
Answer combine(const Program& program, const std::vector<Atom>& atoms, Leaf leaf) noexcept {
  Stack<Answer> stack;
  size_t i = 0;
  for (const Step& step : program.steps) {
    switch (step.kind) {
      case Step::Kind::kAtom: stack.push(leaf(i++, atoms[static_cast<size_t>(step.atom)])); break;
      case Step::Kind::kNot: stack.top() = static_cast<Answer>(kYes - stack.top()); break;
      case Step::Kind::kAnd: {
        const Answer right = stack.pop();
        stack.top() = std::min(stack.top(), right);
        break;
      }
      case Step::Kind::kOr: {
        const Answer right = stack.pop();
        stack.top() = std::max(stack.top(), right);
        break;
      }
    }
  }
  return stack.top();
}

Span span_of(const Program& program, const std::vector<Atom>& atoms, int64_t b, Interval queries) noexcept {
  Stack<Span> stack;
  for (const Step& step : program.steps) {
    switch (step.kind) {
      case Step::Kind::kAtom: stack.push(span(atoms[static_cast<size_t>(step.atom)], b, queries)); break;
      case Step::Kind::kNot: stack.top() = span_not(stack.top()); break;
      case Step::Kind::kAnd: {
        const Span right = stack.pop();
        stack.top() = span_and(stack.top(), right);
        break;
      }
      case Step::Kind::kOr: {
        const Span right = stack.pop();
        stack.top() = span_or(stack.top(), right);
        break;
      }
    }
  }
  return stack.top();
}

// Cuts `keys` where any term changes its answer for row q and calls visit(piece, answer) from left to right until it
// returns false. For programs of at most kMaxPieceAtoms atoms.
template <class Visit>
void pieces(const Program& program, const std::vector<Atom>& atoms, int64_t b, int64_t q, Interval keys,
            Visit visit) noexcept {
  std::array<Span, kMaxPieceAtoms> spans;
  std::array<int64_t, 4 * kMaxPieceAtoms + 2> cuts;
  size_t used = 0, count = 0;
  cuts[count++] = keys.begin;
  cuts[count++] = keys.end;
  for (const Step& step : program.steps) {
    if (step.kind != Step::Kind::kAtom) continue;
    const Span s = spans[used++] = span(atoms[static_cast<size_t>(step.atom)], b, {q, q + 1});
    for (int64_t cut : {s.sure.begin, s.sure.end, s.hull.begin, s.hull.end})
      if (cut > keys.begin && cut < keys.end) cuts[count++] = cut;
  }
  std::sort(cuts.begin(), cuts.begin() + count);
  for (size_t i = 0; i + 1 < count; ++i) {
    const Interval piece{cuts[i], cuts[i + 1]};
    if (piece.empty()) continue;
    const Answer answer =
        combine(program, atoms, [&](size_t leaf, const Atom&) { return answer_within(spans[leaf], piece); });
    if (!visit(piece, answer)) return;
  }
}

}  // namespace

MaskPlan::MaskPlan(const Mask& mask, const MaskLimits& limits, int64_t batch, int64_t num_q_heads)
    : compiled_(std::make_shared<const Compiled>(compile(mask, limits, batch, num_q_heads))) {}

void MaskPlan::check_queries(int64_t b, Interval positions) const {
  if (positions.empty() || positions.end <= 0) return;
  for (const Atom& atom : compiled_->atoms) {
    int64_t end = kEnd;
    if (atom.op == MaskOp::kDocuments) end = static_cast<int64_t>(Atom::of_row(atom.documents, b).seen.size());
    if (atom.op == MaskOp::kTable) end = atom.bits->q_len();
    if (atom.op == MaskOp::kTree)
      end =
          saturating_add(Atom::of_row(atom.numbers, b), static_cast<int64_t>(Atom::of_row(atom.trees, b).enter.size()));
    require(positions.end <= end,
            "[MaskPlan] query position {} of batch row {} is beyond the end of {}, which reaches to position {}",
            positions.end - 1, b, atom.label, end - 1);
  }
}

void MaskPlan::check_queries(int64_t b, const int64_t* positions, int64_t count) const {
  int64_t last = -1;
  for (int64_t i = 0; i < count; ++i) last = std::max(last, positions[i]);
  check_queries(b, Interval{last, last + 1});
}

TileClass MaskPlan::classify(int64_t b, int64_t h, Interval queries, Interval keys) const noexcept {
  // Unwritten slots (negative positions) see nothing and are not seen.
  const bool cut_q = queries.begin < 0, cut_k = keys.begin < 0;
  queries.begin = std::max<int64_t>(0, queries.begin);
  keys.begin = std::max<int64_t>(0, keys.begin);
  if (queries.empty() || keys.empty()) return TileClass::kEmpty;

  const Program& program = compiled_->program(h);
  const auto& atoms = compiled_->atoms;
  Answer answer =
      combine(program, atoms, [&](size_t, const Atom& atom) { return answer_of_tile(atom, b, queries, keys); });
  // `causal & ~causal` is undecided term by term. Row by row the terms are intervals and the pieces between their ends
  // decide; a tile that is partial shows it in its first pieces, mostly.
  const int64_t rows = queries.end - queries.begin;
  if (answer == kUndecided && program.cut_into_pieces() && rows <= kMaxRowsCut) {
    bool some = false, others = false, unknown = false;
    const auto look = [&](int64_t q) {
      pieces(program, atoms, b, q, keys, [&](Interval, Answer piece) {
        some |= piece == kYes;
        others |= piece == kNo;
        unknown |= piece == kUndecided;
        return !(unknown || (some && others));
      });
      return !(unknown || (some && others));
    };
    bool more = look(queries.begin) && look(queries.end - 1);
    for (int64_t q = queries.begin + 1; more && q < queries.end - 1; ++q) more = look(q);
    if (more) answer = some ? kYes : kNo;
  }
  if (answer == kNo) return TileClass::kEmpty;
  return answer == kYes && !cut_q && !cut_k ? TileClass::kFull : TileClass::kPartial;
}

Interval MaskPlan::hull(int64_t b, int64_t h, int64_t q) const noexcept {
  if (q < 0) return {0, 0};
  const Program& program = compiled_->program(h);
  Interval result{0, 0};
  if (program.band) {
    result = program.band->row(b, q);
  } else if (program.shape.interval || !program.cut_into_pieces()) {
    result = span_of(program, compiled_->atoms, b, {q, q + 1}).hull;
  } else {
    pieces(program, compiled_->atoms, b, q, {0, kEnd}, [&](Interval piece, Answer answer) {
      if (answer != kNo) result = around(result, piece);
      return true;
    });
  }
  return result.empty() ? Interval{0, 0} : result;
}

Interval MaskPlan::hull(int64_t b, int64_t h, Interval queries) const noexcept {
  queries.begin = std::max<int64_t>(0, queries.begin);
  if (queries.empty()) return {0, 0};
  if (queries.end - queries.begin == 1) return hull(b, h, queries.begin);
  const Interval result = span_of(compiled_->program(h), compiled_->atoms, b, queries).hull;
  return result.empty() ? Interval{0, 0} : result;
}

bool MaskPlan::rows_are_intervals() const noexcept {
  return std::all_of(compiled_->programs.begin(), compiled_->programs.end(),
                     [](const Program& p) { return p.shape.interval; });
}

int64_t MaskPlan::count_row(int64_t b, int64_t h, int64_t q, Interval keys) const noexcept {
  keys.begin = std::max<int64_t>(0, keys.begin);
  if (q < 0 || keys.empty()) return 0;
  const Program& program = compiled_->program(h);
  if (program.shape.interval) {
    const Interval seen = both(hull(b, h, q), keys);
    return seen.empty() ? 0 : seen.end - seen.begin;
  }
  int64_t count = 0;
  if (program.interval_terms && program.cut_into_pieces()) {
    pieces(program, compiled_->atoms, b, q, keys, [&](Interval piece, Answer answer) {
      if (answer == kYes) count += piece.end - piece.begin;
      return true;
    });
    return count;
  }
  const Interval seen = both(hull(b, h, q), keys);
  if (seen.empty()) return 0;
  std::array<uint64_t, kWordsAtOnce> words, inside;
  for (int64_t k = seen.begin / 64 * 64; k < seen.end; k += 64 * kWordsAtOnce) {
    fill_words(b, h, q, k, kWordsAtOnce, words.data());
    fill_interval(seen, k, kWordsAtOnce, inside.data());
    for (size_t w = 0; w < words.size(); ++w) count += std::popcount(words[w] & inside[w]);
  }
  return count;
}

bool MaskPlan::depends_on_batch() const noexcept { return compiled_->depends_on_batch; }
bool MaskPlan::depends_on_head() const noexcept { return compiled_->depends_on_head; }
int64_t MaskPlan::batch() const noexcept { return compiled_->batch; }
int64_t MaskPlan::num_q_heads() const noexcept { return compiled_->heads; }

}  // namespace regard
