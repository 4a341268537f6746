// The table of training.h, and dropout. Included inside an instruction set's region, behind the files that have the functions.

namespace {

void add_dropped_row(const uint64_t* keep, float factor, const float* x, const float* branch, int64_t n, float* y) noexcept {
  const F32 scale = splat(factor);
  for (int64_t i = 0; i < n; i += 16) {
    const Lanes kept = lanes(static_cast<uint32_t>(keep[i / 64] >> (i % 64)) & 0xFFFFu);
    const F32 value = select(kept, mul(load_upto(branch, i, n), scale), zero());
    store_upto(y, i, n, x == nullptr ? value : add(load_upto(x, i, n), value));
  }
}

}  // namespace

extern const TrainingKernels kTraining;
const TrainingKernels kTraining = {
    .layer_norm = layer_norm_with_stats,
    .rms_norm = rms_norm_with_stats,
    .layer_norm_backward = norm_backward_row<Centred::kYes>,
    .rms_norm_backward = norm_backward_row<Centred::kNo>,
    .norm_backward_weight = norm_backward_weight,
    .silu_backward = activation_backward_row<SiluSlope>,
    .gelu_erf_backward = activation_backward_row<GeluErfSlope>,
    .gelu_tanh_backward = activation_backward_row<GeluTanhSlope>,
    .relu_backward = activation_backward_row<ReluSlope>,
    .silu_mul_backward = gated_backward_row<SiluSlope>,
    .gelu_erf_mul_backward = gated_backward_row<GeluErfSlope>,
    .gelu_tanh_mul_backward = gated_backward_row<GeluTanhSlope>,
    .relu_mul_backward = gated_backward_row<ReluSlope>,
    .cross_entropy = cross_entropy_row,
    .add_dropped = add_dropped_row,
    .adamw = adamw_span,
    .sgd = sgd_span,
    .sum_of_squares = sum_of_squares_span,
    .multiply_adds = multiply_adds_in_registers,
};
