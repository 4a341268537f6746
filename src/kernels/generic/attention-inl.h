// The kernels of attention.h, written once for every instruction set. Included inside an instruction set's region,
// after micro-inl.h. What a tile does to a few rows is in attention_tile-inl.h.

#include "kernels/generic/attention_types-inl.h"

namespace {

#include "kernels/generic/attention_tile-inl.h"
#include "kernels/generic/attention_dropout-inl.h"

const StoredKernels& stored_kernels(const AttentionTile& tile) {
  switch (tile.type) {
    case DType::kF16: return kAttentionF16;
    case DType::kBF16: return kAttentionBf16;
    case DType::kI8: return tile.scale_block == 0 ? kAttentionCodes : kAttentionBlockCodes;
    default: return kKernelsOf<float>;
  }
}
void attention_tile(const AttentionTile& tile, const AttentionState& state) noexcept {
  stored_kernels(tile).tile(tile, state);
}
void attention_weights(const AttentionTile& tile, const float* lse_high, const float* lse_low, float* out) noexcept {
  stored_kernels(tile).weights(tile, lse_high, lse_low, out);
}

void scale_queries(const float* const* q, int rows, int head_dim, float factor, float* out) noexcept {
  const F32 f = splat(factor);
  for (int r = 0; r < rows; ++r, out += head_dim) {
    int k = 0;
    for (; k + kLanes <= head_dim; k += kLanes) store(out + k, mul(load(q[r] + k), f));
    if (k < head_dim) store_first(out + k, mul(load_first(q[r] + k, head_dim - k), f), head_dim - k);
  }
}

void attention_reset(const AttentionState& state, int rows, int value_dim) noexcept {
  const int64_t n = static_cast<int64_t>(rows) * value_dim;
  for (int64_t i = 0; i < n; i += kLanes) store(state.o + i, zero());
  for (int r = 0; r < rows + kLanes; ++r) {
    state.m[r] = -kInf;
    state.l[r] = 0.0f;
  }
}

void attention_fold(const AttentionState& into, const AttentionState& part, int rows, int value_dim) noexcept {
  FoldFactors factors;
  for (int first = 0; first < rows; first += kLanes) {
    const int n = rows - first < kLanes ? rows - first : kLanes;
    fold_scales(into.m + first, into.l + first, part.m + first, part.l + first, n, factors.old, factors.tile);
    for (int r = 0; r < n; ++r) {
      const int64_t row = static_cast<int64_t>(first + r) * value_dim;
      const F32 old_factor = splat(factors.old[r]), tile_factor = splat(factors.tile[r]);
      for (int c = 0; c < value_dim; c += kLanes)
        store(into.o + row + c, fma(load(into.o + row + c), old_factor, mul(load(part.o + row + c), tile_factor)));
    }
  }
}

void attention_fold_sink(const AttentionState& state, const float* sinks, int rows, int value_dim) noexcept {
  FoldFactors factors;
  for (int first = 0; first < rows; first += kLanes) {
    const int n = rows - first < kLanes ? rows - first : kLanes;
    alignas(64) float m[kLanes] = {}, l[kLanes];
    for (int r = 0; r < n; ++r) m[r] = static_cast<float>(static_cast<double>(sinks[first + r]) * math::kLog2e);
    store(l, splat(1.0f));
    fold_scales(state.m + first, state.l + first, m, l, n, factors.old, factors.tile);
    for (int r = 0; r < n; ++r) {
      float* o = state.o + static_cast<int64_t>(first + r) * value_dim;
      for (int c = 0; c < value_dim; c += kLanes) store(o + c, mul(load(o + c), splat(factors.old[r])));
    }
  }
}

void attention_finish(const AttentionState& state, int rows, int value_dim, float* const* out, float* lse) noexcept {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const int64_t stride = padded_dim(value_dim);
  for (int r = 0; r < rows; ++r) {
    const float total = state.l[r];
    const bool empty = total == 0.0f;
    const F32 l = splat(total);
    for (int c = 0; c < value_dim; c += kLanes) {
      const F32 x = add(div(load(state.o + r * stride + c), l), zero());  // + 0 turns -0 into +0
      const F32 y = empty ? zero() : select(is_nan(x), splat(kNan), x);
      if (value_dim - c >= kLanes)
        store(out[r] + c, y);
      else
        store_first(out[r] + c, y, value_dim - c);
    }
  }
  if (lse == nullptr) return;
  // In a loop of its own, so that the logarithms of several rows are under way at once.
  for (int r = 0; r < rows; ++r) {
    const double log2 = static_cast<double>(state.m[r]) + math::log2(static_cast<double>(state.l[r]));
    const auto x = static_cast<float>(log2 * math::kLn2);
    lse[r] = state.l[r] == 0.0f ? -kInf : x != x ? kNan : x;
  }
}

// The products of R rows with W vectors of columns of one panel.
template <int R, int W>
REGARD_INLINE void dot_vectors(const float* q, int64_t q_stride, int head_dim, int vectors, const float* column,
                               float* out, int64_t out_stride) {
  if constexpr (W > 1)
    if (vectors < W) return dot_vectors<R, W - 1>(q, q_stride, head_dim, vectors, column, out, out_stride);
  Tile<R, W> acc;
  clear_tile<R, W>(acc);
  accumulate_tile<R, W>(acc, q, q_stride, column, kPanelKeys, head_dim);
  store_tile<R, W>(acc, out, out_stride);
}
template <int R>
REGARD_INLINE void dot_rows(const float* q, int64_t q_stride, int rows, int head_dim, const float* panels, int64_t first,
                            int count, float* out, int64_t out_stride) {
  if constexpr (R > 1)
    if (rows < R) return dot_rows<R - 1>(q, q_stride, rows, head_dim, panels, first, count, out, out_stride);
  for (int64_t x = first; x < first + count;) {
    const int64_t in_panel = x % kPanelKeys, left = first + count - x;
    const auto vectors = static_cast<int>((left < kPanelKeys - in_panel ? left : kPanelKeys - in_panel) / kLanes);
    dot_vectors<R, kScoreVectors<R>>(q, q_stride, head_dim, vectors, panels + (x - in_panel) * head_dim + in_panel,
                                     out + (x - first), out_stride);
    x += kLanes * (vectors < kScoreVectors<R> ? vectors : kScoreVectors<R>);
  }
}

void attention_dots(const float* q, int64_t q_stride, int rows, int head_dim, const float* panels, int64_t first,
                    int count, float* out, int64_t out_stride) noexcept {
  for (int r = 0; r < rows; r += kMicroRows)
    dot_rows<kMicroRows>(q + r * q_stride, q_stride, rows - r, head_dim, panels, first, count, out + r * out_stride,
                         out_stride);
}

// Keys are transposed four by four, with the compilers' vector types: the same text on every machine.
typedef float Quad __attribute__((vector_size(16)));
REGARD_INLINE Quad load_quad(const float* p) {
  Quad q;
  std::memcpy(&q, p, sizeof q);
  return q;
}

void pack_keys(const float* keys, int64_t stride, int count, int head_dim, float* panel, int column) noexcept {
  panel += column;
  int j = 0;
  for (; j + 4 <= count; j += 4) {
    const float* key = keys + j * stride;
    float* to = panel + j;
    int k = 0;
    for (; k + 4 <= head_dim; k += 4) {
      const Quad a = load_quad(key + k), b = load_quad(key + stride + k);
      const Quad c = load_quad(key + 2 * stride + k), d = load_quad(key + 3 * stride + k);
      const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      const Quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5),
                 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
      const Quad columns[4] = {
          __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5), __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
          __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5), __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
      for (int i = 0; i < 4; ++i) std::memcpy(to + static_cast<int64_t>(k + i) * kPanelKeys, &columns[i], sizeof(Quad));
    }
    for (; k < head_dim; ++k)
      for (int i = 0; i < 4; ++i) to[static_cast<int64_t>(k) * kPanelKeys + i] = key[i * stride + k];
  }
  for (; j < count; ++j)
    for (int k = 0; k < head_dim; ++k) panel[static_cast<int64_t>(k) * kPanelKeys + j] = keys[j * stride + k];
}

}  // namespace

extern const AttentionKernels kAttention;
const AttentionKernels kAttention = {
    .scale_queries = scale_queries,
    .reset = attention_reset,
    .tile = attention_tile,
    .fold = attention_fold,
    .fold_sink = attention_fold_sink,
    .finish = attention_finish,
    .weights = attention_weights,
    .dots = attention_dots,
    .keep_words = dropout_keep,
    .pack_keys = pack_keys,
};
