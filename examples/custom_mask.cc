// A mask of one's own, as an expression: drawn, counted, and held against the same rule as a plain table of bits.
#include <regard/attention.h>
#include <regard/mask.h>
#include <regard/mask_view.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

using regard::Mask;
using regard::TensorView;

int main() {
  constexpr int64_t kTokens = 24, kDim = 16;
  // Four keys back and the first two always; but never the separators, tokens 8 and 16 (true there means "may not
  // look").
  const Mask separators = Mask::documents(std::vector<int64_t>(kTokens, 1),
                                          {0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0});
  const Mask mask = Mask::causal() & (Mask::window(4, 0) | Mask::prefix(2)) & ~separators;
  const regard::MaskView view(mask, {.q_len = kTokens, .kv_len = kTokens, .placement = {}, .limits = {}});
  std::printf("%s", regard::draw_text(view).c_str());

  std::vector<uint8_t> bits(kTokens * kTokens);
  int64_t pairs = 0;
  for (int64_t p = 0; p < kTokens; ++p)
    for (int64_t k = 0; k < kTokens; ++k) {
      const bool sees = k <= p && (k >= p - 4 || k < 2) && k != 8 && k != 16;
      bits[static_cast<size_t>(p * kTokens + k)] = sees;
      pairs += sees;
    }
  const Mask table =
      Mask::from_array(regard::Polarity::kKeep, TensorView<const uint8_t>(bits.data(), {kTokens, kTokens}));

  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(kTokens * kDim), by_rule(x), by_table(x);
  for (float& value : x) value = normal(random);
  const TensorView<const float> tokens(x.data(), {1, 1, kTokens, kDim});
  regard::attend(tokens, tokens, tokens, mask, {}, {by_rule.data(), {1, 1, kTokens, kDim}});
  regard::attend(tokens, tokens, tokens, table, {}, {by_table.data(), {1, 1, kTokens, kDim}});

  const bool same = by_rule == by_table, counted = view.count() == pairs;
  std::printf("%d pairs, %s; attention is %s that of the table\n", static_cast<int>(view.count()),
              counted ? "as counted by hand" : "WRONG", same ? "to the bit" : "NOT");
  return same && counted ? 0 : 1;
}
