#include "attention/statistics_pass.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/math.h"
#include "kernels/attention_statistics.h"
#include "kernels/registry.h"
#include "runtime/thread_pool.h"

namespace regard {

using kernels::AttentionState;
using kernels::AttentionTile;
using kernels::kLanes;
using kernels::kBlockRows;
using kernels::kMaxMicroRows;
using kernels::kPanelsPerTile;
using kernels::kTileKeys;
using kernels::TileSums;

namespace {

// The running sums of a row over the keys j that it has met, with s_j the scores in units of log2, M the largest of them
// and e_j = 2^(s_j - M). A larger M changes the unit of all sums, as in the softmax itself; that of e_j (s_j - M) gains
// (M - M') L besides. Milakov and Gimelshein, 2018, "Online normalizer calculation for softmax", with a payload.
struct RowSums {
  double m = -std::numeric_limits<double>::infinity();
  double l = 0;         // of e_j
  double logs = 0;      // of e_j (s_j - M)
  double distance = 0;  // of e_j (position of j - that of the query)
  double mass = 0;      // of e_j over the set
  int64_t largest_key = -1;

  // A tile's own m and l, and its sums with p_j = 2^(s_j - m); `offset` is from the query to the tile's key 0, `first`
  // the number of the tile's first key of the largest score.
  void add(double tile_m, double tile_l, const TileSums& tile, double offset, int64_t first) {
    const double top = std::max(m, tile_m);
    if (l > 0 && m < top) rescale(top);
    const double by = math::exp((tile_m - top) * math::kLn2);
    logs += by * (static_cast<double>(tile.log_sum) + (tile_m - top) * tile_l);
    distance += by * (static_cast<double>(tile.index_sum) + offset * tile_l);
    mass += by * static_cast<double>(tile.set_sum);
    if (tile_m > m) largest_key = first;
    l += by * tile_l;
    m = top;
  }
  void rescale(double top) {
    const double by = math::exp((m - top) * math::kLn2);
    logs = by * (logs + (m - top) * l);
    distance *= by;
    mass *= by;
    l *= by;
  }
};

// The numbers of a row, with the weights e_j * unit.
struct RowNumbers {
  double total = 0, entropy = 0, distance = 0, mass = 0, largest = 0;
  int64_t largest_key = -1;
};
RowNumbers numbers_of(const RowSums& row, double sink) {
  if (row.l == 0) return {};
  double unit;
  const double sink2 = sink * math::kLog2e;
  if (sink2 > row.m) {  // then e_j of the sink is the largest: no overflow
    const double by = math::exp((row.m - sink2) * math::kLn2);
    unit = by / (row.l * by + 1);
  } else {
    unit = 1 / (row.l + math::exp((sink2 - row.m) * math::kLn2));
  }
  RowNumbers n;
  n.total = row.l * unit;
  // w ln w = ln 2 unit e (s - M + log2 unit); a unit of 0 leaves weights of 0.
  n.entropy = unit == 0 ? 0 : -math::kLn2 * unit * (row.logs + row.l * math::log2(unit));
  n.distance = 0.0 - row.distance / row.l;
  n.mass = row.mass * unit;
  n.largest = unit;
  n.largest_key = row.largest_key;
  return n;
}

uint64_t interval_word(int lo, int hi, int w) {
  lo = std::clamp(lo - 64 * w, 0, 64);
  hi = std::clamp(hi - 64 * w, 0, 64);
  return lo < hi ? (~uint64_t{0} << lo) & (~uint64_t{0} >> (64 - hi)) : 0;
}

// The keys of a tile that row r sees.
void fill_seen(const AttentionTile& tile, int r, uint64_t* seen) {
  for (int w = 0; w < kPanelsPerTile; ++w) {
    seen[w] = tile.lo == nullptr ? ~uint64_t{0} : interval_word(tile.lo[r], tile.hi[r], w);
    if (tile.words != nullptr) seen[w] &= tile.words[r][w];
  }
}

// Rows [first, first + count) of a tile as a tile of their own.
AttentionTile some_rows(AttentionTile tile, int first, int count) {
  tile.q += static_cast<int64_t>(first) * tile.head_dim;
  tile.rows = count;
  if (tile.lo != nullptr) tile.lo += first, tile.hi += first;
  if (tile.words != nullptr) tile.words += first;
  if (tile.bias != nullptr) tile.bias += first;
  if (tile.keep != nullptr) tile.keep += first;
  return tile;
}

}  // namespace

StatisticsPass::StatisticsPass(std::string_view function, const CallSizes& sizes, const CallRows& rows,
                               const CallPositions& positions, const Mask& mask, const AttentionOptions& options,
                               const StatisticsRequest& request, std::vector<ByteRange> others)
    : sizes_(sizes),
      call_rows_(rows),
      options_(options),
      to_(request.to),
      set_(function, sizes, rows, positions, request.set, mask, options) {
  const auto check = [&](std::string_view name, const auto& tensor) {
    if (tensor.data == nullptr) return;
    const ByteRange range = check_tensor(function, name, tensor, 3);
    require(tensor.shape[0] == sizes.batch && tensor.shape[1] == sizes.num_q_heads && tensor.shape[2] == sizes.q_len,
            "[{}] {} has shape {}, expected [{}, {}, {}]", function, name, shape_text(tensor), sizes.batch,
            sizes.num_q_heads, sizes.q_len);
    check_no_self_overlap(function, name, tensor);
    for (const ByteRange& other : others)
      require(!range.overlaps(other), "[{}] the memory of {} overlaps that of another argument: give it its own",
              function, name);
    others.push_back(range);
  };
  check("total", to_.total);
  check("entropy", to_.entropy);
  check("distance", to_.distance);
  check("mass", to_.mass);
  check("largest", to_.largest);
  check("largest_key", to_.largest_key);
  require(to_.mass.data == nullptr || set_.given(), "[{}] mass is wanted, but of which keys is not stated", function);
  if (options.dropout && options.dropout->weights == Dropout::Weights::kAfter)
    fail(Code::kUnsupported,
         "[{}] dropout: statistics of the weights after dropout are not taken along; use attention_statistics()",
         function);
}

// ---- scratch of a thread, and one block of rows

struct StatisticsPass::Scratch {
  RowScratch rows;
  TermScratch terms;
  AttentionState part;  // of one tile and micro_rows rows
  RowSums* sums;        // [96]

