// Pictures of weights: cells, labels and letters are read back out of what was drawn.
#include <gtest/gtest.h>

#include <cmath>

#include "inspect/font.h"
#include "regard/error.h"
#include "regard/heat_map.h"

namespace regard {
namespace {

HeatMap small_map() { return {{{"\u6625", 1234}, {"a", 7}}, {{"\n", 10}, {"\u5C71", 56}, {"b", 8}}, {0.0f, 0.6f, 0.3f, 0.12f, 0.05f, 1.0f}}; }

const uint8_t* pixel(const Raster& raster, int64_t x, int64_t y) { return raster.rgb.data() + 3 * (y * raster.width + x); }

TEST(HeatMap, TextHasALineForEachRowAndTwoPlacesForEachCell) {
  EXPECT_EQ(heat_map_text(small_map()),
            "   \u00B7 \u5C71b\n"
            "\u6625   \u2588\u2588\u2593\u2593\n"
            "a  \u2592\u2592\u2591\u2591\u2588\u2588\n");
}

TEST(HeatMap, LabelsOfWordsBeginBehindTheirSpace) {
  const HeatMap map{{{" sea", 1}, {"  ", 2}}, {{" \u6D77", 3}, {" ", 4}, {" \n", 5}}, {0, 0, 0, 0, 0, 1}};
  EXPECT_EQ(heat_map_text(map),
            "   \u6D77  \u00B7\n"
            "s\n"
            "       \u2588\u2588\n");
}

TEST(HeatMap, WideMapsAreCutIntoBands) {
  EXPECT_EQ(heat_map_text(small_map(), 8),
            "   \u00B7 \u5C71\n"
            "\u6625   \u2588\u2588\n"
            "a  \u2592\u2592\u2591\u2591\n"
            "\n"
            "   b\n"
            "\u6625 \u2593\u2593\n"
            "a  \u2588\u2588\n");
}

TEST(HeatMap, LaterBandsBeginAtTheirFirstCell) {
  HeatMap map{{{"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}}, {{"w", 5}, {"x", 6}, {"y", 7}, {"z", 8}}, std::vector<float>(16)};
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j <= i; ++j) map.values[4 * i + j] = 1.0f / static_cast<float>(i + 1);
  EXPECT_EQ(heat_map_text(map, 8),
            "   w x\n"
            "a  \u2588\u2588\n"
            "b  \u2588\u2588\u2588\u2588\n"
            "c  \u2593\u2593\u2593\u2593\n"
            "d  \u2593\u2593\u2593\u2593\n"
            "\n"
            "   y z\n"
            "c  \u2593\u2593\n"
            "d  \u2593\u2593\u2593\u2593\n");
  map.values.assign(16, 0);
  EXPECT_EQ(heat_map_text(map, 8),
            "   w x\n"
            "a\nb\nc\nd\n"
            "\n"
            "   y z\n");
}

TEST(HeatMap, CellsOfTheImageDarkenWithTheWeight) {
  const HeatMap map = small_map();
  const int cell = 14;
  const Raster raster = heat_map_image(map, cell);
  ASSERT_EQ(raster.rgb.size(), static_cast<size_t>(3 * raster.width * raster.height));
  const int64_t left = raster.width - 6 - 3 * cell, top = raster.height - 6 - 2 * cell;
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < 3; ++j) {
      const uint8_t* p = pixel(raster, left + static_cast<int64_t>(j) * cell + 3, top + static_cast<int64_t>(i) * cell + 3);
      const double share = std::sqrt(static_cast<double>(map.values[i * 3 + j]));
      EXPECT_NEAR(p[0], 255 - share * (255 - 16), 1) << i << " " << j;
      EXPECT_NEAR(p[2], 255 - share * (255 - 110), 1) << i << " " << j;
    }
}

// The dots right of (x, y), as rows of bits.
std::vector<int> dots(const Raster& raster, int64_t x, int64_t y) {
  std::vector<int> rows;
  for (int64_t r = 0; r < kGlyphHeight; ++r) {
    int bits = 0;
    for (int64_t c = 0; c < kGlyphWidth; ++c) bits = bits * 2 + (pixel(raster, x + c, y + r)[0] < 128 ? 1 : 0);
    rows.push_back(bits);
  }
  return rows;
}

TEST(HeatMap, LabelsAreLettersOrTokenNumbers) {
  const int64_t cell = 14;
  const Raster raster = heat_map_image(small_map(), static_cast<int>(cell));
  const int64_t left = raster.width - 6 - 3 * cell, top = raster.height - 6 - 2 * cell;
  const auto glyph = [](char c) {
    const uint8_t* rows = find_glyph(c);
    return std::vector<int>(rows, rows + kGlyphHeight);
  };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(dots(raster, left - 6 - (4 - i) * 6, top + 3), glyph("1234"[i])) << "the font has no such character, so its number";
  EXPECT_EQ(dots(raster, left - 6 - 6, top + cell + 3), glyph('a'));
  EXPECT_EQ(dots(raster, left + 4, top - 6 - 16), glyph(' ')) << "a line end has no number either";
  EXPECT_EQ(dots(raster, left + 4, top - 6 - 8), (std::vector<int>{0, 0, 14, 14, 14, 0, 0})) << "but a dot";
  EXPECT_EQ(dots(raster, left + cell + 4, top - 6 - 16), glyph('5'));
  EXPECT_EQ(dots(raster, left + 2 * cell + 4, top - 6 - 8), glyph('b'));
  bool told = false;
  for (const auto& [keyword, text] : raster.texts) told = told || (keyword == "Rows" && text == "0 1234 \u6625\n1 7 a\n");
  EXPECT_TRUE(told) << "what cannot be drawn is in the file as text";
}

TEST(HeatMap, WhatDoesNotFitIsRefused) {
  HeatMap map = small_map();
  map.values.pop_back();
  EXPECT_THROW((void)heat_map_text(map), Error);
  EXPECT_THROW((void)heat_map_image(map), Error);
  EXPECT_THROW((void)heat_map_text(small_map(), 7), Error);
  EXPECT_THROW((void)heat_map_image(small_map(), 65), Error);
  EXPECT_EQ(heat_map_text({}), "");
  EXPECT_EQ(heat_map_image({}).width, 18);
}

TEST(Font, PrintableCharactersDifferAndOthersAreMissing) {
  for (int a = 0; a < 256; ++a) {
    const bool printable = a >= 0x20 && a < 0x7F;
    ASSERT_EQ(find_glyph(static_cast<char>(a)) != nullptr, printable) << a;
    for (int b = 0x20; printable && b < a; ++b)
      EXPECT_FALSE(std::equal(find_glyph(static_cast<char>(a)), find_glyph(static_cast<char>(a)) + kGlyphHeight, find_glyph(static_cast<char>(b)))) << a << " " << b;
  }
  for (int c = 0x21; c < 0x7F; ++c)
    for (int64_t row = 0; row < kGlyphHeight; ++row) EXPECT_LT(find_glyph(static_cast<char>(c))[row], 1 << kGlyphWidth) << c;
}

}  // namespace
}  // namespace regard
