#include "attention/attention.h"

#include <algorithm>
#include <atomic>
#include <tuple>

#include "attention/row_block.h"
#include "attention/score_terms.h"
#include "base/check.h"
#include "base/math.h"
#include "runtime/thread_pool.h"

namespace regard {

using kernels::AttentionState;
using kernels::AttentionTile;
using kernels::kLanes;
using kernels::kBlockRows;
using kernels::kMaxBlockRows;
using kernels::kPanelsPerTile;

namespace {

// Up to this many rows the keys and values come from memory faster than they are used up, so a block's tiles are shared
// out over the threads; more rows make blocks enough.
constexpr int64_t kFewRows = 24;
// Blocks of fewer rows than this read the keys too often.
constexpr int64_t kLeastEvenRows = 48;
// A head's keys and values of so many bytes come from memory, or crowd the last cache, for each block of rows. Larger blocks
// then read them less often, as long as the rows themselves leave the second-level cache to the tiles.
constexpr int64_t kLongBytes = int64_t{4} << 20;
constexpr int64_t kLongDims = 256;
// Items for each thread that even out what one of them takes longer.
constexpr int64_t kItemsPerThread = 4;

// What a thread needs besides RowScratch for bf16 dot products.
struct Bf16Scratch {
  uint32_t* q = nullptr;        // [96][pairs(head_dim)]
  uint32_t* weights = nullptr;  // [6][pairs(256)]

  static Bf16Scratch carve(Carver& carver, int head_dim) {
    Bf16Scratch s;
    s.q = carver.take<uint32_t>(size_t{kBlockRows} * static_cast<size_t>(kernels::pairs(head_dim)));
    s.weights = carver.take<uint32_t>(size_t{kernels::kMaxMicroRows * kernels::pairs(kernels::kTileKeys)});
    return s;
  }
};

}  // namespace

size_t AttentionWorkspace::total_bytes() const noexcept {
  return threads_.total_bytes() + parts_.size() * sizeof(float) +
         (items_.capacity() + ordered_.capacity()) * sizeof(AttentionItem);
}

// One call of attend_sequences(): plan() makes the items, run() does one of them.
class AttentionCall {
 public:
  AttentionCall(std::span<const SequenceQueries> sequences, const AttentionShape& shape, const MaskPlan& mask,
                AttentionWorkspace& workspace, ThreadPool& pool, const StopToken* stop)
      : sequences_(sequences),
        shape_(shape),
        mask_(mask),
        workspace_(workspace),
        pool_(pool),
        stop_(stop),
        kernel_(*kernels::kernels().attention),
        bf16_(shape.arithmetic == AttentionArithmetic::kBf16Dots ? kernels::kernels().attention_bf16 : nullptr),
        group_(shape.num_q_heads / shape.num_kv_heads),
        padded_(kernels::padded_dim(shape.value_dim)),
        factor_(static_cast<float>(shape.scale * math::kLog2e)),
        softcap_(static_cast<float>(shape.softcap * math::kLog2e)) {}

  void execute() {
    plan();
    const std::vector<AttentionItem>& items = *work_;
    if (items.empty()) return;
    Carver measure(nullptr);
    RowScratch::carve(measure, shape_.head_dim, shape_.value_dim, scratch_rows_);
    if (shape_.terms != nullptr) shape_.terms->carve(measure);
    if (bf16_ != nullptr) Bf16Scratch::carve(measure, shape_.head_dim);
    workspace_.threads_.reserve(pool_.size(), measure.used());
    auto run = [&](int64_t i, int thread) { run_item(items[static_cast<size_t>(i)], thread); };
    pool_.for_each(static_cast<int64_t>(items.size()), run, stop_);
    if (stopped()) fail(Code::kCancelled, "[attention] stopped on request");
  }

 private:
  bool stopped() const noexcept { return stop_ != nullptr && stop_->stop_requested(); }

