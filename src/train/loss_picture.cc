#include "train/loss_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "regard/png.h"
#include "regard/train.h"
#include "train/digits.h"

namespace regard::train_loop {
namespace {

constexpr int kWidth = 960, kHeight = 540, kLeft = 72, kRight = 24, kTop = 24, kBottom = 48;
constexpr Color kBackground = {255, 255, 255}, kGrid = {225, 225, 225}, kInk = {60, 60, 60};
constexpr Color kTraining = {31, 119, 180}, kValidation = {214, 39, 40};

// In the corner at the top right, which a falling curve leaves free.
struct LegendLine {
  std::string_view name;
  Color color;
  int thickness;
};
constexpr LegendLine kLegend[] = {{"training", kTraining, 1}, {"validation", kValidation, 3}};
constexpr int kLegendX = kWidth - kRight - 136, kLegendY = kTop + 16, kLegendRow = 20, kLegendLine = 32;
constexpr std::string_view kStepsName = "step", kLossName = "nats per token";

struct Axes {
  Axis steps, loss;
};

bool is_empty(const LossCurves& curves) { return curves.training.size() + curves.validation.size() < 2; }

struct Extent {
  double last = 1, low = INFINITY, high = -INFINITY;
};

Extent extent_of(const LossCurves& curves) {
  Extent e;
  for (const auto* curve : {&curves.training, &curves.validation}) {
    for (const LossPoint& p : *curve) {
      e.last = std::max(e.last, static_cast<double>(p.step));
      e.low = std::min(e.low, p.loss);
      e.high = std::max(e.high, p.loss);
    }
  }
  return e;
}

Axes axes_of(const LossCurves& curves, int most_x, int most_y) {
  const Extent e = extent_of(curves);
  return {make_axis(0, e.last, most_x), make_axis(e.low, e.high, most_y)};
}

// Axes that end where the curves do, for text gives no row away; ticks are those that lie between.
Axes tight_axes(const LossCurves& curves, int most) {
  const Extent e = extent_of(curves);
  Axes axes{{0, e.last, {}}, make_axis(e.low, e.high, most)};
  if (!(e.high > e.low)) return axes;
  axes.loss.low = e.low;
  axes.loss.high = e.high;
  std::erase_if(axes.loss.ticks, [&](double tick) { return tick < e.low || tick > e.high; });
  return axes;
}

// 0 at the low end, 1 at the high end.
double share(const Axis& axis, double value) { return (value - axis.low) / (axis.high - axis.low); }

double x_of(const Axes& axes, double step) { return kLeft + share(axes.steps, step) * (kWidth - kLeft - kRight); }
double y_of(const Axes& axes, double loss) { return kHeight - kBottom - share(axes.loss, loss) * (kHeight - kTop - kBottom); }

std::string tick_text(double value) { return fmt::format("{:.6g}", value); }

void draw_line(Raster& raster, double x0, double y0, double x1, double y1, Color color, int thickness) {
  const int steps = static_cast<int>(std::ceil(std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1.0})));
  for (int i = 0; i <= steps; ++i) {
    const double t = static_cast<double>(i) / steps;
    const auto x = static_cast<int64_t>(std::lround(x0 + (x1 - x0) * t)), y = static_cast<int64_t>(std::lround(y0 + (y1 - y0) * t));
    fill_rectangle(raster, x, y, thickness, thickness, color);
  }
}

void draw_curve(Raster& raster, const Axes& axes, const std::vector<LossPoint>& curve, Color color, int thickness) {
  for (size_t i = 0; i < curve.size(); ++i) {
    const LossPoint& from = curve[i > 0 ? i - 1 : 0];
    draw_line(raster, x_of(axes, static_cast<double>(from.step)), y_of(axes, from.loss), x_of(axes, static_cast<double>(curve[i].step)),
              y_of(axes, curve[i].loss), color, thickness);
  }
}

