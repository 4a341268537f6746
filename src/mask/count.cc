// How many pairs a mask lets through. Start at MaskPlan::count_total().
//
// Where every term is an interval, its two ends stay where they are or move with the row, for long stretches of rows. As long as no
// end that moves meets one that stays, their order is the same, and how many keys a row sees is linear in the row: a stretch is
// counted by its first and last row. The ends of the keys count among those that stay.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/checked.h"
#include "mask/program.h"

namespace regard {

using namespace mask_program;

namespace {

// Which ends of a term's interval move with the row from row q on, and the first row of which that may not be true.
struct Course {
  bool begin_moves = false, end_moves = false;
  int64_t until = kEnd;
};

Course course(const Atom& atom, int64_t q) noexcept {
  switch (atom.op) {
    case MaskOp::kCausal: return {false, true};
    case MaskOp::kWindow: {
      const int64_t last = kEnd - 1 - atom.b;  // the row whose interval ends where positions do
      const bool begin_moves = q >= atom.a, end_moves = q <= last;
      return {begin_moves, end_moves, std::min(begin_moves ? kEnd : atom.a, end_moves ? last + 1 : kEnd)};
    }
    case MaskOp::kBlocks:
    case MaskOp::kChunk: return {false, false, saturating_add(q / atom.a * atom.a, atom.a)};
    default: return {};  // documents are looked up row by row: same_documents()
  }
}

bool same_documents(const Atom& atom, int64_t b, int64_t q, int64_t other) noexcept {
  const std::vector<Interval>& seen = Atom::of_row(atom.documents, b).seen;
  const auto at = [&](int64_t row) { return row < static_cast<int64_t>(seen.size()) ? seen[static_cast<size_t>(row)] : Interval{0, 0}; };
  return at(q) == at(other);
}

// The stretches of one program, one after the other.
class Stretches {
 public:
  Stretches(const Compiled& compiled, const Program& program, int64_t b, Interval keys) : b_(b), keys_(keys) {
    for (const Step& step : program.steps) {
      if (step.kind != Step::Kind::kAtom) continue;
      const Atom& atom = compiled.atoms[static_cast<size_t>(step.atom)];
      atoms_.push_back(&atom);
      if (atom.op == MaskOp::kDocuments) documents_.push_back(&atom);
    }
  }

  /// Calls visit(begin, end) for rows over which the count is linear, from `queries.begin` on.
  template <class Visit>
  void each(Interval queries, Visit visit) {
    for (int64_t q = queries.begin; q < queries.end;) {
      const int64_t end = look(q, queries.end);
      if (end - q > 2) {  // two numbers are linear anyway
        int64_t from = q;
        for (int64_t meeting : meetings(q, end)) {
          visit(from, meeting);
          from = meeting;
        }
        visit(from, end);
      } else {
        visit(q, end);
      }
      q = end;
    }
  }

 private:
  // Up to which row every end goes on as it does in row q; which of them move.
  int64_t look(int64_t q, int64_t end) {
    still_.assign({keys_.begin, keys_.end});
    moving_.clear();
    for (const Atom* atom : atoms_) {
      const Course c = course(*atom, q);
      const Interval row = span(*atom, b_, {q, q + 1}).hull;
      (c.begin_moves ? moving_ : still_).push_back(row.begin);
      (c.end_moves ? moving_ : still_).push_back(row.end);
      end = std::min(end, c.until);
    }
    for (int64_t row = q + 1; row < end && !documents_.empty(); ++row)
      for (const Atom* atom : documents_)
        if (!same_documents(*atom, b_, q, row)) return row;
    return end;
  }

  // The rows between q and `end` in which an end that moves meets one that stays, rising.
  const std::vector<int64_t>& meetings(int64_t q, int64_t end) {
    meetings_.clear();
    for (int64_t moving : moving_)
      for (int64_t still : still_)
        if (still > moving && still - moving < end - q) meetings_.push_back(q + (still - moving));
    std::sort(meetings_.begin(), meetings_.end());
    meetings_.erase(std::unique(meetings_.begin(), meetings_.end()), meetings_.end());
    return meetings_;
  }

  int64_t b_;
  Interval keys_;
  std::vector<const Atom*> atoms_, documents_;
  std::vector<int64_t> still_, moving_, meetings_;
};

// first + ... + last, `rows` numbers at equal distances. One of the two factors is even.
std::optional<int64_t> sum_of(int64_t rows, int64_t first, int64_t last) noexcept {
  const uint64_t ends = static_cast<uint64_t>(first) + static_cast<uint64_t>(last), count = static_cast<uint64_t>(rows);
  const auto sum = ends % 2 == 0 ? checked_mul<uint64_t>(ends / 2, count) : checked_mul<uint64_t>(ends, count / 2);
  return sum ? checked_cast<int64_t>(*sum) : std::nullopt;
}

}  // namespace

int64_t MaskPlan::count_total(Interval queries, Interval keys, const StopToken* stop) const {
  const int64_t batches = depends_on_batch() ? batch() : std::min<int64_t>(batch(), 1);
  const int64_t heads = depends_on_head() ? num_q_heads() : std::min<int64_t>(num_q_heads(), 1);
  queries.begin = std::max<int64_t>(0, queries.begin);
  keys.begin = std::max<int64_t>(0, keys.begin);
  const auto fitting = [](std::optional<int64_t> pairs) {
    if (!pairs) fail(Code::kResourceExhausted, "[MaskPlan::count_total] more than 2^63 - 1 visible pairs");
    return *pairs;
  };
  int64_t total = 0;
  for (int64_t b = 0; b < batches; ++b)
    for (int64_t h = 0; h < heads; ++h) {
      const auto add = [&](int64_t begin, int64_t end) {
        if (stop != nullptr && stop->stop_requested()) fail(Code::kCancelled, "[MaskPlan::count_total] stopped on request");
        const int64_t first = count_row(b, h, begin, keys), last = end - begin == 1 ? first : count_row(b, h, end - 1, keys);
        total = fitting(checked_add(total, fitting(sum_of(end - begin, first, last))));
      };
      const Program& program = compiled_->program(h);
      if (program.interval_terms && program.cut_into_pieces())
        Stretches(*compiled_, program, b, keys).each(queries, add);
      else
        for (int64_t q = queries.begin; q < queries.end; ++q) add(q, q + 1);
    }
  if (!depends_on_batch() && batches > 0) total = fitting(checked_mul(total, batch()));
  if (!depends_on_head() && heads > 0) total = fitting(checked_mul(total, num_q_heads()));
  return total;
}

}  // namespace regard
