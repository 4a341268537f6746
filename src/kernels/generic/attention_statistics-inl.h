// The kernels of attention_statistics.h, written once for every instruction set. Included inside an instruction set's
// region.

namespace {

// log2 of positive numbers, by their exponent and an odd series in (m - 1) / (m + 1) for m of [1/sqrt 2, sqrt 2). Error
// below 2^-22 of 1 + |log2 x|; of 0 and denormals some number below -126.
REGARD_INLINE F32 log2_at(const float* at) {
  constexpr int32_t kOne = 0x3F800000, kRootHalf = 0x3F3504F3;
  constexpr float kTwoLog2e = 2.885390081777927f;
  const I32 shifted = add_i(load_i(at), splat_i(kOne - kRootHalf));
  const F32 exponent = sub(to_float(shift_right(shifted, 23)), splat(127.0f));
  const F32 m = bits_as_float(add_i(bit_and(shifted, splat_i(0x007FFFFF)), splat_i(kRootHalf)));
  const F32 t = div(sub(m, splat(1.0f)), add(m, splat(1.0f))), square = mul(t, t);
  F32 series = splat(kTwoLog2e / 9);
  series = fma(series, square, splat(kTwoLog2e / 7));
  series = fma(series, square, splat(kTwoLog2e / 5));
  series = fma(series, square, splat(kTwoLog2e / 3));
  series = fma(series, square, splat(kTwoLog2e));
  return fma(t, series, exponent);
}

TileSums tile_sums(const float* weights, const uint64_t* seen, const uint64_t* set) noexcept {
  constexpr int kPerWord = kPanelKeys / kLanes;
  alignas(64) static constexpr float kIndices[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const F32 indices = load(kIndices);
  F32 logs = zero(), places = zero(), of_set = zero();
  int32_t first = -1;
  for (int v = 0; v < kTileKeys / kLanes; ++v) {
    const uint32_t bits = static_cast<uint32_t>(seen[v / kPerWord] >> (kLanes * (v % kPerWord))) & 0xFFFF;
    if (bits == 0) continue;
    const float* at = weights + kLanes * v;
    const F32 p = load(at);
    logs = fma(p, log2_at(at), logs);
    places = fma(p, add(indices, splat(static_cast<float>(kLanes * v))), places);
    if (set != nullptr) {
      const uint32_t in = static_cast<uint32_t>(set[v / kPerWord] >> (kLanes * (v % kPerWord))) & 0xFFFF;
      of_set = add(of_set, select(lanes(in), p, zero()));
    }
    if (first >= 0) continue;
    const uint32_t largest = at_least(load_i(at), splat_i(0x3F800000)) & bits;
    if (largest != 0) first = kLanes * v + std::countr_zero(largest);
  }
  return {reduce_add(logs), reduce_add(places), reduce_add(of_set), first};
}

}  // namespace

extern const AttentionStatisticsKernels kAttentionStatistics;
const AttentionStatisticsKernels kAttentionStatistics = {.micro_rows = kMicroRows, .tile_sums = tile_sums};