  static Scratch carve(Carver& carver, const AttentionShape& shape) {
    Scratch s;
    s.rows = RowScratch::carve(carver, shape.head_dim, shape.value_dim);
    if (shape.terms != nullptr) s.terms = shape.terms->carve(carver);
    const auto padded = static_cast<size_t>(kernels::padded_dim(shape.value_dim));
    s.part.o = carver.take<float>(size_t{kMaxMicroRows} * padded);
    s.part.m = carver.take<float>(size_t{kMaxMicroRows + kLanes});
    s.part.l = carver.take<float>(size_t{kMaxMicroRows + kLanes});
    s.sums = carver.take<RowSums>(size_t{kBlockRows});
    return s;
  }
};

class StatisticsPass::Block {
 public:
  Block(const StatisticsPass& pass, const Item& item, const SequenceQueries& queries, const AttentionShape& shape,
        const MaskPlan& mask, const Scratch& scratch)
      : pass_(pass),
        item_(item),
        queries_(queries),
        shape_(shape),
        scratch_(scratch),
        rows_(queries, shape, mask, item.kv_head, item.first_row, item.rows, scratch.rows),
        tiles_(tile_range(queries, shape, mask, item.kv_head, item.first_row, item.rows)),
        padded_(kernels::padded_dim(shape.value_dim)) {}

