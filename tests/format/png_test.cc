// Pictures are read back with libpng's own reader: same pixels, and a file that is a PNG in its first and last bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <cstring>

#include "regard/error.h"
#include "regard/png.h"
#include "support/files.h"
#include "support/temp_dir.h"

namespace regard {
namespace {

Raster pattern(int64_t width, int64_t height) {
  Raster raster{width, height, {}, {}};
  for (int64_t i = 0; i < width * height * 3; ++i) raster.rgb.push_back(static_cast<uint8_t>(i * 7 + i / 251));
  return raster;
}

std::vector<uint8_t> decode(const std::vector<std::byte>& bytes, int64_t width, int64_t height) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()), 0) << image.message;
  EXPECT_EQ(image.width, width);
  EXPECT_EQ(image.height, height);
  EXPECT_EQ(image.format, static_cast<unsigned>(PNG_FORMAT_RGB));
  std::vector<uint8_t> rgb(PNG_IMAGE_SIZE(image));
  EXPECT_NE(png_image_finish_read(&image, nullptr, rgb.data(), 0, nullptr), 0) << image.message;
  return rgb;
}

TEST(Png, PixelsComeBack) {
  for (const auto& [width, height] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 2}, {257, 64}, {1, 1000}}) {
    const Raster raster = pattern(width, height);
    EXPECT_EQ(decode(encode_png(raster), width, height), raster.rgb);
  }
}

TEST(Png, SameRasterSameBytesAndTexts) {
  Raster raster = pattern(20, 10);
  EXPECT_EQ(encode_png(raster), encode_png(raster));
  raster.texts = {{"Title", "causal & window(3, 0)"}, {"Description", "caf\xC3\xA9"}};
  const auto bytes = encode_png(raster);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_THAT(text, testing::HasSubstr("causal & window(3, 0)"));
  EXPECT_THAT(text, testing::HasSubstr("caf\xC3\xA9"));
  EXPECT_EQ(decode(bytes, 20, 10), raster.rgb);
  EXPECT_LT(text.find("causal"), text.find("IDAT"));  // readers that stop early see the texts
}

TEST(Png, RefusesRastersThatDoNotFit) {
  EXPECT_THROW(encode_png(Raster{0, 1, {}, {}}), Error);
  EXPECT_THROW(encode_png(Raster{1, -1, {}, {}}), Error);
  EXPECT_THROW(encode_png(Raster{65536, 1, std::vector<uint8_t>(65536 * 3), {}}), Error);
  EXPECT_THROW(encode_png(Raster{2, 2, std::vector<uint8_t>(11), {}}), Error);
  Raster raster = pattern(1, 1);
  raster.texts = {{"", "x"}};
  EXPECT_THROW(encode_png(raster), Error);
  raster.texts = {{std::string(80, 'k'), "x"}};
  EXPECT_THROW(encode_png(raster), Error);
}

TEST(Png, Saves) {
  const testing_support::TempDir dir;
  const Raster raster = pattern(5, 4);
  save_png(dir.path("a.png"), raster);
  std::ifstream in(dir.path("a.png"), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  EXPECT_EQ(decode(bytes, 5, 4), raster.rgb);
  EXPECT_THROW(save_png(dir.path("none/a.png"), raster), Error);
}

}  // namespace
}  // namespace regard
