// The kernels of attention_backward.h, written once for every instruction set. Included inside an instruction set's
// region, after micro-inl.h. Read weights_of_panel(), add_group() and add_micro_rows(): the three of them are the five
// products of the backward pass.

namespace {

// ---- rows in and out ------------------------------------------------------------------------------------------------
// Long sequences keep the rows far away: asked for so many rows early.
inline constexpr int kAheadRows = 6;

void backward_load_rows(const float* const* from, int rows, int dim, float factor, float* out) noexcept {
  const F32 f = splat(factor);
  const int padded = padded_dim(dim);
  for (int r = 0; r < rows; ++r, out += padded) {
    for (int i = 0; i < dim; i += kLanes) {
      const F32 x = from[r] == nullptr  ? zero()
                    : dim - i >= kLanes ? load(from[r] + i)
                                        : load_first(from[r] + i, dim - i);
      store(out + i, from[r] == nullptr ? zero() : mul(x, f));
      if (r + kAheadRows < rows && from[r + kAheadRows] != nullptr) prefetch(from[r + kAheadRows] + i);
    }
    for (int i = dim; i < padded; ++i) out[i] = 0.0f;  // NaN * 0 and 0 * infinity are not 0
  }
}

void backward_dot_rows(const float* const* a, const float* const* b, int rows, int dim, float* out) noexcept {
  for (int r = 0; r < rows; ++r) {
    F32 sum = zero();
    int i = 0;
    if (a[r] != nullptr) {
      for (; i + kLanes <= dim; i += kLanes) sum = fma(load(a[r] + i), load(b[r] + i), sum);
      if (i < dim) sum = fma(load_first(a[r] + i, dim - i), load_first(b[r] + i, dim - i), sum);
    }
    out[r] = reduce_add(sum);
  }
}

void backward_finish_rows(const float* const* from, int rows, int dim, float factor, float* const* to) noexcept {
  const F32 f = splat(factor), nan = splat(std::numeric_limits<float>::quiet_NaN());
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < dim; i += kLanes) {
      const int n = dim - i < kLanes ? dim - i : kLanes;
      const F32 x = add(mul(n == kLanes ? load(from[r] + i) : load_first(from[r] + i, n), f), zero());
      const F32 y = select(is_nan(x), nan, x);
      if (n == kLanes)
        store(to[r] + i, y);
      else
        store_first(to[r] + i, y, n);
    }
}

// ---- p and ds -------------------------------------------------------------------------------------------------------
// Products of R rows with W vectors of a panel's keys: `panel` and `out` point at the first of them.
template <int R, int W>
REGARD_INLINE void panel_vectors(const float* x, int64_t ldx, int dim, const float* panel, float* out) {
  Tile<R, W> acc;
  clear_tile<R, W>(acc);
  accumulate_tile<R, W>(acc, x, ldx, panel, kPanelKeys, dim);
  store_tile<R, W>(acc, out, kWeightStride);
}

template <int R, int W>
REGARD_INLINE void panel_at_most(int vectors, const float* x, int64_t ldx, int dim, const float* panel, float* out) {
  if constexpr (W > 1)
    if (vectors < W) return panel_at_most<R, W - 1>(vectors, x, ldx, dim, panel, out);
  panel_vectors<R, W>(x, ldx, dim, panel, out);
}

// How many vectors R rows take at once: what the registers hold beside one line of operands.
template <int R>
inline constexpr int kRowVectors =
    (kMicroRows + 1) * kMicroVecs / (R + 1) >= 4 ? 4 : (kMicroRows + 1) * kMicroVecs / (R + 1);

// The vectors first .. last of a panel.
template <int R>
REGARD_INLINE void panel_products(const float* x, int64_t ldx, int dim, const float* panel, int first, int last,
                                  float* out) {
  for (int v = first; v <= last; v += kRowVectors<R>)
    panel_at_most<R, kRowVectors<R>>(last - v + 1, x, ldx, dim, panel + kLanes * v, out + kLanes * v);
}

