// Numbers and a few words in pictures: digits and small letters, five rows of three dots each, drawn twice as large.
#pragma once

#include <cstdint>
#include <string_view>

#include "regard/raster.h"

namespace regard::train_loop {

struct Color {
  uint8_t red, green, blue;
};

inline constexpr int64_t kDigitScale = 2, kDigitHeight = 5 * kDigitScale, kDigitAdvance = 4 * kDigitScale;

inline int64_t digits_width(std::string_view text) { return static_cast<int64_t>(text.size()) * kDigitAdvance - kDigitScale; }

/// Fills a rectangle, as far as it lies inside the picture.
inline void fill_rectangle(Raster& raster, int64_t x, int64_t y, int64_t width, int64_t height, Color color) {
  for (int64_t row = y < 0 ? 0 : y; row < y + height && row < raster.height; ++row) {
    for (int64_t column = x < 0 ? 0 : x; column < x + width && column < raster.width; ++column) {
      uint8_t* pixel = raster.rgb.data() + 3 * (row * raster.width + column);
      pixel[0] = color.red, pixel[1] = color.green, pixel[2] = color.blue;
    }
  }
}

/// Draws digits, '.', '-', '+' and the letters of "training", "validation", "step" and "nats per token" with the top left corner at (x, y); other characters are gaps.
inline void draw_digits(Raster& raster, int64_t x, int64_t y, std::string_view text, Color color) {
  // Rows from the top, three bits each, the highest bit at the left.
  constexpr std::string_view kKnown = "0123456789.-+eadgiklnoprstv";
  constexpr uint16_t kDots[] = {075557, 026227, 071747, 071717, 055711, 074717, 074757, 071111, 075757, 075717, 000002, 000700, 002720, 002743,
                                 003553, 013553, 035316, 020222, 045655, 062227, 006555, 002552, 006564, 003444, 003636, 027223, 005552};
  for (const char c : text) {
    const size_t at = kKnown.find(c);
    for (int bit = 0; at != std::string_view::npos && bit < 15; ++bit) {
      if ((kDots[at] >> (14 - bit) & 1) != 0) fill_rectangle(raster, x + bit % 3 * kDigitScale, y + bit / 3 * kDigitScale, kDigitScale, kDigitScale, color);
    }
    x += kDigitAdvance;
  }
}

}  // namespace regard::train_loop
