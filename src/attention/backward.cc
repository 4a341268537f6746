#include "attention/backward.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "attention/backward_keys.h"
#include "attention/backward_rows.h"
#include "attention/backward_terms.h"
#include "base/check.h"
#include "base/math.h"
#include "runtime/thread_pool.h"

namespace regard {

using kernels::kBlockRows;
using kernels::kPanelsPerTile;
using kernels::kWeightStride;

namespace {

// Work for each thread that lets the last of them find something to do.
constexpr int64_t kItemsPerThread = 4;
// Waiting for a turn: as long as another thread takes for a step or two, then the core is given away.
constexpr int kSpins = 4000;

struct KeyItem {
  int64_t number = 0;  // in the list
  int64_t block = 0;   // of its batch row
  int64_t batch = 0;
  int kv_head = 0;
};

// Which block of keys, or which item, adds next to the sums of a block of rows; a cache line each.
struct alignas(64) Turn {
  std::atomic<int64_t> next{0};
};

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

struct Scratch {
  KeyScratch keys;
  BackwardTermScratch terms;
  float *q, *dout, *p, *ds;
  uint64_t (*seen)[kPanelsPerTile];
  static Scratch carve(Carver& carver, int panels, int head_dim, int value_dim, const BackwardTerms* terms) {
    constexpr size_t kRows = kBlockRows;
    Scratch s;
    s.keys = KeyScratch::carve(carver, panels, head_dim, value_dim);
    if (terms != nullptr) s.terms = terms->carve(carver);
    s.q = carver.take<float>(kRows * static_cast<size_t>(kernels::padded_dim(head_dim)));
    s.dout = carver.take<float>(kRows * static_cast<size_t>(kernels::padded_dim(value_dim)));
    s.p = carver.take<float>(kRows * kWeightStride);
    s.ds = carver.take<float>(kRows * kWeightStride);
    s.seen = reinterpret_cast<uint64_t(*)[kPanelsPerTile]>(carver.take<uint64_t>(kRows * kPanelsPerTile));
    return s;
  }
};

// How far each row lies behind the one before it, at least `least`: nothing when they do not lie so, or one is missing.
std::optional<int64_t> stride_of(const float* const* rows, int count, int64_t least) noexcept {
  const auto at = [&](int r) { return reinterpret_cast<intptr_t>(rows[r]); };
  const intptr_t bytes = count > 1 ? at(1) - at(0) : static_cast<intptr_t>(sizeof(float)) * least;
  for (int r = 0; r < count; ++r)
    if (rows[r] == nullptr || at(r) != at(0) + r * bytes) return std::nullopt;
  constexpr intptr_t kBytes = sizeof(float);
  return bytes % kBytes == 0 && bytes / kBytes >= least ? std::optional<int64_t>(bytes / kBytes) : std::nullopt;
}

// A block of keys, its gradients and the rows that pass should stay in the second-level cache together. With few heads
// smaller blocks keep several threads busy. No result depends on it.
// (But the gradients of score terms are added up block by block: those blocks must not depend on the threads.)
enum class BlockSize { kFree, kFixed };
int panels_of_block(const CallSizes& sizes, const ThreadPool& pool, BlockSize size) {
  const int64_t widest = std::max(sizes.head_dim, sizes.value_dim);
  int panels = widest <= 128 ? 4 : widest <= 256 ? 2 : 1;
  const int64_t tiles = (sizes.kv_len + kernels::kTileKeys - 1) / kernels::kTileKeys;
  if (size == BlockSize::kFree && panels == 4 && pool.size() > 1 &&
      tiles * sizes.batch * sizes.num_kv_heads < 2 * kItemsPerThread * pool.size())
    panels = 2;
  return panels;
}

}  // namespace

class BackwardCall {
 public:
  BackwardCall(const BackwardTensors& tensors, const CallSizes& sizes, const CallRows& call_rows,
               const AttentionShape& shape, const MaskPlan& mask, const CallPositions& positions, ThreadPool& pool,
               const BackwardTermCall& terms)
      : tensors_(tensors),
        call_rows_(call_rows),
        shape_(shape),
        pool_(pool),
        kernel_(*kernels::kernels().attention_backward),
        panels_(panels_of_block(sizes, pool, terms.wanted == nullptr ? BlockSize::kFree : BlockSize::kFixed)),
        factor_(static_cast<float>(shape.scale * math::kLog2e)),
        keys_(keys_of(tensors, call_rows, positions, panels_)),
        rows_(tensors_, call_rows, shape, mask, positions, keys_),
        items_(list_items()),
        turns_(std::make_unique<Turn[]>(static_cast<size_t>(rows_.size()))) {
    if (terms.terms == nullptr) return;
    terms_.emplace(*terms.terms, *terms.options, *terms.wanted, call_rows, positions, keys_,
                   static_cast<float>(shape.scale), rows_.size());
    wants_sink_ = terms.wanted->sink.data != nullptr;
    wants_t5_ = terms.wanted->t5_table.data != nullptr;
    relative_ = terms_->relative();
    terms_->reserve(static_cast<int64_t>(items_.size()));
    item_turns_ = std::make_unique<Turn[]>(static_cast<size_t>(rows_.most_blocks()));
  }

