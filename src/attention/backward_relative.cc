#include "attention/backward_relative.h"

#include <algorithm>
#include <bit>

#include "attention/backward_terms.h"
#include "base/check.h"

namespace regard {

using kernels::kMaxBlockRows;
using kernels::kPanelKeys;
using kernels::kPanelsPerTile;
using kernels::kTileKeys;
using kernels::kWeightStride;

namespace {

template <class T>
AlignedBuffer<T> zeros(int64_t count) {
  AlignedBuffer<T> buffer(static_cast<size_t>(count));
  std::fill_n(buffer.data(), count, T{0});
  return buffer;
}

}  // namespace

BackwardRelative::BackwardRelative(const TransformerXl& xl, const ScoreTermGradients& wanted, const CallRows& call_rows,
                                   float scale, int64_t row_blocks)
    : xl_(xl),
      wanted_(wanted),
      sizes_(call_rows.widest()),
      group_(static_cast<int>(sizes_.num_q_heads / sizes_.num_kv_heads)),
      head_dim_(static_cast<int>(sizes_.head_dim)),
      padded_(kernels::padded_dim(head_dim_)),
      scale_(scale),
      term_(&xl, static_cast<int>(sizes_.num_q_heads), head_dim_),
      table_(term_.place_all()),
      tiles_((xl.r.shape[0] + kTileKeys - 1) / kTileKeys),
      r_(zeros<float>(sizes_.num_q_heads * tiles_ * kTileKeys * padded_)),
      dq_(zeros<float>(row_blocks * kMaxBlockRows * padded_)),
      sums_(zeros<double>(row_blocks * 2 * group_ * head_dim_)) {
  const int64_t count = xl.r.shape[0];
  for (int h = 0; h < sizes_.num_q_heads; ++h)
    for (int64_t row = 0; row < count; ++row)
      for (int64_t x = 0; x < head_dim_; ++x)
        r_[static_cast<size_t>(vectors(h, 0) + (count - 1 - row) * padded_ + x)] = *xl.r.at(row, h, x);
  if (wanted.xl_r.data != nullptr) dr_ = zeros<float>(sizes_.num_q_heads * tiles_ * kTileKeys * padded_);
}

BackwardRelativeScratch BackwardRelative::carve(Carver& carver) const {
  BackwardRelativeScratch s;
  s.position = carver.take<float>(static_cast<size_t>(kMaxBlockRows * padded_));
  s.row = carver.take<float>(kTileKeys);
  s.window = carver.take<float>(kTileKeys);
  if (!dr_.empty()) s.dr = carver.take<float>(static_cast<size_t>(group_ * tiles_ * kTileKeys * padded_));
  return s;
}

void BackwardRelative::load(const BackwardRows& rows, int64_t i, const TensorView<const float>& queries, float factor,
                            float* q, const BackwardRelativeScratch& scratch) const noexcept {
  const BackwardRowBlock& block = rows.block(i);
  for (int r = 0; r < block.rows; ++r) {
    float *content = q + int64_t{r} * padded_, *position = scratch.position + int64_t{r} * padded_;
    std::fill_n(position, padded_, 0.0f);
    if (!rows.takes_part(i, r)) continue;
    const float* row = rows.row_of(queries, block, r);
    const float *u = term_.content_bias(rows.head(block, r)), *v = term_.position_bias(rows.head(block, r));
    for (int x = 0; x < head_dim_; ++x) {
      if (u != nullptr) content[x] = (row[x] + u[x]) * factor;
      position[x] = (v == nullptr ? row[x] : row[x] + v[x]) * scale_;
    }
  }
}

template <class F>
void BackwardRelative::for_each_seen(const BackwardStep& step, int r, F f) {
  for (int w = 0; w < step.panels; ++w)
    for (uint64_t left = step.seen == nullptr ? ~uint64_t{0} : step.seen[r][w]; left != 0; left &= left - 1)
      f(kPanelKeys * w + std::countr_zero(left));
}

const float* BackwardRelative::term(const BackwardStep& step, int head, int r, const int64_t* encoding, int64_t query,
                                    const BackwardRelativeScratch& scratch) const noexcept {
  const float* panels = term_.panels(table_, head);
  float products[kPanelKeys];
  int64_t have = -1;
  for_each_seen(step, r, [&](int j) {
    const int64_t column = term_.column(encoding[j] - query);
    if (column < 0) {
      missing_.store(true, std::memory_order_relaxed);
      return;
    }
    if (column / kPanelKeys != have) {
      have = column / kPanelKeys;
      kernels::kernels().attention->dots(scratch.position + int64_t{r} * padded_, 0, 1, head_dim_, panels,
                                         have * kPanelKeys, kPanelKeys, products, 0);
    }
    scratch.row[j] = products[column % kPanelKeys];
  });
  return scratch.row;
}

void BackwardRelative::begin(const BackwardRelativeScratch& scratch) const noexcept {
  if (scratch.dr != nullptr) std::fill_n(scratch.dr, group_ * tiles_ * kTileKeys * padded_, 0.0f);
}

template <class F>
void BackwardRelative::for_each_window(const BackwardStep& step, int r, const int64_t* encoding, int64_t query,
                                       const float* db, const BackwardRelativeScratch& scratch, F f) const noexcept {
  int64_t tile = -1;
  uint64_t words[1][kPanelsPerTile] = {};
  for_each_seen(step, r, [&](int j) {
    const int64_t column = term_.column(encoding[j] - query);
    if (column < 0) return;
    if (column / kTileKeys != tile) {
      if (tile >= 0) f(tile, words);
      tile = column / kTileKeys;
      std::fill_n(words[0], kPanelsPerTile, uint64_t{0});
    }
    const int64_t at = column % kTileKeys;
    uint64_t& word = words[0][at / 64];
    const uint64_t bit = uint64_t{1} << (at % 64);
    const float x = db[int64_t{r} * kWeightStride + j];
    scratch.window[at] = (word & bit) != 0 ? scratch.window[at] + x : x;
    word |= bit;
  });
  if (tile >= 0) f(tile, words);
}

void BackwardRelative::add(const BackwardStep& step, int head, int r, const int64_t* encoding, int64_t query,
                           const float* db, const BackwardRelativeScratch& scratch) const noexcept {
  if (scratch.dr == nullptr) return;
  const int in_group = head % group_;
  for_each_window(step, r, encoding, query, db, scratch, [&](int64_t tile, const uint64_t(*words)[kPanelsPerTile]) {
    kernels::BackwardBlock block{};
    block.q = scratch.position + int64_t{r} * padded_;
    block.rows = 1;
    block.panels = kPanelsPerTile;
    block.head_dim = head_dim_;
    block.seen = words;
    block.ds = scratch.window;
    kernels::kernels().attention_backward->add_keys(block, scratch.dr + vectors(in_group, tile), nullptr);
  });
}

void BackwardRelative::add_in_turn(const BackwardStep& step, int head, int r, const int64_t* encoding, int64_t query,
                                   const float* db, const BackwardRelativeScratch& scratch) const noexcept {
  float* dq = const_cast<float*>(dq_.data()) + (step.row_block * kMaxBlockRows + r) * padded_;
  for_each_window(step, r, encoding, query, db, scratch, [&](int64_t tile, const uint64_t(*words)[kPanelsPerTile]) {
    kernels::BackwardBlock block{};
    block.rows = 1;
    block.panels = kPanelsPerTile;
    block.head_dim = head_dim_;
    block.k_rows = r_.data() + vectors(head, tile);
    block.seen = words;
    block.ds = scratch.window;
    kernels::kernels().attention_backward->add_queries(block, &dq);
  });
}

void BackwardRelative::close(const BackwardRows& rows, int64_t i, float* const* dq) noexcept {
  const BackwardRowBlock& block = rows.block(i);
  for (int r = 0; r < block.rows; ++r) {
    const float* relative = dq_.data() + (i * kMaxBlockRows + r) * padded_;
    double* u = sums_.data() + ((i * 2) * group_ + rows.head(block, r) % group_) * head_dim_;
    double* v = u + int64_t{group_} * head_dim_;
    for (int x = 0; x < head_dim_; ++x) {
      u[x] += static_cast<double>(dq[r][x]);
      v[x] += static_cast<double>(relative[x]);
      dq[r][x] += relative[x];
    }
  }
}

void BackwardRelative::merge(const BackwardStep& step, const BackwardRelativeScratch& scratch) noexcept {
  if (scratch.dr != nullptr) {
    float* to = dr_.data() + vectors(step.kv_head * group_, 0);
    for (int64_t x = 0; x < group_ * tiles_ * kTileKeys * padded_; ++x) to[x] += scratch.dr[x];
  }
  merged_.store(step.item + 1, std::memory_order_release);
}

void BackwardRelative::finish(const BackwardRows& rows) const {
  require(
      !missing_.load(std::memory_order_relaxed),
      "[attend_backward] xl.r has no vector for the distance from a key to a query that sees it: give the distances "
      "that the mask allows, or a clamp");
  for (const auto& [gradient, role] : {std::pair{&wanted_.xl_u, 0}, std::pair{&wanted_.xl_v, 1}}) {
    if (gradient->data == nullptr) continue;
    for (int64_t h = 0; h < sizes_.num_q_heads; ++h)
      for (int64_t x = 0; x < head_dim_; ++x) {
        double sum = 0;
        for (int64_t i = 0; i < rows.size(); ++i)
          if (rows.block(i).kv_head == h / group_)
            sum += sums_[static_cast<size_t>(((i * 2 + role) * group_ + h % group_) * head_dim_ + x)];
        *gradient->at(h, x) = static_cast<float>(sum * static_cast<double>(scale_));
      }
  }
  if (wanted_.xl_r.data == nullptr) return;
  const int64_t count = xl_.r.shape[0];
  for (int64_t row = 0; row < count; ++row)
    for (int h = 0; h < sizes_.num_q_heads; ++h)
      for (int64_t x = 0; x < head_dim_; ++x)
        *wanted_.xl_r.at(row, h, x) = dr_[static_cast<size_t>(vectors(h, 0) + (count - 1 - row) * padded_ + x)] + 0.0f;
}

}  // namespace regard
