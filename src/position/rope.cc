// The frequency of every pair, by the published scaling rules. The formulas follow Hugging Face transformers, whose files
// we read; the sources are named beside them.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/math.h"
#include "regard/position.h"

namespace regard {
namespace {

constexpr double kTwoPi = 6.283185307179586476925;

void check(const RopeConfig& c) {
  require(c.rotary_dim >= 2 && c.rotary_dim % 2 == 0 && c.rotary_dim <= 65536,
          "[Rope] rotary_dim is {}; expected an even number from 2 to 65536", c.rotary_dim);
  require(std::isfinite(c.theta) && c.theta > 0, "[Rope] theta is {}; expected a finite number above 0", c.theta);
  const auto half = static_cast<size_t>(c.rotary_dim / 2);
  require(c.divisors.empty() || c.divisors.size() == half, "[Rope] {} divisors for {} pairs", c.divisors.size(), half);
  for (double d : c.divisors) require(std::isfinite(d) && d > 0, "[Rope] a divisor is {}; expected finite numbers above 0", d);
  require(std::isfinite(c.attention_factor) && c.attention_factor >= 0, "[Rope] attention_factor is {}; expected 0 or more", c.attention_factor);
  if (c.scaling == RopeScaling::kNone) return;
  require(std::isfinite(c.factor) && c.factor > 0, "[Rope] factor is {}; expected a finite number above 0", c.factor);
  if (c.scaling == RopeScaling::kLinear) return;
  require(c.original_context > 0, "[Rope] original_context is {}; this scaling needs the length before stretching", c.original_context);
  if (c.scaling == RopeScaling::kDynamic || c.scaling == RopeScaling::kLongRope)
    require(c.declared_length > 0, "[Rope] declared_length is {}; this scaling depends on the length of the text, so state it",
            c.declared_length);
  if (c.scaling == RopeScaling::kDynamic)
    require(c.rotary_dim > 2, "[Rope] dynamic scaling needs a rotary_dim above 2");
  if (c.scaling == RopeScaling::kYarn)
    require(c.beta_fast > c.beta_slow && c.beta_slow > 0 && std::isfinite(c.beta_fast),
            "[Rope] beta_fast {} and beta_slow {}; expected beta_fast > beta_slow > 0", c.beta_fast, c.beta_slow);
  if (c.scaling == RopeScaling::kLlama3)
    require(c.high_freq_factor > c.low_freq_factor && c.low_freq_factor > 0 && std::isfinite(c.high_freq_factor),
            "[Rope] low_freq_factor {} and high_freq_factor {}; expected 0 < low < high", c.low_freq_factor, c.high_freq_factor);
  if (c.scaling == RopeScaling::kLongRope) {
    require(c.short_factors.size() == half && c.long_factors.size() == half,
            "[Rope] {} short and {} long factors; expected {} of each", c.short_factors.size(), c.long_factors.size(), half);
    for (const auto* list : {&c.short_factors, &c.long_factors})
      for (double f : *list) require(std::isfinite(f) && f > 0, "[Rope] a long-rope factor is {}; expected finite numbers above 0", f);
  }
}

double pair_frequency(double theta, int64_t pair, int64_t rotary_dim) {
  return math::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(rotary_dim));
}

// Peng et al., 2023, "YaRN: efficient context window extension of large language models", section 3.2: pairs that turn often
// within the original context keep their frequency, slow ones are interpolated, a linear ramp lies between.
void apply_yarn(const RopeConfig& c, std::vector<double>& frequencies) {
  const auto dim_of_turns = [&](double turns) {
    return static_cast<double>(c.rotary_dim) * math::log(static_cast<double>(c.original_context) / (turns * kTwoPi)) / (2 * math::log(c.theta));
  };
  double low = dim_of_turns(c.beta_fast), high = dim_of_turns(c.beta_slow);
  if (c.ramp == RopeConfig::Ramp::kWholeDims) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(c.rotary_dim - 1));
  if (low == high) high += 0.001;  // no division by zero; the ramp becomes a step
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / c.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

double yarn_scale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * math::log(factor) + 1; }

// The Llama 3.1 rule (Grattafiori et al., 2024, "The Llama 3 herd of models", published with the model code): long waves are
// stretched, short ones kept, a blend between.
void apply_llama3(const RopeConfig& c, std::vector<double>& frequencies) {
  const auto original = static_cast<double>(c.original_context);
  for (double& f : frequencies) {
    const double wavelength = kTwoPi / f;
    if (wavelength < original / c.high_freq_factor) continue;
    if (wavelength > original / c.low_freq_factor) {
      f /= c.factor;
    } else {
      const double t = (original / wavelength - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
      f = (1 - t) * f / c.factor + t * f;
    }
  }
}

double published_magnitude(const RopeConfig& c) {
  if (c.scaling == RopeScaling::kYarn) {
    if (c.mscale > 0 && c.mscale_all_dim > 0) return yarn_scale(c.factor, c.mscale) / yarn_scale(c.factor, c.mscale_all_dim);
    return yarn_scale(c.factor, 1);
  }
  if (c.scaling == RopeScaling::kLongRope && c.factor > 1)
    // Ding et al., 2024, "LongRoPE", as published with Phi-3.
    return std::sqrt(1 + math::log(c.factor) / math::log(static_cast<double>(c.original_context)));
  return 1;
}

}  // namespace

Rope::Rope(const RopeConfig& config) : config_(config) {
  check(config);
  double theta = config.theta;
  if (config.scaling == RopeScaling::kDynamic) {
    // "NTK-aware" scaling by length (bloc97, 2023): the base grows once the text is longer than the original context.
    const double length = static_cast<double>(std::max(config.declared_length, config.original_context));
    const double stretch = config.factor * length / static_cast<double>(config.original_context) - (config.factor - 1);
    theta *= math::pow(stretch, static_cast<double>(config.rotary_dim) / static_cast<double>(config.rotary_dim - 2));
  }
  for (int64_t i = 0; i < half(); ++i) frequencies_.push_back(pair_frequency(theta, i, config.rotary_dim));
  switch (config.scaling) {
    case RopeScaling::kNone:
    case RopeScaling::kDynamic: break;
    case RopeScaling::kLinear:
      // Chen et al., 2023, "Extending context window of large language models via positional interpolation".
      for (double& f : frequencies_) f /= config.factor;
      break;
    case RopeScaling::kYarn: apply_yarn(config, frequencies_); break;
    case RopeScaling::kLlama3: apply_llama3(config, frequencies_); break;
    case RopeScaling::kLongRope: {
      const auto& factors = config.declared_length > config.original_context ? config.long_factors : config.short_factors;
      for (size_t i = 0; i < frequencies_.size(); ++i) frequencies_[i] /= factors[i];
      break;
    }
  }
  for (size_t i = 0; i < config.divisors.size(); ++i) frequencies_[i] /= config.divisors[i];
  const bool scaled = config.scaling == RopeScaling::kYarn || config.scaling == RopeScaling::kLongRope;
  magnitude_ = scaled && config.attention_factor > 0 ? config.attention_factor : published_magnitude(config);
}

void Rope::angles(int64_t position, float* cos, float* sin) const {
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    const auto [s, c] = math::sincos(static_cast<double>(position) * frequencies_[i]);
    cos[i] = static_cast<float>(c * magnitude_);
    sin[i] = static_cast<float>(s * magnitude_);
  }
}

}  // namespace regard
