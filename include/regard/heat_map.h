// A matrix of weights as a picture, with the tokens that its rows and columns stand for: for a terminal, or as pixels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/export.h"
#include "regard/raster.h"

namespace regard {

/// What stands beside a row or above a column.
struct HeatMapLabel {
  std::string text;    ///< UTF-8
  int64_t number = 0;  ///< of the token; drawn where the picture's font lacks a character of the text
};

struct HeatMap {
  std::vector<HeatMapLabel> rows, columns;
  std::vector<float> values;  ///< [rows, columns], 0 to 1; what lies outside is drawn as the nearer end
};

/// A line with the column labels, then a line per row: its label and a cell for each column, blank below 0.02 and in four shades
/// from 0.02, 0.1, 0.25 and 0.5 on. Labels and cells take two places: a wide character, or a narrow one and a space; of longer
/// labels the first character that is no space is shown, for a control character a dot. Maps wider than `max_columns` places are cut into bands of columns, one
/// below the other. Ends with a line break. Errors: kInvalidArgument when values has another size or max_columns is below 8.
REGARD_API std::string heat_map_text(const HeatMap& map, int max_columns = 80);

/// White (0) to dark blue (1) by the square root of the value, so that small weights are seen. Row labels to the left, column labels above,
/// downwards; letters of ASCII are drawn in a font of 5 x 7 dots, other labels as numbers. The labels are in the raster's texts
/// ("Rows", "Columns") as they are. `cell_pixels` is 8 to 64. Errors: kInvalidArgument likewise; kResourceExhausted beyond 65,535 pixels.
REGARD_API Raster heat_map_image(const HeatMap& map, int cell_pixels = 14);

}  // namespace regard