  // False when stopped.
  bool run(const StopToken* stop) {
    const auto factor = static_cast<float>(shape_.scale * math::kLog2e);
    rows_.load_queries(factor);
    if (shape_.terms != nullptr) shape_.terms->begin(queries_, rows_, factor, scratch_.terms, scratch_.rows.q);
    kernel_.reset(state(0), item_.rows, padded_);
    std::fill_n(scratch_.sums, item_.rows, RowSums{});
    AttentionTile tile{};
    tile.q = scratch_.rows.q;
    tile.rows = item_.rows;
    tile.head_dim = shape_.head_dim;
    tile.value_dim = padded_;
    tile.softcap = static_cast<float>(shape_.softcap * math::kLog2e);
    tile.scores = scratch_.rows.scores;
    for (int64_t t = tiles_.begin; t < tiles_.end; ++t) {
      if (stop != nullptr && stop->stop_requested()) return false;
      if (!rows_.lower(t, tile)) continue;
      if (shape_.terms != nullptr)
        shape_.terms->lower(static_cast<size_t>(queries_.batch_row), queries_, rows_, t, scratch_.terms, tile);
      for (int first = 0; first < item_.rows; first += statistics_.micro_rows)
        few_rows(t, tile, first, std::min(statistics_.micro_rows, item_.rows - first));
    }
    finish();
    return true;
  }

 private:
  AttentionState state(int first) const noexcept {
    return {scratch_.rows.o + int64_t{first} * padded_, scratch_.rows.m + first, scratch_.rows.l + first};
  }

  void few_rows(int64_t t, const AttentionTile& tile, int first, int count) const {
    const AttentionTile few = some_rows(tile, first, count);
    kernel_.reset(scratch_.part, count, padded_);
    kernel_.tile(few, scratch_.part);
    for (int r = 0; r < count; ++r)
      if (scratch_.part.l[r] != 0) add(t, few, r, first + r);
    kernel_.fold(state(first), scratch_.part, count, padded_);
  }

  void add(int64_t t, const AttentionTile& few, int r, int row) const {
    const int64_t base = queries_.keys.tile_id(t) * kTileKeys, position = rows_.position(row);
    const KeyColumns& columns = pass_.columns_[item_.sequence];
    uint64_t seen[kPanelsPerTile], set[kPanelsPerTile];
    fill_seen(few, r, seen);
    const bool with_set = pass_.to_.mass.data != nullptr;
    if (with_set)
      pass_.set_.fill(queries_.batch_row, entry(), rows_.head(row), position, base,
                      [&](int j) { return columns.number(t, base, j); }, set);
    const TileSums sums =
        statistics_.tile_sums(few.scores + int64_t{r} * kTileKeys, seen, with_set ? set : nullptr);
    scratch_.sums[row].add(static_cast<double>(scratch_.part.m[r]), static_cast<double>(scratch_.part.l[r]), sums,
                           static_cast<double>(base - position),
                           sums.first < 0 ? -1 : columns.number(t, base, sums.first));
  }

  int64_t entry() const noexcept { return slack() ? 0 : pass_.call_rows_.entry(queries_.batch_row); }
  bool slack() const noexcept { return static_cast<int64_t>(item_.sequence) >= pass_.call_rows_.batch(); }

  void finish() const {
    float* out[kBlockRows];
    float* lse = scratch_.rows.lse;
    for (int r = 0; r < item_.rows; ++r)
      out[r] = queries_.out + rows_.token(r) * queries_.out_token_stride + rows_.head(r) * queries_.out_head_stride;
    if (shape_.terms != nullptr)
      shape_.terms->finish(rows_, state(0), shape_.value_dim, scratch_.terms, out, lse);
    else
      kernel_.finish(state(0), item_.rows, shape_.value_dim, out, lse);
    for (int r = 0; r < item_.rows; ++r) {
      write(r, std::isnan(lse[r]));
      if (queries_.lse != nullptr)
        queries_.lse[rows_.token(r) * queries_.lse_token_stride + rows_.head(r) * queries_.lse_head_stride] = lse[r];
    }
  }

