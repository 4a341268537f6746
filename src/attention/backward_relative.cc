#include "attention/backward_relative.h"

#include <algorithm>

#include "attention/backward_terms.h"
#include "base/check.h"

namespace regard {

using kernels::kBlockRows;
using kernels::kPanelsPerTile;
using kernels::kTileKeys;

namespace {

constexpr int64_t kFar = int64_t{1} << 60;  // no clamp

template <class T>
AlignedBuffer<T> room(int64_t count) {
  return AlignedBuffer<T>(static_cast<size_t>(count));
}
template <class T>
void clear(AlignedBuffer<T>& buffer) {
  std::fill_n(buffer.data(), buffer.size(), T{0});
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
      count_(xl.r.shape[0]),
      columns_(count_ + kTileKeys),
      low_(xl.clamp > 0 ? count_ - 1 + xl.first_distance - xl.clamp : -kFar),
      high_(xl.clamp > 0 ? count_ - 1 + xl.first_distance + xl.clamp : kFar),
      r_(room<float>(sizes_.num_q_heads * columns_ * padded_)),
      dq_(room<float>(row_blocks * kBlockRows * padded_)),
      sums_(room<double>(row_blocks * 2 * group_ * head_dim_)) {
  clear(r_);
  fill_vectors();
  if (wanted.xl_r.data != nullptr) dr_ = room<float>(sizes_.num_q_heads * columns_ * padded_);
}

void BackwardRelative::fill_vectors() {
  for (int h = 0; h < sizes_.num_q_heads; ++h)
    for (int64_t row = 0; row < count_; ++row)
      for (int64_t x = 0; x < head_dim_; ++x)
        r_[static_cast<size_t>(vectors(h, count_ - 1 - row) + x)] = *xl_.r.at(row, h, x);
}

void BackwardRelative::refill() {
  term_.set(xl_);
  fill_vectors();
}

void BackwardRelative::start() {
  clear(dq_);
  clear(dr_);
  clear(sums_);
  merged_.store(0, std::memory_order_relaxed);
  missing_.store(false, std::memory_order_relaxed);
}

BackwardRelativeScratch BackwardRelative::carve(Carver& carver) const {
  constexpr size_t kRows = kBlockRows;
  BackwardRelativeScratch s;
  s.item = carver.take<RelativeItem>(1);
  s.query = carver.take<int64_t>(kRows);
  s.place = carver.take<int>(kRows);
  s.position = carver.take<float>(kRows * static_cast<size_t>(padded_));
  s.origin = carver.take<int64_t>(kRows);
  s.tile = carver.take<float>(kRows * std::max(BackwardRelativeScratch::kRowFloats, kernels::kWeightStride));
  s.seen = reinterpret_cast<uint64_t(*)[kPanelsPerTile]>(carver.take<uint64_t>(kRows * kPanelsPerTile));
  if (!dr_.empty()) s.dr = carver.take<float>(static_cast<size_t>(group_ * columns_ * padded_));
  return s;
}

void BackwardRelative::load(const BackwardRows& rows, int64_t i, const TensorView<const float>& queries, float factor,
                            float* q, const BackwardRelativeScratch& scratch) const noexcept {
  const BackwardRowBlock& block = rows.block(i);
  for_each_head(block, [&](const HeadRows& head) {
    const float *u = term_.content_bias(head.head), *v = term_.position_bias(head.head);
    for (int n = 0; n < head.count; ++n) {
      const int r = head.first + n * group_;
      scratch.place[r] = head.at + n;
      float *content = q + int64_t{r} * padded_, *position = scratch.position + int64_t{scratch.place[r]} * padded_;
      std::fill_n(position, padded_, 0.0f);
      if (!rows.takes_part(i, r)) continue;
      const float* row = rows.row_of(queries, block, r);
      for (int x = 0; x < head_dim_; ++x) {
        if (u != nullptr) content[x] = (row[x] + u[x]) * factor;
        position[x] = (v == nullptr ? row[x] : row[x] + v[x]) * scale_;
      }
    }
  });
}

void BackwardRelative::begin(int count, const int64_t* slot, const int64_t* encoding,
                             const BackwardRelativeScratch& scratch) const noexcept {
  *scratch.item = {};
  int first = 0;
  while (first + 1 < count && slot[first] < 0) ++first;
  scratch.item->first_encoding = encoding[first] - first;
  scratch.item->straight = true;
  for (int j = first; j < count; ++j)
    if (slot[j] >= 0 && encoding[j] - j != scratch.item->first_encoding) scratch.item->straight = false;
}

// Columns are zeroed when they are first used, and what lies between those that are: rows pass in order, so that is
// little.
void BackwardRelative::use(Interval columns, const BackwardRelativeScratch& scratch) const noexcept {
  Interval& used = scratch.item->used;
  const auto clear = [&](int64_t begin, int64_t end) {
    for (int g = 0; g < group_ && begin < end; ++g)
      std::fill_n(scratch.dr + vectors(g, begin), (end - begin) * padded_, 0.0f);
  };
  if (used.empty()) {
    clear(columns.begin, columns.end);
    used = columns;
    return;
  }
  clear(columns.begin, used.begin);
  clear(used.end, columns.end);
  used = {std::min(used.begin, columns.begin), std::max(used.end, columns.end)};
}

void BackwardRelative::close(const BackwardRows& rows, int64_t i, float* const* dq) noexcept {
  const BackwardRowBlock& block = rows.block(i);
  for (int r = 0; r < block.rows; ++r) {
    const float* relative = relative_dq(i, r);
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
    const Interval used = scratch.item->used;
    for (int g = 0; g < group_; ++g) {
      const float* from = scratch.dr + vectors(g, used.begin);
      float* to = dr_.data() + vectors(step.kv_head * group_ + g, used.begin);
      for (int64_t x = 0; x < (used.end - used.begin) * padded_; ++x) to[x] += from[x];
    }
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
  for (int64_t row = 0; row < count_; ++row)
    for (int h = 0; h < sizes_.num_q_heads; ++h)
      for (int64_t x = 0; x < head_dim_; ++x)
        *wanted_.xl_r.at(row, h, x) = dr_[static_cast<size_t>(vectors(h, count_ - 1 - row) + x)] + 0.0f;
}

}  // namespace regard
