// Steps that look nothing like the ones before: a bad piece of data can undo hours, so a run may leave them out.
#pragma once

#include <cstddef>
#include <vector>

namespace regard::train_loop {

inline constexpr size_t kOutlierWindow = 128;  // values that are remembered
inline constexpr size_t kOutlierLeast = 32;    // before that many are known nothing is an outlier

/// Standard deviations by which `value` lies above the mean of `recent`; 0 while fewer than kOutlierLeast are known or all are equal.
double deviations_above(const std::vector<double>& recent, double value);

/// Appends `value` and forgets the oldest beyond the window. Outliers are remembered too, or a lasting change would be one for ever.
void remember(std::vector<double>& recent, double value);

}  // namespace regard::train_loop