// Scores in p and products with the values in ds become weights and gradients of the scores. `at` counts vectors from
// the begin of the block.
void weights_of_row(const BackwardBlock& block, int r, int at, int vectors) {
  const F32 high = splat(block.lse_high[r]), low = splat(block.lse_low[r]), delta = splat(block.delta[r]);
  const F32 cap = splat(block.softcap);
  const bool capped = block.softcap != 0.0f;
  const int64_t row = static_cast<int64_t>(r) * kWeightStride;
  for (int v = at; v < at + vectors; ++v) {
    const int64_t j = row + kLanes * v;
    F32 score = load(block.p + j), slope = zero(), dp = load(block.ds + j);
    if (capped) {
      const F32 t = tanh(div(score, cap));
      slope = fma(sub(zero(), t), t, splat(1.0f));
      score = mul(cap, t);
    }
    if (block.bias != nullptr)
      score = fma(load(block.bias[r] + kLanes * v), splat(static_cast<float>(math::kLog2e)), score);
    const F32 weight = exp2(sub(sub(score, high), low));
    F32 used = weight;
    if (block.keep != nullptr) {
      const Lanes kept = lanes(static_cast<uint32_t>(block.keep[r][v / 4] >> (kLanes * (v % 4))) & 0xFFFF);
      used = select(kept, weight, zero());
      dp = select(kept, mul(dp, splat(block.keep_scale)), zero());
    }
    F32 gradient = mul(weight, sub(dp, delta));
    if (block.db != nullptr) store(block.db + j, gradient);
    if (capped) gradient = mul(gradient, slope);
    store(block.p + j, used);
    store(block.ds + j, gradient);
  }
}

// R rows against the 64 keys of panel w: their products with the keys, or with the values, and then p and ds; only the
// vectors between the first and the last key that some row sees.
enum class Products { kKeys, kValues };
template <Products What, int R>
void weights_of_panel(const BackwardBlock& block, int first, int w) {
  int from = 0, to = kPanelKeys / kLanes - 1;
  if (block.seen != nullptr) {
    uint64_t any = 0;
    for (int r = 0; r < R; ++r) any |= block.seen[first + r][w];
    if (any == 0) return;
    from = std::countr_zero(any) / kLanes;
    to = (63 - std::countl_zero(any)) / kLanes;
  }
  const int64_t panel = static_cast<int64_t>(w) * kPanelKeys, at = static_cast<int64_t>(first) * kWeightStride + panel;
  if constexpr (What == Products::kKeys) {
    const int64_t ldq = padded_dim(block.head_dim);
    panel_products<R>(block.q + first * ldq, ldq, block.head_dim, block.k + panel * block.head_dim, from, to, block.p + at);
  } else {
    const int64_t ldo = block.dout_stride;
    panel_products<R>(block.dout + first * ldo, ldo, block.value_dim, block.v + panel * block.value_dim, from, to, block.ds + at);
    for (int r = 0; r < R; ++r) weights_of_row(block, first + r, kPanelKeys / kLanes * w + from, to - from + 1);
  }
}

template <Products What, int R>
REGARD_INLINE void weights_of_rows(const BackwardBlock& block, int first, int w) {
  if constexpr (R > 1)
    if (block.rows - first < R) return weights_of_rows<What, R - 1>(block, first, w);
  weights_of_panel<What, R>(block, first, w);
}

// Asks for a share of some rows' gradients, whose turn comes after a block's other products: long sequences keep them far away.
REGARD_INLINE void fetch_queries(const BackwardBlock& block, int first, int share) {
  const int end = first + kMicroRows < block.rows ? first + kMicroRows : block.rows;
  for (int r = first; r < end; ++r)
    for (int c = kLanes * share; c < block.head_dim; c += kLanes * block.panels) prefetch<Fetch::kL2>(block.dq[r] + c);
}

// Panels outside: one of K, then one of V stays in the first-level cache while the rows pass.
void backward_weights(const BackwardBlock& block) noexcept {
  for (int w = 0; w < block.panels; ++w) {
    for (int r = 0; r < block.rows; r += kMicroRows) {
      if (block.dq != nullptr) fetch_queries(block, r, w);
      weights_of_rows<Products::kKeys, kMicroRows>(block, r, w);
    }
    for (int r = 0; r < block.rows; r += kMicroRows) weights_of_rows<Products::kValues, kMicroRows>(block, r, w);
  }
}

