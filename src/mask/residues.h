// Whole numbers that lie in one residue class and outside of some others: x = base (mod step), x != c (mod n).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mask/prove.h"

namespace regard::mask_proof {

/// Numbers of magnitude below 2^63 only: where the step of the class passes 2^64 it holds one such number or none.
class Residues {
 public:
  /// x = c (mod n).
  void require(Wide n, Wide c);
  /// x != c (mod n).
  void avoid(Wide n, Wide c) { avoided_.push_back({n, c}); }
  bool all() const noexcept { return step_ == 1 && avoided_.empty() && !none_; }

  /// The largest member that is at most `x` and not below `least`, the smallest that is at least `x` and not above
  /// `most`.
  std::optional<Wide> at_most(Wide x, Wide least, Budget& budget) const { return walk(x, least, -1, budget); }
  std::optional<Wide> at_least(Wide x, Wide most, Budget& budget) const { return walk(x, most, 1, budget); }

 private:
  struct Class {
    Wide n, c;
  };
  std::optional<Wide> walk(Wide x, Wide limit, int direction, Budget& budget) const;

  Wide base_ = 0, step_ = 1;
  bool none_ = false;
  bool single_ = false;  // base_ is the only member
  std::vector<Class> avoided_;
};

constexpr Wide floor_div(Wide a, Wide n) noexcept { return a / n - (a % n < 0 ? 1 : 0); }
constexpr Wide modulo(Wide a, Wide n) noexcept { return a - floor_div(a, n) * n; }
Wide gcd(Wide a, Wide b) noexcept;

}  // namespace regard::mask_proof
