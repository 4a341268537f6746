#include "train/schedule.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"

namespace regard::train_loop {

double learning_rate(const TrainConfig::Schedule& schedule, double top, int64_t step, int64_t steps) {
  using Kind = TrainConfig::Schedule::Kind;
  constexpr double kPi = 3.14159265358979323846;
  const int64_t warmup = schedule.warmup_steps;
  if (step < warmup) return top * static_cast<double>(step + 1) / static_cast<double>(warmup);
  // Steps beyond the plan stay at its end.
  const auto part = [&](int64_t begin) {
    return steps <= begin ? 1.0 : std::clamp(static_cast<double>(step - begin) / static_cast<double>(steps - begin), 0.0, 1.0);
  };
  const double last = schedule.final_fraction;
  switch (schedule.kind) {
    case Kind::kConstant: return top;
    case Kind::kLinear: return top * (1 - (1 - last) * part(warmup));
    case Kind::kCosine: return top * (last + (1 - last) * (1 + math::sincos(kPi * part(warmup)).cos) / 2);
    case Kind::kInverseSqrt: return top * std::sqrt(static_cast<double>(std::max<int64_t>(warmup, 1)) / static_cast<double>(step + 1));
    case Kind::kWarmupStableDecay: {
      const auto decay = static_cast<int64_t>(std::ceil(schedule.decay_fraction * static_cast<double>(steps)));
      const int64_t begin = std::max(steps - decay, warmup);
      return step < begin ? top : top * (1 - (1 - last) * part(begin));
    }
  }
  return top;
}

}  // namespace regard::train_loop
