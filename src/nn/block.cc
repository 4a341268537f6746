#include "nn/block.h"

#include <cstring>

#include "base/check.h"
#include "kernels/registry.h"
#include "nn/rows.h"

namespace regard::nn {

Block::Block(NormPlacement placement, BlockNorms norms, AttentionLayer attention, FeedForward feed_forward)
    : placement_(placement), norms_(std::move(norms)), attention_(std::move(attention)), feed_forward_(std::move(feed_forward)) {
  const int64_t hidden = attention_.config().hidden_size;
  const auto fits = [&](const Norm& norm, const char* name) {
    require(norm.config().size == hidden, "[Block] the {} norm has {} elements, the residual stream {}", name, norm.config().size, hidden);
  };
  fits(norms_.attention, "attention");
  if (!feed_forward_.empty()) fits(norms_.feed_forward, "feed-forward");
  if (placement == NormPlacement::kSandwich) {
    fits(norms_.attention_branch, "attention branch");
    if (!feed_forward_.empty()) fits(norms_.feed_forward_branch, "feed-forward branch");
  }
}

void Block::forward(const Pass& pass, const RopeAngles& angles, std::span<const SequenceRows> sequences, float* x) const {
  const int64_t rows = pass.rows, hidden = attention_.config().hidden_size;
  const kernels::ElementwiseKernels& k = *kernels::kernels().elementwise;
  float* normed = pass.scratch.get(Scratch::kNormed, rows * hidden);
  float* branch = pass.scratch.get(Scratch::kBranch, rows * hidden);

  const bool post = placement_ == NormPlacement::kPost;
  if (!post) norms_.attention.forward(pass.pool, x, rows, normed);
  attention_.forward(pass, post ? x : normed, angles, sequences, branch);
  for_each_row(pass.pool, rows, 3 * hidden, [&](int64_t r) {
    float *xr = x + r * hidden, *br = branch + r * hidden;
    if (placement_ == NormPlacement::kSandwich) norms_.attention_branch.row(br, br);
    k.add(br, hidden, xr);
    if (post)
      norms_.attention.row(xr, xr);
    else if (!feed_forward_.empty())
      norms_.feed_forward.row(xr, normed + r * hidden);
  });
  if (feed_forward_.empty()) return;
  feed_forward_.forward(pass, post ? x : normed, branch);
  for_each_row(pass.pool, rows, 2 * hidden, [&](int64_t r) {
    float *xr = x + r * hidden, *br = branch + r * hidden;
    if (placement_ == NormPlacement::kSandwich) norms_.feed_forward_branch.row(br, br);
    k.add(br, hidden, xr);
    if (post) norms_.feed_forward.row(xr, xr);
  });
}

}  // namespace regard::nn
