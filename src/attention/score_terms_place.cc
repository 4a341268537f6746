// The checks of score terms, and the tables that lowering reads.
#include <algorithm>

#include "attention/score_terms.h"
#include "base/check.h"

namespace regard {

using kernels::kTileKeys;

namespace {

// A dense bias, its axes of extent 1 repeated by a stride of 0.
TensorView<const float> checked_bias(std::string_view function, const CallSizes& sizes, TensorView<const float> bias) {
  const int64_t want[4] = {sizes.batch, sizes.num_q_heads, sizes.q_len, sizes.kv_len};
  bool fits = true;
  for (size_t i = 0; i < 4; ++i) {
    fits = fits && (bias.shape[i] == 1 || bias.shape[i] == want[i]);
    if (bias.shape[i] == 1) bias.strides[i] = 0;
  }
  require(fits, "[{}] bias has shape {}, expected [{}, {}, {}, {}] or 1 in place of any of these", function,
          shape_text(bias), want[0], want[1], want[2], want[3]);
  return bias;
}

const Alibi* checked_alibi(std::string_view function, const CallSizes& sizes, const std::optional<Alibi>& alibi) {
  if (!alibi) return nullptr;
  require(static_cast<int64_t>(alibi->slopes.size()) == sizes.num_q_heads,
          "[{}] alibi has {} slopes for {} query heads", function, alibi->slopes.size(), sizes.num_q_heads);
  return &*alibi;
}

// More than this, and a table of distances would be a gift to whoever asks for memory.
constexpr int64_t kMaxT5Distance = int64_t{1} << 20;

const T5Bias* checked_t5(std::string_view function, const CallSizes& sizes, const std::optional<T5Bias>& t5) {
  if (!t5) return nullptr;
  check_tensor(function, "t5.table", t5->table, 2);
  const int64_t buckets = t5->table.shape[0];
  require(t5->table.shape[1] == sizes.num_q_heads, "[{}] t5.table has shape {}, expected [buckets, {}]", function,
          shape_text(t5->table), sizes.num_q_heads);
  const bool both = t5->direction == T5Direction::kBidirectional;
  require(buckets >= (both ? 4 : 2) && (!both || buckets % 2 == 0), "[{}] t5.table has {} buckets, expected {}",
          function, buckets, both ? "an even number from 4 on" : "2 or more");
  const int64_t exact = buckets / (both ? 4 : 2);
  require(t5->max_distance > exact && t5->max_distance <= kMaxT5Distance,
          "[{}] t5.max_distance is {}, expected more than the {} exact buckets and at most {}", function,
          t5->max_distance, exact, kMaxT5Distance);
  return &*t5;
}

const TransformerXl* checked_xl(std::string_view function, const CallSizes& sizes,
                                const std::optional<TransformerXl>& xl) {
  if (!xl) return nullptr;
  for (const auto& [name, tensor] : {std::pair{"xl.u", &xl->u}, std::pair{"xl.v", &xl->v}}) {
    if (tensor->rank == 0) continue;
    check_tensor(function, name, *tensor, 2);
    require(tensor->shape[0] == sizes.num_q_heads && tensor->shape[1] == sizes.head_dim,
            "[{}] {} has shape {}, expected [{}, {}]", function, name, shape_text(*tensor), sizes.num_q_heads,
            sizes.head_dim);
  }
  check_tensor(function, "xl.r", xl->r, 3);
  require(xl->r.shape[1] == sizes.num_q_heads && xl->r.shape[2] == sizes.head_dim,
          "[{}] xl.r has shape {}, expected [distances, {}, {}]", function, shape_text(xl->r), sizes.num_q_heads,
          sizes.head_dim);
  // Beyond any length that there is memory for; differences of such numbers cannot overflow.
  constexpr int64_t kFar = int64_t{1} << 40;
  require(xl->clamp >= 0 && xl->clamp <= kFar, "[{}] xl.clamp is {}, expected 0 to {}", function, xl->clamp, kFar);
  require(xl->first_distance >= -kFar && xl->first_distance <= kFar, "[{}] xl.first_distance is {}, expected {} to {}",
          function, xl->first_distance, -kFar, kFar);
  return &*xl;
}

Dropout checked_dropout(std::string_view function, const std::optional<Dropout>& dropout) {
  if (!dropout) return {};
  require(dropout->rate >= 0 && dropout->rate < 1, "[{}] dropout.rate is {}, expected 0 or more and less than 1",
          function, dropout->rate);
  return *dropout;
}

std::vector<float> checked_sinks(std::string_view function, const CallSizes& sizes,
                                 const TensorView<const float>& sink) {
  require(sink.shape[0] == sizes.num_q_heads, "[{}] sink has shape {}, expected [{}]", function, shape_text(sink),
          sizes.num_q_heads);
  std::vector<float> sinks;
  for (int64_t h = 0; h < sizes.num_q_heads; ++h) sinks.push_back(*sink.at(h));
  return sinks;
}

}  // namespace

ScoreTerms::ScoreTerms(std::string_view function, const CallSizes& sizes, const AttentionOptions& options, double scale)
    : num_q_heads_(static_cast<int>(sizes.num_q_heads)),
      num_kv_heads_(static_cast<int>(sizes.num_kv_heads)),
      head_dim_(static_cast<int>(sizes.head_dim)),
      scale_(static_cast<float>(scale)),
      by_distance_(checked_alibi(function, sizes, options.alibi), checked_t5(function, sizes, options.t5)),
      relative_(checked_xl(function, sizes, options.xl), num_q_heads_, head_dim_),
      dropout_(checked_dropout(function, options.dropout)) {
  if (options.t5) ranges_.push_back(check_tensor(function, "t5.table", options.t5->table, 2));
  if (options.xl) {
    ranges_.push_back(check_tensor(function, "xl.r", options.xl->r, 3));
    if (options.xl->u.rank > 0) ranges_.push_back(check_tensor(function, "xl.u", options.xl->u, 2));
    if (options.xl->v.rank > 0) ranges_.push_back(check_tensor(function, "xl.v", options.xl->v, 2));
  }
  if (options.bias.rank > 0) {
    ranges_.push_back(check_tensor(function, "bias", options.bias, 4));
    dense_ = checked_bias(function, sizes, options.bias);
  }
  if (options.sink.rank > 0) {
    ranges_.push_back(check_tensor(function, "sink", options.sink, 1));
    sinks_ = checked_sinks(function, sizes, options.sink);
  }
}

void ScoreTerms::place(const SequenceQueries& sequence, const PackSource& keys, const TermSlots& slots) {
  Placed placed;
  placed.slots = slots;
  placed.k_begin = keys.k_begin;
  placed.kv_len = keys.kv_len;
  if (keys.positions != nullptr || slots.k_encoding != nullptr) place_columns(sequence.keys, keys, placed);
  if ((!by_distance_.empty() || !relative_.empty()) && slots.k_encoding == nullptr) place_table(sequence, placed);
  if (!relative_.empty() && placed.distances == 0) {
    if (!all_distances_) all_distances_ = relative_.place_all();
    placed.relative = *all_distances_;
  }
  placed_.push_back(std::move(placed));
}

void ScoreTerms::set_t5(const T5Bias& t5) {
  by_distance_.set_t5(t5);
  for (const Placed& placed : placed_)
    for (int h = 0; h < num_q_heads_ && placed.distances > 0; ++h)
      by_distance_.fill(h, placed.first_distance, placed.distances, tables_.data() + placed.table + h * placed.distances);
}

void ScoreTerms::place_columns(const KvView& view, const PackSource& keys, Placed& placed) const {
  const auto columns = static_cast<size_t>(view.num_tiles * kTileKeys);
  if (keys.positions != nullptr && dense_.data != nullptr) placed.key_of_column.assign(columns, -1);
  if (placed.slots.k_encoding != nullptr) placed.encoding_of_column.assign(columns, 0);
  for (int64_t j = 0; j < keys.kv_len; ++j) {
    const int64_t position = keys.positions == nullptr ? keys.k_begin + j : keys.positions[j];
    if (position < 0) continue;
    const int64_t id = position / kTileKeys;
    const int64_t index = view.tile_ids == nullptr
                              ? id - view.first_tile
                              : std::lower_bound(view.tile_ids, view.tile_ids + view.num_tiles, id) - view.tile_ids;
    const auto column = static_cast<size_t>(index * kTileKeys + position % kTileKeys);
    if (!placed.key_of_column.empty()) placed.key_of_column[column] = j;
    if (!placed.encoding_of_column.empty()) placed.encoding_of_column[column] = placed.slots.k_encoding[j];
  }
}

void ScoreTerms::place_table(const SequenceQueries& sequence, Placed& placed) {
  const KvView& view = sequence.keys;
  int64_t low = INT64_MAX, high = INT64_MIN;
  for (int64_t i = 0; i < sequence.tokens; ++i) {
    const int64_t position = sequence.positions == nullptr ? sequence.first_position + i : sequence.positions[i];
    if (position < 0) continue;
    const int64_t query = placed.slots.q_encoding == nullptr ? position : placed.slots.q_encoding[i];
    low = std::min(low, query);
    high = std::max(high, query);
  }
  if (low > high || view.num_tiles == 0) return;
  const int64_t first = view.tile_id(0) * kTileKeys - high;
  const int64_t distances = (view.tile_id(view.num_tiles - 1) + 1) * kTileKeys - low - first;
  // Slots that stand far apart are computed pair by pair instead.
  if (distances > 4 * (sequence.tokens + view.num_tiles * kTileKeys)) return;
  placed.first_distance = first;
  placed.distances = distances;
  for (const Placed& other : placed_)
    if (other.first_distance == first && other.distances == distances) {
      placed.table = other.table;
      placed.relative = other.relative;
      return;
    }
  if (!relative_.empty()) placed.relative = relative_.place(first, distances);
  if (by_distance_.empty()) return;
  placed.table = tables_.size();
  tables_.resize(tables_.size() + static_cast<size_t>(num_q_heads_ * distances));
  for (int h = 0; h < num_q_heads_; ++h)
    by_distance_.fill(h, first, distances, tables_.data() + placed.table + h * distances);
}

}  // namespace regard