Raster loss_raster(const LossCurves& curves) {
  const Axes axes = axes_of(curves, 9, 8);
  Raster raster;
  raster.width = kWidth;
  raster.height = kHeight;
  raster.rgb.assign(size_t{3} * kWidth * kHeight, 255);
  fill_rectangle(raster, 0, 0, kWidth, kHeight, kBackground);
  for (const double tick : axes.steps.ticks) {
    const auto x = static_cast<int64_t>(std::lround(x_of(axes, tick)));
    fill_rectangle(raster, x, kTop, 1, kHeight - kTop - kBottom, kGrid);
    const std::string text = tick_text(tick);
    draw_digits(raster, x - digits_width(text) / 2, kHeight - kBottom + 12, text, kInk);
  }
  for (const double tick : axes.loss.ticks) {
    const auto y = static_cast<int64_t>(std::lround(y_of(axes, tick)));
    fill_rectangle(raster, kLeft, y, kWidth - kLeft - kRight, 1, kGrid);
    const std::string text = tick_text(tick);
    draw_digits(raster, kLeft - 10 - digits_width(text), y - kDigitHeight / 2, text, kInk);
  }
  draw_curve(raster, axes, curves.training, kTraining, 1);
  draw_curve(raster, axes, curves.validation, kValidation, 3);
  const std::string steps(kStepsName), losses(kLossName);
  draw_digits(raster, (kLeft + kWidth - kRight) / 2 - digits_width(steps) / 2, kHeight - 18, steps, kInk);
  draw_digits(raster, 10, 4, losses, kInk);
  fill_rectangle(raster, kLegendX - 8, kLegendY - 8, kWidth - kRight - kLegendX + 4, 2 * kLegendRow + 8, kBackground);
  int64_t y = kLegendY;
  for (const auto& [name, color, thickness] : kLegend) {
    fill_rectangle(raster, kLegendX, y + kDigitHeight / 2 - thickness / 2, kLegendLine, thickness, color);
    draw_digits(raster, kLegendX + kLegendLine + 8, y, name, kInk);
    y += kLegendRow;
  }
  raster.texts = {{"Description", "Loss in nats per token over steps: training (blue), validation (red)"}};
  return raster;
}

std::string svg_color(Color c) { return fmt::format("#{:02x}{:02x}{:02x}", c.red, c.green, c.blue); }

std::string svg_curve(const Axes& axes, const std::vector<LossPoint>& curve, Color color, int width) {
  if (curve.empty()) return {};
  std::string points;
  for (const LossPoint& p : curve) points += fmt::format("{:.1f},{:.1f} ", x_of(axes, static_cast<double>(p.step)), y_of(axes, p.loss));
  return fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" points=\"{}\"/>\n", svg_color(color), width, points);
}

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, text);
}

}  // namespace

Axis make_axis(double low, double high, int most) {
  if (!(high > low)) high = low + std::max(1e-3, std::abs(low) * 0.1);
  // The smallest round step whose multiples around the range are not too many.
  double decade = std::pow(10, std::floor(std::log10((high - low) / most))), step = decade;
  const auto ticks = [&](double s) { return std::ceil(high / s - 1e-9) - std::floor(low / s + 1e-9) + 1; };
  for (int i = 0; ticks(step) > std::max(most, 3); ++i) {
    constexpr double kFactors[] = {1, 2, 5};
    if (i > 0 && i % 3 == 0) decade *= 10;
    step = decade * kFactors[i % 3];
  }
  Axis axis;
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  axis.low = first * step;
  axis.high = last * step;
  for (double k = first; k <= last; ++k) axis.ticks.push_back(k * step);
  return axis;
}

