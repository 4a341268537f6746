// Curves of the loss over the steps, as PNG, SVG and text, all with the same axes.
#pragma once

#include <string>
#include <vector>

#include "runtime/atomic_file.h"
#include "train/run_log.h"

namespace regard::train_loop {

/// Where values lie on an axis: a range, and round numbers inside it.
struct Axis {
  double low = 0, high = 1;
  std::vector<double> ticks;
};
/// An axis that shows [low, high] with at most `most` ticks (at least 2), at multiples of 1, 2 or 5 times a power of ten.
Axis make_axis(double low, double high, int most);

std::string loss_svg(const LossCurves& curves);
std::string loss_text(const LossCurves& curves, int columns, int rows);

/// Writes BASE.png and BASE.svg from a log; nothing when the log has fewer than two points.
/// Errors: thrown as kIo, kCorruptData.
void draw_loss_files(const std::string& log_path, const std::string& base, FileLayer& layer);

}  // namespace regard::train_loop
