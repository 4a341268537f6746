// One tensor on its way from one format into the other: decoded to f32, brought into the order of the other, rounded once.
#pragma once

#include <cstdint>
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

/// `rows` more rows, each the mean of the others.
void add_mean_rows(int64_t rows, std::vector<float>& values, std::vector<int64_t>& shape);

/// The bytes of values in a type: f32, f16, bf16, or q8_0 with rows of `row` values, a multiple of 32. Rounded to nearest; a block of
/// q8_0 has the scale max|x| / 127, stored as f16, and the codes round(x / scale) with ties away from zero, as in ggml.
std::vector<uint8_t> encode(std::span<const float> values, DType type);

/// Whether every value has a number of its own in this type.
bool holds_exactly(std::span<const float> values, DType type);

}  // namespace regard::model
