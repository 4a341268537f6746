// Pictures of masks. Both kinds draw the same grid of cells; a cell is a pair, or a block of pairs when there are more
// than fit, and a block is classified as a kernel's tile would be.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"
#include "mask/view.h"

namespace regard {
namespace {

constexpr int64_t kMaxPairsCounted = int64_t{1} << 24;  // a fraction of a second of looking at bits

/// How one axis falls into cells: `step` positions each, the last one maybe fewer.
struct Axis {
  Interval positions;
  int64_t step = 1;
  int64_t cells = 0;

  Axis(Interval all, int64_t most) : positions(all) {
    const int64_t length = std::max<int64_t>(0, all.end - all.begin);
    step = std::max<int64_t>(1, length / most + (length % most != 0 ? 1 : 0));
    cells = length / step + (length % step != 0 ? 1 : 0);
  }
  Interval cell(int64_t i) const {
    const int64_t begin = positions.begin + i * step;
    return {begin, positions.end - begin < step ? positions.end : begin + step};
  }
};

void poll(const StopToken* stop) {
  if (stop != nullptr && stop->stop_requested()) fail(Code::kCancelled, "[MaskView] drawing was stopped on request");
}

TileClass class_of(const MaskView::Impl& view, int64_t b, int64_t h, Interval queries, Interval keys,
                   const StopToken* stop) {
  poll(stop);
  const TileClass kind = view.plan.classify(b, h, queries, keys);
  const int64_t q_len = view.queries.end - view.queries.begin, kv_len = view.keys.end - view.keys.begin;
  if (kind != TileClass::kPartial || q_len > kMaxPairsCounted / kv_len) return kind;
  bool some = false, others = false;
  for (int64_t q = queries.begin; q < queries.end && !(some && others); ++q) {
    poll(stop);
    const int64_t count = view.plan.count_row(b, h, q, keys);
    some = some || count > 0;
    others = others || count < keys.end - keys.begin;
  }
  return !some ? TileClass::kEmpty : others ? TileClass::kPartial : TileClass::kFull;
}

size_t digits(int64_t n) { return fmt::formatted_size("{}", n); }

struct Glyphs {
  std::string_view hidden, visible, mixed;
};
constexpr Glyphs kAscii{".", "#", "+"};
constexpr Glyphs kUnicode{"\u00b7", "\u25a0", "\u25a8"};  // middle dot, black square, hatched square

std::string_view glyph(const Glyphs& glyphs, TileClass kind) {
  return kind == TileClass::kEmpty ? glyphs.hidden : kind == TileClass::kFull ? glyphs.visible : glyphs.mixed;
}

// Column labels over cells `width` characters apart: every label where they fit, else every so many columns.
std::string column_labels(const Axis& keys, size_t width) {
  const size_t longest = digits(std::max<int64_t>(0, keys.positions.end - 1));
  int64_t every = 1;
  for (int64_t next : {1, 2, 5, 10, 20, 50})
    if (static_cast<size_t>(every) * width < longest + 1) every = next;
  std::string line;
  for (int64_t i = 0; i < keys.cells; i += every) {
    // A label that would stick out at the end is left away.
    if (i > 0 && every > 1 &&
        (i + 1) * static_cast<int64_t>(width) + static_cast<int64_t>(longest) >
            keys.cells * static_cast<int64_t>(width) + 2)
      break;
    line.resize(static_cast<size_t>(i) * width, ' ');
    // A label ends over its cell, as numbers do; one that stands for several columns begins there.
    line += every == 1 ? fmt::format("{:>{}}", keys.cell(i).begin, width) : fmt::format(" {}", keys.cell(i).begin);
  }
  return line;
}

}  // namespace

std::string draw_text(const MaskView& view, const TextPicture& options) {
  const MaskView::Impl& impl = view.impl();
  impl.require_row("draw_text", options.batch, options.head);
  require(options.max_rows >= 1 && options.max_columns >= 16,
          "[draw_text] {} rows and {} columns given; expected at least 1 and 16", options.max_rows,
          options.max_columns);
  const Axis queries(impl.queries, options.max_rows);
  const bool counts = options.counts == RowCounts::kShow && queries.step == 1;
  const size_t q_digits = digits(std::max<int64_t>(0, impl.queries.end - 1));
  const size_t k_digits = digits(std::max<int64_t>(0, impl.keys.end - 1));
  const size_t count_width = counts ? 4 + digits(impl.keys.end - impl.keys.begin) : 0;
  const size_t margin = q_digits + count_width + 3, columns = static_cast<size_t>(options.max_columns);
  const size_t room = columns > margin + 8 ? columns - margin : 8;
  const auto kv_len = static_cast<uint64_t>(impl.keys.end - impl.keys.begin);
  // Wide cells that each carry their label, else one character per cell.
  const size_t width = kv_len <= room / (k_digits + 1) ? k_digits + 1 : kv_len <= room / 2 ? 2 : 1;
  const Axis keys(impl.keys, static_cast<int64_t>(width == 1 ? room - 1 : room / width));

  const Glyphs& glyphs = options.style == PictureStyle::kAscii ? kAscii : kUnicode;
  std::string out;
  out.append(q_digits + 2, ' ');
  out += column_labels(keys, width);
  out += '\n';
  for (int64_t i = 0; i < queries.cells; ++i) {
    const Interval rows = queries.cell(i);
    out += fmt::format("{:>{}}  ", rows.begin, q_digits);
    if (width == 1) out += ' ';
    for (int64_t j = 0; j < keys.cells; ++j) {
      out.append(width - 1, ' ');
      out += glyph(glyphs, class_of(impl, options.batch, options.head, rows, keys.cell(j), options.stop));
    }
    if (counts) out += fmt::format("    {}", impl.plan.count_row(options.batch, options.head, rows.begin, impl.keys));
    out += '\n';
  }
  if (queries.step > 1 || keys.step > 1)
    out += fmt::format("each cell: {} by {}, queries by keys; {} where only some of its pairs are visible\n",
                       queries.step, keys.step, glyphs.mixed);
  return out;
}

Raster draw_image(const MaskView& view, const ImagePicture& options) {
  const MaskView::Impl& impl = view.impl();
  impl.require_row("draw_image", options.batch, options.head);
  require(options.max_pixels >= 16 && options.max_pixels <= 16384 && options.cell_pixels >= 1,
          "[draw_image] {} pixels a side and {} a cell given; expected 16 to 16384, and at least 1", options.max_pixels,
          options.cell_pixels);
  const Axis queries(impl.queries, options.max_pixels), keys(impl.keys, options.max_pixels);
  if (queries.cells == 0 || keys.cells == 0) return {};

  // Cells as large as asked, or as fit; a grid only where it leaves most of the cell.
  const auto fitting = static_cast<int>(options.max_pixels / std::max(queries.cells, keys.cells));
  const int cell = std::clamp(fitting, 1, options.cell_pixels), line = cell >= 6 ? 1 : 0;
  constexpr std::array<uint8_t, 3> kGrid{222, 220, 212}, kHidden{248, 247, 243}, kMixed{142, 171, 199},
      kVisible{31, 78, 121};

  Raster raster;
  raster.width = static_cast<int>(keys.cells) * cell + line;
  raster.height = static_cast<int>(queries.cells) * cell + line;
  raster.rgb.reserve(static_cast<size_t>(raster.width) * static_cast<size_t>(raster.height) * 3);
  for (int i = 0; i < raster.width * raster.height; ++i)
    raster.rgb.insert(raster.rgb.end(), kGrid.begin(), kGrid.end());
  for (int64_t i = 0; i < queries.cells; ++i)
    for (int64_t j = 0; j < keys.cells; ++j) {
      const TileClass kind = class_of(impl, options.batch, options.head, queries.cell(i), keys.cell(j), options.stop);
      const auto& color = kind == TileClass::kEmpty ? kHidden : kind == TileClass::kFull ? kVisible : kMixed;
      for (int64_t y = i * cell + line; y < (i + 1) * cell; ++y)
        for (int64_t x = j * cell + line; x < (j + 1) * cell; ++x)
          std::copy(color.begin(), color.end(), raster.rgb.begin() + (y * raster.width + x) * 3);
    }
  return raster;
}

}  // namespace regard