  /// Tensors of the same shape as before.
  void point_to(const BackwardTensors& tensors) {
    tensors_ = tensors;
    if (terms_ && (wants_t5_ || relative_ != nullptr)) terms_->refill();
    for (int64_t b = 0; b < call_rows_.batch(); ++b) keys_[static_cast<size_t>(b)].set_rows(rows_of(tensors_, call_rows_, b));
  }

  void execute(const StopToken* stop) {
    stop_ = stop;
    abandoned_.store(false, std::memory_order_relaxed);
    for (int64_t i = 0; i < rows_.most_blocks() && item_turns_ != nullptr; ++i)
      item_turns_[static_cast<size_t>(i)].next.store(0, std::memory_order_relaxed);
    if (relative_ != nullptr) relative_->start();
    Carver measure(nullptr);
    carve(measure);
    workspace_.reserve(pool_.size(), measure.used());

    const auto prepare = [this](int64_t i, int) {
      rows_.prepare(i);
      turns_[static_cast<size_t>(i)].next.store(rows_.block(i).key_blocks.begin, std::memory_order_relaxed);
    };
    pool_.for_each(rows_.size(), prepare, stop_);
    std::atomic<size_t> next{0};
    // Taken in order by whoever is free, so that the items before the one at hand are done or being worked on.
    pool_.run([&](int thread) {
      for (size_t i; !abandoned() && (i = next.fetch_add(1, std::memory_order_relaxed)) < items_.size();)
        run_item(items_[i], thread);
    });
    if (abandoned()) fail(Code::kCancelled, "[attention] stopped on request");
    if (terms_) terms_->finish(rows_, tensors_.dlse);
  }

 private:
  static KvRows rows_of(const BackwardTensors& tensors, const CallRows& call_rows, int64_t b) {
    if (call_rows.kv_len(b) == 0) return {};
    return {.k = tensors.k.at(call_rows.entry(b), 0, call_rows.first_key(b)),
            .k_token_stride = tensors.k.strides[2],
            .k_head_stride = tensors.k.strides[1],
            .v = tensors.v.at(call_rows.entry(b), 0, call_rows.first_key(b)),
            .v_token_stride = tensors.v.strides[2],
            .v_head_stride = tensors.v.strides[1]};
  }

  static std::vector<BackwardKeys> keys_of(const BackwardTensors& tensors, const CallRows& call_rows,
                                           const CallPositions& positions, int panels) {
    std::vector<BackwardKeys> keys;
    for (int64_t b = 0; b < call_rows.batch(); ++b) {
      PackSource source;
      source.kv_len = call_rows.kv_len(b);
      source.k_begin = positions.k_begin(b);
      source.positions = positions.keys(b);
      source.rows = rows_of(tensors, call_rows, b);
      keys.emplace_back(source, b, panels);
    }
    return keys;
  }

  // Once a thread has seen the request all of them leave, those too that wait for a turn that will not come.
  bool abandoned() noexcept {
    if (stop_ != nullptr && stop_->stop_requested()) abandoned_.store(true, std::memory_order_relaxed);
    return abandoned_.load(std::memory_order_relaxed);
  }

  // The first blocks of all heads, then the second ones: neighbours in the list wait for nobody.
  std::vector<KeyItem> list_items() const {
    std::vector<KeyItem> items;
    size_t most = 0;
    for (const BackwardKeys& keys : keys_) most = std::max(most, keys.blocks().size());
    for (size_t block = 0; block < most; ++block)
      for (size_t b = 0; b < keys_.size(); ++b)
        for (int h = 0; h < shape_.num_kv_heads && block < keys_[b].blocks().size(); ++h)
          items.push_back(
              {static_cast<int64_t>(items.size()), static_cast<int64_t>(block), static_cast<int64_t>(b), h});
    return items;
  }

