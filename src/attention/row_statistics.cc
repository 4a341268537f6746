// Statistics of rows of weights, accumulated tile by tile in f64.
#include <cmath>
#include <limits>

#include "attention/key_set.h"
#include "attention/weight_tiles.h"
#include "base/check.h"
#include "base/math.h"
#include "regard/attention_weights.h"

namespace regard {

using kernels::kBlockRows;
using kernels::kPanelsPerTile;
using kernels::kTileKeys;

namespace {

constexpr std::string_view kName = "attention_statistics";

// The sums of one row so far.
struct RowSums {
  double total = 0, entropy = 0, distance = 0, mass = 0;
  float largest = 0;
  int64_t largest_key = -1;
};

// A weight of NaN makes the sums NaN by itself.
void add_tile(const WeightTiles::Block& block, int r, const uint64_t* set, bool entropy, RowSums& row) {
  const float* weights = block.weights(r);
  for (int j = 0; j < kTileKeys; ++j) {
    if (weights[j] == 0) continue;
    const auto w = static_cast<double>(weights[j]);
    row.total += w;
    if (entropy) row.entropy -= w * math::log(w);
    row.distance += w * static_cast<double>(block.position(r) - (block.base() + j));
    if (set != nullptr && (set[j / kernels::kPanelKeys] >> (j % kernels::kPanelKeys) & 1) != 0) row.mass += w;
    const int64_t key = block.column(j);
    if (weights[j] > row.largest || (weights[j] == row.largest && key < row.largest_key)) {
      row.largest = weights[j];
      row.largest_key = key;
    }
  }
}

void write_row(const RowStatistics& to, const WeightTiles::Block& block, int r, const RowSums& row, bool set) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const bool nan = std::isnan(row.total);
  const auto put = [&](const TensorView<float>& tensor, double value) {
    if (tensor.data != nullptr)
      *tensor.at(block.entry(), block.head(r), block.query(r)) = nan ? kNan : static_cast<float>(value);
  };
  put(to.total, row.total);
  put(to.entropy, row.entropy + 0.0);  // a row with one key has 0, not -0
  put(to.distance, row.total == 0 ? 0 : row.distance / row.total);
  if (set) put(to.mass, row.mass);
  put(to.largest, static_cast<double>(row.largest));
  if (to.largest_key.data != nullptr)
    *to.largest_key.at(block.entry(), block.head(r), block.query(r)) = nan ? -1 : row.largest_key;
}

}  // namespace

void attention_statistics(TensorView<const float> q, TensorView<const float> k, TensorView<const float> lse,
                          const Mask& mask, const AttentionOptions& options, Interval queries, const KeySet& set,
                          const RowStatistics& statistics) {
  WeightTiles tiles(kName, {q, k, lse, mask, options, queries, {0, k.rank == 4 ? k.shape[2] : 0}});
  const CallSizes& sizes = tiles.sizes();
  const auto check = [&](std::string_view name, const auto& tensor) {
    if (tensor.data != nullptr) tiles.check_output(name, tensor, {sizes.batch, sizes.num_q_heads, tiles.rows()});
  };
  check("total", statistics.total);
  check("entropy", statistics.entropy);
  check("distance", statistics.distance);
  check("mass", statistics.mass);
  check("largest", statistics.largest);
  check("largest_key", statistics.largest_key);
  const KeySetBits bits(kName, sizes, tiles.call_rows(), tiles.positions(), set, mask, options);
  require(statistics.mass.data == nullptr || bits.given(), "[{}] mass is wanted, but of which keys is not stated",
          kName);
  if (sizes.batch * tiles.rows() == 0) return;
  tiles.prepare(0);
  const bool with_set = statistics.mass.data != nullptr, with_entropy = statistics.entropy.data != nullptr;
  tiles.for_each_block([&](WeightTiles::Block& block) {
    RowSums rows[kBlockRows];
    uint64_t words[kPanelsPerTile];
    while (block.next())
      for (int r = 0; r < block.rows(); ++r) {
        if (with_set)
          bits.fill(block.batch_row(), block.entry(), block.head(r), block.position(r), block.base(),
                    [&](int j) { return block.column(j); }, words);
        add_tile(block, r, with_set ? words : nullptr, with_entropy, rows[r]);
      }
    for (int r = 0; r < block.rows(); ++r) write_row(statistics, block, r, rows[r], with_set);
  });
}

}  // namespace regard
