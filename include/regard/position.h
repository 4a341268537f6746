// Position encodings that act outside the scores: rotary embeddings, sinusoidal and learned vectors. Angles are computed in
// f64 and rounded once. (Biases that act inside the scores, ALiBi and its kin, are another matter.)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regard/export.h"
#include "regard/tensor.h"

namespace regard {

/// Which two elements of a head are turned together.
enum class RopeOrder {
  kHalfSplit,    ///< i and i + rotary_dim / 2: GPT-NeoX, Hugging Face files
  kInterleaved,  ///< 2i and 2i + 1: the paper, GGUF files of the llama family, ChatGLM
};

/// How the frequencies are stretched for texts longer than the model was trained on.
enum class RopeScaling { kNone, kLinear, kDynamic, kYarn, kLlama3, kLongRope };

/// A rotary embedding: pair i of a head turns by position * f_i, f_i = theta^(-2i / rotary_dim) before scaling.
/// Su et al., 2021, "RoFormer: enhanced transformer with rotary position embedding", equation 15.
struct RopeConfig {
  int64_t rotary_dim = 0;  ///< leading elements of each head that are turned; even, at most head_dim
  double theta = 10000;
  RopeOrder order = RopeOrder::kHalfSplit;

  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;              ///< the stretch; all scalings but none
  int64_t original_context = 0;   ///< tokens before stretching; dynamic, yarn, llama3, long-rope
  /// Dynamic and long-rope depend on the length of the text. Keys that are cached keep the base they were turned with, so
  /// the length is declared before the first one: the context that the model is loaded for.
  int64_t declared_length = 0;

  double beta_fast = 32, beta_slow = 1;  ///< yarn: turns per original context where the ramp ends and begins
  enum class Ramp { kWholeDims, kFractionalDims } ramp = Ramp::kWholeDims;  ///< yarn: whether its ends are rounded outwards
  double mscale = 0, mscale_all_dim = 0;  ///< yarn, DeepSeek's form of the factor on cosines and sines
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3
  std::vector<double> short_factors, long_factors;   ///< long-rope: rotary_dim / 2 each
  /// Yarn and long-rope multiply cosines and sines by this; 0: by their published formula.
  double attention_factor = 0;
  /// Divides the frequencies one by one, after everything else (GGUF stores llama3 scaling this way). Empty: all ones.
  std::vector<double> divisors;
};

/// The frequencies of a RopeConfig, ready to turn vectors.
class REGARD_API Rope {
 public:
  /// Errors: kInvalidArgument with the field, what was given and its range.
  explicit Rope(const RopeConfig& config);

  const RopeConfig& config() const { return config_; }
  int64_t half() const { return config_.rotary_dim / 2; }
  /// Frequencies in radians per position, half() of them, in f64.
  const std::vector<double>& frequencies() const { return frequencies_; }
  /// What cosines and sines are multiplied by.
  double magnitude() const { return magnitude_; }

  /// Cosines and sines of one position, half() of each, times magnitude().
  void angles(int64_t position, float* cos, float* sin) const;

 private:
  RopeConfig config_;
  std::vector<double> frequencies_;
  double magnitude_ = 1;
};

/// The four published layouts that all go by the name "sinusoidal", for an even dimension d, entry j < d / 2.
enum class Sinusoidal {
  kPaper,         ///< sin, cos, sin, cos ...; frequency 10000^(-2j/d). Vaswani et al., 2017, section 3.5
  kMarianHf,      ///< all sines, then all cosines; frequency 10000^(-2j/d). Marian models in Hugging Face transformers
  kMarianNative,  ///< all sines, then all cosines; frequency 10000^(-j/(d/2-1)). Marian itself; positions from 0
  kTensor2Tensor, ///< the same vectors; positions start at 1 (OpenNMT, CTranslate2) or pad + 1 = 2 (fairseq)
};

/// The position that the first token of a text has in a layout; fairseq files start at 2 instead.
REGARD_API int64_t first_position(Sinusoidal layout) noexcept;

/// The vector of one position: out [dim]. Errors: kInvalidArgument for an odd dim, or one below 4 where d/2 - 1 divides.
REGARD_API void sinusoidal(Sinusoidal layout, int64_t position, std::span<float> out);

/// A learned vector: row position + offset of table [rows, dim]. Errors: kInvalidArgument beyond the table, with both numbers.
REGARD_API std::span<const float> learned_position(TensorView<const float> table, int64_t position, int64_t offset = 0);

}  // namespace regard
