#include "attention/kv_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/registry.h"

namespace regard {

using kernels::kPanelKeys;
using kernels::stored_at;
using kernels::stored_dim;

namespace {

// The scales of a run: number i of the key in a column, and all of the value.
struct Scales {
  const KvGeometry& g;
  std::byte* run;

  float& key(int i, int column) const noexcept { return block(column)[i * kPanelKeys + column % kPanelKeys]; }
  float* value(int column) const noexcept {
    return block(column) + g.key_scales() * kPanelKeys + column % kPanelKeys * g.value_scales();
  }
  float* block(int column) const noexcept { return reinterpret_cast<float*>(run + g.scale_at(column / kPanelKeys)); }
};

// Numbers are copied as words of their size. The bytes of a block are only ever touched in this way and by the kernels'
// loads, both of which may look at any type.
template <class Word>
Word get(const std::byte* at) noexcept {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}
template <class Word>
void put(std::byte* at, Word word) noexcept {
  std::memcpy(at, &word, sizeof word);
}

// A run seen as words of the type's size.
template <class Word>
struct Run {
  const KvGeometry& g;
  std::byte* bytes;

  std::byte* key(int i, int column) const noexcept {
    return bytes + g.key_at(column / kPanelKeys) +
           (int64_t{i} * kPanelKeys + stored_at(g.type, column % kPanelKeys)) * static_cast<int64_t>(sizeof(Word));
  }
  // The values of all blocks follow each other.
  std::byte* value(int column, int c) const noexcept {
    return bytes + g.value_at(0) +
           (int64_t{column} * stored_dim(g.type, g.value_dim) + stored_at(g.type, c)) *
               static_cast<int64_t>(sizeof(Word));
  }
  int stored() const noexcept { return stored_dim(g.type, g.value_dim); }
};

// Calls f with a Run of the type's words.
template <class F>
void with_words(const KvGeometry& g, std::byte* run, const F& f) {
  switch (kernels::cache_bytes(g.type)) {
    case 4:
      return f(Run<uint32_t>{g, run});
    case 2:
      return f(Run<uint16_t>{g, run});
    default:
      return f(Run<uint8_t>{g, run});
  }
}

// f32: the keys are transposed by a kernel, the values are copied as they are.
void write_floats(const KvGeometry& g, const float* k, int64_t k_stride, const float* v, int64_t v_stride, int count,
                  std::byte* run, int column) noexcept {
  auto* keys = reinterpret_cast<float*>(run + g.key_at(column / kPanelKeys));
  kernels::kernels().attention->pack_keys(k, k_stride, count, g.head_dim, keys, column % kPanelKeys);
  if (g.value_dim == 0) return;
  const int padded = stored_dim(g.type, g.value_dim);
  auto* to = reinterpret_cast<float*>(run + g.value_at(0)) + int64_t{column} * padded;
  for (int n = 0; n < count; ++n, to += padded, v += v_stride) {
    std::copy_n(v, g.value_dim, to);
    std::fill(to + g.value_dim, to + padded, 0.0f);
  }
}

template <uint16_t (*Narrow)(float)>
void write_halves(const KvGeometry& g, const float* k, int64_t k_stride, const float* v, int64_t v_stride, int count,
                  std::byte* bytes, int column) noexcept {
  const Run<uint16_t> run{g, bytes};
  for (int n = 0; n < count; ++n, k += k_stride, v += v_stride) {
    for (int i = 0; i < g.head_dim; ++i) put(run.key(i, column + n), Narrow(k[i]));
    for (int c = 0; c < run.stored(); ++c)
      put(run.value(column + n, c), c < g.value_dim ? Narrow(v[c]) : uint16_t{0});
  }
}

// The scale of n numbers: NaN when they hold a NaN or an infinity.
float scale_of(const float* x, int n) noexcept {
  float most = 0;
  bool finite = true;
  for (int i = 0; i < n; ++i) {
    finite = finite && std::isfinite(x[i]);
    most = std::max(most, std::fabs(x[i]));
  }
  return finite ? most / 127.0f : std::numeric_limits<float>::quiet_NaN();
}
uint8_t code(float x, float scale) noexcept {
  if (!(scale > 0)) return 0;  // all numbers are 0, or so small that their scale is; or one is not finite
  return static_cast<uint8_t>(static_cast<int8_t>(std::clamp(std::nearbyint(x / scale), -127.0f, 127.0f)));
}

// Calls put_code(i, code) for the numbers of a row, and put_scale(i, scale) for its blocks.
template <class PutCode, class PutScale>
void encode(const KvGeometry& g, const float* x, int dim, const PutCode& put_code, const PutScale& put_scale) noexcept {
  const int block = g.scale_block == 0 ? dim : g.scale_block;
  for (int first = 0, i = 0; first < dim; first += block, ++i) {
    const int n = std::min(block, dim - first);
    const float scale = scale_of(x + first, n);
    put_scale(i, scale);
    for (int c = first; c < first + n; ++c) put_code(c, code(x[c], scale));
  }
}

void write_codes(const KvGeometry& g, const float* k, int64_t k_stride, const float* v, int64_t v_stride, int count,
                 std::byte* bytes, int column) noexcept {
  const Run<uint8_t> run{g, bytes};
  const Scales scales{g, bytes};
  for (int n = 0; n < count; ++n, k += k_stride, v += v_stride) {
    const int at = column + n;
    encode(g, k, g.head_dim, [&](int i, uint8_t x) { put(run.key(i, at), x); },
           [&](int i, float scale) { scales.key(i, at) = scale; });
    encode(g, v, g.value_dim, [&](int c, uint8_t x) { put(run.value(at, c), x); },
           [&](int i, float scale) { scales.value(at)[i] = scale; });
    for (int c = g.value_dim; c < run.stored(); ++c) put(run.value(at, c), uint8_t{0});
  }
}

// Pairs of bf16, rounded and laid out by a kernel; runs of one block.
void write_pairs(const KvGeometry& g, const float* k, int64_t k_stride, const float* v, int64_t v_stride, int count,
                 std::byte* run, int column) noexcept {
  const kernels::AttentionBf16Kernels& kernel = *kernels::kernels().attention_bf16;
  kernel.pack_keys(k, k_stride, count, g.head_dim, reinterpret_cast<uint32_t*>(run), column);
  kernel.pack_values(v, v_stride, count, g.value_dim, reinterpret_cast<uint32_t*>(run + g.value_at(0)), column);
}

}  // namespace

void write_block(const KvGeometry& g, const KvRows& rows, int64_t token, int count, int kv_head, std::byte* run,
                 int column) noexcept {
  const float* k = rows.k + token * rows.k_token_stride + kv_head * rows.k_head_stride;
  const float* v = g.value_dim == 0 ? nullptr : rows.v + token * rows.v_token_stride + kv_head * rows.v_head_stride;
  const auto write = g.layout == KvLayout::kPairs ? write_pairs
                     : g.type == DType::kF16       ? write_halves<float_to_half>
                     : g.type == DType::kBF16      ? write_halves<float_to_bf16>
                     : g.type == DType::kI8        ? write_codes
                                                   : write_floats;
  write(g, k, rows.k_token_stride, v, rows.v_token_stride, count, run, column);
}

void copy_slots(const KvGeometry& from_geometry, const std::byte* from, int from_column, const KvGeometry& g, std::byte* to,
                int to_column, int count) noexcept {
  with_words(g, to, [&]<class Word>(const Run<Word>& target) {
    const Run<Word> source{from_geometry, const_cast<std::byte*>(from)};
    for (int n = 0; n < count; ++n) {
      for (int i = 0; i < g.head_dim; ++i) put(target.key(i, to_column + n), get<Word>(source.key(i, from_column + n)));
      // Whole rows of values, in whatever order their numbers stand.
      std::memcpy(target.value(to_column + n, 0), source.value(from_column + n, 0),
                  static_cast<size_t>(target.stored()) * sizeof(Word));
    }
  });
  if (!kernels::has_scales(g.type)) return;
  const Scales source{from_geometry, const_cast<std::byte*>(from)}, target{g, to};
  for (int i = 0; i < g.key_scales(); ++i) std::copy_n(&source.key(i, from_column), count, &target.key(i, to_column));
  std::copy_n(source.value(from_column), count * g.value_scales(), target.value(to_column));
}

// All bits set is a NaN in every type; of codes it is the scale that is.
void clear_slots(const KvGeometry& g, std::byte* bytes, int column, int count) noexcept {
  with_words(g, bytes, [&]<class Word>(const Run<Word>& run) {
    for (int n = 0; n < count; ++n) {
      for (int i = 0; i < g.head_dim; ++i) put(run.key(i, column + n), static_cast<Word>(~Word{0}));
      std::memset(run.value(column + n, 0), 0xFF, static_cast<size_t>(run.stored()) * sizeof(Word));
    }
  });
  if (!kernels::has_scales(g.type)) return;
  const Scales scales{g, bytes};
  for (int i = 0; i < g.key_scales(); ++i)
    std::memset(&scales.key(i, column), 0xFF, static_cast<size_t>(count) * sizeof(float));
  std::memset(scales.value(column), 0xFF, static_cast<size_t>(count * g.value_scales()) * sizeof(float));
}

int64_t token_bytes(const KvGeometry& g) noexcept {
  return int64_t{g.head_dim + g.value_dim} * kernels::cache_bytes(g.type) + g.scale_bytes();
}

void read_token(const KvGeometry& g, const std::byte* bytes, int column, uint8_t* to) noexcept {
  with_words(g, const_cast<std::byte*>(bytes), [&]<class Word>(const Run<Word>& run) {
    for (int i = 0; i < g.head_dim; ++i, to += sizeof(Word)) std::memcpy(to, run.key(i, column), sizeof(Word));
    for (int c = 0; c < g.value_dim; ++c, to += sizeof(Word)) std::memcpy(to, run.value(column, c), sizeof(Word));
  });
  if (!kernels::has_scales(g.type)) return;
  const Scales scales{g, const_cast<std::byte*>(bytes)};
  for (int i = 0; i < g.key_scales(); ++i, to += sizeof(float)) std::memcpy(to, &scales.key(i, column), sizeof(float));
  std::memcpy(to, scales.value(column), static_cast<size_t>(g.value_scales()) * sizeof(float));
}

void write_token(const KvGeometry& g, const uint8_t* from, std::byte* bytes, int column) noexcept {
  with_words(g, bytes, [&]<class Word>(const Run<Word>& run) {
    for (int i = 0; i < g.head_dim; ++i, from += sizeof(Word)) std::memcpy(run.key(i, column), from, sizeof(Word));
    for (int c = 0; c < run.stored(); ++c) put(run.value(column, c), Word{0});
    for (int c = 0; c < g.value_dim; ++c, from += sizeof(Word)) std::memcpy(run.value(column, c), from, sizeof(Word));
  });
  if (!kernels::has_scales(g.type)) return;
  const Scales scales{g, bytes};
  for (int i = 0; i < g.key_scales(); ++i, from += sizeof(float))
    std::memcpy(&scales.key(i, column), from, sizeof(float));
  std::memcpy(scales.value(column), from, static_cast<size_t>(g.value_scales()) * sizeof(float));
}

}  // namespace regard