// ---- dk and dv: products with the weights turned round
// ---------------------------------------------------------------
inline constexpr unsigned kWholeGroup = (1u << kMicroRows) - 1;

// acc[r][c] += a[i][r] * b[i][16 c ...] over `rows` rows: a is read along its rows.
template <int R, int C>
REGARD_INLINE void accumulate_turned(Tile<R, C>& acc, const float* a, const float* b, int64_t ldb, int rows) {
  for (int i = 0; i < rows; ++i, a += kWeightStride, b += ldb) {
    F32 columns[C];
    REGARD_UNROLL
    for (int c = 0; c < C; ++c) columns[c] = load(b + kLanes * c);
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const F32 x = splat(a[r]);
      REGARD_UNROLL
      for (int c = 0; c < C; ++c) acc[r][c] = fma(x, columns[c], acc[r][c]);
    }
  }
}

// A group of R keys that all rows see by C vectors of columns, summed in registers over the rows.
template <int R, int C>
REGARD_INLINE void add_keys_of_all(int rows, const float* a, const float* b, int64_t ldb, float* sums, int64_t stride) {
  Tile<R, C> acc;
  load_tile<R, C>(acc, sums, stride);
  accumulate_turned<R, C>(acc, a, b, ldb, rows);
  store_tile<R, C>(acc, sums, stride);
}
template <int R, int C>
REGARD_INLINE void add_at_most_keys(int keys, int rows, const float* a, const float* b, int64_t ldb, float* sums, int64_t stride) {
  if constexpr (R > 1)
    if (keys < R) return add_at_most_keys<R - 1, C>(keys, rows, a, b, ldb, sums, stride);
  add_keys_of_all<R, C>(rows, a, b, ldb, sums, stride);
}
template <int C>
REGARD_INLINE int add_groups_of_all(int vectors, int keys, int rows, const float* a, const float* b, int64_t ldb, float* sums,
                                    int64_t stride) {
  if constexpr (C > 1)
    if (vectors < C) return add_groups_of_all<C - 1>(vectors, keys, rows, a, b, ldb, sums, stride);
  for (int j = 0; j < keys; j += kMicroRows)
    add_at_most_keys<kMicroRows, C>(keys - j, rows, a + j, b, ldb, sums + j * stride, stride);
  return C;
}
// sums[j][c] += a[i][j] * b[i][c] over all rows i, for all keys j. Columns outside: those of all rows then stay in the
// first-level cache while the keys pass.
void add_all(int keys, int rows, const float* a, const float* b, int64_t ldb, int padded, float* sums) {
  for (int c = 0; c < padded;)
    c += kLanes * add_groups_of_all<kMicroVecs>((padded - c) / kLanes, keys, rows, a, b + c, ldb, sums + c, padded);
}

// The same where only some pairs exist: bit r of pairs[i].
template <int C>
REGARD_INLINE void accumulate_turned_some(Tile<kMicroRows, C>& acc, const float* a, const float* b, int64_t ldb,
                                          int rows, const uint8_t* pairs) {
  for (int i = 0; i < rows; ++i, a += kWeightStride, b += ldb) {
    const unsigned on = pairs[i];
    if (on == 0) continue;
    F32 columns[C];
    REGARD_UNROLL
    for (int c = 0; c < C; ++c) columns[c] = load(b + kLanes * c);
    if (on == kWholeGroup) {
      REGARD_UNROLL
      for (int r = 0; r < kMicroRows; ++r) {
        const F32 x = splat(a[r]);
        REGARD_UNROLL
        for (int c = 0; c < C; ++c) acc[r][c] = fma(x, columns[c], acc[r][c]);
      }
    } else {
      REGARD_UNROLL
      for (int r = 0; r < kMicroRows; ++r) {
        const bool sees = ((on >> r) & 1) != 0;
        const F32 x = splat(a[r]);
        REGARD_UNROLL
        for (int c = 0; c < C; ++c) acc[r][c] = fma_if(sees, x, columns[c], acc[r][c]);
      }
    }
  }
}

// The rows that see some key of a group: from .. to, and which of its keys each of them sees.
struct Pairs {
  int from, to;
  const uint8_t* of;
};

