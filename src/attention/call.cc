#include "attention/call.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/tensor_check.h"
#include "base/check.h"

namespace regard {

CallSizes check_sizes(std::string_view function, const TensorView<const float>& q, const TensorView<const float>& k,
                      const TensorView<const float>* v) {
  CallSizes s;
  s.batch = q.shape[0];
  s.num_q_heads = q.shape[1];
  s.q_len = q.shape[2];
  s.head_dim = q.shape[3];
  s.num_kv_heads = k.shape[1];
  s.kv_len = k.shape[2];
  s.value_dim = v == nullptr ? 0 : v->shape[3];
  require(k.shape[0] == s.batch, "[{}] q {} and k {} have {} and {} batch rows, expected the same number", function,
          shape_text(q), shape_text(k), s.batch, k.shape[0]);
  require(k.shape[3] == s.head_dim, "[{}] q {} and k {} have head_dim {} and {}, expected the same number", function,
          shape_text(q), shape_text(k), s.head_dim, k.shape[3]);
  if (v != nullptr)
    require(v->shape[0] == s.batch && v->shape[1] == s.num_kv_heads && v->shape[2] == s.kv_len,
            "[{}] k {} and v {} must agree in batch, heads and length", function, shape_text(k), shape_text(*v));
  require(s.num_q_heads >= 1 && s.num_kv_heads >= 1,
          "[{}] {} query heads and {} KV heads, expected at least one of each", function, s.num_q_heads,
          s.num_kv_heads);
  require(s.num_q_heads % s.num_kv_heads == 0,
          "[{}] {} query heads cannot share {} KV heads evenly: num_q_heads must be a multiple of num_kv_heads",
          function, s.num_q_heads, s.num_kv_heads);
  require(s.head_dim >= 1, "[{}] head_dim is {}, expected at least 1", function, s.head_dim);
  require(v == nullptr || s.value_dim >= 1, "[{}] value_dim is {}, expected at least 1", function, s.value_dim);
  if (s.head_dim > kernels::kMaxHeadDim || s.value_dim > kernels::kMaxHeadDim)
    fail(Code::kUnsupported, "[{}] head_dim {} and value_dim {}: sizes above {} are not supported", function,
         s.head_dim, s.value_dim, kernels::kMaxHeadDim);
  if (s.num_q_heads > INT32_MAX || s.batch > INT32_MAX)
    fail(Code::kUnsupported, "[{}] {} batch rows of {} heads are too many", function, s.batch, s.num_q_heads);
  return s;
}

namespace {

void check_bf16_dots(std::string_view function, const AttentionOptions& options, Arithmetics taken) {
  if (taken == Arithmetics::kF32)
    fail(Code::kUnsupported, "[{}] arithmetic: bf16 dot products are not taken here; use f32", function);
  if (kernels::kernels().attention_bf16 == nullptr)
    fail(Code::kUnsupported,
         "[{}] arithmetic: the instruction set in use, {}, has no bf16 dot products (avx512_bf16 has them); use f32", function,
         isa_name(kernels::kernels().isa));
  if (options.xl)
    fail(Code::kUnsupported, "[{}] xl: Transformer-XL is not taken with an arithmetic of bf16 dot products; use f32", function);
}

}  // namespace

AttentionShape check_numbers(std::string_view function, const CallSizes& sizes, const AttentionOptions& options,
                             Arithmetics taken) {
  if (options.arithmetic == AttentionArithmetic::kBf16Dots) check_bf16_dots(function, options, taken);
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(sizes.head_dim)));
  require(std::isfinite(scale), "[{}] scale is {}, expected a finite number", function, scale);
  require(options.softcap >= 0 && std::isfinite(options.softcap),
          "[{}] softcap is {}, expected a positive number, or 0 for none", function, options.softcap);
  require(options.softcap == 0 || (options.softcap > 1e-37 && options.softcap < 1e37),
          "[{}] softcap is {}, expected between 1e-37 and 1e37", function, options.softcap);
  return {static_cast<int>(sizes.num_q_heads),
          static_cast<int>(sizes.num_kv_heads),
          static_cast<int>(sizes.head_dim),
          static_cast<int>(sizes.value_dim),
          scale,
          options.softcap,
          nullptr,
          options.arithmetic};
}

