// Attention over parts of the keys: merging finished results, and running results whose bits are those of one call.
#include <gtest/gtest.h>

#include <rapidcheck.h>

#include <cfenv>

#include "attention/calls.h"
#include "attention/terms.h"
#include "regard/attention_merge.h"
#include "regard/runtime.h"

namespace regard {
namespace {

using namespace testing_attention;

TensorView<const float> keys_from(TensorView<const float> tensor, int64_t begin, int64_t end) {
  tensor.data += begin * tensor.strides[2];
  tensor.shape[2] = end - begin;
  return tensor;
}

AttentionOptions at_keys(AttentionOptions o, int64_t begin, int64_t end) {
  o.k_begin = {o.k_begin[0] + begin};
  if (o.bias.rank == 4 && o.bias.shape[3] > 1) {
    o.bias.data += begin * o.bias.strides[3];
    o.bias.shape[3] = end - begin;
  }
  o.sink = {};
  return o;
}

Result part(const Problem& p, const Mask& mask, const AttentionOptions& o, int64_t begin, int64_t end) {
  Result r(p);
  attend(q_view(p), keys_from(k_view(p), begin, end), keys_from(v_view(p), begin, end), mask, at_keys(o, begin, end),
         out_view(p, r), lse_view(p, r));
  return r;
}

Result merged(const Problem& p, Result a, Result b) {
  Result r(p);
  merge_attention(out_view(p, a), lse_view(p, a), out_view(p, b), lse_view(p, b), out_view(p, r), lse_view(p, r));
  return r;
}

TEST(Merge, AnyCutsInAnyOrderGiveTheWholeToRounding) {
  rc::check("cuts", [] {
    Problem p = with_lengths(4, 400, 16, 12);
    p.fill(*rc::gen::inRange<uint64_t>(1, 1000));
    const std::vector<Mask> all = masks();
    const Mask mask = all[*rc::gen::inRange<size_t>(0, all.size())];
    std::vector<int64_t> cuts = *rc::gen::container<std::vector<int64_t>>(3, rc::gen::inRange<int64_t>(0, 401));
    std::sort(cuts.begin(), cuts.end());
    const int64_t ends[5] = {0, cuts[0], cuts[1], cuts[2], 400};
    std::vector<Result> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(part(p, mask, options_of(p), ends[i], ends[i + 1]));
    const Result left = merged(p, merged(p, merged(p, parts[0], parts[1]), parts[2]), parts[3]);
    const Result tree = merged(p, merged(p, parts[3], parts[1]), merged(p, parts[2], parts[0]));
    expect_close(p, mask, left, "from the left " + mask.text());
    expect_close(p, mask, tree, "as a tree " + mask.text());
    RC_ASSERT(!testing::Test::HasFailure());
    RC_ASSERT(merged(p, parts[0], parts[1]) == merged(p, parts[1], parts[0]));
  });
}

TEST(Merge, EmptyAndUnusableParts) {
  Problem p;
  p.dv = 2;
  const auto row = [&](float x, float y, float lse) {
    Result r(p);
    r.out = {x, y}, r.lse = {lse};
    return r;
  };
  const float none = -INFINITY;
  const Result a = row(1.5f, -0.0f, 0.7f), poison = row(NAN, INFINITY, none);
  EXPECT_EQ(merged(p, a, poison), a);
  EXPECT_EQ(merged(p, poison, a), a);
  EXPECT_EQ(merged(p, poison, poison), row(0, 0, none));
  for (const float lse : {INFINITY, NAN})
    for (const Result& other : {a, poison}) {
      const Result r = merged(p, row(1, 1, lse), other);
      EXPECT_TRUE(std::isnan(r.out[0]) && std::isnan(r.out[1]) && std::isnan(r.lse[0]));
    }
  // A NaN among the values of a part that counts comes through where it stands.
  const Result nan = merged(p, a, row(NAN, 2, 0.1f));
  EXPECT_TRUE(std::isnan(nan.out[0]));
  EXPECT_NEAR(nan.out[1], 2 / (1 + std::exp(0.6)), 1e-6);
  // Sums beyond what f32 can hold as exponentials.
  const Result large = merged(p, row(1, 0, 3000), row(3, 0, 3000));
  EXPECT_EQ(large.out[0], 2.0f);
  EXPECT_NEAR(large.lse[0], 3000 + std::log(2.0), 3e-4);
}

TEST(Merge, TheCallersRoundingDoesNotMatter) {
  Problem p = with_lengths(5, 600, 8, 8);
  p.fill(5);
  const std::vector<float> sinks = {0.5f, 1, 2, 3};
  const auto all = [&](int rounding) {
    const Result a = part(p, Mask::full(), options_of(p), 0, 256), b = part(p, Mask::full(), options_of(p), 256, 600);
    std::vector<Result> results;
    PartialAttention state(1, 4, 5, 8), behind(1, 4, 5, 8);
    attend_onto(state, q_view(p), keys_from(k_view(p), 0, 256), keys_from(v_view(p), 0, 256), Mask::full(),
                at_keys(options_of(p), 0, 256));
    attend_onto(behind, q_view(p), keys_from(k_view(p), 256, 600), keys_from(v_view(p), 256, 600), Mask::full(),
                at_keys(options_of(p), 256, 600));
    std::fesetround(rounding);
    results.push_back(merged(p, a, b));
    add_sink(out_view(p, results[0]), lse_view(p, results[0]), TensorView<const float>(sinks.data(), {4}));
    results.emplace_back(p);
    state.fold(behind);
    state.finish({}, out_view(p, results[1]), lse_view(p, results[1]));
    std::fesetround(FE_TONEAREST);
    return results;
  };
  EXPECT_TRUE(all(FE_TONEAREST) == all(FE_UPWARD));
}

TEST(Merge, InPlaceOverEitherPart) {
  Problem p = with_lengths(5, 60, 8, 8);
  p.fill(4);
  Result a = part(p, Mask::full(), options_of(p), 0, 20), b = part(p, Mask::full(), options_of(p), 20, 60);
  const Result want = merged(p, a, b);
  Result x = a, y = b;
  merge_attention(out_view(p, x), lse_view(p, x), out_view(p, b), lse_view(p, b), out_view(p, x), lse_view(p, x));
  merge_attention(out_view(p, a), lse_view(p, a), out_view(p, y), lse_view(p, y), out_view(p, y), lse_view(p, y));
  EXPECT_EQ(x, want);
  EXPECT_EQ(y, want);
  TensorView<float> shifted = out_view(p, x);
  shifted.data += 8, shifted.shape[2] = 4;
  TensorView<float> sums = lse_view(p, x);
  sums.shape[2] = 4;
  TensorView<float> here = out_view(p, x);
  here.shape[2] = 4;
  expect_refused(Code::kInvalidArgument, {"out", "out_a", "overlaps"},
                 [&] { merge_attention(here, sums, here, sums, shifted, sums); });
  expect_refused(Code::kInvalidArgument, {"lse_b", "[1, 4, 4]"}, [&] {
    merge_attention(out_view(p, a), lse_view(p, a), out_view(p, b), sums, out_view(p, x), lse_view(p, x));
  });
}

TEST(Merge, ASinkIsAddedOnceAndLast) {
  Problem p = with_lengths(6, 90, 16, 8);
  p.fill(6);
  std::vector<float> sinks = {0.5f, -INFINITY, 40.0f, -2.0f};
  PairTerms terms;
  terms.sinks = sinks;
  const Mask mask = Mask::parse("causal & ~window(2, 0) & ~prefix(80)");  // the first rows see nothing
  Result r = merged(p, part(p, mask, options_of(p), 0, 33), part(p, mask, options_of(p), 33, 90));
  const Result before = r;
  add_sink(out_view(p, r), lse_view(p, r), TensorView<const float>(sinks.data(), {4}));
  expect_close(p, mask, r, "sink", terms);
  EXPECT_TRUE(same_bits(&r.out[6 * 8], &before.out[6 * 8], 6 * 8));  // head 1 has none
  for (float& s : sinks) s = NAN;
  add_sink(out_view(p, r), lse_view(p, r), TensorView<const float>(sinks.data(), {4}));
  for (const float x : r.out) EXPECT_TRUE(std::isnan(x));
  expect_refused(Code::kInvalidArgument, {"sink", "[3]", "[4]"},
                 [&] { add_sink(out_view(p, r), lse_view(p, r), TensorView<const float>(sinks.data(), {3})); });
}

// The bits of one call, from parts that are whole tiles: in one running state, and from states of one tile folded in
// order.
TEST(PartialAttention, WholeTilesInOrderHaveTheBitsOfOneCall) {
  const int threads = num_threads();
  for (const int n : {1, 2})
    for (const int64_t q_len : {1, 7, 130})
      for (Wanted wanted : wanted_terms()) {
        wanted.dropout = 0;  // refused, see below
        if (n == 1 && !wanted.alibi) continue;
        set_num_threads(n);
        Problem p = with_lengths(q_len, 1100, 24, 20);
        p.batch = 2, p.k_begin = 37, p.q_begin += 37;
        p.fill(9);
        const TermProblem t(p, wanted);
        for (const Mask& mask : {Mask::causal(), Mask::parse("causal & ~dilated(3) | prefix(300)")}) {
          const AttentionOptions o = t.options();
          const Result whole = run(p, mask, o);
          PartialAttention running(p.batch, 4, q_len, p.dv), folded(p.batch, 4, q_len, p.dv);
          const int64_t ends[] = {0, 256 - 37, 512 - 37, 1024 - 37, 1100};
          for (int i = 0; i < 4; ++i) {
            const auto k = keys_from(k_view(p), ends[i], ends[i + 1]), v = keys_from(v_view(p), ends[i], ends[i + 1]);
            attend_onto(running, q_view(p), k, v, mask, at_keys(o, ends[i], ends[i + 1]));
          }
          for (int64_t begin = 0; begin < 1100;) {
            const int64_t end = std::min<int64_t>((begin + 37) / 256 * 256 + 256 - 37, 1100);
            PartialAttention tile(p.batch, 4, q_len, p.dv);
            attend_onto(tile, q_view(p), keys_from(k_view(p), begin, end), keys_from(v_view(p), begin, end), mask,
                        at_keys(o, begin, end));
            folded.fold(tile);
            begin = end;
          }
          for (const PartialAttention* state : {&running, &folded}) {
            Result r(p);
            state->finish(o.sink, out_view(p, r), lse_view(p, r));
            EXPECT_EQ(r, whole) << wanted.name << " " << mask.text() << " " << q_len;
          }
        }
      }
  set_num_threads(threads);
}

TEST(PartialAttention, CutsInsideTilesAreRightToRounding) {
  Problem p = with_lengths(5, 700, 24, 20);
  p.fill(10);
  for (const Mask& mask : masks()) {
    PartialAttention state(1, 4, 5, 20);
    for (const auto& [begin, end] : {std::pair{600, 700}, std::pair{0, 100}, std::pair{100, 600}})
      attend_onto(state, q_view(p), keys_from(k_view(p), begin, end), keys_from(v_view(p), begin, end), mask,
                  at_keys(options_of(p), begin, end));
    Result r(p);
    state.finish({}, out_view(p, r), lse_view(p, r));
    expect_close(p, mask, r, mask.text());
  }
}

TEST(Refusals, PartialResultsNameWhatIsWrong) {
  Problem p = with_lengths(2, 3, 8, 8);
  p.fill(1);
  Result r(p);
  const float sinks[4] = {};
  AttentionOptions o = options_of(p);
  PartialAttention state(1, 4, 2, 8), other(1, 4, 3, 8);
  expect_refused(Code::kInvalidArgument, {"attend_onto", "[1, 4, 3, 8]", "[1, 4, 2, 8]"},
                 [&] { attend_onto(other, q_view(p), k_view(p), v_view(p), Mask::causal(), o); });
  expect_refused(Code::kInvalidArgument, {"fold", "[1, 4, 3, 8]"}, [&] { state.fold(other); });
  expect_refused(Code::kInvalidArgument, {"itself"}, [&] { state.fold(state); });
  expect_refused(Code::kInvalidArgument, {"finish", "out", "[1, 4, 3, 8]"}, [&] { other.finish({}, out_view(p, r)); });
  expect_refused(Code::kUnsupported, {"value_dim 513"}, [] { PartialAttention(1, 1, 1, 513); });
  o.sink = TensorView<const float>(sinks, {4});
  expect_refused(Code::kUnsupported, {"attend_onto", "sink", "finish"},
                 [&] { attend_onto(state, q_view(p), k_view(p), v_view(p), Mask::causal(), o); });
  o = options_of(p);
  o.dropout = Dropout{.rate = 0.5};
  expect_refused(Code::kUnsupported, {"attend_onto", "dropout"},
                 [&] { attend_onto(state, q_view(p), k_view(p), v_view(p), Mask::causal(), o); });
}

}  // namespace
}  // namespace regard
