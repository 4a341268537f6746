#include "mask/residues.h"

#include <algorithm>

namespace regard::mask_proof {
namespace {

constexpr Wide kOneMember = static_cast<Wide>(1) << 64;

// The inverse of a modulo n, for coprime a and n.
Wide inverse(Wide a, Wide n) noexcept {
  Wide r0 = n, r1 = modulo(a, n), t0 = 0, t1 = 1;
  while (r1 != 0) {
    const Wide q = r0 / r1;
    r0 -= q * r1;
    t0 -= q * t1;
    std::swap(r0, r1);
    std::swap(t0, t1);
  }
  return modulo(t0, n);
}

}  // namespace

Wide gcd(Wide a, Wide b) noexcept {
  while (b != 0) {
    a %= b;
    std::swap(a, b);
  }
  return a < 0 ? -a : a;
}

// Two classes meet in one class of the common multiple, or nowhere (Chinese remainder theorem).
void Residues::require(Wide n, Wide c) {
  if (none_) return;
  if (single_) {
    none_ = modulo(base_ - c, n) != 0;
    return;
  }
  const Wide g = gcd(step_, n), rest = n / g;
  if (modulo(c - base_, g) != 0) {
    none_ = true;
    return;
  }
  const Wide turns = rest == 1 ? 0 : modulo(modulo((c - base_) / g, rest) * inverse(step_ / g, rest), rest);
  base_ += step_ * turns;
  step_ *= rest;
  base_ = modulo(base_, step_);
  if (step_ < kOneMember) return;
  single_ = true;
  const Wide limit = kOneMember / 2;
  if (base_ >= limit) base_ -= step_;
  none_ = base_ <= -limit;
}

// If some classes leave any whole number out, they leave one out of any 2^k in a row, for k classes (Crittenden and
// Vanden Eynden, Any n arithmetic progressions covering the first 2^n integers cover all integers, 1970).
std::optional<Wide> Residues::walk(Wide x, Wide limit, int direction, Budget& budget) const {
  if (none_) return std::nullopt;
  Wide at = base_;
  if (!single_)
    at = direction < 0 ? base_ + floor_div(x - base_, step_) * step_ : base_ - floor_div(base_ - x, step_) * step_;
  const Wide tries = single_ ? 1 : static_cast<Wide>(1) << std::min<size_t>(avoided_.size(), 100);
  for (Wide i = 0; i < tries; ++i, at += direction * step_) {
    budget.spend();
    if (direction < 0 ? (at > x || at < limit) : (at < x || at > limit)) return std::nullopt;
    const bool free = std::none_of(avoided_.begin(), avoided_.end(),
                                   [&](const Class& out) { return modulo(at - out.c, out.n) == 0; });
    if (free) return at;
  }
  return std::nullopt;
}

}  // namespace regard::mask_proof
