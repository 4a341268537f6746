// Letters for pictures: the printable characters of ASCII, 5 dots wide and 7 high.
#pragma once

#include <cstdint>
#include <string_view>

#include "regard/raster.h"

namespace regard {

struct Color {
  uint8_t red, green, blue;
};

inline constexpr int64_t kGlyphWidth = 5, kGlyphHeight = 7;

/// Seven rows from the top, five bits each, the highest bit at the left; null for a character that the font lacks.
const uint8_t* find_glyph(char c) noexcept;

/// Whether the font has every character of a text.
bool can_draw(std::string_view text) noexcept;

/// Fills a rectangle, as far as it lies inside the picture.
void fill_rectangle(Raster& raster, int64_t x, int64_t y, int64_t width, int64_t height, Color color);

/// Draws one character with its top left corner at (x, y); nothing for one that the font lacks.
void draw_glyph(Raster& raster, int64_t x, int64_t y, char c, Color color);

}  // namespace regard
