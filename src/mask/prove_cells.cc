// The reasoning: a formula is cut into cells, in each of which every term has one answer, and a cell is a small problem
// over two positions that has an exact solution.
//
// A cell says: x, y and d = y - x lie in intervals, d lies in some residue classes, and the block of y is before, is,
// or is behind the block of x, for each block size. While x stays inside one block of every size, the blocks too are
// bounds of y; so the plane is walked in strips of x, from the left. The pattern of the strips repeats with the common
// multiple of the block sizes, and only the bounds of y do not repeat with it: one period tells whether anything can
// come, and how far away.
#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include "mask/prove.h"
#include "mask/residues.h"

namespace regard::mask_proof {
namespace {

constexpr Wide kFar = static_cast<Wide>(1) << 66;        // beyond every position, difference and constant
constexpr Wide kNoPeriod = static_cast<Wide>(1) << 100;  // a common multiple beyond this is not worked out

struct Range {  // first and last
  Wide first = 0, last = -1;
};

enum class Relation : uint8_t { kBefore, kSame, kBehind };

struct BlockBound {
  Wide n, x_phase, y_phase;
  Relation relation;
};

struct Cell {
  Range x, y, d;
  std::vector<BlockBound> blocks;
  Residues residues;
};

Wide common_multiple(Wide a, Wide b) noexcept {
  const Wide rest = b / gcd(a, b);
  return a >= kNoPeriod / rest ? kNoPeriod : a * rest;
}

/// A maximal run of x, from `first` on, that stays inside one block of every size: bounds of y there.
struct Strip {
  Wide last;
  Wide low = -kFar, high = kFar;
};

Strip strip_at(const Cell& cell, Wide x) noexcept {
  Strip strip{kFar};
  for (const BlockBound& block : cell.blocks) {
    const Wide begin = floor_div(x - block.x_phase, block.n) * block.n;  // of the block of x, from the phase on
    strip.last = std::min(strip.last, block.x_phase + begin + block.n - 1);
    const Wide y_begin = block.y_phase + begin, y_end = y_begin + block.n;
    if (block.relation == Relation::kBefore) strip.high = std::min(strip.high, y_begin - 1);
    if (block.relation != Relation::kBefore)
      strip.low = std::max(strip.low, block.relation == Relation::kSame ? y_begin : y_end);
    if (block.relation == Relation::kSame) strip.high = std::min(strip.high, y_end - 1);
  }
  strip.high = std::min(strip.high, cell.y.last);
  return strip;
}

Range meet(Range a, Range b) noexcept { return {std::max(a.first, b.first), std::min(a.last, b.last)}; }

// Which differences a relation of blocks allows, wherever x stands.
Range differences(const BlockBound& block) noexcept {
  const Wide moved = block.y_phase - block.x_phase;
  switch (block.relation) {
    case Relation::kBefore:
      return {-kFar, moved - 1};
    case Relation::kSame:
      return {moved - (block.n - 1), moved + (block.n - 1)};
    case Relation::kBehind:
      break;
  }
  return {moved + 1, kFar};
}

// Brings the bounds of x and d together, d already within its blocks' differences. False when nothing is left.
bool tighten(Cell& cell, Budget& budget) {
  cell.d.first = std::max(cell.d.first, cell.y.first - cell.x.last);
  cell.d.last = std::min(cell.d.last, cell.y.last - cell.x.first);
  if (cell.d.first > cell.d.last) return false;
  const auto last = cell.residues.at_most(cell.d.last, cell.d.first, budget);
  if (!last) return false;
  cell.d.last = *last;
  const auto first = cell.residues.at_least(cell.d.first, cell.d.last, budget);
  if (!first) return false;
  cell.d.first = *first;
  cell.x.first = std::max(cell.x.first, cell.y.first - cell.d.last);
  cell.x.last = std::min(cell.x.last, cell.y.last - cell.d.first);
  return cell.x.first <= cell.x.last;
}

// The smallest (x, y) of a cell.
std::optional<Found> solve(Cell cell, Budget& budget) {
  if (!tighten(cell, budget)) return std::nullopt;
  Wide period = 1;
  for (const BlockBound& block : cell.blocks) period = common_multiple(period, block.n);
  for (Wide x = cell.x.first; x <= cell.x.last;) {
    // One period of strips. In a strip, low <= y <= high; the later x is, the lower is the window of differences
    // [low - x, high - x]. So the largest difference that still fits at its beginning decides when the strip opens.
    const Wide period_last = cell.blocks.empty() ? kFar : x + period - 1;
    std::optional<Wide> waiting;  // the largest difference whose strip would open, were it not for cell.y.first
    for (Wide at = x; at <= std::min(cell.x.last, period_last);) {
      budget.spend();
      const Strip strip = strip_at(cell, at);
      if (strip.low <= strip.high) {
        const auto d = cell.residues.at_most(std::min(cell.d.last, strip.high - at), cell.d.first, budget);
        if (d && strip.low - *d <= strip.last) {
          const Wide low = std::max(strip.low, cell.y.first), opens = std::max(at, low - *d);
          if (low <= strip.high && opens <= std::min(strip.last, cell.x.last)) {
            const auto least = cell.residues.at_least(std::max(cell.d.first, low - opens), *d, budget);
            return Found{static_cast<int64_t>(opens), static_cast<int64_t>(opens + least.value_or(*d))};
          }
          if (!waiting || *d > *waiting) waiting = d;
        }
      }
      at = strip.last + 1;
    }
    if (cell.blocks.empty() || !waiting) return std::nullopt;
    x = std::max(x + period, cell.y.first - *waiting);
  }
  return std::nullopt;
}

// Up to which x, from `x` on, the cell holds a y for every x in between; nothing when not even for `x`.
std::optional<Wide> covers_until(const Cell& cell, Wide x, Budget& budget) {
  budget.spend();
  const Strip strip = strip_at(cell, x);
  const Wide low = std::max(strip.low, cell.y.first), last = std::min(strip.last, cell.x.last);
  const auto d = cell.residues.at_least(std::max(cell.d.first, low - x), std::min(cell.d.last, strip.high - x), budget);
  if (low > strip.high || !d) return std::nullopt;
  // The same difference stays visible until y would pass `high`; without residues, so does the same y until the
  // difference would pass its lower end.
  return std::min(last, cell.residues.all() ? strip.high - cell.d.first : strip.high - *d);
}

// ---- cutting a formula into cells ----

enum Answer : uint8_t { kNo = 0, kOpen = 1, kYes = 2 };

class Cutter {
 public:
  Cutter(const Formula& formula, const Domain& domain, Budget& budget)
      : formula_(formula),
        budget_(budget),
        x_{domain.x.begin, static_cast<Wide>(domain.x.end) - 1},
        y_{domain.y.begin, static_cast<Wide>(domain.y.end) - 1} {
    for (const Atom& atom : formula.atoms) {
      if (atom.kind == Atom::Kind::kDiagonal) diagonals_.push_back(atom.c);
      if (atom.kind == Atom::Kind::kInner) inners_.push_back(atom.c);
      if (atom.kind == Atom::Kind::kOuter) outers_.push_back(atom.c);
    }
    for (std::vector<Wide>* cuts : {&diagonals_, &inners_, &outers_}) {
      std::sort(cuts->begin(), cuts->end());
      cuts->erase(std::unique(cuts->begin(), cuts->end()), cuts->end());
    }
    std::map<std::tuple<Wide, Wide, Wide>, size_t> blocks, residues;
    for (const Atom& atom : formula.atoms) places_.push_back(place_of(atom, blocks, residues));
    stack_.resize(formula.steps.size() + 1);
  }