  // ---- planning
  // ----------------------------------------------------------------------------------------------------------
  void plan() {
    int64_t blocks = 0, all_rows = 0;
    for (const SequenceQueries& s : sequences_) {
      const int64_t rows = s.tokens * group_;
      blocks += (rows + kBlockRows - 1) / kBlockRows * shape_.num_kv_heads;
      all_rows += rows * shape_.num_kv_heads;
    }
    const int64_t wanted = pool_.size() == 1 ? 1 : kItemsPerThread * pool_.size();
    const bool scarce = blocks < wanted;
    // Fewer rows in a block make more blocks; each then reads the keys once more, so not below two rounds of the
    // registers.
    const int64_t smallest = 2 * kernels::kMaxMicroRows, share = (all_rows + wanted - 1) / wanted;
    const int64_t scarce_rows = std::clamp<int64_t>((share + 5) / 6 * 6, smallest, kBlockRows);

    std::vector<AttentionItem>& items = workspace_.items_;
    items.clear();
    workspace_.first_part_.clear();
    workspace_.shared_blocks_ = 0;
    int64_t parts = 0;
    bool even = true;  // all items cost about the same
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const SequenceQueries& s = sequences_[i];
      const int64_t rows = s.tokens * group_;
      const int64_t block_rows = scarce ? scarce_rows : is_long(s) ? kMaxBlockRows : kBlockRows;
      scratch_rows_ = std::max(scratch_rows_, static_cast<int>(block_rows));
      for (int h = 0; h < shape_.num_kv_heads && rows > 0; ++h) {
        const TileRange all = scarce && rows <= kFewRows ? tile_range(s, shape_, mask_, h, 0, rows) : TileRange{};
        AttentionItem item;
        item.sequence = static_cast<int32_t>(i);
        item.kv_head = h;
        if (all.end - all.begin > 1) {
          item.rows = static_cast<int32_t>(rows);
          item.cost = rows;
          part_rows_ = std::max(part_rows_, rows);
          item.shared = static_cast<int32_t>(workspace_.shared_blocks_++);
          workspace_.first_part_.push_back(parts);
          for (int64_t t = all.begin; t < all.end; ++t) {
            item.part = parts++;
            item.tile_begin = t;
            item.tile_end = t + 1;
            items.push_back(item);
          }
          continue;
        }
        const int64_t cuts = even_blocks(rows, block_rows);
        for (int64_t r = 0, c = 1; r < rows; r += item.rows, ++c) {
          item.first_row = r;
          item.rows = static_cast<int32_t>(std::min(rows, cuts == 0 ? r + block_rows : cut(rows, cuts, c)) - r);
          const TileRange tiles = tile_range(s, shape_, mask_, h, item.first_row, item.rows);
          item.tile_begin = tiles.begin;
          item.tile_end = tiles.end;
          item.cost = (tiles.end - tiles.begin + 1) * item.rows;
          items.push_back(item);
          even = false;
        }
      }
    }
    workspace_.first_part_.push_back(parts);
    prepare_parts(parts);
    order(even);
  }

  bool is_long(const SequenceQueries& s) const noexcept {
    return bf16_ == nullptr && shape_.terms == nullptr && shape_.head_dim + padded_ <= kLongDims &&
           s.keys.num_tiles * s.keys.geometry.tile_bytes() >= kLongBytes * shape_.num_kv_heads;
  }

  // How many blocks of a head's rows, each of at most `block_rows`, let every thread have as many. 0: that would make them
  // small, or there is no need.
  int64_t even_blocks(int64_t rows, int64_t block_rows) const noexcept {
    const int64_t fewest = (rows + block_rows - 1) / block_rows, threads = pool_.size(), heads = shape_.num_kv_heads;
    if (threads == 1 || fewest * heads < threads) return 0;
    int64_t even = fewest;
    while (even * heads % threads != 0) ++even;
    return rows / even >= kLeastEvenRows ? even : 0;
  }
  // Where the first `c` of `cuts` blocks end: all have the same number of rows, but for one round of the registers.
  static int64_t cut(int64_t rows, int64_t cuts, int64_t c) noexcept {
    constexpr int64_t kRound = kernels::kMaxMicroRows;
    return (rows + kRound - 1) / kRound * c / cuts * kRound;
  }

