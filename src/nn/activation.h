// The non-linear functions of feed-forward layers, by their names in configuration files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace regard::nn {

enum class Activation { kSilu, kGeluErf, kGeluTanh, kRelu };

/// "silu" and "swish"; "gelu" (by erf); "gelu_new", "gelu_fast", "gelu_pytorch_tanh" (by tanh); "relu".
std::optional<Activation> activation_from_name(std::string_view name) noexcept;

/// y = f(x), n elements; y may be x.
void activate(Activation f, const float* x, int64_t n, float* y);
/// y = f(gate) * up, n elements; y may be gate or up.
void activate_gated(Activation f, const float* gate, const float* up, int64_t n, float* y);

}  // namespace regard::nn
