// Weights of whole texts, averaged.
#include <algorithm>

#include "base/check.h"
#include "regard/model_attention.h"

namespace regard {
namespace {

constexpr int64_t kRows = 64;  // whose weights are held at once, by head

}  // namespace

std::vector<float> look(const Model& model, std::span<const int32_t> tokens, const LookOptions& options) {
  const int64_t layers = model.info().num_layers, heads = model.info().num_q_heads;
  require(options.layer >= -1 && options.layer < layers, "[look] layer {}; expected 0 to {}, or -1 for all", options.layer, layers - 1);
  require(options.head >= -1 && options.head < heads, "[look] head {}; expected 0 to {}, or -1 for all", options.head, heads - 1);
  const auto n = static_cast<int64_t>(tokens.size());
  std::vector<double> sums(static_cast<size_t>(n * n));
  int64_t terms = 0;  // what each pair is a sum of
  std::vector<float> weights;
  const auto add = [&](const LayerAttention& seen) {
    if (options.layer >= 0 && seen.layer != options.layer) return;
    const int64_t rows = seen.q.shape[2], keys = seen.k.shape[2], first = seen.options.q_begin.front();
    if (first == 0) terms += options.head >= 0 ? 1 : heads;
    for (int64_t begin = 0; begin < rows; begin += kRows) {
      const int64_t count = std::min(kRows, rows - begin);
      weights.resize(static_cast<size_t>(heads * count * keys));
      attention_weights(seen.q, seen.k, seen.lse, seen.mask, seen.options, {begin, begin + count}, {0, keys}, {weights.data(), {1, heads, count, keys}});
      for (int64_t h = 0; h < heads; ++h) {
        if (options.head >= 0 && h != options.head) continue;
        for (int64_t i = 0; i < count; ++i)
          for (int64_t j = 0; j < keys; ++j)
            sums[static_cast<size_t>((first + begin + i) * n + j)] += static_cast<double>(weights[static_cast<size_t>((h * count + i) * keys + j)]);
      }
    }
  };
  Sequence sequence(model);
  ForwardOptions forward;
  forward.output = Output::kHidden;
  forward.stop = options.stop;
  watch_forward(model, {&sequence, tokens, Feed::Rows::kNone}, forward, add, nullptr);
  std::vector<float> mean(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) mean[i] = static_cast<float>(sums[i] / static_cast<double>(terms));
  return mean;
}

}  // namespace regard
