// A prompt in pages, two continuations that share it, and decoding token by token: the same bits as all at once.
#include <regard/attention.h>
#include <regard/kv_cache.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

using regard::Mask;
using regard::TensorView;

int main() {
  constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 32, kPrompt = 300, kTokens = 340;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> q(kHeads * kTokens * kDim), k(kKvHeads * kTokens * kDim), v(k), whole(q), steps(q);
  for (auto* x : {&q, &k, &v})
    for (float& value : *x) value = normal(random);
  // Tokens [first, first + count) of [heads, tokens, dim].
  const auto part = [](auto& x, int64_t heads, int64_t first, int64_t count) {
    TensorView<float> view(x.data() + first * kDim, {heads, count, kDim});
    view.strides[0] = kTokens * kDim;
    return view;
  };

  const regard::CachePool pool({.num_kv_heads = kKvHeads, .head_dim = kDim}, 64);
  regard::AttentionCache prompt = pool.cache();
  prompt.append(part(k, kKvHeads, 0, kPrompt), part(v, kKvHeads, 0, kPrompt));
  prompt.attend(part(q, kHeads, 0, kPrompt), 0, Mask::causal(), {}, part(steps, kHeads, 0, kPrompt));
  const int64_t pages = pool.pages_in_use();
  regard::AttentionCache one = prompt.fork(), two = prompt.fork();
  for (int64_t i = kPrompt; i < kTokens; ++i) {
    one.append(part(k, kKvHeads, i, 1), part(v, kKvHeads, i, 1));
    two.append(part(v, kKvHeads, i, 1), part(k, kKvHeads, i, 1));  // says something else
    one.attend(part(q, kHeads, i, 1), i, Mask::causal(), {}, part(steps, kHeads, i, 1));
  }
  const TensorView<const float> queries(q.data(), {1, kHeads, kTokens, kDim});
  const TensorView<const float> keys(k.data(), {1, kKvHeads, kTokens, kDim}),
      values(v.data(), {1, kKvHeads, kTokens, kDim});
  regard::attend(queries, keys, values, Mask::causal(), {}, {whole.data(), {1, kHeads, kTokens, kDim}});

  const bool same = std::equal(whole.begin(), whole.end(), steps.begin());
  std::printf("the prompt takes %d pages, with two continuations %d\n", static_cast<int>(pages),
              static_cast<int>(pool.pages_in_use()));
  std::printf("decoded token by token: %s\n", same ? "the same bits as all at once" : "DIFFERENT");
  return same && pool.pages_in_use() < 2 * pages ? 0 : 1;
}
