// Normalisation of rows: RMSNorm and LayerNorm over the last axis.
#pragma once

#include <cstdint>

#include "base/aligned_buffer.h"
#include "runtime/thread_pool.h"

namespace regard::nn {

enum class NormKind {
  kRms,    ///< x / rms(x) * weight. Zhang and Sennrich, 2019
  kLayer,  ///< (x - mean) / deviation * weight + bias. Ba, Kiros and Hinton, 2016
};

struct NormConfig {
  NormKind kind = NormKind::kRms;
  int64_t size = 0;  ///< elements of a row
  float eps = 1e-5f;
};

class Norm {
 public:
  Norm() = default;
  /// weight and bias hold `size` elements each, or are empty: all ones, all zeros. Errors: kInvalidArgument.
  Norm(const NormConfig& config, AlignedBuffer<float> weight, AlignedBuffer<float> bias = {});

  const NormConfig& config() const { return config_; }

  /// Normalises one row; y may be x.
  void row(const float* x, float* y) const;
  /// Normalises `rows` rows of x into y, both dense [rows, size]; y may be x. A row depends on itself alone.
  void forward(ThreadPool& pool, const float* x, int64_t rows, float* y) const;

 private:
  NormConfig config_;
  AlignedBuffer<float> weight_, bias_;
};

}  // namespace regard::nn