  Scratch carve(Carver& carver) const {
    return Scratch::carve(carver, panels_, shape_.head_dim, shape_.value_dim, terms_ ? &*terms_ : nullptr);
  }

  void run_item(const KeyItem& item, int thread) noexcept {
    Carver carver(workspace_.arena(thread));
    const Scratch scratch = carve(carver);
    const BackwardKeys& keys = keys_[static_cast<size_t>(item.batch)];
    const KeyBlock& block = keys.blocks()[static_cast<size_t>(item.block)];
    keys.pack(block, item.kv_head, shape_.head_dim, shape_.value_dim, scratch.keys);
    const int64_t count = int64_t{panels_} * kernels::kPanelKeys;
    std::fill_n(scratch.keys.dk, count * kernels::padded_dim(shape_.head_dim), 0.0f);
    std::fill_n(scratch.keys.dv, count * kernels::padded_dim(shape_.value_dim), 0.0f);
    BackwardStep at{
        .item = item.number, .batch = item.batch, .kv_head = item.kv_head, .keys = &block, .panels = panels_};
    if (terms_) terms_->begin(at, keys, scratch.terms);
    const Interval row_blocks = rows_.blocks_of(item.batch, item.kv_head);
    const bool in_turn = terms_ && terms_->turns() == BackwardTerms::Turns::kItems;
    const int64_t end = in_turn ? row_blocks.begin + rows_.most_blocks() : row_blocks.end;
    for (at.row_block = row_blocks.begin; at.row_block < end; ++at.row_block) {
      if (abandoned()) return;
      const bool any =
          at.row_block < row_blocks.end && rows_.wants(at.row_block, item.block) && step(item, keys, at, scratch);
      if (!in_turn) continue;
      // All items pass as many blocks of rows: the next one waits for its number.
      std::atomic<int64_t>& turn = item_turns_[static_cast<size_t>(at.row_block - row_blocks.begin)].next;
      if (!wait_for(turn, item.number)) return;
      if (any) terms_->add_in_turn(at, rows_, bias_gradients(scratch), scratch.terms);
      turn.store(item.number + 1, std::memory_order_release);
    }
    if (terms_) terms_->end(at, scratch.terms);
    if (relative_ != nullptr) {
      if (!wait_for(relative_->merged(), item.number)) return;
      relative_->merge(at, scratch.terms.relative);
    }
    finish_keys(item, keys, block, scratch.keys);
  }

  // One block of rows against one block of keys. False when nobody sees anything.
  bool step(const KeyItem& item, const BackwardKeys& keys, BackwardStep& at, const Scratch& scratch) noexcept {
    const int64_t i = at.row_block;
    const BackwardRowBlock& rows = rows_.block(i);
    const BlockSight sight = rows_.look(i, keys, *at.keys, panels_, scratch.seen);
    kernels::BackwardBlock block{};
    if (sight != BlockSight::kNothing) {
      at.seen = sight == BlockSight::kSome ? scratch.seen : nullptr;
      const Rows dout = load_rows(i, scratch);
      float* dq[kBlockRows];
      block = {.q = scratch.q,
               .dout = dout.data,
               .dout_stride = dout.stride,
               .rows = rows.rows,
               .panels = panels_,
               .head_dim = shape_.head_dim,
               .value_dim = shape_.value_dim,
               .softcap = static_cast<float>(shape_.softcap * math::kLog2e),
               .k = scratch.keys.k,
               .v = scratch.keys.v,
               .k_rows = scratch.keys.k_rows,
               .lse_high = rows_.lse_high(i),
               .lse_low = rows_.lse_low(i),
               .delta = rows_.delta(i),
               .seen = at.seen,
               .bias = terms_ ? terms_->lower(at, rows_, keys, scratch.terms) : nullptr,
               .keep = terms_ ? terms_->keep(at, rows_, scratch.terms) : nullptr,
               .keep_scale = terms_ ? terms_->keep_scale() : 1.0f,
               .dq = tensors_.dq.data == nullptr ? nullptr : rows_of_dq(rows, dq),
               .p = scratch.p,
               .ds = scratch.ds,
               .db = shape_.softcap == 0 ? nullptr : scratch.terms.db};
      kernel_.weights(block);
      if (tensors_.dk.data != nullptr || tensors_.dv.data != nullptr)
        kernel_.add_keys(block, tensors_.dk.data == nullptr ? nullptr : scratch.keys.dk,
                         tensors_.dv.data == nullptr ? nullptr : scratch.keys.dv);
      if (wants_sink_) rows_.note_sight(i, panels_, at.seen);
      if (terms_ && terms_->wants_pairs()) terms_->add(at, rows_, bias_gradients(scratch), scratch.terms);
    }
    take_turn(item, at, sight == BlockSight::kNothing ? nullptr : &block, scratch);
    return sight != BlockSight::kNothing;
  }