namespace {

constexpr int64_t kMaxPosition = PackedKv::kMaxPosition;

// One number per batch row from a list of none, one or all.
std::vector<int64_t> per_row(std::string_view function, std::string_view name, const std::vector<int64_t>& given,
                             int64_t batch, int64_t none, int64_t largest) {
  const auto size = static_cast<int64_t>(given.size());
  require(size <= 1 || size == batch, "[{}] {} has {} numbers for {} batch rows, expected one for each or one for all",
          function, name, size, batch);
  std::vector<int64_t> all(static_cast<size_t>(batch), size == 0 ? none : given[0]);
  if (size > 1) all = given;
  for (int64_t x : given)
    require(x >= 0 && x <= largest, "[{}] {} is {}, expected 0 to {}", function, name, x, largest);
  return all;
}

// [batch][length] positions from a tensor [length] or [batch|1, length].
std::vector<int64_t> every_position(std::string_view function, std::string_view name,
                                    const TensorView<const int64_t>& given, int64_t batch, int64_t length) {
  check_tensor(function, name, given, given.rank == 2 ? 2 : 1);
  const bool rows = given.rank == 2;
  const int64_t have = rows ? given.shape[1] : given.shape[0];
  require(have == length && (!rows || given.shape[0] == 1 || given.shape[0] == batch),
          "[{}] {} has shape {}, expected [{}] or [{}, {}]", function, name, shape_text(given), length, batch, length);
  std::vector<int64_t> all;
  all.reserve(static_cast<size_t>(batch * length));
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < length; ++i) {
      const int64_t p = rows ? *given.at(given.shape[0] == 1 ? 0 : b, i) : *given.at(i);
      require(p >= -1 && p <= kMaxPosition, "[{}] {} holds {} at [{}, {}], expected -1 (unwritten) or 0 to {}",
              function, name, p, b, i, kMaxPosition);
      all.push_back(p);
    }
  return all;
}

}  // namespace

namespace {

void check_offsets(std::string_view function, std::string_view name, const std::vector<int64_t>& offsets,
                   int64_t total) {
  require(offsets.size() >= 2, "[{}] {} has {} numbers, expected one for each sequence and one more", function, name,
          offsets.size());
  require(offsets[0] == 0, "[{}] {} begins with {}, expected 0", function, name, offsets[0]);
  for (size_t i = 1; i < offsets.size(); ++i)
    require(offsets[i] >= offsets[i - 1], "[{}] {} goes from {} to {}: offsets never fall", function, name,
            offsets[i - 1], offsets[i]);
  require(offsets.back() <= total, "[{}] {} ends with {}, but there are {} slots", function, name, offsets.back(),
          total);
}

}  // namespace

CallRows::CallRows(std::string_view function, const CallSizes& sizes, const AttentionOptions& options)
    : sizes_(sizes),
      packed_(!options.q_offsets.empty()),
      batch_(sizes.batch),
      q_offsets_(options.q_offsets),
      k_offsets_(options.k_offsets.empty() ? options.q_offsets : options.k_offsets) {
  require(packed_ || options.k_offsets.empty(), "[{}] k_offsets is given without q_offsets", function);
  if (!packed_) return;
  require(sizes.batch == 1,
          "[{}] q_offsets is given and the batch is {}: packed sequences are one entry of the batch axis", function,
          sizes.batch);
  require(options.query_lengths.empty(), "[{}] both q_offsets and query_lengths are given, expected one of them",
          function);
  check_offsets(function, "q_offsets", q_offsets_, sizes.q_len);
  check_offsets(function,
                options.k_offsets.empty() ? "q_offsets (for the keys, as there is no k_offsets)" : "k_offsets",
                k_offsets_, sizes.kv_len);
  require(q_offsets_.size() == k_offsets_.size(),
          "[{}] q_offsets and k_offsets have {} and {} numbers, expected as many", function, q_offsets_.size(),
          k_offsets_.size());
  batch_ = static_cast<int64_t>(q_offsets_.size()) - 1;
}

