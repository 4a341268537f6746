#include "generate/logprobs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/math.h"
#include "kernels/registry.h"

namespace regard {

double log_sum_exp(std::span<const float> logits) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  float top = -kInf;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] < kInf)) fail(Code::kNumeric, "[log_sum_exp] the logit of id {} is {}", i, logits[i]);
    top = std::max(top, logits[i]);
  }
  if (top == -kInf) fail(Code::kNumeric, "[log_sum_exp] all {} logits are -infinity", logits.size());
  std::array<float, 1024> block;
  double sum = 0;
  for (size_t begin = 0; begin < logits.size(); begin += block.size()) {
    const size_t n = std::min(block.size(), logits.size() - begin);
    for (size_t i = 0; i < n; ++i) block[i] = logits[begin + i] - top;
    kernels::kernels().elementwise->exp(block.data(), static_cast<int64_t>(n), block.data());
    for (size_t i = 0; i < n; ++i) sum += static_cast<double>(block[i]);
  }
  return static_cast<double>(top) + math::log(sum);
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, double log_sum, int64_t n) {
  std::vector<int32_t> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const auto count = std::min(static_cast<size_t>(std::max<int64_t>(n, 0)), ids.size());
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(), likelier);
  std::vector<TokenLogprob> top;
  for (size_t i = 0; i < count; ++i)
    top.push_back({ids[i], static_cast<float>(static_cast<double>(logits[static_cast<size_t>(ids[i])]) - log_sum)});
  return top;
}

}  // namespace regard
