#include "regard/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/check.h"
#include "inspect/font.h"
#include "text/utf8.h"

namespace regard {
namespace {

void check(std::string_view function, const HeatMap& map) {
  require(map.values.size() == map.rows.size() * map.columns.size(), "[{}] {} values for {} rows and {} columns", function, map.values.size(), map.rows.size(),
          map.columns.size());
}

float value(const HeatMap& map, size_t row, size_t column) {
  const float v = map.values[row * map.columns.size() + column];
  return v > 0 ? std::min(v, 1.0f) : 0.0f;  // NaN is drawn as nothing
}

// The blocks in which terminals give a character two places, roughly: Hangul, CJK with its marks, full-width forms, emoji.
bool is_wide(char32_t c) {
  return (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) || (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0xFF01 && c <= 0xFF60) || (c >= 0x1F300 && c <= 0x1FAFF) || (c >= 0x20000 && c <= 0x3FFFD);
}

// Nothing of it can be seen, such as a line end.
bool is_control(char32_t c) { return c < 0x20 || (c >= 0x7F && c < 0xA0); }

constexpr char kDot = '\x7F';  // stands in pictures for what cannot be seen

std::string_view without_spaces(const HeatMapLabel& label) {
  const std::string_view text = label.text;
  return text.substr(std::min(text.find_first_not_of(' '), text.size()));
}

// Two places of a terminal. Tokens of words begin with a space more often than not, which would show nothing of them.
std::string two_places(const HeatMapLabel& label) {
  const std::string_view text = without_spaces(label);
  if (text.empty() && !label.text.empty()) return "  ";
  const Utf8Char c = text.empty() ? Utf8Char{} : next_char(text);
  if (!c.valid() || is_control(c.code_point)) return "\u00B7 ";
  return std::string(text.substr(0, c.size)) + (is_wide(c.code_point) ? "" : " ");
}

std::string_view shade(float v) {
  return v < 0.02f ? "  " : v < 0.1f ? "\u2591\u2591" : v < 0.25f ? "\u2592\u2592" : v < 0.5f ? "\u2593\u2593" : "\u2588\u2588";
}

// What the font can draw of a label: its text, a dot for a line end and its like, or the number of its token.
std::string drawable(const HeatMapLabel& label) {
  const std::string_view text = without_spaces(label);
  if (const Utf8Char c = text.empty() ? Utf8Char{} : next_char(text); c.valid() && is_control(c.code_point)) return std::string(1, kDot);
  return !label.text.empty() && can_draw(label.text) ? label.text : fmt::format("{}", label.number);
}

std::vector<std::string> drawable(const std::vector<HeatMapLabel>& labels) {
  std::vector<std::string> texts;
  for (const HeatMapLabel& label : labels) texts.push_back(drawable(label));
  return texts;
}

int64_t longest(const std::vector<std::string>& texts) {
  size_t most = 0;
  for (const std::string& text : texts) most = std::max(most, text.size());
  return static_cast<int64_t>(most);
}

// "0 12 x": place, number and text of each label, a line each.
std::string listed(const std::vector<HeatMapLabel>& labels) {
  std::string text;
  for (size_t i = 0; i < labels.size(); ++i) text += fmt::format("{} {} {}\n", i, labels[i].number, labels[i].text == "\n" ? "\\n" : labels[i].text);
  return text;
}

Color shade_of(float v) {
  constexpr Color kDark = {16, 42, 110};
  const float share = std::sqrt(v);
  const auto mix = [&](uint8_t dark) { return static_cast<uint8_t>(std::lround(255 - share * static_cast<float>(255 - dark))); };
  return {mix(kDark.red), mix(kDark.green), mix(kDark.blue)};
}

// Where a band begins: later ones of a text that reads what stands before have nothing above it.
size_t first_row(const HeatMap& map, size_t begin, size_t end) {
  if (begin == 0) return 0;
  for (size_t i = 0; i < map.rows.size(); ++i)
    for (size_t j = begin; j < end; ++j)
      if (value(map, i, j) > 0) return i;
  return map.rows.size();
}

void draw_sign(Raster& raster, int64_t x, int64_t y, char c, Color color) {
  if (c == kDot) fill_rectangle(raster, x + 1, y + 2, 3, 3, color);
  else draw_glyph(raster, x, y, c, color);
}

}  // namespace

std::string heat_map_text(const HeatMap& map, int max_columns) {
  check("heat_map_text", map);
  require(max_columns >= 8, "[heat_map_text] {} columns; expected 8 or more", max_columns);
  const size_t band = static_cast<size_t>(max_columns - 3) / 2;
  std::string text;
  for (size_t begin = 0; begin < map.columns.size(); begin += band) {
    const size_t end = std::min(map.columns.size(), begin + band);
    std::string line = "   ";
    for (size_t j = begin; j < end; ++j) line += two_places(map.columns[j]);
    const auto close = [&] {
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    };
    if (begin > 0) text += "\n";
    close();
    for (size_t i = first_row(map, begin, end); i < map.rows.size(); ++i) {
      line = two_places(map.rows[i]) + " ";
      for (size_t j = begin; j < end; ++j) line += shade(value(map, i, j));
      close();
    }
  }
  return text;
}

Raster heat_map_image(const HeatMap& map, int cell_pixels) {
  check("heat_map_image", map);
  require(cell_pixels >= 8 && cell_pixels <= 64, "[heat_map_image] cells of {} pixels; expected 8 to 64", cell_pixels);
  constexpr int64_t kAdvance = kGlyphWidth + 1, kLine = kGlyphHeight + 1, kMargin = 6, kMaxSide = 65'535;
  constexpr Color kInk = {60, 60, 60}, kGrid = {225, 225, 225};
  const std::vector<std::string> rows = drawable(map.rows), columns = drawable(map.columns);
  const int64_t cell = cell_pixels, left = 2 * kMargin + longest(rows) * kAdvance, top = 2 * kMargin + longest(columns) * kLine;
  const auto count = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  Raster raster;
  raster.width = left + count(columns) * cell + kMargin;
  raster.height = top + count(rows) * cell + kMargin;
  if (raster.width > kMaxSide || raster.height > kMaxSide)
    fail(Code::kResourceExhausted, "[heat_map_image] a picture of {} x {} pixels; each side may have {}", raster.width, raster.height, kMaxSide);
  raster.rgb.assign(static_cast<size_t>(3 * raster.width * raster.height), 255);
  fill_rectangle(raster, left - 1, top - 1, count(columns) * cell + 1, count(rows) * cell + 1, kGrid);
  for (int64_t i = 0; i < count(rows); ++i) {
    const std::string& label = rows[static_cast<size_t>(i)];
    for (size_t c = 0; c < label.size(); ++c)
      draw_sign(raster, left - kMargin - (count(label) - static_cast<int64_t>(c)) * kAdvance, top + i * cell + (cell - kGlyphHeight) / 2, label[c], kInk);
    for (int64_t j = 0; j < count(columns); ++j)
      fill_rectangle(raster, left + j * cell, top + i * cell, cell - 1, cell - 1, shade_of(value(map, static_cast<size_t>(i), static_cast<size_t>(j))));
  }
  for (int64_t j = 0; j < count(columns); ++j) {  // downwards, the last character above its column
    const std::string& label = columns[static_cast<size_t>(j)];
    for (size_t c = 0; c < label.size(); ++c)
      draw_sign(raster, left + j * cell + (cell - kGlyphWidth) / 2, top - kMargin - (count(label) - static_cast<int64_t>(c)) * kLine, label[c], kInk);
  }
  raster.texts = {{"Description", "How much each row reads of each column, white 0 to blue 1"}, {"Rows", listed(map.rows)}, {"Columns", listed(map.columns)}};
  return raster;
}

}  // namespace regard