  // Heavy items first, dealt out in turn, so that each thread's stretch ends with light ones. Shared tiles stay in
  // order: each then fetches what the next one reads.
  void order(bool even) {
    std::vector<AttentionItem>& items = workspace_.items_;
    std::vector<AttentionItem>& ordered = workspace_.ordered_;
    work_ = &items;
    if (even || pool_.size() == 1) return;
    std::sort(items.begin(), items.end(), [](const AttentionItem& a, const AttentionItem& b) {
      return std::tuple(b.cost, a.sequence, a.kv_head, a.first_row, a.part) <
             std::tuple(a.cost, b.sequence, b.kv_head, b.first_row, b.part);
    });
    ordered.clear();
    const auto threads = static_cast<size_t>(pool_.size());
    for (size_t t = 0; t < threads; ++t)
      for (size_t i = t; i < items.size(); i += threads) ordered.push_back(items[i]);
    work_ = &ordered;
  }

  // A partial result: O, then M and L with the spare lanes that the kernels read.
  int64_t part_floats() const noexcept {
    return (part_rows_ * padded_ + 2 * (part_rows_ + kLanes) + kLanes - 1) / kLanes * kLanes;
  }
  AttentionState part(int64_t index) const noexcept {
    float* o = workspace_.parts_.data() + index * part_floats();
    float* m = o + part_rows_ * padded_;
    return {o, m, m + part_rows_ + kLanes};
  }
  void prepare_parts(int64_t parts) {
    const auto floats = static_cast<size_t>(parts * part_floats());
    if (workspace_.parts_.size() < floats) workspace_.parts_ = AlignedBuffer<float>(floats + floats / 2);
    const auto blocks = static_cast<size_t>(workspace_.shared_blocks_);
    if (workspace_.missing_size_ < blocks) {
      workspace_.missing_ = std::make_unique<std::atomic<int>[]>(blocks);
      workspace_.missing_size_ = blocks;
    }
    for (size_t i = 0; i < blocks; ++i)
      workspace_.missing_[i].store(static_cast<int>(workspace_.first_part_[i + 1] - workspace_.first_part_[i]),
                                   std::memory_order_relaxed);
  }

