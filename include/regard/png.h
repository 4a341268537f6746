// Pictures: a raster of red, green and blue as a PNG file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "regard/export.h"
#include "regard/raster.h"

namespace regard {

/// The bytes of a PNG file: 8 bits per channel, no alpha, no time stamp, so the same raster gives the same bytes.
/// Errors: kInvalidArgument when a side is outside 1 to 65,535 or rgb has another size; kResourceExhausted for lack of
/// memory.
REGARD_API std::vector<std::byte> encode_png(const Raster& raster);

/// encode_png() into a file that appears whole or not at all. Errors: as encode_png(), and kIo.
REGARD_API void save_png(const std::string& path, const Raster& raster);

}  // namespace regard