  /// Calls `visit` for the cells of `x` in which the formula is true. The visitor may bring the last x nearer.
  using Visit = std::function<void(const Cell&)>;
  void each_cell(Range x, const Visit& visit) {
    visit_ = &visit;
    limit_ = std::min(x.last, x_.last);
    first_ = std::max(x.first, x_.first);
    choose_outer();
  }
  void bring_nearer(Wide last) noexcept { limit_ = std::min(limit_, last); }

  /// Behind this x, rows repeat with `period`, but for what they see between the constants and the diagonal, which only
  /// grows. See first_empty().
  Wide settled() const {
    Wide far = x_.first;
    const auto reach = [&](Wide c) { far = std::max(far, c < 0 ? -c : c); };
    Wide sizes = 0;
    for (Wide c : diagonals_) sizes = std::max(sizes, c < 0 ? -c : c);
    for (const Block& block : block_list_)
      sizes = std::max({sizes, block.n, block.x_phase, block.y_phase < 0 ? -block.y_phase : block.y_phase});
    for (Wide c : inners_) reach(c);
    for (Wide c : outers_) reach(c);
    reach(y_.first);
    if (y_.last < kPositions - 1) reach(y_.last + 1);
    return far + 2 * sizes + 2;
  }
  Wide period() const {
    Wide result = 1;
    for (const Block& block : block_list_) result = common_multiple(result, block.n);
    for (const Residue& residue : residue_list_) result = common_multiple(result, residue.n);
    return result;
  }
  Range x() const noexcept { return x_; }

