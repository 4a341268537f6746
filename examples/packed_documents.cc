// Three documents packed into one row of 600 tokens: each sees itself alone, and gets what it would get alone.
#include <regard/attention.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

using regard::Mask;
using regard::TensorView;

int main() {
  constexpr int64_t kDim = 32, kLengths[] = {250, 90, 260};
  std::vector<int64_t> ids;  // which document a token belongs to
  for (int64_t d = 0; d < 3; ++d) ids.insert(ids.end(), static_cast<size_t>(kLengths[d]), d);
  const auto tokens = static_cast<int64_t>(ids.size());
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> q(static_cast<size_t>(tokens * kDim)), k(q), v(q), packed(q), poisoned(q);
  for (auto* x : {&q, &k, &v})
    for (float& value : *x) value = normal(random);
  const auto view = [](auto& x, int64_t first, int64_t count) {
    return TensorView<float>(x.data() + first * kDim, {1, 1, count, kDim});
  };
  const Mask mask = Mask::causal() & Mask::documents(ids);
  regard::attend(view(q, 0, tokens), view(k, 0, tokens), view(v, 0, tokens), mask, {}, view(packed, 0, tokens));

  double worst = 0;
  int64_t first = 0;
  for (const int64_t length : kLengths) {
    std::vector<float> alone(static_cast<size_t>(length * kDim));
    regard::attend(view(q, first, length), view(k, first, length), view(v, first, length), Mask::causal(), {},
                   view(alone, 0, length));
    for (size_t i = 0; i < alone.size(); ++i)
      worst = std::max(worst, static_cast<double>(std::fabs(alone[i] - packed[static_cast<size_t>(first * kDim) + i])));
    first += length;
  }
  // What a document does not see cannot matter, not even NaN: the last one is spoilt, the others keep their bits.
  const int64_t others = kLengths[0] + kLengths[1];
  for (auto* x : {&k, &v}) std::fill(x->begin() + others * kDim, x->end(), std::numeric_limits<float>::quiet_NaN());
  regard::attend(view(q, 0, tokens), view(k, 0, tokens), view(v, 0, tokens), mask, {}, view(poisoned, 0, tokens));
  const bool untouched = std::equal(packed.begin(), packed.begin() + others * kDim, poisoned.begin());
  std::printf("3 documents in a row of %d tokens: at most %.1e from each alone\n", static_cast<int>(tokens), worst);
  std::printf("with NaN in the last one the others are %s\n", untouched ? "the same to the bit" : "CHANGED");
  return worst < 1e-5 && untouched ? 0 : 1;
}
