// A picture in memory: what draws one and what writes one to a file share this.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace regard {

/// Pixels, row by row from the top, three bytes each: red, green, blue.
struct Raster {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;  ///< height x width x 3
  /// Text chunks (keyword and UTF-8 text) for a file, for example what the picture shows. Keywords: 1 to 79 letters.
  std::vector<std::pair<std::string, std::string>> texts;
};

}  // namespace regard