 private:
  struct Block {
    Wide n, x_phase, y_phase;
    int relation = -1;  // not chosen, or a Relation
  };
  struct Residue {
    Wide n, c;
    int member = -1;  // not chosen, or whether d lies in the class
  };
  struct Place {  // where an atom's answer is: a cut among its kind, a block or a residue
    Atom::Kind kind;
    size_t index;
  };

  template <class Map>
  Place place_of(const Atom& atom, Map& blocks, Map& residues) {
    const auto rank = [&](const std::vector<Wide>& cuts) {
      return static_cast<size_t>(std::lower_bound(cuts.begin(), cuts.end(), atom.c) - cuts.begin());
    };
    switch (atom.kind) {
      case Atom::Kind::kDiagonal:
        return {atom.kind, rank(diagonals_)};
      case Atom::Kind::kInner:
        return {atom.kind, rank(inners_)};
      case Atom::Kind::kOuter:
        return {atom.kind, rank(outers_)};
      case Atom::Kind::kBlockBefore:
      case Atom::Kind::kBlockNotAfter: {
        const auto [at, fresh] = blocks.try_emplace({atom.n, atom.x_phase, atom.y_phase}, block_list_.size());
        if (fresh) block_list_.push_back({atom.n, atom.x_phase, atom.y_phase});
        return {atom.kind, at->second};
      }
      case Atom::Kind::kCongruent:
        break;
    }
    const Wide c = modulo(atom.c, atom.n);
    const auto [at, fresh] = residues.try_emplace({atom.n, c, 0}, residue_list_.size());
    if (fresh) residue_list_.push_back({atom.n, c});
    return {atom.kind, at->second};
  }

  // The pieces between the cuts: piece i holds what is below cut i and not below cut i - 1.
  static Answer below(int piece, size_t cut) noexcept {
    return piece < 0 ? kOpen : static_cast<size_t>(piece) <= cut ? kYes : kNo;
  }

  Answer answer(const Place& place) const noexcept {
    switch (place.kind) {
      case Atom::Kind::kDiagonal:
        return below(diagonal_, place.index);
      case Atom::Kind::kInner:
        return below(inner_, place.index);
      case Atom::Kind::kOuter:
        return below(outer_, place.index);
      case Atom::Kind::kBlockBefore:
      case Atom::Kind::kBlockNotAfter: {
        const int relation = block_list_[place.index].relation;
        if (relation < 0) return kOpen;
        return relation <= (place.kind == Atom::Kind::kBlockBefore ? 0 : 1) ? kYes : kNo;
      }
      case Atom::Kind::kCongruent: {
        const int member = residue_list_[place.index].member;
        return member < 0 ? kOpen : member != 0 ? kYes : kNo;
      }
    }
    return kOpen;
  }

  Answer evaluate() {
    budget_.spend(1 + static_cast<int64_t>(formula_.steps.size() / 8));
    size_t top = 0;
    for (const Formula::Step& step : formula_.steps) {
      switch (step.kind) {
        case Formula::Step::Kind::kAtom:
          stack_[top++] = answer(places_[step.atom]);
          break;
        case Formula::Step::Kind::kFalse:
          stack_[top++] = kNo;
          break;
        case Formula::Step::Kind::kTrue:
          stack_[top++] = kYes;
          break;
        case Formula::Step::Kind::kNot:
          stack_[top - 1] = static_cast<Answer>(kYes - stack_[top - 1]);
          break;
        case Formula::Step::Kind::kAnd:
          --top;
          stack_[top - 1] = std::min(stack_[top - 1], stack_[top]);
          break;
        case Formula::Step::Kind::kOr:
          --top;
          stack_[top - 1] = std::max(stack_[top - 1], stack_[top]);
          break;
      }
    }
    return stack_[0];
  }

  static Range piece(const std::vector<Wide>& cuts, size_t i, Wide offset) {
    return {i == 0 ? -kFar : cuts[i - 1] + offset, i == cuts.size() ? kFar : cuts[i] + offset - 1};
  }

  void choose_outer() {
    for (size_t i = 0; i <= outers_.size(); ++i) {
      cell_.x = meet(piece(outers_, i, 0), {first_, limit_});
      if (cell_.x.first > cell_.x.last) continue;
      outer_ = static_cast<int>(i);
      if (evaluate() != kNo) choose_inner();
    }
    outer_ = -1;
  }

