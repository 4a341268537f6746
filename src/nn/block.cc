#include "nn/block.h"

#include <cstring>

#include "base/check.h"
#include "kernels/registry.h"
#include "nn/rows.h"

namespace regard::nn {

Block::Block(NormPlacement placement, BlockNorms norms, AttentionLayer attention, FeedForward feed_forward, std::optional<CrossBranch> cross)
    : placement_(placement), norms_(std::move(norms)), attention_(std::move(attention)), feed_forward_(std::move(feed_forward)), cross_(std::move(cross)) {
  const int64_t hidden = attention_.config().hidden_size;
  const auto fits = [&](const Norm& norm, const char* name) {
    require(norm.config().size == hidden, "[Block] the {} norm has {} elements, the residual stream {}", name, norm.config().size, hidden);
  };
  fits(norms_.attention, "attention");
  if (!feed_forward_.empty()) fits(norms_.feed_forward, "feed-forward");
  if (cross_) {
    require(placement != NormPlacement::kSandwich, "[Block] cross-attention with norms on both sides; expected pre or post");
    fits(cross_->norm, "cross-attention");
  }
  if (placement == NormPlacement::kSandwich) {
    fits(norms_.attention_branch, "attention branch");
    if (!feed_forward_.empty()) fits(norms_.feed_forward_branch, "feed-forward branch");
  }
}

void Block::join(const Pass& pass, const Norm& own, const Norm& on_branch, const Norm* next, float* branch, float* x, float* normed) const {
  const int64_t hidden = attention_.config().hidden_size;
  const kernels::ElementwiseKernels& k = *kernels::kernels().elementwise;
  for_each_row(pass.pool, pass.rows, 3 * hidden, [&](int64_t r) {
    float *xr = x + r * hidden, *br = branch + r * hidden;
    if (placement_ == NormPlacement::kSandwich) on_branch.row(br, br);
    k.add(br, hidden, xr);
    if (placement_ == NormPlacement::kPost)
      own.row(xr, xr);
    else if (next != nullptr)
      next->row(xr, normed + r * hidden);
  });
}

void Block::forward(const Pass& pass, const RopeAngles& angles, std::span<const SequenceRows> sequences, float* x) const {
  const int64_t rows = pass.rows, hidden = attention_.config().hidden_size;
  float* normed = pass.scratch.get(Scratch::kNormed, rows * hidden);
  float* branch = pass.scratch.get(Scratch::kBranch, rows * hidden);
  const bool post = placement_ == NormPlacement::kPost;
  const float* input = post ? x : normed;
  const Norm* before_feed_forward = feed_forward_.empty() ? nullptr : &norms_.feed_forward;

  if (!post) norms_.attention.forward(pass.pool, x, rows, normed);
  attention_.forward(pass, input, angles, sequences, branch);
  join(pass, norms_.attention, norms_.attention_branch, cross_ ? &cross_->norm : before_feed_forward, branch, x, normed);
  if (cross_) {
    cross_->attention.forward(pass, input, sequences, branch);
    join(pass, cross_->norm, {}, before_feed_forward, branch, x, normed);
  }
  if (feed_forward_.empty()) return;
  feed_forward_.forward(pass, input, branch);
  join(pass, norms_.feed_forward, norms_.feed_forward_branch, nullptr, branch, x, normed);
}

}  // namespace regard::nn
