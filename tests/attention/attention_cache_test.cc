// The public caches: the bits of attend() over the same tokens, and what they refuse.
#include <gtest/gtest.h>

#include "attention/calls.h"
#include "attention/terms.h"
#include "regard/kv_cache.h"

namespace regard {
namespace {

using namespace testing_attention;

CacheShape shape_of(const Problem& p) { return {.num_kv_heads = p.num_kv_heads, .head_dim = p.d, .value_dim = p.dv}; }
CachedAttentionOptions options_for(const Problem& p) { return {.scale = p.scale, .softcap = p.softcap}; }

// Tokens [first, first + n) of the problem's one batch row.
TensorView<const float> part(const float* data, int64_t heads, int64_t length, int64_t dim, int64_t first, int64_t n) {
  TensorView<const float> view(data + first * dim, {heads, n, dim});
  view.strides[0] = length * dim;
  return view;
}
TensorView<const float> q_part(const Problem& p, int64_t first, int64_t n) {
  return part(p.q.data(), p.num_q_heads, p.q_len, p.d, first, n);
}
void append(AttentionCache& cache, const Problem& p, int64_t first, int64_t n) {
  cache.append(part(p.k.data(), p.num_kv_heads, p.kv_len, p.d, first, n),
               part(p.v.data(), p.num_kv_heads, p.kv_len, p.dv, first, n));
}
TensorView<float> out_part(const Problem& p, Result& r, int64_t first, int64_t n) {
  TensorView<float> view(r.out.data() + first * p.dv, {p.num_q_heads, n, p.dv});
  view.strides[0] = p.q_len * p.dv;
  return view;
}
TensorView<float> lse_part(const Problem& p, Result& r, int64_t first, int64_t n) {
  TensorView<float> view(r.lse.data() + first, {p.num_q_heads, n});
  view.strides[0] = p.q_len;
  return view;
}

Problem problem(uint64_t seed = 9) {
  Problem p;
  p.num_kv_heads = 2, p.num_q_heads = 6, p.d = 40, p.dv = 24, p.q_len = p.kv_len = 600, p.softcap = 20;
  return p.fill(seed);
}
const Mask& window() {
  static const Mask mask = Mask::causal() & Mask::window(200, 0);
  return mask;
}
std::vector<AttentionCache> one_of_each(const CacheShape& shape) {
  std::vector<AttentionCache> all;
  all.push_back(AttentionCache::contiguous(shape));
  all.push_back(CachePool(shape).cache());
  all.push_back(CachePool(shape, 16).cache());
  all.push_back(AttentionCache::ring(shape, window(), 512));
  return all;
}

TEST(AttentionCache, GivesTheBitsOfAttend) {
  const Problem p = problem();
  const Result whole = run(p, window());
  for (int64_t chunk : {1, 50, 250})
    for (AttentionCache& cache : one_of_each(shape_of(p))) {
      Result got(p);
      for (int64_t at = 0; at < p.q_len; at += chunk) {
        const int64_t n = std::min(chunk, p.q_len - at);
        append(cache, p, at, n);
        ASSERT_EQ(cache.size(), at + n);
        cache.attend(q_part(p, at, n), at, window(), options_for(p), out_part(p, got, at, n), lse_part(p, got, at, n));
      }
      ASSERT_EQ(got, whole) << chunk;
      const AttentionCache fork = cache.fork();
      Result again(p);
      fork.attend(q_part(p, 590, 10), 590, window(), options_for(p), out_part(p, again, 590, 10));
      for (int64_t h = 0; h < p.num_q_heads; ++h)
        ASSERT_TRUE(
            same_bits(again.out.data() + (h * 600 + 590) * p.dv, whole.out.data() + (h * 600 + 590) * p.dv, 10 * p.dv));
    }
}

// The terms of attend() for the queries [at, at + n), of which the keys below at + n are there.
CachedAttentionOptions options_for(const TermProblem& t, int64_t at, int64_t n) {
  const AttentionOptions whole = t.options();
  CachedAttentionOptions o = options_for(t.p);
  if (whole.bias.rank > 0) {
    o.bias = whole.bias;
    if (o.bias.shape[2] > 1) o.bias.data += at * o.bias.strides[2], o.bias.shape[2] = n;
    if (o.bias.shape[3] > 1) o.bias.shape[3] = at + n;
  }
  o.alibi = whole.alibi;
  o.t5 = whole.t5;
  o.xl = whole.xl;
  o.sink = whole.sink;
  return o;
}

TEST(AttentionCache, GivesTheBitsOfAttendWithScoreTerms) {
  const Problem p = problem();
  for (Wanted wanted : wanted_terms()) {
    wanted.dropout = 0;
    const TermProblem t(p, wanted);
    Result whole(p);
    attend(q_view(p), k_view(p), v_view(p), window(), t.options(), out_view(p, whole), lse_view(p, whole));
    for (int64_t chunk : {1, 250})
      for (AttentionCache& cache : one_of_each(shape_of(p))) {
        Result got(p);
        for (int64_t at = 0, n; at < p.q_len; at += n) {
          n = at < 500 ? 250 : std::min(chunk, p.q_len - at);  // a prompt, then step by step
          append(cache, p, at, n);
          cache.attend(q_part(p, at, n), at, window(), options_for(t, at, n), out_part(p, got, at, n), lse_part(p, got, at, n));
        }
        ASSERT_EQ(got, whole) << wanted.name << ", chunks of " << chunk;
      }
  }
}

TEST(AttentionCache, RefusesScoreTermsThatDoNotFit) {
  const Problem p = problem();
  AttentionCache cache = AttentionCache::contiguous(shape_of(p));
  append(cache, p, 0, 10);
  Result r(p);
  const auto message = [&](const CachedAttentionOptions& options) {
    try {
      cache.attend(q_part(p, 8, 2), 8, Mask::causal(), options, out_part(p, r, 8, 2));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::vector<float> numbers(6 * 2 * 11);
  CachedAttentionOptions bias, alibi, sink;
  bias.bias = TensorView<const float>(numbers.data(), {1, 6, 2, 11});
  alibi.alibi = Alibi{{1.0f, 2.0f}};
  sink.sink = TensorView<const float>(numbers.data(), {5});
  EXPECT_NE(message(bias).find("bias has shape [1, 6, 2, 11], expected [1, 6, 2, 10]"), std::string::npos) << message(bias);
  EXPECT_NE(message(alibi).find("alibi has 2 slopes"), std::string::npos) << message(alibi);
  EXPECT_NE(message(sink).find("sink has shape [5]"), std::string::npos) << message(sink);
}

TEST(AttentionCache, SavedHalfWayAndRestored) {
  const Problem p = problem();
  const Result whole = run(p, window());
  for (AttentionCache& from : one_of_each(shape_of(p))) {
    append(from, p, 0, 500);
    const std::vector<uint8_t> bytes = from.save();
    for (AttentionCache& to : one_of_each(shape_of(p))) {
      to.restore(bytes);
      append(to, p, 500, 100);
      Result got(p);
      to.attend(q_part(p, 500, 100), 500, window(), options_for(p), out_part(p, got, 500, 100));
      for (int64_t h = 0; h < p.num_q_heads; ++h)
        ASSERT_TRUE(
            same_bits(got.out.data() + (h * 600 + 500) * p.dv, whole.out.data() + (h * 600 + 500) * p.dv, 100 * p.dv));
    }
  }
}

TEST(AttentionCache, ManySequencesOfOnePool) {
  const Problem prompt = problem(9), a = problem(10), b = problem(11);
  const CachePool pool(shape_of(prompt), 128);
  AttentionCache common = pool.cache();
  append(common, prompt, 0, 256);
  std::vector<AttentionCache> users;
  users.push_back(common.fork());
  users.push_back(common.fork());
  EXPECT_EQ(pool.pages_in_use(), 2);
  append(users[0], a, 256, 100);
  append(users[1], b, 256, 30);
  EXPECT_EQ(pool.pages_in_use(), 4);
  EXPECT_EQ(pool.page_keys(), 128);
  EXPECT_GE(pool.bytes(), 4 * 128 * 2 * (40 + 24) * 4);
  std::vector<Result> got(2, Result(prompt)), want(2, Result(prompt));
  const CachedQueries both[] = {
      {&users[0], q_part(a, 256, 100), 256, out_part(a, got[0], 256, 100), lse_part(a, got[0], 256, 100)},
      {&users[1], q_part(b, 285, 1), 285, out_part(b, got[1], 285, 1), lse_part(b, got[1], 285, 1)}};
  attend(both, Mask::causal(), options_for(prompt));
  for (int i = 0; i < 2; ++i) {
    AttentionCache alone = AttentionCache::contiguous(shape_of(prompt));
    append(alone, prompt, 0, 256);
    append(alone, i == 0 ? a : b, 256, i == 0 ? 100 : 30);
    Result& r = want[static_cast<size_t>(i)];
    if (i == 0)
      alone.attend(q_part(a, 256, 100), 256, Mask::causal(), options_for(a), out_part(a, r, 256, 100),
                   lse_part(a, r, 256, 100));
    else
      alone.attend(q_part(b, 285, 1), 285, Mask::causal(), options_for(b), out_part(b, r, 285, 1),
                   lse_part(b, r, 285, 1));
    EXPECT_EQ(got[static_cast<size_t>(i)], r) << i;
  }
  const std::vector<int64_t> parents = {1, 1, 1};
  reorder(users, parents);
  ASSERT_EQ(users.size(), 3u);
  EXPECT_EQ(pool.pages_in_use(), 3) << "the other sequence's page is free again";
  for (const AttentionCache& user : users) EXPECT_EQ(user.size(), 286);
}

TEST(AttentionCache, AnyStrides) {
  Problem p = problem();
  p.softcap = 0;
  AttentionCache dense = AttentionCache::contiguous(shape_of(p)), strided = AttentionCache::contiguous(shape_of(p));
  append(dense, p, 0, 100);
  // The same numbers as [tokens, heads, dim] with every second element used.
  std::vector<float> k(static_cast<size_t>(100 * 2 * 40 * 2), NAN), v(static_cast<size_t>(100 * 2 * 24 * 2), NAN);
  for (int64_t t = 0; t < 100; ++t)
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < 40; ++i) k[static_cast<size_t>(((t * 2 + h) * 40 + i) * 2)] = p.key(0, h, t)[i];
      for (int64_t i = 0; i < 24; ++i) v[static_cast<size_t>(((t * 2 + h) * 24 + i) * 2)] = p.value(0, h, t)[i];
    }
  TensorView<const float> k_view(k.data(), {2, 100, 40}), v_view(v.data(), {2, 100, 24});
  k_view.strides = {80, 160, 2, 0}, v_view.strides = {48, 96, 2, 0};
  strided.append(k_view, v_view);
  EXPECT_EQ(strided.save(), dense.save());
  Result a(p), b(p);
  dense.attend(q_part(p, 90, 10), 90, Mask::causal(), {}, out_part(p, a, 90, 10));
  std::vector<float> out(static_cast<size_t>(10 * 6 * 24 * 2));
  TensorView<float> out_view(out.data(), {6, 10, 24});
  out_view.strides = {48, 6 * 48, 2, 0};
  strided.attend(q_part(p, 90, 10), 90, Mask::causal(), {}, out_view);
  for (int64_t h = 0; h < 6; ++h)
    for (int64_t t = 0; t < 10; ++t)
      for (int64_t c = 0; c < 24; ++c)
        ASSERT_EQ(bits(*out_view.at(h, t, c)), bits(a.out[static_cast<size_t>((h * 600 + 90 + t) * 24 + c)]));
}

TEST(AttentionCache, RefusesWhatMakesNoSense) {
  const Problem p = problem();
  const CacheShape shape = shape_of(p);
  expect_refused(Code::kInvalidArgument, {"head_dim", "0"}, [] { AttentionCache::contiguous({.num_kv_heads = 1}); });
  expect_refused(Code::kInvalidArgument, {"value_dim", "513"}, [] { CachePool({.head_dim = 8, .value_dim = 513}); });
  expect_refused(Code::kInvalidArgument, {"num_kv_heads", "0"},
                 [] { AttentionCache::contiguous({.num_kv_heads = 0, .head_dim = 8}); });
  expect_refused(Code::kInvalidArgument, {"max_bytes", "-1"},
                 [&] { AttentionCache::contiguous(shape, {.max_bytes = -1}); });
  expect_refused(Code::kInvalidArgument, {"48"}, [&] { CachePool(shape, 48); });
  expect_refused(Code::kUnsupported, {"i64"}, [] { AttentionCache::contiguous({.head_dim = 8, .type = DType::kI64}); });
  expect_refused(Code::kInvalidArgument, {"capacity"}, [&] { AttentionCache::ring(shape, window(), 0); });

  AttentionCache cache = AttentionCache::contiguous(shape, {.max_tokens = 300});
  append(cache, p, 0, 300);
  expect_refused(Code::kResourceExhausted, {"301", "300"}, [&] { append(cache, p, 300, 1); });
  expect_refused(Code::kInvalidArgument, {"[AttentionCache::append]", "k has shape [2, 3, 24]", "[2, tokens, 40]"},
                 [&] { cache.append(part(p.k.data(), 2, 600, 24, 0, 3), part(p.v.data(), 2, 600, 24, 0, 3)); });
  expect_refused(Code::kInvalidArgument, {"v has shape [2, 4, 24]", "[2, 3, 24]"},
                 [&] { cache.append(part(p.k.data(), 2, 600, 40, 0, 3), part(p.v.data(), 2, 600, 24, 0, 4)); });
  Result r(p);
  const auto attend_with = [&](TensorView<const float> q, int64_t q_begin, TensorView<float> out,
                               TensorView<float> lse) { cache.attend(q, q_begin, Mask::causal(), {}, out, lse); };
  expect_refused(Code::kInvalidArgument, {"q has shape [6, 3, 24]"},
                 [&] { attend_with(part(p.q.data(), 6, 600, 24, 0, 3), 0, out_part(p, r, 0, 3), {}); });
  expect_refused(Code::kInvalidArgument, {"5 query heads", "2 KV heads"},
                 [&] { attend_with(part(p.q.data(), 5, 600, 40, 0, 3), 0, out_part(p, r, 0, 3), {}); });
  expect_refused(Code::kInvalidArgument, {"out has shape [6, 4, 24]", "[6, 3, 24]"},
                 [&] { attend_with(q_part(p, 0, 3), 0, out_part(p, r, 0, 4), {}); });
  expect_refused(Code::kInvalidArgument, {"lse has shape [6, 4]", "[6, 3]"},
                 [&] { attend_with(q_part(p, 0, 3), 0, out_part(p, r, 0, 3), lse_part(p, r, 0, 4)); });
  expect_refused(Code::kInvalidArgument, {"q_begin", "-1"},
                 [&] { attend_with(q_part(p, 0, 3), -1, out_part(p, r, 0, 3), {}); });
  expect_refused(Code::kInvalidArgument, {"no cache"}, [&] {
    const CachedQueries none{nullptr, q_part(p, 0, 3), 0, out_part(p, r, 0, 3), {}};
    attend({&none, 1}, Mask::causal(), {});
  });
  AttentionCache other = AttentionCache::contiguous({.num_kv_heads = 2, .head_dim = 8, .value_dim = 24});
  expect_refused(Code::kInvalidArgument, {"head_dim 40", "with 8", "one shape"}, [&] {
    const CachedQueries two[] = {{&cache, q_part(p, 0, 3), 0, out_part(p, r, 0, 3), {}},
                                 {&other, q_part(p, 0, 3), 0, out_part(p, r, 0, 3), {}}};
    attend(two, Mask::causal(), {});
  });
  // A ring answers for what it has, and says what it has lost.
  AttentionCache ring = AttentionCache::ring(shape, window(), 256);
  for (int64_t at = 0; at < 600; at += 50) append(ring, p, at, 50);
  EXPECT_EQ(ring.begin(), 344);
  expect_refused(Code::kInvalidArgument, {"\"causal\"", "344"},
                 [&] { ring.attend(q_part(p, 599, 1), 599, Mask::causal(), {}, out_part(p, r, 599, 1)); });
  expect_refused(Code::kInvalidArgument, {"344"},
                 [&] { ring.attend(q_part(p, 500, 1), 500, window(), {}, out_part(p, r, 500, 1)); });
  ring.attend(q_part(p, 544, 1), 544, window(), {}, out_part(p, r, 544, 1));
}

}  // namespace
}  // namespace regard
