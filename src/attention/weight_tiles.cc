#include "attention/weight_tiles.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/math.h"

namespace regard {

using kernels::AttentionTile;
using kernels::kBlockRows;
using kernels::kTileKeys;

namespace {

// What a block of rows needs of a thread's scratch, besides the extra bytes.
struct Scratch {
  RowScratch rows;
  TermScratch terms;
  float *high, *low, *tile;
  std::byte* extra;
  static Scratch carve(Carver& carver, const AttentionShape& shape, size_t extra_bytes) {
    return {RowScratch::carve(carver, shape.head_dim, kernels::kLanes),
            shape.terms == nullptr ? TermScratch{} : shape.terms->carve(carver),
            carver.take<float>(kBlockRows),
            carver.take<float>(kBlockRows),
            carver.take<float>(size_t{kBlockRows} * kTileKeys),
            carver.take<std::byte>(extra_bytes)};
  }
};

void drop(const AttentionTile& tile, float keep_scale, float* weights) noexcept {
  for (int r = 0; r < tile.rows; ++r)
    for (int j = 0; j < kTileKeys; ++j, ++weights)
      *weights = *weights != 0.0f && (tile.keep[r][j / 64] >> (j % 64) & 1) != 0 ? *weights * keep_scale : 0.0f;
}

// The slots of [first, first + count) that are wanted.
Interval overlap(Interval wanted, int64_t first, int64_t count) {
  const int64_t begin = std::clamp(wanted.begin, first, first + count);
  return {begin, std::clamp(wanted.end, begin, first + count)};
}

}  // namespace

WeightTiles::WeightTiles(std::string_view function, const WeightsInput& input)
    : function_(function),
      input_(input),
      inputs_{check_tensor(function, "q", input.q, 4), check_tensor(function, "k", input.k, 4),
              check_tensor(function, "lse", input.lse, 3)},
      sizes_(check_sizes(function, input.q, input.k, nullptr)),
      shape_(check_numbers(function, sizes_, input.options)),
      call_rows_(function, sizes_, input.options),
      terms_(function, call_rows_.widest(), input.options, shape_.scale) {
  inputs_.insert(inputs_.end(), terms_.ranges().begin(), terms_.ranges().end());
  const TensorView<const float>& lse = input.lse;
  require(lse.shape[0] == sizes_.batch && lse.shape[1] == sizes_.num_q_heads && lse.shape[2] == sizes_.q_len,
          "[{}] lse has shape {}, expected [{}, {}, {}]", function, shape_text(lse), sizes_.batch, sizes_.num_q_heads,
          sizes_.q_len);
  const Interval queries = input.queries, keys = input.keys;
  require(queries.begin >= 0 && queries.begin <= queries.end && queries.end <= sizes_.q_len,
          "[{}] queries {} to {} are not within 0 to {}", function, queries.begin, queries.end, sizes_.q_len);
  require(keys.begin >= 0 && keys.begin <= keys.end && keys.end <= sizes_.kv_len,
          "[{}] keys {} to {} are not within 0 to {}", function, keys.begin, keys.end, sizes_.kv_len);
  positions_.emplace(function, sizes_, call_rows_, input.mask, input.options);
}

template <class T>
void WeightTiles::check_output(std::string_view name, const TensorView<T>& output,
                               std::initializer_list<int64_t> shape) {
  const ByteRange range = check_tensor(function_, name, output, static_cast<int>(shape.size()));
  require(std::equal(shape.begin(), shape.end(), output.shape.begin()), "[{}] {} has shape {}, expected [{}]",
          function_, name, shape_text(output), fmt::join(shape, ", "));
  check_no_self_overlap(function_, name, output);
  for (const ByteRange& other : inputs_)
    require(!range.overlaps(other), "[{}] the memory of {} overlaps that of an input: give it its own", function_,
            name);
  for (const ByteRange& other : outputs_)
    require(!range.overlaps(other), "[{}] the memory of {} overlaps that of another output: give it its own", function_,
            name);
  outputs_.push_back(range);
}
template void WeightTiles::check_output(std::string_view, const TensorView<float>&, std::initializer_list<int64_t>);
template void WeightTiles::check_output(std::string_view, const TensorView<int64_t>&, std::initializer_list<int64_t>);

void WeightTiles::prepare(size_t extra_bytes) {
  plan_.emplace(input_.mask, input_.options.limits, call_rows_.batch(), sizes_.num_q_heads);
  positions_->check_queries(*plan_);
  const TensorView<const float> q = with_dense_rows(input_.q, q_copy_), k = with_dense_rows(input_.k, k_copy_);
  for (int64_t b = 0; b < call_rows_.batch(); ++b) {
    const int64_t first = call_rows_.first_key(b);
    const Interval keys = overlap(input_.keys, first, call_rows_.kv_len(b));
    PackSource source;
    source.kv_len = keys.end - keys.begin;
    source.k_begin = positions_->k_begin(b) + keys.begin - first;
    source.positions = positions_->keys(b) == nullptr ? nullptr : positions_->keys(b) + keys.begin - first;
    if (source.kv_len > 0)
      source.rows = {.k = k.at(call_rows_.entry(b), 0, keys.begin),
                     .k_token_stride = k.strides[2],
                     .k_head_stride = k.strides[1]};
    sources_.push_back(source);
    places_.push_back({.entry = call_rows_.entry(b), .first_key = keys.begin - input_.keys.begin});
  }
  ThreadPool& pool = default_pool();
  packed_.emplace(KvGeometry{.num_kv_heads = shape_.num_kv_heads, .head_dim = shape_.head_dim, .value_dim = 0},
                  sources_, pool);
  for (int64_t b = 0; b < call_rows_.batch(); ++b) add_sequence(b, q);
  add_slack(q);
  add_row_items();
  if (!terms_.empty()) shape_.terms = &terms_;
  extra_bytes_ = extra_bytes;
  Carver measure(nullptr);
  Scratch::carve(measure, shape_, extra_bytes_);
  workspace_.reserve(pool.size(), measure.used());
}

void WeightTiles::add_sequence(int64_t b, const TensorView<const float>& q) {
  const auto index = static_cast<size_t>(b);
  const PackSource& source = sources_[index];
  Place& place = places_[index];
  const int64_t first_query = call_rows_.first_query(b);
  const Interval queries = overlap(input_.queries, first_query, call_rows_.q_len(b));
  const int64_t query = queries.begin - first_query;
  const int64_t key = input_.keys.begin + place.first_key - call_rows_.first_key(b);
  const auto from = [](const int64_t* list, int64_t first) { return list == nullptr ? nullptr : list + first; };
  place.first_query = queries.begin - input_.queries.begin;
  SequenceQueries s;
  s.tokens = queries.end - queries.begin;
  if (s.tokens > 0) s.q = q.at(place.entry, 0, queries.begin);
  s.q_token_stride = q.strides[2];
  s.q_head_stride = q.strides[1];
  s.first_position = positions_->q_begin(b) + query;
  s.positions = from(positions_->queries(b), query);
  s.keys = packed_->view(b);
  s.batch_row = b;
  sequences_.push_back(s);
  columns_.emplace_back(s.keys, source, place.first_key);
  terms_.place(s, source,
               {.q_encoding = from(positions_->query_encodings(b), query),
                .k_encoding = from(positions_->key_encodings(b), key),
                .first_query = query,
                .first_key = key});
  if (s.tokens > 0)
    for (int h = 0; h < shape_.num_kv_heads; ++h)
      for (int64_t t = 0; t < s.keys.num_tiles; ++t) tile_items_.push_back({index, h, t});
}

void WeightTiles::add_slack(const TensorView<const float>& q) {
  const int64_t count = call_rows_.slack();
  const Interval queries = overlap(input_.queries, sizes_.q_len - count, count);
  nowhere_.assign(static_cast<size_t>(queries.end - queries.begin), -1);
  if (nowhere_.empty()) return;
  places_.push_back({.first_query = queries.begin - input_.queries.begin});
  columns_.emplace_back();
  SequenceQueries s;
  s.q = q.at(0, 0, queries.begin);
  s.q_token_stride = q.strides[2];
  s.q_head_stride = q.strides[1];
  s.tokens = queries.end - queries.begin;
  s.positions = nowhere_.data();
  sequences_.push_back(s);
}

void WeightTiles::add_row_items() {
  const int64_t group = sizes_.num_q_heads / sizes_.num_kv_heads;
  for (size_t i = 0; i < sequences_.size(); ++i)
    for (int h = 0; h < shape_.num_kv_heads; ++h)
      for (int64_t r = 0; r < sequences_[i].tokens * group; r += kBlockRows) row_items_.push_back({i, h, r});
}

void WeightTiles::check_finished() const {
  if (stopped()) fail(Code::kCancelled, "[{}] stopped on request", function_);
  terms_.check_distances(function_);
}

WeightTiles::Block::Block(const WeightTiles& tiles, size_t sequence, int kv_head, int thread)
    : tiles_(tiles),
      sequence_(tiles.sequences_[sequence]),
      place_(tiles.places_[sequence]),
      columns_(tiles.columns_[sequence]),
      kv_head_(kv_head) {
  Carver carver(tiles.workspace_.arena(thread));
  const Scratch scratch = Scratch::carve(carver, tiles.shape_, tiles.extra_bytes_);
  row_scratch_ = scratch.rows;
  terms_ = scratch.terms;
  high_ = scratch.high;
  low_ = scratch.low;
  weights_ = scratch.tile;
  extra_ = scratch.extra;
}

int64_t WeightTiles::Block::all_rows() const {
  return sequence_.tokens * (tiles_.shape_.num_q_heads / tiles_.shape_.num_kv_heads);
}

int WeightTiles::Block::rows_from(int64_t first_row) const {
  return static_cast<int>(std::min<int64_t>(kBlockRows, all_rows() - first_row));
}

TileRange WeightTiles::Block::range_of(int64_t first_row) const {
  return tile_range(sequence_, tiles_.shape_, *tiles_.plan_, kv_head_, first_row, rows_from(first_row));
}

bool WeightTiles::Block::may_see(int64_t first_row, int64_t tile) const {
  const TileRange range = range_of(first_row);
  return range.begin <= tile && tile < range.end;
}

void WeightTiles::Block::start(int64_t first_row) {
  const AttentionShape& shape = tiles_.shape_;
  const int rows = rows_from(first_row);
  rows_.emplace(sequence_, shape, *tiles_.plan_, kv_head_, first_row, rows, row_scratch_);
  const auto factor = static_cast<float>(shape.scale * math::kLog2e);
  rows_->load_queries(factor);
  if (shape.terms != nullptr) shape.terms->begin(sequence_, *rows_, factor, terms_, row_scratch_.q);
  const TensorView<const float>& lse = tiles_.input_.lse;
  for (int r = 0; r < rows; ++r) {
    // lse in units of log2, in two parts so that no more than its own rounding is lost.
    const double lse2 =
        static_cast<double>(*lse.at(entry(), head(r), tiles_.input_.queries.begin + query(r))) *
        math::kLog2e;
    high_[r] = static_cast<float>(lse2);
    low_[r] = std::isfinite(high_[r]) ? static_cast<float>(lse2 - static_cast<double>(high_[r])) : 0.0f;
  }
  range_ = range_of(first_row);
  tile_ = range_.begin - 1;
}

bool WeightTiles::Block::next() {
  while (tile_ + 1 < range_.end && !tiles_.stopped())
    if (show(tile_ + 1)) return true;
  return false;
}

bool WeightTiles::Block::show(int64_t index) {
  tile_ = index;
  const AttentionShape& shape = tiles_.shape_;
  AttentionTile tile{};
  tile.q = row_scratch_.q;
  tile.rows = rows();
  tile.head_dim = shape.head_dim;
  tile.softcap = static_cast<float>(shape.softcap * math::kLog2e);
  tile.scores = row_scratch_.scores;
  if (!rows_->lower(index, tile)) return false;
  if (shape.terms != nullptr)
    shape.terms->lower(static_cast<size_t>(sequence_.batch_row), sequence_, *rows_, index, terms_, tile);
  kernels::kernels().attention->weights(tile, high_, low_, weights_);
  const std::optional<Dropout>& dropout = tiles_.input_.options.dropout;
  if (dropout && shape.terms != nullptr && shape.terms->drops() && dropout->weights == Dropout::Weights::kAfter)
    drop(tile, shape.terms->keep_scale(), weights_);
  return true;
}

}  // namespace regard
