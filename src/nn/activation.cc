#include "nn/activation.h"

#include "kernels/registry.h"

namespace regard::nn {

std::optional<Activation> activation_from_name(std::string_view name) noexcept {
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu") return Activation::kGeluErf;
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name == "relu") return Activation::kRelu;
  return std::nullopt;
}

void activate(Activation f, const float* x, int64_t n, float* y) {
  const kernels::ElementwiseKernels& k = *kernels::kernels().elementwise;
  switch (f) {
    case Activation::kSilu: return k.silu(x, n, y);
    case Activation::kGeluErf: return k.gelu_erf(x, n, y);
    case Activation::kGeluTanh: return k.gelu_tanh(x, n, y);
    case Activation::kRelu: return k.relu(x, n, y);
  }
}

void activate_gated(Activation f, const float* gate, const float* up, int64_t n, float* y) {
  const kernels::ElementwiseKernels& k = *kernels::kernels().elementwise;
  switch (f) {
    case Activation::kSilu: return k.silu_mul(gate, up, n, y);
    case Activation::kGeluErf: return k.gelu_erf_mul(gate, up, n, y);
    case Activation::kGeluTanh: return k.gelu_tanh_mul(gate, up, n, y);
    case Activation::kRelu: return k.relu_mul(gate, up, n, y);
  }
}

}  // namespace regard::nn