  float** rows_of_dq(const BackwardRowBlock& rows, float** dq) const noexcept {
    for (int r = 0; r < rows.rows; ++r) dq[r] = rows_.row_of(tensors_.dq, rows, r);
    return dq;
  }

  // Without a soft-cap the gradients of scores and biases are the same.
  const float* bias_gradients(const Scratch& scratch) const noexcept {
    return shape_.softcap == 0 ? scratch.ds : scratch.terms.db;
  }

  // What the blocks of keys add to a block of rows one after the other. Every block of the range takes its turn, also
  // one that found nothing: the next one waits for its number.
  void take_turn(const KeyItem& item, const BackwardStep& at, const kernels::BackwardBlock* block,
                 const Scratch& scratch) noexcept {
    const bool biases = terms_ && terms_->turns() == BackwardTerms::Turns::kKeyBlocks;
    if (tensors_.dq.data == nullptr && !biases) return;
    std::atomic<int64_t>& turn = turns_[static_cast<size_t>(at.row_block)].next;
    if (!wait_for(turn, item.block)) return;
    if (tensors_.dq.data != nullptr) {
      const BackwardRowBlock& rows = rows_.block(at.row_block);
      float* dq[kBlockRows];
      rows_of_dq(rows, dq);
      if (block != nullptr) kernel_.add_queries(*block, dq);
      if (block != nullptr && relative_ != nullptr)
        terms_->add_queries_in_turn(at, rows_, bias_gradients(scratch), scratch.terms);
      if (relative_ != nullptr && item.block + 1 == rows.key_blocks.end) relative_->close(rows_, at.row_block, dq);
      if (item.block + 1 == rows.key_blocks.end)
        kernel_.finish_rows(dq, rows.rows, shape_.head_dim, static_cast<float>(shape_.scale), dq);
    }
    if (biases && block != nullptr) terms_->add_in_turn(at, rows_, bias_gradients(scratch), scratch.terms);
    turn.store(item.block + 1, std::memory_order_release);
  }

  // False when the call was abandoned meanwhile.
  bool wait_for(const std::atomic<int64_t>& turn, int64_t number) noexcept {
    for (int spins = 0; turn.load(std::memory_order_acquire) != number; ++spins) {
      if (abandoned()) return false;
      if (spins < kSpins)
        pause();
      else
        std::this_thread::yield();
    }
    return true;
  }

  struct Rows {
    const float* data;
    int64_t stride;
  };

  // Scales and copies the queries. Gradients of outputs are read where they are when that is possible: whole vectors, each
  // row as far behind the other, and none that must not be read.
  Rows load_rows(int64_t i, const Scratch& scratch) const noexcept {
    const BackwardRowBlock& rows = rows_.block(i);
    const float* q[kBlockRows];
    const float* dout[kBlockRows];
    for (int r = 0; r < rows.rows; ++r) {
      const bool read = rows_.takes_part(i, r);
      q[r] = read ? rows_.row_of(tensors_.q, rows, r) : nullptr;
      dout[r] = read ? rows_.row_of(tensors_.dout, rows, r) : nullptr;
    }
    kernel_.load_rows(q, rows.rows, shape_.head_dim, factor_, scratch.q);
    if (relative_ != nullptr) relative_->load(rows_, i, tensors_.q, factor_, scratch.q, scratch.terms.relative);
    const int64_t padded = kernels::padded_dim(shape_.value_dim);
    if (const auto stride = stride_of(dout, rows.rows, padded); padded == shape_.value_dim && stride) return {dout[0], *stride};
    kernel_.load_rows(dout, rows.rows, shape_.value_dim, 1.0f, scratch.dout);
    return {scratch.dout, padded};
  }

