#include "nn/norm.h"

#include <cmath>

#include "base/check.h"
#include "kernels/registry.h"
#include "nn/rows.h"

namespace regard::nn {

Norm::Norm(const NormConfig& config, AlignedBuffer<float> weight, AlignedBuffer<float> bias)
    : config_(config), weight_(std::move(weight)), bias_(std::move(bias)) {
  const auto size = static_cast<size_t>(config.size);
  require(config.size > 0, "[Norm] rows of {} elements; expected at least 1", config.size);
  require(std::isfinite(config.eps) && config.eps >= 0, "[Norm] eps is {}; expected a finite number, 0 or more", config.eps);
  require(weight_.empty() || weight_.size() == size, "[Norm] {} weights for rows of {}", weight_.size(), size);
  require(bias_.empty() || (config.kind == NormKind::kLayer && bias_.size() == size), "[Norm] {} biases for rows of {}{}", bias_.size(), size,
          config.kind == NormKind::kRms ? "; RMSNorm has none" : "");
}

void Norm::row(const float* x, float* y) const {
  const kernels::ElementwiseKernels& k = *kernels::kernels().elementwise;
  const float* weight = weight_.empty() ? nullptr : weight_.data();
  if (config_.kind == NormKind::kRms)
    k.rms_norm(x, weight, config_.eps, config_.size, y);
  else
    k.layer_norm(x, weight, bias_.empty() ? nullptr : bias_.data(), config_.eps, config_.size, y);
}

void Norm::forward(ThreadPool& pool, const float* x, int64_t rows, float* y) const {
  const int64_t n = config_.size;
  for_each_row(pool, rows, n, [&](int64_t r) { row(x + r * n, y + r * n); });
}

}  // namespace regard::nn