int64_t CallRows::row_of(int64_t entry, int64_t query) const noexcept {
  if (!packed_) return entry;
  if (query >= q_offsets_.back()) return -1;
  return std::upper_bound(q_offsets_.begin(), q_offsets_.end(), query) - q_offsets_.begin() - 1;
}

CallSizes CallRows::widest() const noexcept {
  if (!packed_) return sizes_;
  CallSizes widest = sizes_;
  widest.batch = batch_;
  widest.q_len = widest.kv_len = 0;
  for (int64_t b = 0; b < batch_; ++b) {
    widest.q_len = std::max(widest.q_len, q_len(b));
    widest.kv_len = std::max(widest.kv_len, kv_len(b));
  }
  return widest;
}

CallPositions::CallPositions(std::string_view function, const CallSizes& sizes, const CallRows& rows, const Mask& mask,
                             const AttentionOptions& options)
    : sizes_(sizes), rows_(rows) {
  const bool q_given = options.q_positions.rank > 0, k_given = options.k_positions.rank > 0;
  require(!q_given || options.q_begin.empty(), "[{}] both q_begin and q_positions are given, expected one of them",
          function);
  require(!k_given || options.k_begin.empty(), "[{}] both k_begin and k_positions are given, expected one of them",
          function);
  const bool stated = q_given || k_given || !options.q_begin.empty() || !options.k_begin.empty();
  for (int64_t b = 0; b < rows.batch(); ++b)
    require(stated || rows.q_len(b) == 0 || rows.q_len(b) == rows.kv_len(b) || !mask.compares_positions(),
            "[{}] {} queries and {} keys under \"{}\": where the queries stand among the keys is not stated. Give "
            "q_begin{}, or positions",
            function, rows.q_len(b), rows.kv_len(b), mask.text(),
            rows.q_len(b) > rows.kv_len(b)
                ? std::string()
                : fmt::format(" (for the last queries of a sequence q_begin = {})", rows.kv_len(b) - rows.q_len(b)));

  q_begin_ = per_row(function, "q_begin", options.q_begin, rows.batch(), 0, kMaxPosition);
  k_begin_ = per_row(function, "k_begin", options.k_begin, rows.batch(), 0, kMaxPosition);
  if (q_given) q_positions_ = every_position(function, "q_positions", options.q_positions, sizes.batch, sizes.q_len);
  if (k_given) k_positions_ = every_position(function, "k_positions", options.k_positions, sizes.batch, sizes.kv_len);
  const auto encodings = [&](std::string_view name, const TensorView<const int64_t>& given, int64_t length) {
    return given.rank == 0 ? std::vector<int64_t>{} : every_position(function, name, given, sizes.batch, length);
  };
  q_encodings_ = encodings("q_encoding_positions", options.q_encoding_positions, sizes.q_len);
  k_encodings_ = encodings("k_encoding_positions", options.k_encoding_positions, sizes.kv_len);
  if (options.query_lengths.empty()) return;
  const std::vector<int64_t> lengths =
      per_row(function, "query_lengths", options.query_lengths, sizes.batch, sizes.q_len, sizes.q_len);
  if (q_positions_.empty())
    for (int64_t b = 0; b < sizes.batch; ++b)
      for (int64_t i = 0; i < sizes.q_len; ++i) q_positions_.push_back(q_begin(b) + i);
  for (int64_t b = 0; b < sizes.batch; ++b)
    for (int64_t i = lengths[static_cast<size_t>(b)]; i < sizes.q_len; ++i)
      q_positions_[static_cast<size_t>(b * sizes.q_len + i)] = -1;
}

void CallPositions::check_queries(const MaskPlan& plan) const {
  for (int64_t b = 0; b < rows_.batch(); ++b) {
    if (const int64_t* positions = queries(b))
      plan.check_queries(b, positions, rows_.q_len(b));
    else
      plan.check_queries(b, Interval{q_begin(b), q_begin(b) + rows_.q_len(b)});
  }
}

}  // namespace regard
