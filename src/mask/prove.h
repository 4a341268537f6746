// The inside of prove(): claims as formulas over two positions, and the two engines that decide them.
//
// A formula speaks of an outer position x and an inner one y: query and key, or key and query when every key is asked
// for (`reachable`). Start reading at prove.cc; the reasoning is in prove_cells.cc, the reading of lists in
// prove_rows.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "mask/plan.h"
#include "regard/mask_proof.h"

namespace regard::mask_proof {

/// Sums and products of positions and sizes, none of which comes near the end of this type.
__extension__ typedef __int128 Wide;

inline constexpr int64_t kPositions = std::numeric_limits<int64_t>::max();  // positions are 0 ... kPositions - 1

/// Thrown where the work would pass its limit, and caught by prove().
struct OutOfWork {};

/// Counts steps. Errors: OutOfWork; Error(kCancelled).
class Budget {
 public:
  Budget(int64_t most, const StopToken* stop) : left_(most), stop_(stop) {}
  void spend(int64_t steps = 1) {
    left_ -= steps;
    since_look_ += steps;
    if (since_look_ >= 1024) {
      since_look_ = 0;
      if (stop_ != nullptr && stop_->stop_requested()) fail(Code::kCancelled, "[prove] stopped on request");
    }
    if (left_ < 0) throw OutOfWork{};
  }

 private:
  int64_t left_;
  int64_t since_look_ = 0;
  const StopToken* stop_;
};

// ---- formulas ----

struct Atom {
  enum class Kind : uint8_t {
    kDiagonal,       // y - x <= c
    kInner,          // y < c
    kOuter,          // x < c
    kBlockBefore,    // floor((y - y_phase) / n) < floor((x - x_phase) / n)
    kBlockNotAfter,  // the same with <=
    kCongruent,      // y - x = c (mod n)
  };
  Kind kind = Kind::kDiagonal;
  Wide c = 0;
  int64_t n = 1;
  Wide x_phase = 0, y_phase = 0;
};

/// Postfix over atoms.
struct Formula {
  struct Step {
    enum class Kind : uint8_t { kAtom, kFalse, kTrue, kNot, kAnd, kOr } kind = Kind::kFalse;
    size_t atom = 0;
  };
  std::vector<Atom> atoms;
  std::vector<Step> steps;

  void push(const Atom& atom) {
    steps.push_back({Step::Kind::kAtom, atoms.size()});
    atoms.push_back(atom);
  }
  void push(Step::Kind kind) { steps.push_back({kind, 0}); }
  /// Appends `other` and then `joined`: this & other, this | other.
  void join(const Formula& other, Step::Kind joined);
};

enum class Axes : uint8_t { kQueryOutside, kKeyOutside };

/// How far a mask is moved: its position 0 stands at query q and key k.
struct Shift {
  int64_t q = 0, k = 0;
};

/// Whether the mask has a term with a list by position: documents, tree, table.
bool has_lists(const MaskNode& node) noexcept;

/// The mask of one batch row and head as a formula. The mask has no lists by position.
Formula formula_of(const Mask& mask, int64_t batch, int64_t head, Axes axes, Shift shift = {});

/// Positions begin ... end - 1 of both axes.
struct Domain {
  Interval x, y;
};

struct Found {
  int64_t x = 0, y = 0;
  friend auto operator<=>(const Found&, const Found&) = default;
};

/// The smallest (x, y) of the domain for which the formula is true, x first, if it is not behind `most`.
std::optional<Found> first_true(const Formula& formula, const Domain& domain, Budget& budget,
                                std::optional<Found> most = {});

/// The smallest x of the domain for which the formula is true for no y of the domain, unless it is behind `most`.
std::optional<int64_t> first_empty(const Formula& formula, const Domain& domain, Budget& budget, int64_t most);

// ---- lists, row by row ----

/// The pairs of one batch row and head of a mask with lists, over finite lengths.
struct Rows {
  const MaskPlan& plan;
  int64_t batch = 0, head = 0;
  Interval queries, keys;
  /// Which of `keys` count in row q, in rising order; not set: all.
  std::function<std::vector<Interval>(int64_t q)> counting;
};

/// The smallest pair (query, key) that is seen and counts, unless its query is behind `most`.
std::optional<Found> first_seen(const Rows& rows, Budget& budget, int64_t most);
/// The first query that sees no key.
std::optional<int64_t> first_empty_row(const Rows& rows, Budget& budget, int64_t most);
/// The first key that no query sees.
std::optional<int64_t> first_unseen_key(const Rows& rows, Budget& budget);

/// Keys below c floor(q / c) + c - n have lost their slot at the time of query q.
inline int64_t ring_limit(int64_t q, int64_t slots, int64_t chunk) noexcept {
  const Wide limit = static_cast<Wide>(q / chunk) * chunk + chunk - slots;
  return limit <= 0 ? 0 : limit >= kPositions ? kPositions : static_cast<int64_t>(limit);
}

}  // namespace regard::mask_proof
