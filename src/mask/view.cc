// Counts, rows and columns of a mask over given lengths. A row or column is found by halving: a part that is classified
// as empty or full is done, and only what stays undecided is looked at bit by bit.
#include "mask/view.h"

#include <utility>

#include "base/check.h"
#include "base/checked.h"

namespace regard {
namespace {

void append(std::vector<Interval>& runs, Interval run) {
  if (!runs.empty() && runs.back().end == run.begin) {
    runs.back().end = run.end;
  } else {
    runs.push_back(run);
  }
}

// Calls `classify` on halves of `part`, and `look` on what is undecided and at most 64 long.
template <class Classify, class Look>
void halve(Interval part, std::vector<Interval>& runs, const Classify& classify, const Look& look) {
  if (part.empty()) return;
  const TileClass kind = classify(part);
  if (kind == TileClass::kEmpty) return;
  if (kind == TileClass::kFull) return append(runs, part);
  if (part.end - part.begin <= 64) return look(part);
  const int64_t middle = part.begin + (part.end - part.begin) / 2;
  halve({part.begin, middle}, runs, classify, look);
  halve({middle, part.end}, runs, classify, look);
}

Interval placed(std::string_view what, int64_t begin, int64_t length) {
  require(length >= 0, "[MaskView] {} {} given; expected 0 or more", what, length);
  const auto end = checked_add(begin, length);
  require(end.has_value(), "[MaskView] {} {} from position {} on; positions end at 2^63 - 1", what, length, begin);
  return {begin, *end};
}

}  // namespace

void MaskView::Impl::require_row(std::string_view function, int64_t batch, int64_t head) const {
  require(batch >= 0 && batch < extent.batch && head >= 0 && head < extent.num_q_heads,
          "[{}] batch row {} and head {} asked; there are {} and {}", function, batch, head, extent.batch,
          extent.num_q_heads);
}

MaskView::MaskView(Mask mask, MaskExtent extent) {
  const Placement placement = resolve_placement(mask, extent.placement, extent.q_len, extent.kv_len);
  const Interval queries = placed("q_len", placement.q_begin, extent.q_len),
                 keys = placed("kv_len", placement.k_begin, extent.kv_len);
  MaskPlan plan(mask, extent.limits, extent.batch, extent.num_q_heads);
  for (int64_t b = 0; b < (plan.depends_on_batch() ? extent.batch : std::min<int64_t>(extent.batch, 1)); ++b)
    plan.check_queries(b, queries);
  impl_ = std::make_shared<const Impl>(Impl{std::move(mask), std::move(extent), std::move(plan), queries, keys});
}

const Mask& MaskView::mask() const noexcept { return impl_->mask; }
const MaskExtent& MaskView::extent() const noexcept { return impl_->extent; }
Interval MaskView::queries() const noexcept { return impl_->queries; }
Interval MaskView::keys() const noexcept { return impl_->keys; }

int64_t MaskView::count(const StopToken* stop) const { return impl_->plan.count_total(impl_->queries, impl_->keys, stop); }

int64_t MaskView::count_row(int64_t batch, int64_t head, int64_t q) const {
  impl_->require_row("MaskView::count_row", batch, head);
  require(impl_->queries.begin <= q && q < impl_->queries.end,
          "[MaskView::count_row] query position {} asked; expected {} to {}", q, impl_->queries.begin,
          impl_->queries.end - 1);
  return impl_->plan.count_row(batch, head, q, impl_->keys);
}

std::vector<Interval> MaskView::row(int64_t batch, int64_t head, int64_t q) const {
  impl_->require_row("MaskView::row", batch, head);
  require(impl_->queries.begin <= q && q < impl_->queries.end,
          "[MaskView::row] query position {} asked; expected {} to {}", q, impl_->queries.begin,
          impl_->queries.end - 1);
  const MaskPlan& plan = impl_->plan;
  std::vector<Interval> runs;
  halve(
      impl_->keys, runs, [&](Interval keys) { return plan.classify(batch, head, {q, q + 1}, keys); },
      [&](Interval keys) {
        uint64_t words[2];  // 64 keys lie in at most two words
        const int64_t first = keys.begin / 64 * 64;
        plan.fill_words(batch, head, q, first, keys.end - first > 64 ? 2 : 1, words);
        for (int64_t k = keys.begin; k < keys.end; ++k)
          if ((words[(k - first) / 64] >> ((k - first) % 64) & 1) != 0) append(runs, {k, k + 1});
      });
  return runs;
}

std::vector<Interval> MaskView::column(int64_t batch, int64_t head, int64_t k, const StopToken* stop) const {
  impl_->require_row("MaskView::column", batch, head);
  require(impl_->keys.begin <= k && k < impl_->keys.end, "[MaskView::column] key position {} asked; expected {} to {}",
          k, impl_->keys.begin, impl_->keys.end - 1);
  const MaskPlan& plan = impl_->plan;
  std::vector<Interval> runs;
  halve(
      impl_->queries, runs, [&](Interval queries) { return plan.classify(batch, head, queries, {k, k + 1}); },
      [&](Interval queries) {
        if (stop != nullptr && stop->stop_requested()) fail(Code::kCancelled, "[MaskView::column] stopped on request");
        for (int64_t q = queries.begin; q < queries.end; ++q) {
          uint64_t word = 0;
          plan.fill_words(batch, head, q, k / 64 * 64, 1, &word);
          if ((word >> (k % 64) & 1) != 0) append(runs, {q, q + 1});
        }
      });
  return runs;
}

}  // namespace regard