// A group of kMicroRows keys by C vectors of columns, summed in registers over all rows.
template <int C>
REGARD_INLINE void add_vectors(const Pairs& pairs, const float* a, const float* b, int64_t ldb, float* sums, int64_t stride) {
  Tile<kMicroRows, C> acc;
  load_tile<kMicroRows, C>(acc, sums, stride);
  a += static_cast<int64_t>(pairs.from) * kWeightStride;
  b += pairs.from * ldb;
  const int rows = pairs.to - pairs.from;
  accumulate_turned_some<C>(acc, a, b, ldb, rows, pairs.of + pairs.from);
  store_tile<kMicroRows, C>(acc, sums, stride);
}
template <int C>
REGARD_INLINE int add_at_most(int vectors, const Pairs& pairs, const float* a, const float* b, int64_t ldb, float* sums,
                              int64_t stride) {
  if constexpr (C > 1)
    if (vectors < C) return add_at_most<C - 1>(vectors, pairs, a, b, ldb, sums, stride);
  add_vectors<C>(pairs, a, b, ldb, sums, stride);
  return C;
}
// sums[j][c] += a[i][j] * b[i][c] over the rows i, for the keys j of a group.
void add_group(const Pairs& pairs, const float* a, const float* b, int64_t ldb, int padded, float* sums) {
  for (int c = 0; c < padded;)
    c += kLanes * add_at_most<kMicroVecs>((padded - c) / kLanes, pairs, a, b + c, ldb, sums + c, padded);
}

// The keys of a block need not be a multiple of the group: the last groups are then moved back and leave out the keys
// that were done.
REGARD_INLINE Pairs pairs_of_group(const BackwardBlock& block, int key, unsigned wanted, uint8_t* of) {
  Pairs pairs{block.rows, 0, of};
  const int w = key / 64, shift = key % 64;
  for (int r = 0; r < block.rows; ++r) {
    uint64_t bits = block.seen[r][w] >> shift;
    if (shift > 64 - kMicroRows) bits |= block.seen[r][w + 1] << (64 - shift);
    of[r] = static_cast<uint8_t>(bits & wanted);
    if (of[r] == 0) continue;
    if (pairs.from > r) pairs.from = r;
    pairs.to = r + 1;
  }
  return pairs;
}

void backward_add_keys(const BackwardBlock& block, float* dk, float* dv) noexcept {
  const int keys = block.panels * kPanelKeys;
  const int dim = padded_dim(block.head_dim), value_dim = padded_dim(block.value_dim);
  if (block.seen == nullptr) {
    if (dv != nullptr) add_all(keys, block.rows, block.p, block.dout, block.dout_stride, value_dim, dv);
    if (dk != nullptr) add_all(keys, block.rows, block.ds, block.q, dim, dim, dk);
    return;
  }
  uint8_t of[kBlockRows];
  for (int j = 0; j < keys; j += kMicroRows) {
    const int key = j + kMicroRows <= keys ? j : keys - kMicroRows;
    const Pairs pairs = pairs_of_group(block, key, kWholeGroup & (kWholeGroup << (j - key)), of);
    if (pairs.from >= pairs.to) continue;
    if (dv != nullptr)
      add_group(pairs, block.p + key, block.dout, block.dout_stride, value_dim, dv + static_cast<int64_t>(key) * value_dim);
    if (dk != nullptr) add_group(pairs, block.ds + key, block.q, dim, dim, dk + static_cast<int64_t>(key) * dim);
  }
}

// ---- dq -------------------------------------------------------------------------------------------------------------
// acc[r][c] += ds[r][k] * key_k for keys that only some rows see: bit `shift + k` of seen[r].
template <int R, int C>
REGARD_INLINE void accumulate_keys_some(Tile<R, C>& acc, const float* ds, const float* keys, int64_t stride, int n,
                                        const uint64_t (&seen)[R], int shift) {
  for (int k = 0; k < n; ++k, keys += stride) {
    F32 columns[C];
    REGARD_UNROLL
    for (int c = 0; c < C; ++c) columns[c] = load(keys + kLanes * c);
    REGARD_UNROLL
    for (int r = 0; r < R; ++r) {
      const bool sees = ((seen[r] >> (shift + k)) & 1) != 0;
      const F32 x = splat(ds[r * kWeightStride + k]);
      REGARD_UNROLL
      for (int c = 0; c < C; ++c) acc[r][c] = fma_if(sees, x, columns[c], acc[r][c]);
    }
  }
}

