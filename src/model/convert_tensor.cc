#include "model/convert_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "kernels/reference/linear.h"

namespace regard::model {
namespace {

constexpr size_t kBlock = 32;
constexpr float kLargestCode = 127;

// Rows of one head: i and i + d/2 of the half-split order are 2i and 2i + 1 of the interleaved one.
void reorder_head(const float* from, int64_t dim, int64_t width, Towards to, float* into) {
  for (int64_t i = 0; i < dim / 2; ++i)
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t split = half * (dim / 2) + i, interleaved = 2 * i + half;
      const float* row = from + (to == Towards::kGguf ? split : interleaved) * width;
      std::copy_n(row, width, into + (to == Towards::kGguf ? interleaved : split) * width);
    }
}

void put16(uint16_t v, uint8_t* at) { std::memcpy(at, &v, sizeof v); }

void encode_q8_0(std::span<const float> x, uint8_t* block) {
  float largest = 0;
  for (const float v : x) largest = std::max(largest, std::fabs(v));
  const float scale = largest / kLargestCode, inverse = scale != 0 ? 1 / scale : 0;
  put16(float_to_half(scale), block);
  for (size_t i = 0; i < kBlock; ++i) block[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::round(x[i] * inverse)));
}

}  // namespace

Rearrangement rearrangement_of(const Family& family, const DecoderConfig& config, Part part, bool bias) {
  Rearrangement how;
  const PartNames& names = *family.find(part);
  how.transposed = names.hf_layout == HfLayout::kInOut && !bias;
  const bool rotated = part == Part::kQuery || part == Part::kKey;
  if (rotated && family.gguf_rope_order == RopeOrder::kInterleaved) {
    if (config.rope.rotary_dim != config.head_dim)
      fail(Code::kUnsupported, "[convert] {} of {} elements of a head are turned; the formats order rows alike only for whole heads", config.rope.rotary_dim,
           config.head_dim);
    how.interleaved_heads = part == Part::kQuery ? config.num_q_heads : config.num_kv_heads;
  }
  const bool norm = part == Part::kAttnNorm || part == Part::kFfnNorm || part == Part::kPostAttnNorm || part == Part::kPostFfnNorm ||
                    part == Part::kQueryNorm || part == Part::kKeyNorm || part == Part::kFinalNorm;
  if (norm && !bias) how.norm_offset = family.hf_norm_offset;
  return how;
}

std::vector<int64_t> part_shape(const DecoderConfig& c, Part part, bool bias) {
  const int64_t q = c.num_q_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  const auto matrix = [bias](int64_t out, int64_t in) { return bias ? std::vector<int64_t>{out} : std::vector<int64_t>{out, in}; };
  switch (part) {
    case Part::kEmbedding:
    case Part::kHead: return matrix(c.vocab_size, c.hidden_size);
    case Part::kClassifier: return matrix(c.num_classes, c.hidden_size);
    case Part::kPositions: return matrix(c.max_positions, c.hidden_size);
    case Part::kQuery: return matrix(q, c.hidden_size);
    case Part::kKey:
    case Part::kValue: return matrix(kv, c.hidden_size);
    case Part::kFused: return matrix(q + 2 * kv, c.hidden_size);
    case Part::kOutput: return matrix(c.hidden_size, q);
    case Part::kGate:
    case Part::kUp: return matrix(c.ffn_size, c.hidden_size);
    case Part::kDown: return matrix(c.hidden_size, c.ffn_size);
    case Part::kQueryNorm:
    case Part::kKeyNorm: return {c.head_dim};
    default: return {c.hidden_size};  // the other norms
  }
}

