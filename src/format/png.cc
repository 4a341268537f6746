// PNG by libpng. libpng reports errors by longjmp, so the call that may jump works on plain data only and returns a status.
#include "regard/png.h"

#include <png.h>

#include <csetjmp>
#include <new>

#include "base/check.h"
#include "runtime/atomic_file.h"

namespace regard {
namespace {

constexpr int64_t kMaxSide = 65'535;

struct Sink {
  std::vector<std::byte> bytes;
  bool out_of_memory = false;
};

// No exception may pass through libpng's C frames: a failed append becomes a png_error after its handler has ended.
void append(png_structp png, png_bytep data, png_size_t size) {
  auto* sink = static_cast<Sink*>(png_get_io_ptr(png));
  try {
    const auto* from = reinterpret_cast<const std::byte*>(data);
    sink->bytes.insert(sink->bytes.end(), from, from + size);
  } catch (const std::bad_alloc&) {
    sink->out_of_memory = true;
  }
  if (sink->out_of_memory) png_error(png, "no memory");
}
void flush(png_structp) {}
void on_error(png_structp png, png_const_charp) { png_longjmp(png, 1); }
void on_warning(png_structp, png_const_charp) {}

/// Writes everything, or returns false. No object with a destructor lives in this frame: a longjmp would skip it.
bool write_all(png_structp png, png_infop info, const Raster& raster, png_text* texts, int num_texts, Sink* sink) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_write_fn(png, sink, append, flush);
  png_set_IHDR(png, info, static_cast<png_uint_32>(raster.width), static_cast<png_uint_32>(raster.height), 8, PNG_COLOR_TYPE_RGB,
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (num_texts != 0) png_set_text(png, info, texts, num_texts);
  png_write_info(png, info);
  const size_t row_bytes = static_cast<size_t>(raster.width) * 3;
  for (int64_t row = 0; row < raster.height; ++row) png_write_row(png, raster.rgb.data() + static_cast<size_t>(row) * row_bytes);
  png_write_end(png, info);
  return true;
}

}  // namespace

std::vector<std::byte> encode_png(const Raster& raster) {
  const bool sides = raster.width >= 1 && raster.width <= kMaxSide && raster.height >= 1 && raster.height <= kMaxSide;
  require(sides, "[encode_png] {} x {} pixels, each side must be from 1 to {}", raster.width, raster.height, kMaxSide);
  const auto expected = static_cast<size_t>(raster.width * raster.height * 3);
  require(raster.rgb.size() == expected, "[encode_png] {} bytes of colour for {} x {} pixels, expected {}", raster.rgb.size(), raster.width,
          raster.height, expected);
  std::vector<png_text> texts(raster.texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto& [keyword, text] = raster.texts[i];
    require(!keyword.empty() && keyword.size() <= 79, "[encode_png] a text's keyword has 1 to 79 letters, \"{}\" has {}", keyword, keyword.size());
    texts[i].compression = PNG_ITXT_COMPRESSION_NONE;
    texts[i].key = const_cast<png_charp>(keyword.c_str());  // libpng copies it
    texts[i].text = const_cast<png_charp>(text.c_str());
    texts[i].itxt_length = text.size();
  }

  Sink sink;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, on_error, on_warning);
  png_infop info = png != nullptr ? png_create_info_struct(png) : nullptr;
  const bool written = info != nullptr && write_all(png, info, raster, texts.data(), static_cast<int>(texts.size()), &sink);
  png_destroy_write_struct(&png, &info);
  if (!written) fail(Code::kResourceExhausted, "[encode_png] no memory for {} x {} pixels", raster.width, raster.height);
  return std::move(sink.bytes);
}

void save_png(const std::string& path, const Raster& raster) {
  const std::vector<std::byte> bytes = encode_png(raster);
  write_file(path, bytes).value_or_throw();
}

}  // namespace regard