  void finish_keys(const KeyItem& item, const BackwardKeys& keys, const KeyBlock& block,
                   const KeyScratch& scratch) const noexcept {
    for (int i = 0; i < block.count; ++i) {
      const int64_t slot = call_rows_.first_key(item.batch) + keys.slot(block.first + i),
                    at = keys.position(block.first + i) - block.base, entry = call_rows_.entry(item.batch);
      if (tensors_.dk.data != nullptr)
        finish_key(scratch.dk, at, shape_.head_dim, static_cast<float>(math::kLn2),
                   tensors_.dk.at(entry, item.kv_head, slot));
      if (tensors_.dv.data != nullptr)
        finish_key(scratch.dv, at, shape_.value_dim, terms_ ? terms_->keep_scale() : 1.0f,
                   tensors_.dv.at(entry, item.kv_head, slot));
    }
  }
  void finish_key(const float* sums, int64_t at, int dim, float factor, float* to) const noexcept {
    const float* from = sums + at * kernels::padded_dim(dim);
    kernel_.finish_rows(&from, 1, dim, factor, &to);
  }

  BackwardTensors tensors_;
  const CallRows& call_rows_;
  const AttentionShape& shape_;
  ThreadPool& pool_;
  const StopToken* stop_ = nullptr;
  const kernels::AttentionBackwardKernels& kernel_;
  int panels_;
  float factor_;
  std::vector<BackwardKeys> keys_;
  BackwardRows rows_;
  std::vector<KeyItem> items_;
  std::unique_ptr<Turn[]> turns_, item_turns_;
  std::optional<BackwardTerms> terms_;
  BackwardRelative* relative_ = nullptr;  // of terms_
  bool wants_sink_ = false, wants_t5_ = false;
  Workspace workspace_;
  std::atomic<bool> abandoned_{false};
};

namespace {

// 0 for the keys [begin, end) of all heads: slots that belong to no block.
void clear_keys(const BackwardTensors& tensors, int64_t entry, int64_t begin, int64_t end) noexcept {
  for (const TensorView<float>* gradient : {&tensors.dk, &tensors.dv})
    for (int64_t j = begin; j < end && gradient->data != nullptr; ++j)
      for (int64_t h = 0; h < gradient->shape[1]; ++h) std::fill_n(gradient->at(entry, h, j), gradient->shape[3], 0.0f);
}

}  // namespace

void backward_tensors(const BackwardTensors& tensors, const CallSizes& sizes, const CallRows& rows,
                      const AttentionShape& shape, const MaskPlan& mask, const CallPositions& positions,
                      ThreadPool& pool, const StopToken* stop, const BackwardTermCall& terms) {
  for (int64_t b = 0; b < rows.batch(); ++b)
    for (int64_t j = 0; j < rows.kv_len(b) && positions.keys(b) != nullptr; ++j)
      if (positions.keys(b)[j] < 0)
        clear_keys(tensors, rows.entry(b), rows.first_key(b) + j, rows.first_key(b) + j + 1);
  if (rows.packed()) {  // what lies behind the last sequence
    clear_keys(tensors, 0, rows.first_key(rows.batch()), sizes.kv_len);
    for (int64_t i = sizes.q_len - rows.slack(); i < sizes.q_len && tensors.dq.data != nullptr; ++i)
      for (int64_t h = 0; h < sizes.num_q_heads; ++h) std::fill_n(tensors.dq.at(0, h, i), sizes.head_dim, 0.0f);
  }
  BackwardCall(tensors, sizes, rows, shape, mask, positions, pool, terms).execute(stop);
}

BackwardPlan::BackwardPlan(const BackwardTensors& tensors, const CallSizes& sizes, const CallRows& rows,
                           const AttentionShape& shape, const MaskPlan& mask, const CallPositions& positions,
                           ThreadPool& pool, const BackwardTermCall& terms)
    : call_(std::make_unique<BackwardCall>(tensors, sizes, rows, shape, mask, positions, pool, terms)) {}
BackwardPlan::~BackwardPlan() = default;
BackwardPlan::BackwardPlan(BackwardPlan&&) noexcept = default;

void BackwardPlan::run(const BackwardTensors& tensors, const StopToken* stop) {
  call_->point_to(tensors);
  call_->execute(stop);
}

}  // namespace regard