void rearrange(const Rearrangement& how, Towards to, std::vector<float>& values, std::vector<int64_t>& shape) {
  if (how.norm_offset != 0)
    for (float& v : values) v += to == Towards::kGguf ? how.norm_offset : -how.norm_offset;
  if (how.interleaved_heads > 0) {
    const int64_t rows = shape[0], width = static_cast<int64_t>(values.size()) / rows, dim = rows / how.interleaved_heads;
    std::vector<float> reordered(values.size());
    for (int64_t h = 0; h < how.interleaved_heads; ++h)
      reorder_head(values.data() + h * dim * width, dim, width, to, reordered.data() + h * dim * width);
    values = std::move(reordered);
  }
  if (!how.transposed || shape.size() != 2) return;
  const int64_t rows = shape[0], columns = shape[1];
  std::vector<float> turned(values.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) turned[static_cast<size_t>(c * rows + r)] = values[static_cast<size_t>(r * columns + c)];
  values = std::move(turned);
  std::swap(shape[0], shape[1]);
}

std::vector<float> mean_row(std::span<const float> values, int64_t rows) {
  const auto width = values.size() / static_cast<size_t>(rows);
  std::vector<float> mean(width);
  for (size_t c = 0; c < width; ++c) {
    double sum = 0;
    for (size_t at = c; at < values.size(); at += width) sum += static_cast<double>(values[at]);
    mean[c] = static_cast<float>(sum / static_cast<double>(rows));
  }
  return mean;
}

std::optional<std::vector<float>> unlikely_row(std::span<const float> mean, std::span<const float> gains, std::span<const float> biases, DType type) {
  constexpr double kBelow = 40, kAtLeast = 16;  // nats: 257 times e^-16 is nothing that anyone draws
  constexpr double kDeviations = 8;             // of what rounding does to the logit
  const size_t width = mean.size();
  double sum = 0;
  for (size_t i = 0; i < width; ++i) sum += static_cast<double>(biases[i]) / static_cast<double>(gains[i]);
  std::vector<float> row(width), stored(width);
  for (size_t i = 0; i < width; ++i) row[i] = static_cast<float>(static_cast<double>(mean[i]) - kBelow / sum / static_cast<double>(gains[i]));
  // Not finite where a gain or the sum is 0.
  if (!std::all_of(row.begin(), row.end(), [](float v) { return std::isfinite(v); })) return std::nullopt;
  kernels::reference::decode_row(type, encode(row, type).data(), static_cast<int64_t>(width), stored.data());
  // The stored row adds `constant`, and a part that depends on the text: n, a vector of length sqrt(width) and sum 0, times `rest`.
  double constant = 0, total = 0, squares = 0;
  for (size_t i = 0; i < width; ++i) {
    const double more = static_cast<double>(stored[i]) - static_cast<double>(mean[i]), rest = more * static_cast<double>(gains[i]);
    constant += more * static_cast<double>(biases[i]);
    total += rest;
    squares += rest * rest;
  }
  const double spread = std::sqrt(std::max(0.0, squares - total * total / static_cast<double>(width)));
  return constant + kDeviations * spread <= -kAtLeast ? std::optional(row) : std::nullopt;  // false for NaN
}

std::vector<uint8_t> encode(std::span<const float> values, DType type) {
  const DTypeInfo t = info(type);
  std::vector<uint8_t> bytes(values.size() / static_cast<size_t>(t.values) * static_cast<size_t>(t.bytes));
  switch (type) {
    case DType::kF32: std::memcpy(bytes.data(), values.data(), bytes.size()); break;
    case DType::kF16:
      for (size_t i = 0; i < values.size(); ++i) put16(float_to_half(values[i]), bytes.data() + 2 * i);
      break;
    case DType::kBF16:
      for (size_t i = 0; i < values.size(); ++i) put16(float_to_bf16(values[i]), bytes.data() + 2 * i);
      break;
    case DType::kQ8_0:
      for (size_t b = 0; b < values.size() / kBlock; ++b)
        encode_q8_0(values.subspan(b * kBlock, kBlock), bytes.data() + b * static_cast<size_t>(t.bytes));
      break;
    default: fail(Code::kUnsupported, "[convert] type {} is not written; expected f32, f16, bf16 or q8_0", t.name);
  }
  return bytes;
}

bool holds_exactly(std::span<const float> values, DType type) {
  return std::all_of(values.begin(), values.end(), [type](float v) { return rounded(v, type) == v || std::isnan(v); });
}

}  // namespace regard::model
