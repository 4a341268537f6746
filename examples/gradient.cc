// The gradient of a loss through attention, held against finite differences.
#include <regard/attention_backward.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

using regard::TensorView;

namespace {

constexpr int64_t kTokens = 20, kDim = 8;
using Numbers = std::vector<float>;

TensorView<float> view(Numbers& x) { return {x.data(), {1, 1, kTokens, kDim}}; }

// loss = sum of target * attention(q, k, v)
double loss(Numbers& q, Numbers& k, Numbers& v, const Numbers& target) {
  Numbers out(q.size());
  regard::attend(view(q), view(k), view(v), regard::Mask::causal(), {}, view(out));
  double sum = 0;
  for (size_t i = 0; i < out.size(); ++i) sum += static_cast<double>(out[i]) * static_cast<double>(target[i]);
  return sum;
}

}  // namespace

int main() {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  Numbers q(kTokens * kDim), k(q), v(q), target(q), out(q), lse(kTokens), dq(q), dk(q), dv(q);
  for (auto* x : {&q, &k, &v, &target})
    for (float& value : *x) value = normal(random);
  const TensorView<float> sums(lse.data(), {1, 1, kTokens});
  regard::attend(view(q), view(k), view(v), regard::Mask::causal(), {}, view(out), sums);
  regard::attend_backward(view(q), view(k), view(v), view(out), sums, view(target), {}, regard::Mask::causal(), {},
                          view(dq), view(dk), view(dv));
  double worst = 0;
  const char* names[] = {"q", "k", "v"};
  Numbers *inputs[] = {&q, &k, &v}, *gradients[] = {&dq, &dk, &dv};
  for (size_t t = 0; t < 3; ++t)
    for (size_t i = 45; i < q.size(); i += 31) {
      constexpr float kStep = 0.01f;
      float& x = (*inputs[t])[i];
      const float before = x, above = before + kStep, below = before - kStep;
      x = above;
      const double high = loss(q, k, v, target);
      x = below;
      const double slope = (high - loss(q, k, v, target)) / (static_cast<double>(above) - static_cast<double>(below));
      x = before;
      const double gradient = (*gradients[t])[i];
      worst = std::max(worst, std::fabs(gradient - slope));
      if (i == 45) std::printf("d loss / d %s[45]: gradient %9.6f, difference %9.6f\n", names[t], gradient, slope);
    }
  std::printf("largest difference %.1e\n", worst);
  return worst < 2e-3 ? 0 : 1;
}