  // ---- one item
  // ----------------------------------------------------------------------------------------------------------
  void run_item(const AttentionItem& item, int thread) {
    const SequenceQueries& s = sequences_[static_cast<size_t>(item.sequence)];
    Carver carver(workspace_.threads_.arena(thread));
    const RowScratch scratch = RowScratch::carve(carver, shape_.head_dim, shape_.value_dim, scratch_rows_);
    const TermScratch terms = shape_.terms == nullptr ? TermScratch{} : shape_.terms->carve(carver);
    const Bf16Scratch pairs = bf16_ == nullptr ? Bf16Scratch{} : Bf16Scratch::carve(carver, shape_.head_dim);
    RowBlock block(s, shape_, mask_, item.kv_head, item.first_row, item.rows, scratch);
    if (bf16_ == nullptr)
      block.load_queries(factor_);
    else
      block.load_queries(pairs.q);
    if (shape_.terms != nullptr) shape_.terms->begin(s, block, factor_, terms, scratch.q);

    AttentionState state = item.shared >= 0 ? part(item.part) : AttentionState{scratch.o, scratch.m, scratch.l};
    if (item.shared >= 0)
      kernel_.reset(state, item.rows, padded_);
    else
      begin(s, block, state);
    AttentionTile tile{};
    tile.q = scratch.q;
    tile.rows = item.rows;
    tile.head_dim = shape_.head_dim;
    tile.value_dim = padded_;
    tile.softcap = softcap_;
    tile.scores = scratch.scores;
    for (int64_t t = item.tile_begin; t < item.tile_end; ++t) {
      if (stopped()) return;
      if (!block.lower(t, tile)) continue;
      if (shape_.terms != nullptr)
        shape_.terms->lower(static_cast<size_t>(item.sequence), s, block, t, terms, tile);
      fetch_next(s, item, t, tile);
      if (bf16_ == nullptr)
        kernel_.tile(tile, state);
      else
        bf16_->tile(tile, {pairs.q, factor_, pairs.weights}, state);
    }
    if (item.shared >= 0) {
      const auto shared = static_cast<size_t>(item.shared);
      if (workspace_.missing_[shared].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      // The last one folds all of them, in the order of the tiles.
      state = {scratch.o, scratch.m, scratch.l};
      begin(s, block, state);
      for (int64_t i = workspace_.first_part_[shared]; i < workspace_.first_part_[shared + 1]; ++i)
        kernel_.fold(state, part(i), item.rows, padded_);
    }
    finish(s, block, state, terms, scratch.lse);
  }

  // The keys of the next tile are fetched while few rows use this one up, or the first of many rows whose keys are far away.
  void fetch_next(const SequenceQueries& s, const AttentionItem& item, int64_t t, AttentionTile& tile) const noexcept {
    tile.next[0] = nullptr;
    if (item.rows > kFewRows && (t + 1 >= item.tile_end || !is_long(s))) return;
    int head = item.kv_head;
    int64_t next = t + 1;
    if (next >= s.keys.num_tiles) {
      if (++head >= shape_.num_kv_heads) return;
      next = item.shared >= 0 ? 0 : item.tile_begin;
    }
    for (int w = 0; w < kPanelsPerTile; ++w) tile.next[w] = s.keys.keys(next, w, head);
  }

  // Rows begin where an earlier call left them, or with nothing.
  void begin(const SequenceQueries& s, const RowBlock& block, const AttentionState& state) const noexcept {
    kernel_.reset(state, block.rows(), padded_);
    if (s.partial.m == nullptr) return;
    for (int r = 0; r < block.rows(); ++r) {
      const int64_t row = block.head(r) * s.partial.head_stride + block.token(r);
      state.m[r] = s.partial.m[row];
      state.l[r] = s.partial.l[row];
      std::copy_n(s.partial.o + row * padded_, padded_, state.o + int64_t{r} * padded_);
    }
  }

  void keep(const SequenceQueries& s, const RowBlock& block, const AttentionState& state) const noexcept {
    for (int r = 0; r < block.rows(); ++r) {
      const int64_t row = block.head(r) * s.partial.head_stride + block.token(r);
      s.partial.m[row] = state.m[r];
      s.partial.l[row] = state.l[r];
      std::copy_n(state.o + int64_t{r} * padded_, padded_, s.partial.o + row * padded_);
    }
  }

  void finish(const SequenceQueries& s, const RowBlock& block, const AttentionState& state, const TermScratch& terms,
              float* lse) const noexcept {
    if (s.partial.m != nullptr) return keep(s, block, state);
    float* out[kMaxBlockRows];
    for (int r = 0; r < block.rows(); ++r)
      out[r] = s.out + block.token(r) * s.out_token_stride + block.head(r) * s.out_head_stride;
    if (shape_.terms != nullptr)
      shape_.terms->finish(block, state, shape_.value_dim, terms, out, lse);
    else
      kernel_.finish(state, block.rows(), shape_.value_dim, out, s.lse == nullptr ? nullptr : lse);
    if (s.lse == nullptr) return;
    for (int r = 0; r < block.rows(); ++r)
      s.lse[block.token(r) * s.lse_token_stride + block.head(r) * s.lse_head_stride] = lse[r];
  }

  std::span<const SequenceQueries> sequences_;
  const AttentionShape& shape_;
  const MaskPlan& mask_;
  AttentionWorkspace& workspace_;
  ThreadPool& pool_;
  const StopToken* stop_;
  const kernels::AttentionKernels& kernel_;
  const kernels::AttentionBf16Kernels* bf16_;  // null: the tiles are done in f32
  int group_, padded_;
  float factor_, softcap_;
  const std::vector<AttentionItem>* work_ = nullptr;
  int64_t part_rows_ = 0;
  int scratch_rows_ = kBlockRows;  // the most rows of an item
};

void attend_sequences(std::span<const SequenceQueries> sequences, const AttentionShape& shape, const MaskPlan& mask,
                      AttentionWorkspace& workspace, ThreadPool& pool, const StopToken* stop) {
  AttentionCall(sequences, shape, mask, workspace, pool, stop).execute();
}

}  // namespace regard