  void choose_inner() {
    for (size_t i = 0; i <= inners_.size(); ++i) {
      cell_.y = meet(piece(inners_, i, 0), y_);
      if (cell_.y.first > cell_.y.last) continue;
      inner_ = static_cast<int>(i);
      if (evaluate() != kNo) choose_diagonal();
    }
    inner_ = -1;
  }

  void choose_diagonal() {
    for (size_t i = 0; i <= diagonals_.size(); ++i) {
      budget_.spend();
      cell_.d = piece(diagonals_, i, 1);
      // Some x of the cell must lie within y - d.
      if (cell_.y.first - cell_.d.last > std::min(cell_.x.last, limit_) || cell_.y.last - cell_.d.first < cell_.x.first)
        continue;
      diagonal_ = static_cast<int>(i);
      choose_block(0);
    }
    diagonal_ = -1;
  }

  void choose_block(size_t i) {
    const Answer known = evaluate();
    if (known == kNo) return;
    if (known == kYes || i == block_list_.size()) return choose_residue(0);
    Block& block = block_list_[i];
    const Range before = cell_.d;
    for (Relation relation : {Relation::kBefore, Relation::kSame, Relation::kBehind}) {
      cell_.blocks.push_back({block.n, block.x_phase, block.y_phase, relation});
      cell_.d = meet(before, differences(cell_.blocks.back()));
      block.relation = static_cast<int>(relation);
      if (cell_.d.first <= cell_.d.last) choose_block(i + 1);
      cell_.blocks.pop_back();
    }
    cell_.d = before;
    block.relation = -1;
  }

  void choose_residue(size_t i) {
    const Answer known = evaluate();
    if (known == kNo) return;
    if (known == kYes) {
      Cell cell = cell_;
      cell.x.last = std::min(cell.x.last, limit_);
      if (cell.x.first <= cell.x.last) (*visit_)(cell);
      return;
    }
    Residue& residue = residue_list_[i];
    for (int member : {1, 0}) {
      const Residues before = cell_.residues;
      if (member == 1) cell_.residues.require(residue.n, residue.c);
      if (member == 0) cell_.residues.avoid(residue.n, residue.c);
      residue.member = member;
      choose_residue(i + 1);
      cell_.residues = before;
    }
    residue.member = -1;
  }

  const Formula& formula_;
  Budget& budget_;
  Range x_, y_;
  std::vector<Wide> diagonals_, inners_, outers_;  // y - x <= c, y < c, x < c: rising
  std::vector<Block> block_list_;
  std::vector<Residue> residue_list_;
  std::vector<Place> places_;  // by atom
  std::vector<Answer> stack_;

  // What has been chosen so far.
  int outer_ = -1, inner_ = -1, diagonal_ = -1;
  Cell cell_;
  Wide first_ = 0, limit_ = 0;
  const Visit* visit_ = nullptr;
};

}  // namespace

std::optional<Found> first_true(const Formula& formula, const Domain& domain, Budget& budget,
                                std::optional<Found> most) {
  if (domain.x.empty() || domain.y.empty()) return std::nullopt;
  Cutter cutter(formula, domain, budget);
  std::optional<Found> best;
  Range x = cutter.x();
  if (most) x.last = std::min<Wide>(x.last, most->x);
  cutter.each_cell(x, [&](const Cell& cell) {
    const auto found = solve(cell, budget);
    if (!found || (most && *found > *most) || (best && *best < *found)) return;
    best = found;
    cutter.bring_nearer(found->x);
  });
  return best;
}

// Row x is empty or not like row x + period once x is settled: near the diagonal rows repeat, before the smallest
// constant and between the others only residues count, which repeat too, and what lies between the constants and the
// diagonal grows with x. So an empty row behind one settled period has an empty one a period before it.
std::optional<int64_t> first_empty(const Formula& formula, const Domain& domain, Budget& budget, int64_t most) {
  if (domain.x.empty()) return std::nullopt;
  if (domain.y.empty()) return domain.x.begin;
  Cutter cutter(formula, domain, budget);
  const Wide last = std::min<Wide>({cutter.x().last, most, cutter.settled() + cutter.period()});
  for (Wide x = cutter.x().first; x <= last;) {
    std::optional<Wide> until;
    cutter.each_cell({x, last}, [&](const Cell& cell) {
      if (cell.x.first > x) return;
      const auto reach = covers_until(cell, x, budget);
      if (reach && (!until || *reach > *until)) until = reach;
    });
    if (!until) return static_cast<int64_t>(x);
    x = *until + 1;
  }
  return std::nullopt;
}

}  // namespace regard::mask_proof
