// One tensor on its way from one format into the other: decoded to f32, brought into the order of the other, rounded once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/family.h"

namespace regard::model {

/// What the formats do differently with a part. One of these is undone by the same name in the other direction.
struct Rearrangement {
  bool transposed = false;  ///< Hugging Face has a row per input
  int64_t interleaved_heads = 0;  ///< rows of GGUF files turn neighbours together; 0: they do not
  float norm_offset = 0;  ///< GGUF files have it added
};
Rearrangement rearrangement_of(const Family& family, const DecoderConfig& config, Part part, bool bias);

/// The shape of a part with a row per output, whichever file it is in.
std::vector<int64_t> part_shape(const DecoderConfig& config, Part part, bool bias);

enum class Towards { kGguf, kHuggingFace };

/// Rearranges `values` of `shape` (C order, changed when transposed).
void rearrange(const Rearrangement& how, Towards to, std::vector<float>& values, std::vector<int64_t>& shape);

/// The mean of the rows of a matrix.
std::vector<float> mean_row(std::span<const float> values, int64_t rows);

/// A row whose logit lies so far below the mean of all logits that nobody draws it, whatever the text. Behind a layer norm the head reads
/// h = g n + b with sum(n) = 0, so c / g added to the mean row adds the constant c sum(b / g) to its logit. Nothing where that
/// constant cannot be had: a gain of 0, biases that sum to nothing, or a `type` too coarse for such a row.
std::optional<std::vector<float>> unlikely_row(std::span<const float> mean, std::span<const float> gains, std::span<const float> biases, DType type);

/// The bytes of values in a type: f32, f16, bf16, or q8_0 with rows of `row` values, a multiple of 32. Rounded to nearest; a block of
/// q8_0 has the scale max|x| / 127, stored as f16, and the codes round(x / scale) with ties away from zero, as in ggml.
std::vector<uint8_t> encode(std::span<const float> values, DType type);

/// Whether every value has a number of its own in this type.
bool holds_exactly(std::span<const float> values, DType type);

}  // namespace regard::model
