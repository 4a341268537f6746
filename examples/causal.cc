// Causal attention over six tokens, and who looked at whom.
#include <regard/attention.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

using regard::TensorView;

int main() {
  constexpr int64_t kTokens = 6, kDim = 16;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(kTokens * kDim), k(q), v(q), out(q), lse(kTokens), weights(kTokens * kTokens);
  for (auto* x : {&q, &k, &v})
    for (float& value : *x) value = normal(random);

  // [batch, heads, tokens, dim]; views never copy.
  const TensorView<const float> queries(q.data(), {1, 1, kTokens, kDim}), keys(k.data(), {1, 1, kTokens, kDim});
  const TensorView<const float> values(v.data(), {1, 1, kTokens, kDim});
  const TensorView<float> sums(lse.data(), {1, 1, kTokens});
  const regard::Mask mask = regard::Mask::causal();
  regard::attend(queries, keys, values, mask, {}, {out.data(), {1, 1, kTokens, kDim}}, sums);
  regard::attention_weights(queries, keys, sums, mask, {}, {0, kTokens}, {0, kTokens},
                            {weights.data(), {1, 1, kTokens, kTokens}});

  // A row of weights sums to 1, is exactly 0 behind its token, and times the values gives the output.
  bool holds = true;
  for (int64_t i = 0; i < kTokens; ++i) {
    std::printf("token %d looks at", static_cast<int>(i));
    double total = 0, first = 0;
    for (int64_t j = 0; j < kTokens; ++j) {
      const float w = weights[static_cast<size_t>(i * kTokens + j)];
      if (j <= i) std::printf(" %5.3f", static_cast<double>(w));
      holds = holds && (w == 0) == (j > i);
      total += w;
      first += static_cast<double>(w) * static_cast<double>(v[static_cast<size_t>(j * kDim)]);
    }
    std::printf("\n");
    holds = holds && std::fabs(total - 1) < 1e-6 && std::fabs(first - out[static_cast<size_t>(i * kDim)]) < 1e-5;
  }
  std::printf("%s\n", holds ? "the weights are those of the output" : "WRONG");
  return holds ? 0 : 1;
}