  void write(int r, bool nan) const {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    const int64_t query = rows_.token(r) + (slack() ? pass_.sizes_.q_len - pass_.call_rows_.slack()
                                                    : pass_.call_rows_.first_query(queries_.batch_row));
    const int head = rows_.head(r);
    const double sink = pass_.options_.sink.rank == 0 ? -std::numeric_limits<double>::infinity()
                                                      : static_cast<double>(*pass_.options_.sink.at(head));
    const RowNumbers n = numbers_of(scratch_.sums[r], sink);
    const auto put = [&](const TensorView<float>& tensor, double value) {
      if (tensor.data != nullptr) *tensor.at(entry(), head, query) = nan ? kNan : static_cast<float>(value);
    };
    put(pass_.to_.total, n.total);
    put(pass_.to_.entropy, n.entropy + 0.0);  // a row with one key has 0, not -0
    put(pass_.to_.distance, n.distance);
    put(pass_.to_.mass, n.mass);
    put(pass_.to_.largest, n.largest);
    if (pass_.to_.largest_key.data != nullptr)
      *pass_.to_.largest_key.at(entry(), head, query) = nan ? -1 : n.largest_key;
  }

  const StatisticsPass& pass_;
  const Item& item_;
  const SequenceQueries& queries_;
  const AttentionShape& shape_;
  const Scratch& scratch_;
  const kernels::AttentionKernels& kernel_ = *kernels::kernels().attention;
  const kernels::AttentionStatisticsKernels& statistics_ =
      *kernels::kernels().attention_statistics;
  RowBlock rows_;
  TileRange tiles_;
  int padded_;
};

void StatisticsPass::add_items(const std::vector<SequenceQueries>& sequences, const AttentionShape& shape, int threads) {
  const int64_t group = shape.num_q_heads / shape.num_kv_heads;
  int64_t all_rows = 0;
  for (const SequenceQueries& s : sequences) all_rows += s.tokens * shape.num_q_heads;
  // Some blocks for each thread; fewer rows in a block read the keys more often.
  constexpr int64_t kBlocksPerThread = 4, kFewest = 2 * kMaxMicroRows;
  const int64_t share = threads == 1 ? kBlockRows : all_rows / (kBlocksPerThread * threads) / 6 * 6;
  const int64_t block_rows = std::clamp<int64_t>(share, kFewest, kBlockRows);
  for (size_t i = 0; i < sequences.size(); ++i)
    for (int h = 0; h < shape.num_kv_heads; ++h)
      for (int64_t r = 0, rows = sequences[i].tokens * group; r < rows; r += block_rows)
        items_.push_back({i, h, r, static_cast<int>(std::min(block_rows, rows - r))});
}

void StatisticsPass::run(const std::vector<SequenceQueries>& sequences, const std::vector<PackSource>& sources,
                         const AttentionShape& shape, const MaskPlan& mask, ThreadPool& pool, const StopToken* stop) {
  for (size_t b = 0; b < sources.size(); ++b)
    columns_.emplace_back(sequences[b].keys, sources[b], call_rows_.first_key(static_cast<int64_t>(b)));
  columns_.resize(sequences.size());
  add_items(sequences, shape, pool.size());
  Carver measure(nullptr);
  Scratch::carve(measure, shape);
  Workspace workspace;
  workspace.reserve(pool.size(), measure.used());
  pool.for_each(
      static_cast<int64_t>(items_.size()),
      [&](int64_t i, int thread) {
        Carver carver(workspace.arena(thread));
        const Scratch scratch = Scratch::carve(carver, shape);
        const Item& item = items_[static_cast<size_t>(i)];
        Block(*this, item, sequences[item.sequence], shape, mask, scratch).run(stop);
      },
      stop);
  if (stop != nullptr && stop->stop_requested()) fail(Code::kCancelled, "[attention] stopped on request");
}

}  // namespace regard