// Runs of keys that all R rows see take the plain loop, runs that only some see the masked one; others are skipped.
template <int R, int C>
REGARD_INLINE void accumulate_keys(Tile<R, C>& acc, const BackwardBlock& block, int first, const float* keys,
                                   int64_t stride, int w) {
  const float* ds = block.ds + static_cast<int64_t>(first) * kWeightStride + kPanelKeys * w;
  keys += stride * kPanelKeys * w;
  uint64_t seen[R], left = 0, all = ~uint64_t{0};
  for (int r = 0; r < R; ++r) {
    seen[r] = block.seen[first + r][w];
    left |= seen[r];
    all &= seen[r];
  }
  while (left != 0) {
    const int k = std::countr_zero(left);
    const bool everyone = ((all >> k) & 1) != 0;
    const int n = everyone ? std::countr_one(all >> k) : std::countr_one((left & ~all) >> k);
    if (everyone)
      accumulate_tile<R, C>(acc, ds + k, kWeightStride, keys + k * stride, stride, n);
    else
      accumulate_keys_some<R, C>(acc, ds + k, keys + k * stride, stride, n, seen, k);
    left = k + n == 64 ? 0 : left & (~uint64_t{0} << (k + n));
  }
}

template <int R, int C>
REGARD_INLINE void add_columns(const BackwardBlock& block, int first, int column, float* const* dq) {
  const int64_t stride = padded_dim(block.head_dim);
  const int columns = block.head_dim - column;
  Tile<R, C> acc;
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    REGARD_UNROLL
    for (int c = 0; c < C; ++c) acc[r][c] = load_first(dq[first + r] + column + kLanes * c, lanes_below(columns, c));
  }
  if (block.seen == nullptr)
    accumulate_tile<R, C>(acc, block.ds + static_cast<int64_t>(first) * kWeightStride, kWeightStride,
                          block.k_rows + column, stride, block.panels * kPanelKeys);
  else
    for (int w = 0; w < block.panels; ++w) accumulate_keys<R, C>(acc, block, first, block.k_rows + column, stride, w);
  REGARD_UNROLL
  for (int r = 0; r < R; ++r) {
    REGARD_UNROLL
    for (int c = 0; c < C; ++c) store_first(dq[first + r] + column + kLanes * c, acc[r][c], lanes_below(columns, c));
  }
}
template <int R, int C>
REGARD_INLINE int add_columns_at_most(const BackwardBlock& block, int first, int column, float* const* dq) {
  if constexpr (C > 1)
    if (block.head_dim - column <= kLanes * (C - 1)) return add_columns_at_most<R, C - 1>(block, first, column, dq);
  add_columns<R, C>(block, first, column, dq);
  return C;
}

template <int R>
void add_micro_rows(const BackwardBlock& block, int first, float* const* dq) {
  if (block.seen != nullptr) {
    uint64_t any = 0;
    for (int r = 0; r < R; ++r)
      for (int w = 0; w < block.panels; ++w) any |= block.seen[first + r][w];
    if (any == 0) return;
  }
  for (int c = 0; c < block.head_dim;) c += kLanes * add_columns_at_most<R, kRowVectors<R>>(block, first, c, dq);
}
template <int R>
REGARD_INLINE void add_rows(const BackwardBlock& block, int first, float* const* dq) {
  if constexpr (R > 1)
    if (block.rows - first < R) return add_rows<R - 1>(block, first, dq);
  add_micro_rows<R>(block, first, dq);
}

void backward_add_queries(const BackwardBlock& block, float* const* dq) noexcept {
  for (int r = 0; r < block.rows; r += kMicroRows) add_rows<kMicroRows>(block, r, dq);
}

}  // namespace

extern const AttentionBackwardKernels kAttentionBackward;
const AttentionBackwardKernels kAttentionBackward = {
    .load_rows = backward_load_rows,
    .dot_rows = backward_dot_rows,
    .weights = backward_weights,
    .add_keys = backward_add_keys,
    .add_queries = backward_add_queries,
    .finish_rows = backward_finish_rows,
};
