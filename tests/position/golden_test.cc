// Rotary scalings and sinusoids against the results of Hugging Face transformers (tools/golden/numeric.py).
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "regard/position.h"
#include "support/golden.h"

namespace regard {
namespace {

RopeConfig config_of(const nlohmann::json& c) {
  RopeConfig config;
  config.rotary_dim = c["rotated"];
  config.theta = c["theta"];
  config.order = c["layout"] == "half" ? RopeOrder::kHalfSplit : RopeOrder::kInterleaved;
  const std::string type = c["rope_type"];
  config.scaling = type == "linear"     ? RopeScaling::kLinear
                   : type == "dynamic"  ? RopeScaling::kDynamic
                   : type == "yarn"     ? RopeScaling::kYarn
                   : type == "llama3"   ? RopeScaling::kLlama3
                   : type == "longrope" ? RopeScaling::kLongRope
                                        : RopeScaling::kNone;
  config.factor = c.value("factor", 1.0);
  config.original_context = c.contains("original_max_position_embeddings") ? c["original_max_position_embeddings"] : c["max_position"];
  config.declared_length = c["length"];
  config.beta_fast = c.value("beta_fast", 32.0);
  config.beta_slow = c.value("beta_slow", 1.0);
  config.mscale = c.value("mscale", 0.0);
  config.mscale_all_dim = c.value("mscale_all_dim", 0.0);
  config.low_freq_factor = c.value("low_freq_factor", 1.0);
  config.high_freq_factor = c.value("high_freq_factor", 4.0);
  config.short_factors = c.value("short_factor", std::vector<double>{});
  config.long_factors = c.value("long_factor", std::vector<double>{});
  if (c["attention_factor_given"]) config.attention_factor = c["attention_factor"];
  return config;
}

TEST(PositionGolden, FrequenciesMagnitudesAndTurnedVectors) {
  for (const auto& c : test::numeric_cases("rope")) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const Rope rope(config_of(c));
    const test::Array frequencies = test::numeric_array(c, "inv_freq");
    ASSERT_EQ(frequencies.values.size(), static_cast<size_t>(rope.half()));
    for (size_t i = 0; i < frequencies.values.size(); ++i)
      EXPECT_NEAR(rope.frequencies()[i], frequencies.values[i], 1e-12 * frequencies.values[i]) << i;
    EXPECT_NEAR(rope.magnitude(), c["attention_factor"].get<double>(), 1e-12);

    const test::Array x = test::numeric_array(c, "x"), y = test::numeric_array(c, "y");
    const auto positions = test::numeric_array(c, "positions").integers();
    const auto dim = static_cast<size_t>(x.shape.back());
    const size_t vectors_per_position = x.values.size() / dim / positions.size();
    std::vector<float> cos(static_cast<size_t>(rope.half())), sin(cos.size());
    for (size_t p = 0; p < positions.size(); ++p) {
      rope.angles(positions[p], cos.data(), sin.data());
      for (size_t v = 0; v < vectors_per_position; ++v) {
        // x is [positions, dim] or [heads, positions, dim].
        const size_t base = (v * positions.size() + p) * dim;
        for (size_t i = 0; i < dim; ++i) {
          double want = x.values[base + i];
          if (static_cast<int64_t>(i) < rope.config().rotary_dim) {
            const bool half = rope.config().order == RopeOrder::kHalfSplit;
            const auto h = static_cast<size_t>(rope.half());
            const size_t pair = half ? i % h : i / 2, a = half ? pair : 2 * pair, b = half ? pair + h : 2 * pair + 1;
            const double first = x.values[base + a], second = x.values[base + b], c0 = cos[pair], s0 = sin[pair];
            want = i == a ? first * c0 - second * s0 : second * c0 + first * s0;
          }
          ASSERT_NEAR(want, y.values[base + i], 5e-7 * 4) << positions[p] << " " << i;
        }
      }
    }
  }
}

TEST(PositionGolden, Sinusoids) {
  for (const auto& c : test::numeric_cases("sinusoidal")) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const std::string layout = c["layout"];
    const Sinusoidal kind = layout == "interleaved" ? Sinusoidal::kPaper : layout == "halves" ? Sinusoidal::kMarianHf : Sinusoidal::kTensor2Tensor;
    const test::Array y = test::numeric_array(c, "y");
    const auto positions = test::numeric_array(c, "positions").integers();
    const auto dim = c["dim"].get<size_t>();
    std::vector<float> row(dim);
    for (size_t p = 0; p < positions.size(); ++p) {
      sinusoidal(kind, positions[p] + c["first_position"].get<int64_t>(), row);
      for (size_t i = 0; i < dim; ++i) ASSERT_NEAR(row[i], y.values[p * dim + i], 1e-7) << positions[p] << " " << i;
    }
  }
}

}  // namespace
}  // namespace regard