std::string loss_svg(const LossCurves& curves) {
  const Axes axes = axes_of(curves, 9, 8);
  std::string svg = fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
                                "font-family=\"sans-serif\" font-size=\"13\" fill=\"{2}\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"{3}\"/>\n",
                                kWidth, kHeight, svg_color(kInk), svg_color(kBackground));
  const auto grid = [&](double x0, double y0, double x1, double y1) {
    svg += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x0, y0, x1, y1, svg_color(kGrid));
  };
  for (const double tick : axes.steps.ticks) {
    grid(x_of(axes, tick), kTop, x_of(axes, tick), kHeight - kBottom);
    svg += svg_text(x_of(axes, tick), kHeight - kBottom + 20, "middle", tick_text(tick));
  }
  for (const double tick : axes.loss.ticks) {
    grid(kLeft, y_of(axes, tick), kWidth - kRight, y_of(axes, tick));
    svg += svg_text(kLeft - 8, y_of(axes, tick) + 4, "end", tick_text(tick));
  }
  svg += svg_curve(axes, curves.training, kTraining, 1) + svg_curve(axes, curves.validation, kValidation, 3);
  svg += svg_text((kLeft + kWidth - kRight) / 2.0, kHeight - 8, "middle", kStepsName);
  svg += svg_text(10, kTop - 8, "start", kLossName);
  svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", kLegendX - 8, kLegendY - 8, kWidth - kRight - kLegendX + 4, 2 * kLegendRow + 8,
                     svg_color(kBackground));
  int y = kLegendY + 5;
  for (const auto& [name, color, thickness] : kLegend) {
    svg += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"{}\"/>\n", kLegendX, y, kLegendX + kLegendLine, y, svg_color(color), thickness);
    svg += svg_text(kLegendX + kLegendLine + 8, y + 4, "start", name);
    y += kLegendRow;
  }
  return svg + "</svg>\n";
}

std::string loss_text(const LossCurves& curves, int columns, int rows) {
  if (is_empty(curves)) return {};
  constexpr int kLabel = 9;
  const int width = std::max(columns - kLabel, 10), height = std::max(rows - 1, 3);
  const Axes axes = tight_axes(curves, std::max(3, height / 2));
  std::vector<std::string> grid(static_cast<size_t>(height), std::string(static_cast<size_t>(width), ' '));
  const auto row_of = [&](double loss) { return static_cast<size_t>(std::lround((1 - share(axes.loss, loss)) * (height - 1))); };
  const auto draw = [&](const std::vector<LossPoint>& curve, char mark) {
    for (const LossPoint& p : curve) {
      grid[row_of(p.loss)][static_cast<size_t>(std::lround(share(axes.steps, static_cast<double>(p.step)) * (width - 1)))] = mark;
    }
  };
  draw(curves.training, '.');
  draw(curves.validation, 'o');
  std::vector<std::string> labels(static_cast<size_t>(height), std::string(kLabel - 1, ' '));
  for (const double tick : axes.loss.ticks) labels[row_of(tick)] = fmt::format("{:>{}}", tick_text(tick), kLabel - 1);
  std::string text;
  for (size_t r = 0; r < grid.size(); ++r) {
    std::string line = labels[r] + "|" + grid[r];
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text + fmt::format("{:>{}}step 0 to {}: training ., validation o\n", "", kLabel, tick_text(axes.steps.high));
}

void draw_loss_files(const std::string& log_path, const std::string& base, FileLayer& layer) {
  const LossCurves curves = read_loss_curves(log_path).value_or_throw();
  if (is_empty(curves)) return;
  write_file(base + ".png", encode_png(loss_raster(curves)), Overwrite::kReplace, layer).value_or_throw();
  const std::string svg = loss_svg(curves);
  write_file(base + ".svg", std::as_bytes(std::span(svg)), Overwrite::kReplace, layer).value_or_throw();
}

}  // namespace regard::train_loop

namespace regard {

std::string draw_loss_curve(const std::string& log_path, int columns, int rows) {
  return train_loop::loss_text(train_loop::read_loss_curves(log_path).value_or_throw(), columns, rows);
}

}  // namespace regard
