// What a mask amounts to over given lengths: how many pairs it lets through, what one query sees, who sees one key, and
// a picture of it, for a terminal or as pixels.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "regard/export.h"
#include "regard/mask.h"
#include "regard/raster.h"
#include "regard/stop_token.h"

namespace regard {

/// The sizes of an attention call, as far as masks care. Every row of the batch has the same placement.
struct MaskExtent {
  int64_t batch = 1;
  int64_t num_q_heads = 1;
  int64_t q_len = 0;
  int64_t kv_len = 0;
  std::optional<Placement> placement;  ///< see resolve_placement() for what nothing means
  MaskLimits limits;
};

/// A mask over given lengths. All queries and keys are named by absolute position, from placement.q_begin to
/// placement.q_begin + q_len - 1 and likewise for keys. Immutable; safe to share between threads.
class REGARD_API MaskView {
 public:
  /// Errors: kInvalidArgument, naming the term, when the mask does not fit the extent (other batch or heads, queries
  /// beyond the end of a list or table, a placement that is needed and not stated).
  MaskView(Mask mask, MaskExtent extent);

  const Mask& mask() const noexcept;
  const MaskExtent& extent() const noexcept;
  Interval queries() const noexcept;
  Interval keys() const noexcept;

  /// Visible pairs over all batch rows and heads; one row's visible keys. Errors: kInvalidArgument for a row or position outside,
  /// kResourceExhausted beyond 2^63 - 1, kCancelled. Time: with up to 32 interval terms, that of a few rows for each block, chunk or
  /// document, however long; with more, of each row (a hundred nanoseconds); else of each pair, 64 at a time.
  int64_t count(const StopToken* stop = nullptr) const;
  int64_t count_row(int64_t batch, int64_t head, int64_t q) const;

  /// The keys that query q sees, and the queries that see key k, as runs of positions in rising order.
  std::vector<Interval> row(int64_t batch, int64_t head, int64_t q) const;
  std::vector<Interval> column(int64_t batch, int64_t head, int64_t k, const StopToken* stop = nullptr) const;

  struct Impl;
  const Impl& impl() const noexcept { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

enum class PictureStyle : uint8_t { kUnicode, kAscii };
enum class RowCounts : uint8_t { kHide, kShow };

struct TextPicture {
  int64_t batch = 0;
  int64_t head = 0;
  PictureStyle style = PictureStyle::kUnicode;
  RowCounts counts =
      RowCounts::kHide;  ///< behind each row, how many keys it sees; not where a line stands for several rows
  int max_rows = 48;     ///< lines of cells; more queries than that share lines
  int max_columns = 80;  ///< width of a line in characters
  const StopToken* stop = nullptr;
};

/// A picture in characters, one line per query, one cell per key: visible, hidden, or (where a cell stands for a block
/// of pairs) mixed. Positions label lines and columns. Ends with a line break. Cost: the cells, not the pairs: a block
/// is classified by intervals, or counted while the whole mask has at most 2^24 pairs; else an undecided block shows as
/// mixed. Errors: kInvalidArgument for a batch row or head outside; kCancelled.
REGARD_API std::string draw_text(const MaskView& view, const TextPicture& options = {});

struct ImagePicture {
  int64_t batch = 0;
  int64_t head = 0;
  int max_pixels = 1024;  ///< of either side, at least 16
  int cell_pixels = 16;   ///< the side of a cell while the cells fit; grid lines are drawn from 6 pixels on
  const StopToken* stop = nullptr;
};

/// The same picture as pixels: visible dark, hidden light, mixed in between. Queries run down, keys to the right. An
/// axis of length 0 gives an empty raster. Errors: as for draw_text().
REGARD_API Raster draw_image(const MaskView& view, const ImagePicture& options = {});

}  // namespace regard
