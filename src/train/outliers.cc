#include "train/outliers.h"

#include <cmath>

namespace regard::train_loop {

double deviations_above(const std::vector<double>& recent, double value) {
  if (recent.size() < kOutlierLeast) return 0;
  const auto n = static_cast<double>(recent.size());
  double sum = 0, square = 0;
  for (const double x : recent) sum += x;
  const double mean = sum / n;
  for (const double x : recent) square += (x - mean) * (x - mean);
  const double deviation = std::sqrt(square / n);
  constexpr double kRounding = 1e-9;  // below this share of the mean all are equal
  return deviation > kRounding * std::abs(mean) ? (value - mean) / deviation : 0;
}

void remember(std::vector<double>& recent, double value) {
  recent.push_back(value);
  if (recent.size() > kOutlierWindow) recent.erase(recent.begin());
}

}  // namespace regard::train_loop
